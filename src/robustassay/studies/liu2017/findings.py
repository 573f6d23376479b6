"""Liu et al.'s findings, tested on the sets of examples.

Two sets are compared on the same images: the mean difference, with a percentile bootstrap over images (an image's
outcomes on several models are not independent, so they are resampled together).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis import transfer
from robustassay.analysis.compare import mcnemar
from robustassay.analysis.geometry import intervals
from robustassay.analysis.rates import Rate
from robustassay.studies.liu2017 import measures
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.liu2017.tables import distances, quantiles
from robustassay.studies.page import Answer, Finding, Verdict, numbered

RESAMPLES: Final = 10_000
FEWEST: Final = 10
"""Images below which a bootstrap interval is not reliable."""

RARE: Final = 0.1
"""The upper limit of "almost never": the paper's own rates of targeted transfer are at most 0.04, top-5 0.10."""

SINGLE, ENSEMBLE = (ExampleSet("opt", True, each) for each in (False, True))
Numbers = npt.NDArray[np.float64]


def findings(experiment: LiuExperiment) -> list[Finding]:
    """Test all claims."""
    claims: tuple[tuple[str, Callable[[LiuExperiment], Answer]], ...] = (
        ("Untargeted examples transfer between models, far better than noise of the same size", _untargeted),
        ("Targeted examples made on one model almost never transfer with their target label", _targeted),
        ("Targeted examples made on all models but one transfer better than those of the best single source", _main),
        ("So do untargeted ones", _main_untargeted),
        ("FG transfers better than FGS at the same distortion", _fg_over_fgs),
        ("Fast gradients seldom reach the target, even on the model they were made on", _fast_targeted),
        ("Models make the same mistakes", _same),
        ("The gradients of different models are almost orthogonal", _orthogonal),
        ("Along a gradient, adversarial images come in several intervals", _intervals),
    )
    return numbered((claim, test(experiment)) for claim, test in claims)


@final
@dataclass(frozen=True)
class Difference:
    """The mean difference of two sets' rates, with its bootstrap interval over images."""

    value: float
    low: float
    high: float
    images: int

    @property
    def verdict(self) -> Verdict:
        """Whether the first set is better."""
        if self.images < FEWEST:
            return "cannot be said"
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "cannot be said"

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} points (95 % interval {100 * self.low:+.1f} to {100 * self.high:+.1f})"


def difference(first: Numbers, second: Numbers, seed: int = 0) -> Difference:
    """Compare two tables of outcomes, images x models; images are resampled."""
    each = (first - second).mean(1)
    drawn = np.random.default_rng(seed).integers(len(each), size=(RESAMPLES, len(each)))
    low, high = np.quantile(each[drawn].mean(1), [0.025, 0.975])
    return Difference(float(each.mean()), float(low), float(high), len(each))


def held_out(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> Numbers:
    """Return the attack's success on the model that each ensemble left out, images x models."""
    return np.stack([_success(outcomes, f"-{name}", name, targeted) for name in names], 1)


def best_single(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> tuple[Numbers, list[str]]:
    """Return the same for the best single source per model, chosen with hindsight, and its name."""
    columns, sources = [], []
    for name in names:
        others = {source: _success(outcomes, source, name, targeted) for source in names if source != name}
        best = max(others, key=lambda source: others[source].mean())
        columns.append(others[best])
        sources.append(best)
    return np.stack(columns, 1), sources


def _success(outcomes: pd.DataFrame, source: str, target: str, targeted: bool) -> Numbers:
    rows = outcomes[(outcomes["source"] == source) & (outcomes["target"] == target)].sort_values("sample")
    return transfer.holds(rows, "matching" if targeted else "error").to_numpy(float)


def _pooled(experiment: LiuExperiment, example_set: ExampleSet, own: bool = False) -> Rate:
    """Count the successes of a set on models that are not in the source, or on the source itself."""
    outcomes = experiment.outcomes(example_set)
    mine = outcomes["source"] == outcomes["target"]
    rows = outcomes[mine if own else ~mine]
    held = transfer.holds(rows, "matching" if example_set.targeted else "error")
    return Rate(int(held.sum()), len(held))


def _format(rate: Rate) -> str:
    low, high = rate.interval()
    return f"{rate.value:.1%} ({low:.1%} to {high:.1%}, n = {rate.total:,})"


def _untargeted(experiment: LiuExperiment) -> Answer:
    example_set = ExampleSet("opt", False, False)
    rate, far = _pooled(experiment, example_set), float(distances(experiment, example_set).mean())
    table = measures.NOISE.get(experiment)
    std = min(table["std"].unique(), key=lambda std: abs(table.loc[table["std"] == std, "rmsd"].iloc[0] - far))
    rows = table[table["std"] == std]
    noise = Rate(int((rows["total"] - rows["right"]).sum()), int(rows["total"].sum()))
    (low, high), (least, most) = rate.interval(), noise.interval()
    verdict: Verdict = "holds" if low > most else "does not hold" if high < least else "cannot be said"
    return verdict, [
        f"On models other than its source an example is misclassified in {_format(rate)} of cases, at an average "
        f"RMSD of {far:.1f}; on its source in {_format(_pooled(experiment, example_set, own=True))}.",
        f"Gaussian noise with RMSD {rows['rmsd'].iloc[0]:.1f} is misclassified in {_format(noise)}.",
    ]


def _targeted(experiment: LiuExperiment) -> Answer:
    rate = _pooled(experiment, SINGLE)
    low, high = rate.interval()
    chance = 1 / (len(experiment.dataset.classes) - 1)
    verdict: Verdict = "holds" if high < RARE else "does not hold" if low > RARE else "cannot be said"
    return verdict, [
        f"On models other than its source an example reaches its target in {_format(rate)} of cases, on its source in "
        f"{_format(_pooled(experiment, SINGLE, own=True))}; 'almost never' means below {RARE:.0%}.",
        f"With {len(experiment.dataset.classes)} classes a mistake is the target by chance in {chance:.1%} of cases; "
        "the paper's models have 1,000.",
    ]


def _main(experiment: LiuExperiment) -> Answer:
    return _against_best(experiment, targeted=True)


def _main_untargeted(experiment: LiuExperiment) -> Answer:
    return _against_best(experiment, targeted=False)


def _against_best(experiment: LiuExperiment, targeted: bool) -> Answer:
    """Compare leave-one-out ensembles with the best single source, which is chosen with hindsight."""
    names, single, ensemble = (
        list(experiment.models),
        ExampleSet("opt", targeted, False),
        ExampleSet("opt", targeted, True),
    )
    ours = held_out(experiment.outcomes(ensemble), names, targeted)
    best, sources = best_single(experiment.outcomes(single), names, targeted)
    found = difference(ours, best, experiment.seed)
    what = "matching rate" if targeted else "error rate"
    far = [float(distances(experiment, example_set).mean()) for example_set in (ensemble, single)]
    reasons = [
        f"Over the {len(names)} models left out and {len(ours)} images, the {what} is {ours.mean():.1%} for ensembles "
        f"and {best.mean():.1%} for the best single sources, {found}.",
        f"Average RMSD: {far[0]:.1f} for ensembles, {far[1]:.1f} for single sources. The best single source is chosen "
        "for each model with hindsight, which favours it.",
    ]
    large = ExampleSet("opt-large", targeted, False)
    if large in experiment.settings.example_sets():
        stronger, _ = best_single(experiment.outcomes(large), names, targeted)
        reasons.append(
            f"Single sources at the large learning rate (RMSD {float(distances(experiment, large).mean()):.1f}) reach "
            f"{stronger.mean():.1%}; ensembles are {difference(ours, stronger, experiment.seed)} ahead of them."
        )
    for at, name in enumerate(names):
        won, lost = int((ours[:, at] > best[:, at]).sum()), int((ours[:, at] < best[:, at]).sum())
        reasons.append(
            f"{name}: {ours[:, at].mean():.0%} against {best[:, at].mean():.0%} from {sources[at]} (ahead on {won} "
            f"images, behind on {lost}; exact McNemar p = {mcnemar(won, lost):.2g})."
        )
    return found.verdict, reasons


def _fg_over_fgs(experiment: LiuExperiment) -> Answer:
    names = list(experiment.models)
    sets = [experiment.outcomes(example_set) for example_set in measures.FAST]
    pairs = [(one, two) for one in names for two in names if one != two]
    fg, fgs = (np.stack([_success(each, *pair, False) for pair in pairs], 1) for each in sets)
    found = difference(fg, fgs, experiment.seed)
    reasons = [
        f"At equal average RMSD the error rate on other models is {fg.mean():.1%} for FG and {fgs.mean():.1%} for FGS, "
        f"{found}."
    ]
    source, target = measures.reference(experiment)
    least = measures.MINIMAL_RMSD.get(experiment)
    for method in ("fg", "fgs"):
        half, most = quantiles(least.loc[(least["method"] == method) & (least["target"] == target), "rmsd"])
        reasons.append(
            f"Minimal transferable RMSD from {source} to {target}, {method.upper()}: median {half:.1f}, "
            f"90 % {most:.1f}."
        )
    return found.verdict, reasons


def _fast_targeted(experiment: LiuExperiment) -> Answer:
    fast, optimised = (_pooled(experiment, ExampleSet(method, True, False), own=True) for method in ("fg", "opt"))
    half = 0.5
    verdict: Verdict = "holds" if fast.interval()[1] < half else "does not hold" if fast.interval()[0] > half else (
        "cannot be said"
    )  # fmt: skip
    return verdict, [
        f"On its own source, FG reaches the target in {_format(fast)} of cases and optimisation in "
        f"{_format(optimised)}; 'seldom' means less than half."
    ]


def _same(experiment: LiuExperiment) -> Answer:
    outcomes = experiment.outcomes(ExampleSet("opt", False, False))
    source, _ = measures.reference(experiment)
    same, both = transfer.same_mistakes(outcomes[outcomes["source"] == source])
    upper = np.triu_indices(len(same), 1)
    rate = Rate(int(same.to_numpy()[upper].sum()), int(both.to_numpy()[upper].sum()))
    chance = 1 / (len(experiment.dataset.classes) - 1)
    low, high = rate.interval()
    verdict: Verdict = "holds" if low > chance else "does not hold" if high < chance else "cannot be said"
    return verdict, [
        f"Of pairs of models that are both wrong about an example of {source}, {_format(rate)} predict the same label; "
        f"{chance:.0%} would by chance, were all wrong labels equally likely."
    ]


def _orthogonal(experiment: LiuExperiment) -> Answer:
    table = measures.COSINES.get(experiment).set_index("model").to_numpy(float)
    values = table[np.triu_indices(len(table), 1)]
    return "holds" if np.abs(values).max() < RARE else "does not hold", [
        f"Mean cosines between two models' gradients lie from {values.min():.2f} to {values.max():.2f}, "
        f"{values.mean():.2f} on average; 'almost orthogonal' means below {RARE:g} for every pair."
    ]


def _intervals(experiment: LiuExperiment) -> Answer:
    found = measures.ERRORS_ALONG_GRADIENT.get(experiment)
    lines = found.groupby(["target", "sample"])
    counts = [len(intervals(line["wrong"].to_numpy(), line["strength"].tolist())) for _, line in lines]
    several = sum(count > 1 for count in counts)
    source, _ = measures.reference(experiment)
    then = "; bisection may miss the first" if several else ""
    return "holds" if several else "does not hold", [
        f"Along the FG direction of {source} and up to B = {experiment.settings.line_end:g}, another model is "
        f"wrong in more than one interval in {several} of {len(counts)} cases (image and model), in at most "
        f"{max(counts)}{then}."
    ]
