"""Query attacks on models that draw random numbers, for docs/queries.md.

Dong et al. 2020 (arXiv:1912.11852) found that randomised models resist attacks that must ask the model; this sees
whether an embedded one does behind random defenses.
"""

import warnings
from dataclasses import dataclass
from typing import final

import torch

import assay
from assay import data
from assay.threat import L2, LInf, Norm

FIRST_ROW = 200
"""Rows before this one served to choose settings."""
MODEL = "resnet20-natural"
SUBJECTS = {
    "plain": MODEL,
    "resize-pad": f"resize-pad|{MODEL}",
    "noise": f"noise:sigma=0.05,copies=1|{MODEL}",
    "randmix": f"randmix:copies=1|{MODEL}",
}
ATTACKS = {
    "nes": "nes:samples=48",
    "spsa": "spsa:samples=48",
    "square": "square:steps={queries},rescale_schedule=true",
    "boundary": "boundary",
    "hopskipjump": "hopskipjump",
    "pgd": "pgd:steps=10",
}
WITH_GRADIENTS = "pgd"
LABELS_ONLY = ("boundary", "hopskipjump")

HEAD = """
## Randomised models

Dong et al.'s third finding: randomisation resists attacks that must ask the model. Here {model} stands behind defenses
that draw anew for every query (one noisy copy an image, where the defense would average several), attacked on {images}
images with {queries} queries each, at Linf 8/255; boundary and hopskipjump at L2 1.0. An image counts as broken if
most of 64 fresh draws get it wrong; "redrawn" is the part of those draws that do, on the mean over broken images. PGD
sees gradients, averaged over 10 draws, for comparison: what it breaks is not robust, however it resists queries.

| attack | {columns} |
|---{rule}|
"""

VERDICT = """
Each cell: success in % of the images that the model classifies correctly without an attack; redrawn in %; and the most
queries that any image took. {overrun} The finding {holds} here: behind a random defense query attacks succeeded on
{random:.0f} % on average, on the plain model on {plain:.0f} %; {lower} of {pairs} pairs of attack and defense are at
least 10 points below the plain model. PGD with averaged gradients still broke {gradients:.0f} %.
"""


@final
@dataclass(frozen=True)
class Trial:
    """One attack on one subject."""

    subject: str
    attack: str
    images: int
    queries: int


@final
@dataclass(frozen=True)
class Finding:
    """What a trial showed, in parts of one."""

    trial: Trial
    success: float
    redrawn: float | None
    most_queries: int

    @property
    def cell(self) -> str:
        """Write it for the table."""
        again = "" if self.redrawn is None else f", {100 * self.redrawn:.0f}"
        spent = "" if self.trial.attack == WITH_GRADIENTS else f", {self.most_queries}"
        return f"{100 * self.success:.0f}{again}{spent}"


def trials(images: int, queries: int) -> list[Trial]:
    """List every attack on every subject."""
    return [Trial(subject, attack, images, queries) for subject in SUBJECTS for attack in ATTACKS]


def run_trial(trial: Trial) -> Finding:
    """Attack images that the plain model classifies correctly, and that served for nothing else."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    norm: Norm = L2(1.0) if trial.attack in LABELS_ONLY else LInf(8 / 255)
    result = assay.evaluate(
        SUBJECTS[trial.subject],
        data.load("cifar10-1k").select(rows_for(assay.load_model(MODEL), trial.images)),
        norm,
        ATTACKS[trial.attack].format(queries=trial.queries),
        query_budget=None if trial.attack == WITH_GRADIENTS else trial.queries,
        device="cpu",
        eot=10,
    )
    broken = result.records[result.records["success"] & result.records["clean_ok"]]
    redrawn = None if broken["redrawn"].isna().all() else float(broken["redrawn"].mean())
    finding = Finding(trial, result.attack_success_rate, redrawn, int(result.records["queries"].max()))
    print(trial.subject, trial.attack, f"clean {result.clean_accuracy:.2f}", finding.cell, flush=True)
    return finding


def rows_for(model: torch.nn.Module, images: int) -> list[int]:
    """Return the first rows, of those not used to choose settings, that a model classifies correctly."""
    sample = data.load("cifar10-1k")
    rows = list(range(FIRST_ROW, min(FIRST_ROW + 4 * images, len(sample))))
    with torch.no_grad():
        right = model(sample.images(rows)).argmax(1) == sample.labels[rows]
    return [row for row, ok in zip(rows, right.tolist(), strict=True) if ok][:images]


def random_page(findings: list[Finding]) -> str:
    """Write the table and say whether the finding holds."""
    trial, found = findings[0].trial, {(one.trial.subject, one.trial.attack): one for one in findings}
    head = HEAD.format(
        model=MODEL,
        images=trial.images,
        queries=trial.queries,
        columns=" | ".join(SUBJECTS),
        rule="|---" * len(SUBJECTS),
    )
    lines = [f"| {attack} | {' | '.join(found[subject, attack].cell for subject in SUBJECTS)} |" for attack in ATTACKS]
    asking = [attack for attack in ATTACKS if attack != WITH_GRADIENTS]
    defended = [subject for subject in SUBJECTS if subject != "plain"]
    drop = [
        found["plain", attack].success - found[subject, attack].success for attack in asking for subject in defended
    ]
    lower, over = (
        sum(gap >= 0.1 for gap in drop),
        sum(found[s, a].most_queries > trial.queries for s in SUBJECTS for a in asking),
    )
    return (
        head
        + "\n".join(lines)
        + "\n"
        + VERDICT.format(
            overrun="No image took more than its budget." if not over else f"In {over} cells the budget was overrun.",
            holds="holds" if lower == len(drop) else "holds in part" if lower else "does not hold",
            random=100 * sum(found[s, a].success for s in defended for a in asking) / len(drop),
            plain=100 * sum(found["plain", a].success for a in asking) / len(asking),
            lower=lower,
            pairs=len(drop),
            gradients=100 * min(found[s, WITH_GRADIENTS].success for s in defended),
        )
    )
