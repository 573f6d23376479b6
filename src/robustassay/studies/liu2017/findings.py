"""What Liu et al. found, asked of the examples at hand.

Two sets are compared on the same images: the mean difference, with a percentile bootstrap over images (an image's
outcomes on several models are not independent, so it is drawn whole).
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
from robustassay.studies.liu2017 import probes
from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.plan import Kind
from robustassay.studies.liu2017.tables import distances, quantiles
from robustassay.studies.page import Answer, Finding, Verdict, numbered

RESAMPLES: Final = 10_000
FEWEST: Final = 10
"""Images below which a bootstrap says more than it knows."""

RARE: Final = 0.1
"""What the paper's word almost never is held to: its own rates of targeted transfer are at most 0.04, top-5 0.10."""

SINGLE, ENSEMBLE = (Kind("opt", True, each) for each in (False, True))
Numbers = npt.NDArray[np.float64]


def findings(bench: Bench) -> list[Finding]:
    """Ask all that the sets at hand can answer."""
    asked: tuple[tuple[str, Callable[[Bench], Answer]], ...] = (
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
    return numbered((claim, ask(bench)) for claim, ask in asked)


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
        """Say whether the first set is the better one."""
        if self.images < FEWEST:
            return "cannot be said"
        return "holds" if self.low > 0 else "does not hold" if self.high < 0 else "cannot be said"

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} points (95 % interval {100 * self.low:+.1f} to {100 * self.high:+.1f})"


def difference(first: Numbers, second: Numbers, seed: int = 0) -> Difference:
    """Compare two tables of outcomes, images x models, each image drawn whole."""
    each = (first - second).mean(1)
    drawn = np.random.default_rng(seed).integers(len(each), size=(RESAMPLES, len(each)))
    low, high = np.quantile(each[drawn].mean(1), [0.025, 0.975])
    return Difference(float(each.mean()), float(low), float(high), len(each))


def held_out(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> Numbers:
    """Return the attack's success on the model that each ensemble left out, images x models."""
    return np.stack([_success(outcomes, f"-{name}", name, targeted) for name in names], 1)


def best_single(outcomes: pd.DataFrame, names: list[str], targeted: bool) -> tuple[Numbers, list[str]]:
    """Return the same of the other source that does best on each model, chosen with hindsight, and who that is."""
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


def _pooled(bench: Bench, kind: Kind, own: bool = False) -> Rate:
    """Count the successes of a set on models that are not in the source, or on the source itself."""
    outcomes = bench.outcomes(kind)
    mine = outcomes["source"] == outcomes["target"]
    rows = outcomes[mine if own else ~mine]
    held = transfer.holds(rows, "matching" if kind.targeted else "error")
    return Rate(int(held.sum()), len(held))


def _told(rate: Rate) -> str:
    low, high = rate.interval()
    return f"{rate.value:.1%} ({low:.1%} to {high:.1%}, n = {rate.total:,})"


def _untargeted(bench: Bench) -> Answer:
    kind = Kind("opt", False, False)
    rate, far = _pooled(bench, kind), float(distances(bench, kind).mean())
    table = probes.noise(bench)
    std = min(table["std"].unique(), key=lambda std: abs(table.loc[table["std"] == std, "rmsd"].iloc[0] - far))
    rows = table[table["std"] == std]
    noise = Rate(int((rows["total"] - rows["right"]).sum()), int(rows["total"].sum()))
    (low, high), (least, most) = rate.interval(), noise.interval()
    verdict: Verdict = "holds" if low > most else "does not hold" if high < least else "cannot be said"
    return verdict, [
        f"On models other than its source an example is misclassified in {_told(rate)} of cases, at an average RMSD of "
        f"{far:.1f}; on its source in {_told(_pooled(bench, kind, own=True))}.",
        f"Gaussian noise with RMSD {rows['rmsd'].iloc[0]:.1f} is misclassified in {_told(noise)}.",
    ]


def _targeted(bench: Bench) -> Answer:
    rate = _pooled(bench, SINGLE)
    low, high = rate.interval()
    chance = 1 / (len(bench.dataset.classes) - 1)
    verdict: Verdict = "holds" if high < RARE else "does not hold" if low > RARE else "cannot be said"
    return verdict, [
        f"On models other than its source an example reaches its target in {_told(rate)} of cases, on its source in "
        f"{_told(_pooled(bench, SINGLE, own=True))}; almost never is read as below {RARE:.0%}.",
        f"With {len(bench.dataset.classes)} classes a mistake is the target by chance in {chance:.1%} of cases; the "
        "paper's models have 1,000.",
    ]


def _main(bench: Bench) -> Answer:
    return _against_best(bench, targeted=True)


def _main_untargeted(bench: Bench) -> Answer:
    return _against_best(bench, targeted=False)


def _against_best(bench: Bench, targeted: bool) -> Answer:
    """Compare leave-one-out ensembles with the best single source, which is chosen knowing the outcome."""
    names, single, ensemble = list(bench.members), Kind("opt", targeted, False), Kind("opt", targeted, True)
    ours = held_out(bench.outcomes(ensemble), names, targeted)
    best, sources = best_single(bench.outcomes(single), names, targeted)
    found = difference(ours, best, bench.seed)
    what = "matching rate" if targeted else "error rate"
    far = [float(distances(bench, kind).mean()) for kind in (ensemble, single)]
    reasons = [
        f"Over the {len(names)} models left out and {len(ours)} images, the {what} is {ours.mean():.1%} for ensembles "
        f"and {best.mean():.1%} for the best single sources, {found}.",
        f"Average RMSD: {far[0]:.1f} for ensembles, {far[1]:.1f} for single sources. The best single source is chosen "
        "for each model with hindsight, which favours it.",
    ]
    large = Kind("opt-large", targeted, False)
    if large in bench.scale.kinds():
        louder, _ = best_single(bench.outcomes(large), names, targeted)
        reasons.append(
            f"Single sources at the large learning rate (RMSD {float(distances(bench, large).mean()):.1f}) reach "
            f"{louder.mean():.1%}; ensembles are {difference(ours, louder, bench.seed)} ahead of them."
        )
    for at, name in enumerate(names):
        won, lost = int((ours[:, at] > best[:, at]).sum()), int((ours[:, at] < best[:, at]).sum())
        reasons.append(
            f"{name}: {ours[:, at].mean():.0%} against {best[:, at].mean():.0%} from {sources[at]} (ahead on {won} "
            f"images, behind on {lost}; exact McNemar p = {mcnemar(won, lost):.2g})."
        )
    return found.verdict, reasons


def _fg_over_fgs(bench: Bench) -> Answer:
    names = list(bench.members)
    sets = [bench.outcomes(kind) for kind in probes.FAST]
    pairs = [(one, two) for one in names for two in names if one != two]
    fg, fgs = (np.stack([_success(each, *pair, False) for pair in pairs], 1) for each in sets)
    found = difference(fg, fgs, bench.seed)
    reasons = [
        f"At equal average RMSD the error rate on other models is {fg.mean():.1%} for FG and {fgs.mean():.1%} for FGS, "
        f"{found}."
    ]
    source, target = probes.reference(bench)
    least = probes.least(bench)
    for method in ("fg", "fgs"):
        half, most = quantiles(least.loc[(least["method"] == method) & (least["target"] == target), "rmsd"])
        reasons.append(
            f"Minimal transferable RMSD from {source} to {target}, {method.upper()}: median {half:.1f}, "
            f"90 % {most:.1f}."
        )
    return found.verdict, reasons


def _fast_targeted(bench: Bench) -> Answer:
    fast, slow = (_pooled(bench, Kind(method, True, False), own=True) for method in ("fg", "opt"))
    half = 0.5
    verdict: Verdict = "holds" if fast.interval()[1] < half else "does not hold" if fast.interval()[0] > half else (
        "cannot be said"
    )  # fmt: skip
    return verdict, [
        f"On its own source, FG reaches the target in {_told(fast)} of cases and optimisation in {_told(slow)}; seldom "
        "is read as less than half."
    ]


def _same(bench: Bench) -> Answer:
    outcomes = bench.outcomes(Kind("opt", False, False))
    source, _ = probes.reference(bench)
    same, both = transfer.same_mistakes(outcomes[outcomes["source"] == source])
    upper = np.triu_indices(len(same), 1)
    rate = Rate(int(same.to_numpy()[upper].sum()), int(both.to_numpy()[upper].sum()))
    chance = 1 / (len(bench.dataset.classes) - 1)
    low, high = rate.interval()
    verdict: Verdict = "holds" if low > chance else "does not hold" if high < chance else "cannot be said"
    return verdict, [
        f"Of pairs of models that are both wrong about an example of {source}, {_told(rate)} say the same; "
        f"{chance:.0%} would by chance, were all wrong labels alike."
    ]


def _orthogonal(bench: Bench) -> Answer:
    table = probes.cosines(bench).set_index("model").to_numpy(float)
    values = table[np.triu_indices(len(table), 1)]
    return "holds" if np.abs(values).max() < RARE else "does not hold", [
        f"Mean cosines between two models' gradients lie from {values.min():.2f} to {values.max():.2f}, "
        f"{values.mean():.2f} on average; almost orthogonal is read as below {RARE:g} for every pair."
    ]


def _intervals(bench: Bench) -> Answer:
    found = probes.along(bench)
    rays = found.groupby(["target", "sample"])
    counts = [len(intervals(ray["wrong"].to_numpy(), ray["strength"].tolist())) for _, ray in rays]
    several = sum(count > 1 for count in counts)
    source, _ = probes.reference(bench)
    then = "; a search by halves may miss the first" if several else ""
    return "holds" if several else "does not hold", [
        f"Along the FG direction of {source} and up to B = {bench.scale.ray_end:g}, another model is wrong in more "
        f"than one interval in {several} of {len(counts)} cases (image and model), in {max(counts)} at most{then}."
    ]
