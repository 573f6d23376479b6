"""Liu et al.'s findings on gradient directions and decision regions (their section 6)."""

from itertools import combinations
from typing import Final

import numpy as np

from robustassay.analysis.rates import Rate
from robustassay.studies.liu2017 import measures, planes
from robustassay.studies.liu2017.comparisons import FEWEST, Numbers, difference, format_rate, mean_interval
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.judgement import RARE, Judgement
from robustassay.studies.liu2017.tables import has_many_classes
from robustassay.studies.page import Verdict, combined

FEW: Final = 0.05
"""The share of all classes below which the labels of a plane are few; the paper counts at most 2.1 %."""

MOSTLY: Final = 0.5
"""The overlap of two regions from which their boundaries align "very well"."""

PAPER_VALUES: Final = 3 * 224 * 224
"""Values of the paper's images."""


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


def few_labels(experiment: LiuExperiment) -> Judgement:
    """The labels on planes."""
    found, classes = planes.counted_planes(experiment), len(experiment.dataset.classes)
    counts = np.array([list(each.distinct().values()) for each in found])
    seen = f"{len(found)} planes x {len(experiment.models)} models"
    most, usual = int(counts.max()), float(counts.max(1).mean())
    many = has_many_classes(experiment)
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
    source, table = experiment.reference[0], measures.DIAMETERS.get(experiment)
    own = table.loc[(table["model"] == source) & (table["line"] == "gradient"), "reach"]
    return Judgement(
        found.verdict,
        "'less than the ones along the random direction' (Figure 4)",
        f"RMSD {along.mean():.1f} along the gradient, {across.mean():.1f} along a random direction "
        f"({found.value:+.1f}, {found.low:+.1f} to {found.high:+.1f}, n = {found.images})",
        found.because,
        [f"The gradient of {source}; a distance beyond {experiment.settings.line_end:g} counts as that. The diameter "
         f"is smaller in {np.mean(along < across):.0%} of cases (image and model).",
         f"Along its own gradient {source} leaves the true label within RMSD {np.median(own):g} on half of the images: "
         "in Figures 3 and 4, too, that boundary is near."],
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
