"""Liu et al.'s findings on other objectives, noise, shared mistakes and intervals (their section 3.1 and appendix)."""

from typing import Final

import numpy as np

from robustassay.analysis import transfer
from robustassay.analysis.geometry import intervals
from robustassay.analysis.rates import Rate
from robustassay.studies.liu2017 import measures
from robustassay.studies.liu2017.comparisons import (
    between_models,
    difference,
    format_rate,
    pooled,
)
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.judgement import RARE, Judgement, not_measured
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.liu2017.tables import distances, has_many_classes
from robustassay.studies.page import Verdict, combined

UNTARGETED, SMALL, LAMBDA, TAU = (
    ExampleSet(method, False, False) for method in ("opt", "opt-small", "opt-lambda", "opt-tau")
)
CLOSE: Final = 2.0
"""The RMSD that the paper calls small."""

LEAST_SAME: Final = 0.12
"""The paper's lowest rate of same mistakes."""


def small(experiment: LiuExperiment) -> Judgement:
    """Examples of a small learning rate: close, adversarial, and not transferable."""
    published = "RMSD 1.2 to 1.6: accuracy 0 % on the source, 84 to 100 % on others"
    if SMALL not in experiment.settings.example_sets():
        return not_measured(published, "not measured at this scale")
    names, far = list(experiment.models), distances(experiment, SMALL)
    tiny = between_models(experiment.outcomes(SMALL), names, False)
    usual = between_models(experiment.outcomes(UNTARGETED), names, False)[: len(tiny)]
    found, own = difference(usual, tiny, experiment.seed), pooled(experiment, SMALL, own=True)
    fooled: Verdict = "holds" if own.value > 1 - RARE else "does not hold"
    return Judgement(
        combined([fooled, found.verdict]),
        published,
        f"RMSD {far.min():.1f} to {far.max():.1f}: accuracy {1 - own.value:.1%} on the source, "
        f"{1 - tiny.mean():.1%} on others ({1 - usual.mean():.1%} at the usual rate; n = {len(tiny)})",
        found.because,
        [
            f"On its source an example of the small rate is misclassified in {format_rate(own)}.",
            f"On other models the usual rate is {found} ahead in error.",
        ],
    )


def any_lambda(experiment: LiuExperiment) -> Judgement:
    """A small learning rate with lambda = 0 and with lambda > 0."""
    published = "RMSD below 2 with any lambda (no table)"
    if not {SMALL, LAMBDA} <= set(experiment.settings.example_sets()):
        return not_measured(published, "not measured at this scale")
    far = [distances(experiment, each) for each in (SMALL, LAMBDA)]
    own = pooled(experiment, LAMBDA, own=True)
    largest = max(float(each.max()) for each in far)
    holds = largest < CLOSE and own.interval()[0] > 1 - 2 * RARE
    weight, rate = experiment.settings.weight, experiment.settings.rates.small
    return Judgement(
        "holds" if holds else "cannot be said",
        published,
        f"RMSD {far[0].mean():.2f} (lambda 0) and {far[1].mean():.2f} (lambda {weight:g}); {format_rate(own)} fool the "
        "source",
        f"the largest average RMSD of a source is {largest:.1f}; the paper's limit is {CLOSE:g}"
        + (f", and a rate below {rate:g} was not tried" if largest >= CLOSE else ""),
        [f"Average RMSD per source: {far[0].min():.2f} to {far[0].max():.2f} with lambda 0, {far[1].min():.2f} to "
         f"{far[1].max():.2f} with lambda {weight:g} on the 0 to 255 scale, the only other one that is measured."],
    )  # fmt: skip


def alternative(experiment: LiuExperiment) -> Judgement:
    """The objective of the appendix, which penalises the difference from tau."""
    published = "'similar transferability' (no table)"
    if TAU not in experiment.settings.example_sets():
        return not_measured(published, "not measured at this scale")
    names = list(experiment.models)
    ours = between_models(experiment.outcomes(TAU), names, False)
    usual = between_models(experiment.outcomes(UNTARGETED), names, False)[: len(ours)]
    found = difference(ours, usual, experiment.seed)
    far = [float(distances(experiment, each).mean()) for each in (TAU, UNTARGETED)]
    return Judgement(
        found.within(RARE),
        published,
        f"error {ours.mean():.1%} (tau) and {usual.mean():.1%}: {found} (n = {len(ours)})",
        f"'similar' is read as less than {RARE:.0%} apart",
        [f"tau is the average RMSD of the usual objective on the same source; the average reached is {far[0]:.1f} "
         f"({far[1]:.1f}). Both weights are {experiment.settings.weight:g}. {found}."],
    )  # fmt: skip


def noise_matches(experiment: LiuExperiment) -> Judgement:
    """Gaussian noise and targets."""
    table = measures.noise(experiment)
    rate = Rate(int(table["matched"].sum()), int(table["total"].sum()))
    by_model = table.groupby("model", sort=False)[["matched", "total"]].sum()
    parts = ", ".join(f"{name} {row.matched / row.total:.2%}" for name, row in by_model.iterrows())
    low, high = rate.interval()
    classes, many = len(experiment.dataset.classes), has_many_classes(experiment)
    verdict: Verdict = "holds" if high < 0.01 else "does not hold" if low > 0.01 else "cannot be said"
    return Judgement(
        verdict if many else "cannot be said",
        "matching rate 0 % on all five models",
        f"{format_rate(rate)} over all deviations",
        "'0 %' is read as below 1 %" if many else f"among {classes} classes, a mistake is often the target by chance",
        [
            f"By model: {parts}. Among {classes:,} classes, {1 / (classes - 1):.1%} of random mistakes are the target. "
            "Draws on one image are not independent, so the interval is too narrow."
        ],
    )


def same_mistakes(experiment: LiuExperiment) -> Judgement:
    """The same wrong label from two models."""
    outcomes = experiment.outcomes(UNTARGETED)
    source, _ = experiment.reference
    same, both = transfer.same_mistakes(outcomes[outcomes["source"] == source])
    upper = np.triu_indices(len(same), 1)
    rate = Rate(int(same.to_numpy()[upper].sum()), int(both.to_numpy()[upper].sum()))
    chance = 1 / (len(experiment.dataset.classes) - 1)
    low, high = rate.interval()
    verdict: Verdict = "holds" if low > chance else "does not hold" if high < chance else "cannot be said"
    return Judgement(
        verdict,
        "12 to 40 % of the examples that both models misclassify",
        f"{format_rate(rate)}; by chance {chance:.1%}",
        ("the interval is above chance" if verdict == "holds" else "the interval is not above chance")
        + (f"; it is below the paper's {LEAST_SAME:.0%}" if high < LEAST_SAME else ""),
        [
            f"Of pairs of models that are both wrong about an example of {source}, {format_rate(rate)} predict the "
            f"same label; {chance:.1%} would by chance, were all wrong labels equally likely. Pairs that share an "
            "image are not independent, so the interval is too narrow."
        ],
    )


def several_intervals(experiment: LiuExperiment) -> Judgement:
    """The intervals of distortions along a gradient in which another model is wrong."""
    found = measures.ERRORS_ALONG_GRADIENT.get(experiment)
    lines = found.groupby(["target", "sample"])
    counts = [len(intervals(line["wrong"].to_numpy(), line["strength"].tolist())) for _, line in lines]
    several = sum(count > 1 for count in counts)
    source, _ = experiment.reference
    return Judgement(
        "holds" if several else "does not hold",
        "four intervals on one image (Figure 6)",
        f"{several} of {len(counts)} cases (image and model) have more than one, at most {max(counts)}",
        "there are such cases" if several else "there is no such case",
        [f"Along the FG direction of {source} up to B = {experiment.settings.line_end:g}."],
    )
