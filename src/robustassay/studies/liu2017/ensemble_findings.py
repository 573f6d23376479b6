"""Liu et al.'s findings on ensembles (their section 5): examples made on all models but one."""

import pandas as pd

from robustassay.analysis import transfer
from robustassay.analysis.compare import mcnemar
from robustassay.analysis.rates import Rate
from robustassay.studies.liu2017.comparisons import (
    FEWEST,
    best_single,
    difference,
    format_rate,
    held_out,
    mean_interval,
    percent,
)
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.judgement import RARE, Judgement, not_measured
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.liu2017.tables import distances
from robustassay.studies.page import Verdict


def ensemble_targeted(experiment: LiuExperiment) -> Judgement:
    """Leave-one-out ensembles against the best single source, targeted."""
    return _against_best(experiment, True, 0.11, "11 to 46 % at RMSD 30; single sources 0 to 4 % at RMSD 23")


def ensemble_untargeted(experiment: LiuExperiment) -> Judgement:
    """The same, untargeted."""
    return _against_best(experiment, False, 0.94, "error 94 to 100 % at RMSD 17; single sources 61 to 95 % at RMSD 23")


def _against_best(experiment: LiuExperiment, targeted: bool, lowest: float, published: str) -> Judgement:
    """Compare leave-one-out ensembles with the best single source, which is chosen with hindsight."""
    names, single, ensemble = (
        list(experiment.models),
        ExampleSet("opt", targeted, False),
        ExampleSet("opt", targeted, True),
    )
    if ensemble not in experiment.settings.example_sets():
        return not_measured(published, "not measured at this scale")
    ours = held_out(experiment.outcomes(ensemble), names, targeted)
    best, sources = best_single(experiment.outcomes(single), names, targeted)
    found = difference(ours, best, experiment.seed)
    what = "matching rate" if targeted else "error rate"
    far = [float(distances(experiment, example_set).mean()) for example_set in (ensemble, single)]
    reasons = [
        f"Over the {len(names)} models left out and {len(ours)} images, the {what} is {ours.mean():.1%} for ensembles "
        f"at an average RMSD of {far[0]:.1f} and {best.mean():.1%} for the best single sources at {far[1]:.1f}: "
        f"{found}. The best single source is chosen for each model with hindsight, which favours it.",
    ]
    rate, because = mean_interval(ours, experiment.seed), found.because
    if rate.high < lowest:
        because += f"; the {what} is below the paper's"
        reasons.append(f"The interval of the {what} lies below the paper's lowest, {lowest:.0%}.")
    large = ExampleSet("opt-large", targeted, False)
    if large in experiment.settings.example_sets():
        stronger, _ = best_single(experiment.outcomes(large), names, targeted)
        reasons.append(
            f"At a comparable RMSD, {distances(experiment, large).mean():.1f}, the best single sources reach "
            f"{stronger.mean():.1%} on the first {len(stronger)} images: there, ensembles are "
            f"{difference(ours[: len(stronger)], stronger, experiment.seed)} ahead."
        )
    elif targeted:
        reasons.append("Single sources at the RMSD of ensembles, as in the paper's Table 17, are not measured here.")
    mean = ExampleSet("opt-mean", targeted, True)
    if mean in experiment.settings.example_sets():
        of_mean = held_out(experiment.outcomes(mean), names, targeted)
        reasons.append(
            f"With the loss of the mean (equation 6), at an average RMSD of {distances(experiment, mean).mean():.1f}, "
            f"the {what} is {percent(mean_interval(of_mean, experiment.seed))}."
        )
    for at, name in enumerate(names):
        won, lost = int((ours[:, at] > best[:, at]).sum()), int((ours[:, at] < best[:, at]).sum())
        reasons.append(
            f"{name}: {ours[:, at].mean():.0%} against {best[:, at].mean():.0%} from {sources[at]} (ahead on {won} "
            f"images, behind on {lost}; exact McNemar p = {mcnemar(won, lost):.2g})."
        )
    measured = (
        f"{what} {percent(rate)} at RMSD {far[0]:.0f}; best single sources {best.mean():.1%} at RMSD {far[1]:.0f}"
    )
    return Judgement(found.verdict, published, measured, because, reasons)


def members(experiment: LiuExperiment) -> Judgement:
    """Targeted examples of an ensemble on the models that it was made of, by the loss of the mean."""
    published, ensemble = "matching rate 63 to 99 % on models of the ensemble", ExampleSet("opt-mean", True, True)
    if ensemble not in experiment.settings.example_sets():
        return not_measured(published, "not measured at this scale with the paper's loss of the mean")
    rate, by_model = _on_members(experiment, ensemble)
    own, _ = _on_members(experiment, ExampleSet("opt", True, True))
    missed, far = rate.total - rate.count, float(distances(experiment, ensemble).mean())
    verdict: Verdict = "holds" if missed else "does not hold"
    few = len(experiment.samples(ensemble)) < FEWEST
    return Judgement(
        "cannot be said" if few else verdict,
        published,
        f"{format_rate(rate)} at RMSD {far:.0f}",
        "too few images" if few else f"{missed:,} of {rate.total:,} do not reach it",
        [
            "By model: " + ", ".join(f"{name} {value:.0%}" for name, value in by_model.items()) + ".",
            "Measured with the loss of the mean, as in the paper's equation 6. Where every model follows its own loss, "
            f"as in Table 3 here, {format_rate(own)} reach it.",
        ],
    )


def _on_members(experiment: LiuExperiment, ensemble: ExampleSet) -> tuple[Rate, pd.Series]:
    """Count the matches of ensembles' examples on their own models, in all and per model."""
    outcomes = experiment.outcomes(ensemble)
    inside = outcomes[outcomes["source"] != "-" + outcomes["target"].astype(str)]
    held = transfer.holds(inside, "matching")
    return Rate(int(held.sum()), len(held)), held.groupby(inside["target"], sort=False).mean()


def fast_untargeted(experiment: LiuExperiment) -> Judgement:
    """Untargeted FG on ensembles against optimisation on them, at the same RMSD."""
    published = "accuracy 19 to 23 % on the model left out (optimisation: 0 to 6 %)"
    sets = [ExampleSet(method, False, True) for method in ("opt", "fg")]
    if not set(sets) <= set(experiment.settings.example_sets()):
        return not_measured(published, "not measured at this scale")
    names = list(experiment.models)
    optimised, fast = (held_out(experiment.outcomes(each), names, False) for each in sets)
    found = difference(optimised, fast, experiment.seed)
    far = [float(distances(experiment, each).mean()) for each in sets]
    return Judgement(
        found.verdict,
        published,
        f"accuracy {1 - fast.mean():.1%} (optimisation: {1 - optimised.mean():.1%}; {found} error, n = {found.images})",
        found.because,
        [f"FG errs on the model left out in {percent(mean_interval(fast, experiment.seed))} of cases at an average "
         f"RMSD of {far[1]:.1f}, optimisation at {far[0]:.1f}: {found}."],
    )  # fmt: skip


def fast_ensembles(experiment: LiuExperiment) -> Judgement:
    """Targeted FG on ensembles against targeted FG on single sources."""
    published = "matching rate 0 to 1 % from ensembles, 0 to 2 % from single sources"
    sets = [ExampleSet("fg", True, ensemble) for ensemble in (True, False)]
    if sets[0] not in experiment.settings.example_sets():
        return not_measured(published, "not measured at this scale")
    names = list(experiment.models)
    ours = held_out(experiment.outcomes(sets[0]), names, True)
    best, _ = best_single(experiment.outcomes(sets[1]), names, True)
    found = difference(ours, best, experiment.seed)
    far = [float(distances(experiment, each).mean()) for each in sets]
    return Judgement(
        "does not hold" if found.low > 0 else found.within(RARE),
        published,
        f"{percent(mean_interval(ours, experiment.seed))} from ensembles, {best.mean():.1%} from the best single "
        f"sources: {found}",
        f"'no better' is read as less than {RARE:.0%}",
        [f"FG ensembles have an average RMSD of {far[0]:.1f}, single sources of {far[1]:.1f}. {found}."],
    )
