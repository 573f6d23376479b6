"""Liu et al.'s findings on other objectives, noise, shared mistakes and geometry (their section 6 and appendix)."""

from itertools import combinations
from typing import Final

import numpy as np

from robustassay.analysis import transfer
from robustassay.analysis.geometry import intervals
from robustassay.analysis.rates import Rate
from robustassay.studies.liu2017 import measures, planes
from robustassay.studies.liu2017.comparisons import (
    FEWEST,
    Numbers,
    between_models,
    difference,
    format_rate,
    mean_interval,
    pooled,
)
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.judgement import RARE, Judgement, not_measured
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.liu2017.tables import MANY, distances
from robustassay.studies.page import Verdict, combined

UNTARGETED, SMALL, LAMBDA, TAU = (
    ExampleSet(method, False, False) for method in ("opt", "opt-small", "opt-lambda", "opt-tau")
)
CLOSE: Final = 2.0
"""The RMSD that the paper calls small."""

FEW: Final = 0.05
"""The share of all classes below which the labels of a plane are few; the paper counts at most 2.1 %."""

MOSTLY: Final = 0.5
"""The overlap of two regions from which their boundaries align "very well"."""

LEAST_SAME: Final = 0.12
"""The paper's lowest rate of same mistakes."""

PAPER_VALUES: Final = 3 * 224 * 224
"""Values of the paper's images."""


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
    classes, many = len(experiment.dataset.classes), _has_many_classes(experiment)
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


def _has_many_classes(experiment: LiuExperiment) -> bool:
    """Whether numbers of labels and chance hits can be compared with the paper's 1,000 classes."""
    return len(experiment.dataset.classes) >= MANY


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


def orthogonal(experiment: LiuExperiment) -> Judgement:
    """The cosines between gradients."""
    table = measures.COSINES.get(experiment).set_index("model").to_numpy(float)
    values = table[np.triu_indices(len(table), 1)]
    holds, values_here = np.abs(values).max() < RARE, experiment.x[0].numel()
    return Judgement(
        "holds" if holds else "does not hold",
        "mean cosines 0.01 to 0.04",
        f"{values.min():.2f} to {values.max():.2f}, {values.mean():.2f} on average (n = {len(experiment.images)})",
        f"'almost orthogonal' is read as below {RARE:g} for every pair",
        [f"The images have {values_here:,} values, as in the paper."]
        if values_here == PAPER_VALUES
        else [f"The images have {values_here:,} values; the paper's have {PAPER_VALUES:,}, among which two random "
              "directions are closer to orthogonal."],
    )  # fmt: skip


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


def few_labels(experiment: LiuExperiment) -> Judgement:
    """The labels on planes."""
    found, classes = planes.counted_planes(experiment), len(experiment.dataset.classes)
    counts = np.array([list(each.distinct().values()) for each in found])
    seen = f"{len(found)} planes x {len(experiment.models)} models"
    most, usual = int(counts.max()), float(counts.max(1).mean())
    many = _has_many_classes(experiment)
    return Judgement(
        ("holds" if most < FEW * classes else "does not hold") if many else "cannot be said",
        "at most 21 labels of 1,000 on a plane (one image, five models)",
        f"at most {most} of {classes:,} ({seen}); {usual:.1f} by the model with most of them on an average plane",
        f"'few' is read as below {FEW:.0%} of the classes" if many else f"there are only {classes} classes",
        [f"Planes of {len(found[0].ticks)} x {len(found[0].ticks)} points up to RMSD {planes.FAR:g}, around the first "
         f"images; a finer grid may find more labels."],
    )  # fmt: skip


def aligned(experiment: LiuExperiment) -> Judgement:
    """The overlap of two models' regions around the same image, against regions around two images."""
    found = planes.counted_planes(experiment)
    pairs = list(combinations(experiment.models, 2))
    same = np.array([[each.overlap(*pair) for pair in pairs] for each in found])
    shifted = [*found[1:], found[0]]
    other = np.array(
        [[each.overlap(*pair, next_one) for pair in pairs] for each, next_one in zip(found, shifted, strict=True)]
    )
    each, well = difference(same, other, experiment.seed), mean_interval(same, experiment.seed)
    # Better than chance is not yet "very well".
    verdict: Verdict = "cannot be said" if each.verdict == "holds" and well.low <= MOSTLY else each.verdict
    because = each.because
    if each.verdict == "holds":
        because += "; the overlap is " + ("not " if well.low <= MOSTLY else "") + f"surely above {MOSTLY:g}"
    return Judgement(
        verdict,
        "'align with each other very well' (Figure 4, one image)",
        f"overlap {same.mean():.2f} around the same image, {other.mean():.2f} around two images "
        f"({each.value:+.2f}, {each.low:+.2f} to {each.high:+.2f}, n = {len(found)})",
        because,
        [
            f"The interval of the overlap around the same image is {well.low:.2f} to {well.high:.2f}; 'very well' is "
            f"read as above {MOSTLY:g}.",
            "Overlap: the common part of two models' regions of the true label, divided by their union, on planes like "
            "Figure 4's. For comparison, the second region is taken around the next image, on its own plane.",
        ],
    )


def _reach(experiment: LiuExperiment, line: str) -> Numbers:
    """Return how far models keep the label along a line, images x models; beyond the end counts as the end."""
    table = measures.DIAMETERS.get(experiment)
    own = table[table["line"] == line].pivot(index="sample", columns="model", values="reach")
    return own.to_numpy(float).clip(max=experiment.settings.line_end)


def diameters(experiment: LiuExperiment) -> Judgement:
    """The diameter of the true label's region along the gradient and along a random direction."""
    along, across = (
        _reach(experiment, one) + _reach(experiment, two)
        for one, two in (("gradient", "against"), ("random", "random back"))
    )
    found = difference(across, along, experiment.seed)
    return Judgement(
        found.verdict,
        "'less than the ones along the random direction' (Figure 4)",
        f"RMSD {along.mean():.1f} along the gradient, {across.mean():.1f} along a random direction "
        f"({found.value:+.1f}, {found.low:+.1f} to {found.high:+.1f}, n = {found.images})",
        found.because,
        [f"The gradient of {experiment.reference[0]}; a distance beyond {experiment.settings.line_end:g} counts as "
         f"that. The diameter is smaller in {np.mean(along < across):.0%} of cases (image and model)."],
    )  # fmt: skip


def against_gradient(experiment: LiuExperiment) -> Judgement:
    """The way against the gradient, and a random direction."""
    back = _reach(experiment, "against")
    across = (_reach(experiment, "random") + _reach(experiment, "random back")) / 2
    found = difference(across, back, experiment.seed)
    return Judgement(
        found.verdict,
        "'reaches the boundary much sooner than moving along a random direction'",
        f"RMSD {back.mean():.1f} against the gradient, {across.mean():.1f} along a random direction "
        f"({found.value:+.1f}, {found.low:+.1f} to {found.high:+.1f}, n = {found.images})",
        found.because,
        [f"Sooner in {np.mean(back < across):.0%} of cases (image and model)."],
    )


def target_regions(experiment: LiuExperiment) -> Judgement:
    """The regions of the target on planes of targeted examples of an ensemble."""
    found, left_out = planes.counted_target_planes(experiment), experiment.reference[1]
    shares = [each.share() for each in found]
    members = np.array([[share[name] for name in share if name != left_out] for share in shares]).mean(1)
    own = np.array([share[left_out] for share in shares])
    rate, each = Rate(int((own > 0).sum()), len(own)), difference(members[:, None], own[:, None], experiment.seed)
    some: Verdict = "holds" if len(own) >= FEWEST and rate.interval()[0] > RARE else "cannot be said"
    return Judgement(
        combined([some, each.verdict]),
        "a non-empty region of the model left out, 'much smaller' (Figure 5, one image)",
        f"non-empty in {format_rate(rate)}; it covers {own.mean():.1%} of the plane, those of the other models "
        f"{members.mean():.1%}",
        each.because if some == "holds" else f"{len(own)} planes are too few, or the region is seldom there",
        [f"Planes up to RMSD {planes.TARGET:g} of the first images; the ensemble left {left_out} out."],
    )
