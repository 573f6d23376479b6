"""The page of section 7 of Liu et al. 2017: findings, the paper's Tables 6 and 34, and pictures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np
import pandas as pd
from torch import Tensor

from robustassay.analysis.intervals import wilson
from robustassay.analysis.rates import Rate
from robustassay.remote import Service
from robustassay.studies.liu2017.comparisons import Difference, Numbers, difference, format_rate
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.setup import credit_lines
from robustassay.studies.page import Figure, Finding, Scale, Setup, Table, Verdict, combined, comma_list
from robustassay.studies.provenance import provenance_of
from robustassay.studies.scope import Scope
from robustassay.studies.service_transfer import GroupResult, ServiceMeasurements, rarest, service_plan
from robustassay.studies.study import Study
from robustassay.target.batching import LARGE_IMAGE
from robustassay.threat.rmsd import rmsd

TABLES: Final = (("table6", "Table 6", 0, 7), ("table34", "Table 34", 7, 20))
"""The examples of each table, by their places among those of the targeted ensemble group; 7 and 13 as in the paper."""

DRAWN: Final = 6
DRAWN_PHOTOGRAPHS: Final = 4
"""Pairs in the picture; photographs with noise are large files."""
CHOICE: Final = (
    "\\* marks the label that the service is most confident of. Examples with the target's label come first, then "
    "those that mislead the service, then others."
)


@final
@dataclass(frozen=True, eq=False)
class ServiceExamples:
    """Images sent to a service, with its labels: what the picture after Table 6 shows."""

    clean: Tensor = field(repr=False)
    adversarial: Tensor = field(repr=False)
    texts: tuple[tuple[str, str], ...]  # below the clean image, and below the adversarial one


def service_study(service: Service, held_out: str | None, examples: Scope) -> Study[ServiceMeasurements]:
    """Return the study of one service, on the examples in another study's folder."""
    return Study(
        name="service",
        title="Liu et al. (2017), section 7: adversarial examples sent to a service",
        plan=lambda scope: service_plan(service, held_out, scope, examples),
        setup=setup,
        findings=findings,
        tables=tables,
        figures=figures,
    )


def setup(measured: ServiceMeasurements) -> Setup:
    """Describe the scale, and what the rates count."""
    experiment = measured.experiment
    images = len(measured.x)
    scale = (
        Scale("service", f"`assay serve` of {measured.held_out}, with label names of its own", "Clarifai.com"),
        Scale("data", f"{experiment.dataset.name}, {len(experiment.dataset.classes)} classes", "ILSVRC 2012"),
        Scale("clean images", f"{images}", "100"),
        Scale("adversarial images", f"{4 * images}", "400"),
        Scale("one model", experiment.reference[0], "VGG-16"),
        Scale("ensemble", f"all models but {measured.held_out}", "all models but ResNet-152"),
    )
    deviations = (
        "The service is a network of ours that no example was made on; the paper's was an unknown commercial one, with "
        "other training data. Ours shares its training data and its classes with the sources, under other names.",
        "Whether a label is the true one or the target's is decided by a map from the service's labels to classes; the "
        "authors judged by eye, and counted labels close to the target.",
        "Gaussian noise is one more group; the paper sent none.",
        "The rules of findings 1 and 3 were set after a first look at results on 24 images of CIFAR-10, the "
        "first of the embedded ones: a page with other images or networks tests them.",
    )
    drawn = _drawn(measured)
    notes = (
        "Misled: the service's most confident label is right for the clean image and wrong for the adversarial one. "
        "Brackets hold 95 % Wilson intervals. As in the paper, targeted examples of the ensemble have a larger RMSD "
        f"than those of one model, and untargeted ones a smaller one. Images are sent as PNG files, 8 bits per value."
        f"{_origin(experiment)}",
        *credit_lines(experiment, drawn, "The photographs of the figure are, in its order,"),
    )
    if images < len(experiment.images):
        sent = f"The first {images} of the {len(experiment.images)} images of the study are sent, to save space."
        return Setup(scale, (*deviations, sent), notes)
    return Setup(scale, deviations, notes)


def _origin(experiment: LiuExperiment) -> str:
    """Say where the images were made, where the study's folder says so."""
    made = provenance_of(experiment.out, "").measured
    places = comma_list(dict.fromkeys(f"{one.device} (commit `{one.commit}`)" for one in made if not one.what))
    return f" They were made on {places}." if places else ""


def findings(measured: ServiceMeasurements) -> list[Finding]:
    """Test the three claims of section 7."""
    return [_most_transfer(measured), _targeted_mislead(measured), _targets_match(measured)]


def _hits(one: GroupResult, matching: bool) -> Numbers:
    """Return per image whether the service was misled, or gave the target's label; NaN where it does not count."""
    return np.array(
        [(image.matches if matching else image.wrong) if image.counts else np.nan for image in one.answers.images],
        float,
    )


def _rate(one: GroupResult, matching: bool = False) -> Rate:
    hits = _hits(one, matching)
    return Rate(int(np.nansum(hits)), int(np.isfinite(hits).sum()))


def _most_transfer(measured: ServiceMeasurements) -> Finding:
    rates = [_rate(measured.group(ensemble, False)) for ensemble in (False, True)]
    parts: list[Verdict] = [
        "holds" if rate.interval()[0] > 0.5 else "does not hold" if rate.interval()[1] < 0.5 else "cannot be said"
        for rate in rates
    ]
    noise, gains = _rate(measured.groups[-1]), _gains_over_noise(measured)
    # An image that noise of its size misclassifies as well proves no transfer.
    parts += ["holds" if gain.verdict == "holds" else "cannot be said" for gain in gains]
    found = f"{format_rate(rates[0])} from one model, {format_rate(rates[1])} from the ensemble"
    found = f"{found}; noise {noise.value:.0%}"
    return Finding(
        1,
        "Most untargeted examples, of one model and of the ensemble, mislead the service",
        combined(parts),
        (
            f"Misled by untargeted examples: {found}.",
            f"More than by Gaussian noise of RMSD {_far(measured.groups[-1], measured):.0f}: {gains[0]} from one "
            f"model, {gains[1]} from the ensemble.",
        ),
        "'most of them' (no number)",
        found,
        because="'most' is read as more than half and more than noise, for both",
    )


def _gains_over_noise(measured: ServiceMeasurements) -> list[Difference]:
    """Compare the untargeted groups with noise, image by image."""
    noise = _hits(measured.groups[-1], matching=False)
    counted = np.isfinite(noise)
    groups = [_hits(measured.group(ensemble, False), matching=False) for ensemble in (False, True)]
    return [difference(hits[counted, None], noise[counted, None]) for hits in groups]


def _far(one: GroupResult, measured: ServiceMeasurements) -> float:
    return float(rmsd(one.x_adv, measured.x).mean())


def _compared(measured: ServiceMeasurements, matching: bool) -> tuple[str, Verdict, str]:
    """Compare the targeted groups: ours in words, whether the ensemble is better, and why."""
    one, several = (measured.group(ensemble, True) for ensemble in (False, True))
    counted = np.isfinite(_hits(one, matching))
    found = difference(_hits(several, matching)[counted, None], _hits(one, matching)[counted, None])
    text = (
        f"{format_rate(_rate(one, matching))} from one model, {format_rate(_rate(several, matching))} from the ensemble"
    )
    return f"{text}: {found}", found.verdict, found.because


def _targeted_mislead(measured: ServiceMeasurements) -> Finding:
    text, verdict, because = _compared(measured, matching=False)
    return Finding(
        2,
        "Targeted examples mislead the service, those of the ensemble more often",
        verdict,
        (f"Misled by targeted examples: {text}.",),
        "57 % from one model, 76 % from the ensemble",
        text,
        because=because,
    )


def _targets_match(measured: ServiceMeasurements) -> Finding:
    text, verdict, because = _compared(measured, matching=True)
    return Finding(
        3,
        "Targeted examples get labels close to the target, those of the ensemble more often",
        verdict,
        (f"The service's first label is the target's: {text}.",),
        "2 % from one model, 18 % from the ensemble",
        text,
        because=because,
    )


def tables(measured: ServiceMeasurements) -> list[Table]:
    """Return the rates per group, the paper's two tables of examples, and every answer."""
    answers = answer_table(measured)
    title = "Every answer of the service"
    found = [rates(measured), *(_examples(measured, *which) for which in TABLES)]
    return [*found, Table("answers", title, tuple(answers.columns), (), answers, printed=False)]


def rates(measured: ServiceMeasurements) -> Table:
    """Return the rates of each group, over images whose clean version is labelled correctly."""
    rows = []
    for one in measured.groups:
        counted = _rate(one).total
        row = [one.group.title, f"{_far(one, measured):.1f}", str(counted)]
        for matching in (False, True):
            hits = _rate(one, matching).count
            low, high = wilson(hits, counted) if counted else (0.0, 1.0)
            shown = bool(counted) and (one.group.targeted or not matching)
            row.append(f"{hits / counted:.0%} ({low:.0%} to {high:.0%})" if shown else "")
        rows.append(tuple(row))
    heading = ("group", "RMSD", "images", "misled", "target's label")
    return Table("rates", "Rates per group", heading, tuple(rows), pd.DataFrame(rows, columns=list(heading)))


def _examples(measured: ServiceMeasurements, name: str, number: str, first: int, last: int) -> Table:
    """Return one of the paper's tables: true label, the service's labels, target, and its labels again."""
    one, counts, classes = measured.group(True, True), measured.counts(), measured.experiment.dataset.classes
    lines = []
    for row in one.order()[first:last]:
        image = one.answers.images[row]
        before, after = (", ".join(_marked(labels, counts)) for labels in (image.clean_labels, image.labels))
        target = classes[image.target] if image.target is not None else ""
        lines.append((measured.experiment.images.ids[row], classes[image.truth], before, target, after))
    heading = ("image", "true label", "labels of the original", "target label", "labels of the targeted example")
    title = f"{number}: the service's labels, the rarest first, then the most confident; {one.group.title}"
    frame = pd.DataFrame(lines, columns=list(heading))
    return Table(name, title, heading, tuple(lines), frame, notes=(CHOICE,), printed=False)


def _marked(labels: Sequence[str], counts: Counter[str]) -> list[str]:
    """Order labels by rareness, and mark the one that the service is most confident of."""
    return [f"{label} *" if label == labels[0] else label for label in rarest(labels, counts)]


def answer_table(measured: ServiceMeasurements) -> pd.DataFrame:
    """Return one row per image: the true label, and the service's labels of the clean and the adversarial image."""
    classes, ids = measured.experiment.dataset.classes, measured.experiment.images.ids[: len(measured.x)]
    rows = [
        {
            "group": one.group.title,
            "source": one.group.source,
            "sample_id": sample,
            "truth": classes[image.truth],
            "target": None if image.target is None else classes[image.target],
            "clean_label": image.clean_label,
            "adversarial_label": image.label,
            "clean_labels": "; ".join(image.clean_labels),
            "adversarial_labels": "; ".join(image.labels),
            "counts": image.counts,
            "misled": image.counts and image.wrong,
            "matches_target": image.counts and image.matches,
        }
        for one in measured.groups
        for sample, image in zip(ids, one.answers.images, strict=True)
    ]
    return pd.DataFrame(rows)


def _drawn(measured: ServiceMeasurements) -> list[int]:
    """Return the rows of the picture, the first ones of Table 6."""
    photographs = measured.x[0].numel() > LARGE_IMAGE
    return measured.group(True, True).order()[: DRAWN_PHOTOGRAPHS if photographs else DRAWN]


def figures(measured: ServiceMeasurements) -> list[Figure]:
    """Return the pictures of the first examples of Table 6."""
    one, counts, classes = measured.group(True, True), measured.counts(), measured.experiment.dataset.classes
    rows = _drawn(measured)
    texts = []
    for row in rows:
        image = one.answers.images[row]
        before, after = ("\n".join(_marked(labels, counts)) for labels in (image.clean_labels, image.labels))
        target = "" if image.target is None else classes[image.target]
        texts.append((f"true: {classes[image.truth]}\n{before}", f"target: {target}\n{after}"))
    content = ServiceExamples(measured.x[rows], one.x_adv[rows], tuple(texts))
    title = "Table 6 in pictures: originals and the ensemble's targeted examples, with the service's labels"
    return [Figure("examples", title, content)]
