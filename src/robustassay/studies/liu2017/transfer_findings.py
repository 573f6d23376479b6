"""Liu et al.'s findings on transfer from one model (their sections 3 and 4), tested on the sets of examples."""

import numpy as np

from robustassay.studies.liu2017 import measures
from robustassay.studies.liu2017.comparisons import (
    FEWEST,
    between_models,
    difference,
    format_rate,
    mean_interval,
    percent,
    pooled,
    success,
)
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.judgement import RARE, Judgement, below, not_measured, read_as, seldom
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.liu2017.tables import distances, quantiles, reached
from robustassay.studies.page import Verdict, combined

UNTARGETED, TARGETED = (ExampleSet("opt", targeted, False) for targeted in (False, True))


def untargeted(experiment: LiuExperiment) -> Judgement:
    """Optimisation against noise of the same RMSD."""
    names = list(experiment.models)
    far = float(distances(experiment, UNTARGETED).mean())
    errors = between_models(experiment.outcomes(UNTARGETED), names, False)
    found, table = mean_interval(errors, experiment.seed), measures.noise_by_image(experiment)
    std = min(table["std"].unique(), key=lambda std: abs(table.loc[table["std"] == std, "rmsd"].iloc[0] - far))
    rows = table[table["std"] == std].assign(error=lambda rows: 1 - rows["right"] / rows["total"])
    missed = rows.pivot(index="sample", columns="model", values="error").to_numpy(float)
    noise, gain = (
        mean_interval(missed, experiment.seed),
        difference(errors.mean(1, keepdims=True), missed.mean(1, keepdims=True), experiment.seed),
    )
    return Judgement(
        gain.verdict,
        "error 61 to 95 % at RMSD 23; noise of RMSD 24: 14 to 33 %",
        f"error {percent(found)} at RMSD {far:.0f}; noise of RMSD {rows['rmsd'].iloc[0]:.0f}: {noise.value:.1%}",
        gain.because,
        [
            f"On models other than its source an example is misclassified in {percent(found)} of cases, at an average "
            f"RMSD of {far:.1f}; on its source in {format_rate(pooled(experiment, UNTARGETED, own=True))}.",
            f"Gaussian noise with RMSD {rows['rmsd'].iloc[0]:.1f} is misclassified in {percent(noise)} of cases, "
            f"{rows['total'].iloc[0]} draws for each image and model: examples are {gain} ahead.",
        ],
    )


def same_family(experiment: LiuExperiment) -> Judgement:
    """Look for targets that a source of another family fools better than one of their own."""
    published = "ResNet-101 to ResNet-50: accuracy 21 %; VGG-16 to ResNet-50: 17 %"
    outcomes, names = experiment.outcomes(UNTARGETED), list(experiment.models)
    reasons, found = [], []
    for target in names:
        hits = {one: success(outcomes, one, target, False) for one in names if one != target}
        own = [one for one in hits if experiment.family(one) == experiment.family(target)]
        others = [one for one in hits if one not in own]
        if not own or not others:
            continue
        kin, stranger = (max(group, key=lambda one: float(hits[one].mean())) for group in (own, others))
        # The stranger is the best of several, seen with hindsight.
        comparisons = len(names) * len(others)
        found.append(difference(hits[stranger][:, None], hits[kin][:, None], experiment.seed, comparisons))
        reasons.append(
            f"{target}: error {hits[kin].mean():.0%} from {kin} of its family, {hits[stranger].mean():.0%} from "
            f"{stranger}, the best of {len(others)} others: {found[-1]}, widened for {comparisons} comparisons."
        )
    if not found:
        return not_measured(published, "no two models are of one family")
    reasons.append("Models are of one family where their architectures share a name, such as MobileNet v1 and v2.")
    verdicts = [each.verdict for each in found]
    verdict: Verdict = "holds" if "holds" in verdicts else "cannot be said"
    verdict = "does not hold" if set(verdicts) == {"does not hold"} else verdict
    ahead = sum(each.value > 0 for each in found)
    return Judgement(
        verdict,
        published,
        f"{ahead} of {len(found)} such models are fooled more often from another family (n = {found[0].images})",
        {
            "holds": "the interval of such a difference is above 0",
            "does not hold": "the interval of every such difference is below 0",
            "cannot be said": "no such difference is certain",
        }[verdict],
        reasons,
    )


def targeted(experiment: LiuExperiment) -> Judgement:
    """Targeted examples of single sources."""
    names = list(experiment.models)
    found = mean_interval(between_models(experiment.outcomes(TARGETED), names, True), experiment.seed)
    classes = len(experiment.dataset.classes)
    return Judgement(
        below(found, seldom(classes)),
        "matching rate 0 to 4 %, 100 % on the source",
        f"{percent(found)}, {pooled(experiment, TARGETED, own=True).value:.0%} on the source",
        read_as("almost never", classes),
        [
            f"On models other than its source an example reaches its target in {percent(found)} of cases, on its "
            f"source in {format_rate(pooled(experiment, TARGETED, own=True))}.",
            f"With {classes:,} classes a mistake is the target by chance in {1 / (classes - 1):.1%} of cases; the "
            "paper's models have 1,000 classes.",
        ],
    )


def larger(experiment: LiuExperiment) -> Judgement:
    """Targeted examples of single sources at a larger rate."""
    published, large = "matching rate 0 to 5 % at RMSD 31, 0 to 4 % at RMSD 23", ExampleSet("opt-large", True, False)
    if large not in experiment.settings.example_sets():
        return not_measured(published, "not measured at this scale")
    names = list(experiment.models)
    stronger = between_models(experiment.outcomes(large), names, True)
    usual = between_models(experiment.outcomes(TARGETED), names, True)[: len(stronger)]
    found, far = difference(stronger, usual, experiment.seed), float(distances(experiment, large).mean())
    return Judgement(
        "does not hold"
        if found.low > RARE
        else "holds"
        if found.images >= FEWEST and found.high < RARE
        else ("cannot be said"),
        published,
        f"{percent(mean_interval(stronger, experiment.seed))} at RMSD {far:.0f}: {found}",
        f"'no improvement' is read as less than {RARE:.0%}",
        [f"At an average RMSD of {far:.1f} instead of {distances(experiment, TARGETED).mean():.1f}: {found}."],
    )


def fg_as_optimisation(experiment: LiuExperiment) -> Judgement:
    """FG against optimisation at the same RMSD: other models, and the source."""
    names, fg = list(experiment.models), measures.FAST[0]
    one, two = (between_models(experiment.outcomes(each), names, False) for each in (fg, UNTARGETED))
    found, own = difference(one, two, experiment.seed), pooled(experiment, fg, own=True)
    some_fail: Verdict = "holds" if own.count < own.total else "does not hold"
    return Judgement(
        combined([found.not_worse(RARE), some_fail]),
        "accuracy 7 to 25 % on other models (optimisation: 5 to 39 %), 1 to 5 % on the source",
        f"accuracy {1 - one.mean():.1%} (optimisation: {1 - two.mean():.1%}; {found} error), {1 - own.value:.1%} on "
        f"the source (n = {len(one)})",
        f"'comparable' is read as at most {RARE:.0%} less error",
        [
            f"On other models FG errs in {percent(mean_interval(one, experiment.seed))} of cases: {found} more than "
            f"optimisation at the same RMSD. On its source it fails in {own.total - own.count} of {own.total} cases."
        ],
    )


def fg_over_fgs(experiment: LiuExperiment) -> Judgement:
    """FG against FGS at the same RMSD, and their minimal transferable RMSD."""
    names = list(experiment.models)
    fg, fgs = (between_models(experiment.outcomes(each), names, False) for each in measures.FAST)
    found = difference(fg, fgs, experiment.seed)
    source, target = experiment.reference
    least = measures.minimal_rmsd(experiment)
    lines, lasts = [], []
    for method in ("fg", "fgs"):
        values = least.loc[(least["method"] == method) & (least["target"] == target), "rmsd"]
        half, most = quantiles(values)
        finite = values[np.isfinite(values)]
        lasts.append(half)
        lines.append(
            f"Minimal transferable RMSD from {source} to {target}, {method.upper()}: median {reached(half)}, 90 % "
            f"{reached(most)}, largest found {finite.max():.1f}; {len(finite)} of {len(values)} images have one below "
            f"{experiment.settings.line_end:g}."
        )
    return Judgement(
        found.verdict,
        "mean accuracy 17.6 % (FG) and 26.5 % (FGS) on other models; all images transfer by RMSD 81 and 87",
        f"{1 - fg.mean():.1%} and {1 - fgs.mean():.1%}: {found} error (n = {len(fg)}); median minimal RMSD "
        f"{reached(lasts[0])} and {reached(lasts[1])}",
        found.because,
        [f"At the same RMSD, error on other models: {fg.mean():.1%} (FG), {fgs.mean():.1%} (FGS); {found}.", *lines],
    )


def fast_targeted(experiment: LiuExperiment) -> Judgement:
    """Targeted FG on its own source."""
    fast, optimised = (pooled(experiment, ExampleSet(method, True, False), own=True) for method in ("fg", "opt"))
    (low, high), limit = fast.interval(), seldom(len(experiment.dataset.classes))
    verdict: Verdict = "holds" if high < limit else "does not hold" if low > limit else "cannot be said"
    return Judgement(
        verdict,
        "matching rate 0 to 1 % on the source, 0 to 2 % on others",
        f"{format_rate(fast)} on the source, {pooled(experiment, ExampleSet('fg', True, False)).value:.1%} on others",
        read_as("cannot", len(experiment.dataset.classes)),
        [f"On its source, targeted FG reaches its target in {format_rate(fast)}, optimisation in "
         f"{format_rate(optimised)}."],
    )  # fmt: skip
