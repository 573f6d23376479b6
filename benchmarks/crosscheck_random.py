"""Query attacks on models that draw random numbers, for docs/queries.md.

Dong et al. 2020 (arXiv:1912.11852) found that randomised models resist attacks that must ask the model; this sees
whether an embedded one does behind random defenses.
"""

import warnings
from dataclasses import dataclass
from typing import final

import torch

import robustassay as ra
from robustassay import data
from robustassay.evaluation.model_ref import ModelRef
from robustassay.threat import L2, LInf, Norm

FIRST_ROW = 200
"""Earlier rows were used to choose settings."""
MODEL = "resnet20-natural"
SUBJECTS = {
    "plain": MODEL,
    "resize-pad": f"resize-pad|{MODEL}",
    "noise": f"noise:sigma=0.03,copies=1|{MODEL}",
    "randmix": f"randmix:copies=1|{MODEL}",
}
ATTACKS = {
    "nes": "nes:samples=48",
    "spsa": "spsa:samples=48",
    "square": "square:steps={queries},rescale_schedule=true",
    "hopskipjump": "hopskipjump",
    "pgd": "pgd:steps=10",
}
WITH_GRADIENTS = "pgd"
DRAWS = 10
LABELS_ONLY = ("hopskipjump",)

HEAD = """
## Randomised models

The third finding of Dong et al.: randomisation resists query-based attacks. Here {model}
is protected by defenses that draw new random numbers for every query: {defenses} (one copy
of the image where they could average several). Each was attacked on the first {images} images, as above, that it
classifies correctly in one draw; those it gets wrong in the mean of {draws} do not count. There were {queries} queries
per image, at L∞ 8/255, hopskipjump at L2 1.0. An image is broken if most of 64 new draws misclassify it; "redrawn"
is the mean percentage of these draws over broken images. PGD sees gradients, averaged over {draws} draws: what
it breaks is not robust, however well it resists queries.

| attack | model | attacked | broken | success in % | redrawn in % | most queries per image |
|---|---|---|---|---|---|---|
"""

VERDICT = """
{overrun} The finding {holds} here. Query attacks broke {plain:.0f} % on average without a defense; behind
{each}. In {lower} of {pairs} pairs of attack and
defense the success is at least 10 points lower than on the plain model, and the other way round in {higher}. PGD with
averaged gradients broke {gradients}.
"""


@final
@dataclass(frozen=True)
class Trial:
    """One attack on one model."""

    model_ref: str
    attack: str
    images: int
    queries: int


@final
@dataclass(frozen=True)
class Finding:
    """The result of a trial."""

    trial: Trial
    attacked: int
    broken: int
    redrawn: float | None
    most_queries: int

    @property
    def success(self) -> float:
        """The part of the attacked images that was broken."""
        return self.broken / max(self.attacked, 1)

    @property
    def line(self) -> str:
        """Write the row of the table."""
        again = "" if self.redrawn is None else f"{100 * self.redrawn:.0f}"
        spent = "" if self.trial.attack == WITH_GRADIENTS else f"{self.most_queries}"
        cells = (self.trial.attack, self.trial.model_ref, self.attacked, self.broken, f"{100 * self.success:.0f}")
        return f"| {' | '.join([*map(str, cells), again, spent])} |\n"


def trials(images: int, queries: int) -> list[Trial]:
    """List every attack on every model."""
    return [Trial(model_ref, attack, images, queries) for attack in ATTACKS for model_ref in SUBJECTS]


def run_trial(trial: Trial) -> Finding:
    """Attack images that the model classifies correctly, in one draw and in the mean of several."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    norm: Norm = L2(1.0) if trial.attack in LABELS_ONLY else LInf(8 / 255)
    result = ra.evaluate(
        SUBJECTS[trial.model_ref],
        data.load("cifar10-1k").select(rows_for(ModelRef.of(SUBJECTS[trial.model_ref]).module, trial.images)),
        norm,
        ATTACKS[trial.attack].format(queries=trial.queries),
        search=ra.Search(query_budget=None if trial.attack == WITH_GRADIENTS else trial.queries, eot=DRAWS),
        device="cpu",
    )
    right = result.records[result.records["clean_ok"]]
    broken = right[right["success"]]
    redrawn = None if broken["redrawn"].isna().all() else float(broken["redrawn"].mean())
    finding = Finding(trial, len(right), len(broken), redrawn, int(result.records["queries"].max()))
    print(finding.line, end="", flush=True)
    return finding


def rows_for(model: torch.nn.Module, images: int) -> list[int]:
    """Return the first rows, of those not used to choose settings, that a model classifies correctly."""
    sample = data.load("cifar10-1k")
    rows = list(range(FIRST_ROW, min(FIRST_ROW + 4 * images, len(sample))))
    with torch.no_grad():
        right = model(sample.images(rows)).argmax(1) == sample.labels[rows]
    return [row for row, ok in zip(rows, right.tolist(), strict=True) if ok][:images]


def random_page(findings: list[Finding]) -> str:
    """Write the table, and whether the finding holds."""
    trial, found = findings[0].trial, {(one.trial.model_ref, one.trial.attack): one for one in findings}
    asking = [attack for attack in ATTACKS if attack != WITH_GRADIENTS]
    defended = [model_ref for model_ref in SUBJECTS if model_ref != "plain"]
    gaps = [
        found["plain", attack].success - found[model_ref, attack].success for attack in asking for model_ref in defended
    ]
    lower, higher = sum(gap >= 0.1 for gap in gaps), sum(gap <= -0.1 for gap in gaps)
    over = sum(one.most_queries > trial.queries for one in findings if one.trial.attack != WITH_GRADIENTS)

    def mean(model_ref: str, *attacks: str) -> float:
        return 100 * sum(found[model_ref, attack].success for attack in attacks) / len(attacks)

    head = HEAD.format(
        model=MODEL,
        images=trial.images,
        queries=trial.queries,
        draws=DRAWS,
        defenses=", ".join(SUBJECTS[model_ref].partition("|")[0] for model_ref in defended),
    )
    verdict = VERDICT.format(
        overrun=f"In {over} rows the budget was exceeded." if over else "No row exceeds its budget.",
        holds="holds" if lower == len(gaps) else "holds in part" if lower > higher else "does not hold",
        plain=mean("plain", *asking),
        each=", ".join(f"{model_ref} {mean(model_ref, *asking):.0f} %" for model_ref in defended),
        lower=lower,
        pairs=len(gaps),
        higher=higher,
        gradients=", ".join(f"{mean(model_ref, WITH_GRADIENTS):.0f} % behind {model_ref}" for model_ref in defended),
    )
    return head + "".join(one.line for one in findings) + verdict
