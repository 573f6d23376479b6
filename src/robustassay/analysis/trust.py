"""The numbers of one run, and signs in its records that its robust accuracy is too high."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import permutations
from typing import Final, final

import pandas as pd

from robustassay.analysis import doubt, rates
from robustassay.analysis.doubt import AttackTraits
from robustassay.analysis.rates import Rate

SQUARE_GAIN: Final = 0.002
"""If Square, without gradients, breaks more than this part of the samples after the other stages, gradients were
masked (Croce & Hein 2020)."""

WITHOUT_GRADIENTS: Final = "square"

UNJUDGED: Final = "unjudged"
"""The flag of a run in which the model itself failed on some samples."""

HARMLESS: Final = frozenset({"randomised"})
"""Flags that are no warning: the evaluation handles random models itself, by averaging and repeated draws."""


@final
@dataclass(frozen=True)
class RunNumbers:
    """The numbers of one run."""

    clean: Rate
    robust: Rate
    success: Rate
    confirmed: int  # claims that were verified, those of minimum-norm attacks beyond eps included
    invalid: Mapping[str, int]  # claims that were not verified, by reason
    eight_bits: Rate  # successes of the attack that survive rounding to 8 bits
    median_distance: float  # of the same; NaN without one
    forwards: float  # mean passes per sample
    backwards: float
    seconds: float

    @property
    def samples(self) -> int:
        """How many samples have a record."""
        return self.clean.total

    @property
    def invalid_claims(self) -> int:
        """How many claims were not verified."""
        return sum(self.invalid.values())

    @property
    def claims(self) -> int:
        """How many successes the attack claimed."""
        return self.confirmed + self.invalid_claims


def unjudged(robust: Rate, failures: Mapping[str, str]) -> dict[str, str]:
    """Return a flag if the model failed on some samples: each of them may be robust or broken."""
    if not failures:
        return {}
    total, (sample, why) = robust.total + len(failures), next(iter(failures.items()))
    return {
        UNJUDGED: f"The model failed on {len(failures)} of {total} samples, such as {sample!r} ({why.rstrip('.')}): "
        "they count neither as robust nor as broken, so the robust accuracy of all lies between "
        f"{robust.count / total:.1%} and {(robust.count + len(failures)) / total:.1%}."
    }


def summarise(records: pd.DataFrame) -> RunNumbers:
    """Compute the numbers of one run from its records.

    Samples misclassified without an attack are left out of distance and rounding.
    """
    found = records[(records["claimed_at_query"] > 0).fillna(False).astype(bool)]
    won = found[found["success"].astype(bool)]
    return RunNumbers(
        clean=rates.clean_accuracy(records),
        robust=rates.robust_accuracy(records),
        success=rates.attack_success_rate(records),
        confirmed=int(found["valid"].fillna(False).astype(bool).sum()),
        invalid=invalid_claims(records),
        eight_bits=Rate(int(won["uint8_ok"].fillna(False).astype(bool).sum()), len(won)),
        median_distance=float(won["distance"].median()) if len(won) else float("nan"),
        forwards=float(records["forwards"].mean()) if len(records) else float("nan"),
        backwards=float(records["backwards"].mean()) if len(records) else float("nan"),
        seconds=float(records["seconds"].sum()),
    )


def invalid_claims(records: pd.DataFrame) -> dict[str, int]:
    """Count the claimed successes that were not verified, by reason."""
    failed = records[records["claimed"].astype(bool) & ~records["valid"].fillna(True).astype(bool)]
    counts = failed["problem"].fillna("no reason recorded").value_counts().sort_index()
    return {str(problem): int(count) for problem, count in counts.items()}


def fall_probability(
    records: pd.DataFrame,
    flags: Collection[str],
    traits: AttackTraits = AttackTraits(),  # noqa: B008, a frozen value
) -> pd.Series:
    """Return the probability that each unbroken sample falls to AutoAttack; zero for the others.

    If a flag says that gradients may mislead, no record shows how far a sample is from the boundary: probability 1.
    """
    flagged = set(flags) - HARMLESS - {UNJUDGED}  # a failure on other samples says nothing about these
    probability = doubt.fall_probability(records, traits)
    return probability.where(probability == 0, 1.0) if flagged else probability


def doubtful(
    records: pd.DataFrame,
    flags: Collection[str],
    traits: AttackTraits = AttackTraits(),  # noqa: B008, a frozen value
) -> pd.Series:
    """Say which unbroken samples are in doubt: they fall to AutoAttack with a probability above `doubt.LIMIT`."""
    return fall_probability(records, flags, traits) > doubt.LIMIT


def flags_of(records: pd.DataFrame) -> dict[str, str]:
    """Return the flags that the records of a run raise, with what each means."""
    gain = int((records["claimed_by"] == WITHOUT_GRADIENTS).fillna(False).astype(bool).sum())
    if gain <= SQUARE_GAIN * len(records):
        return {}
    text = (
        f"Square, which uses no gradients, broke {gain} samples that the stages before it did not: gradients may "
        "mislead, and a stronger attack may break more."
    )
    return {"square-gains": text}


def after_each_stage(records: pd.DataFrame, stages: Collection[str]) -> dict[str, Rate]:
    """Return the robust accuracy after each stage of a composed attack, in the order they ran."""
    unbroken, found = rates.clean_accuracy(records).count, {}
    broken = records[records["clean_ok"].astype(bool) & records["success"].astype(bool)]["claimed_by"].value_counts()
    for stage in stages:
        unbroken -= int(broken.get(stage, 0))
        found[stage] = Rate(unbroken, len(records))
    return found


class Effort(Enum):
    """How hard an attack tries, as its records show."""

    NOISE = auto()
    ONE_STEP = auto()
    NO_GRADIENT = auto()
    ITERATED = auto()


# If the weaker of such a pair breaks more samples, gradients mislead or the stronger attack failed (Athalye et al.
# 2018, arXiv:1802.00420). A one-step attack may break fewer than one without gradients, so that pair is not compared.
WEAKER: Final[Mapping[Effort, Collection[Effort]]] = {
    Effort.NOISE: (),
    Effort.ONE_STEP: (Effort.NOISE,),
    Effort.NO_GRADIENT: (Effort.NOISE,),
    Effort.ITERATED: (Effort.NOISE, Effort.ONE_STEP, Effort.NO_GRADIENT),
}


def effort(records: pd.DataFrame, is_noise: bool) -> Effort:
    """Say how hard an attack tries, from the most that it spent on a sample."""
    if is_noise:
        return Effort.NOISE
    if not (records["backwards"] > 0).any():
        return Effort.NO_GRADIENT
    return Effort.ITERATED if (records["iterations"] > 1).any() else Effort.ONE_STEP


@final
@dataclass(frozen=True)
class OrderViolation:
    """A stronger attack that broke fewer samples than a weaker one."""

    stronger: str
    weaker: str
    only_weaker: int  # samples that the weaker one alone broke
    only_stronger: int
    samples: int

    @property
    def p_value(self) -> float:
        """The chance that two equally strong attacks differ at least as much (sign test, McNemar 1947)."""
        from scipy.stats import binomtest

        found = binomtest(self.only_weaker, self.only_weaker + self.only_stronger, alternative="greater")
        return float(found.pvalue)


@final
@dataclass(frozen=True)
class AttackOrder:
    """How many pairs of attacks were compared, and the pairs in which the weaker one broke more samples."""

    pairs: int
    violations: tuple[OrderViolation, ...]


def check_order(parts: Mapping[str, pd.DataFrame], noise: Collection[str] = ()) -> AttackOrder:
    """Compare each attack with every weaker one on the samples of both; `noise` names the random baselines."""
    efforts = {name: effort(records, name in noise) for name, records in parts.items()}
    compared = [
        _compare(stronger, weaker, parts)
        for stronger, weaker in permutations(parts, 2)
        if efforts[weaker] in WEAKER[efforts[stronger]]
    ]
    pairs = [pair for pair in compared if pair.samples]
    return AttackOrder(len(pairs), tuple(pair for pair in pairs if pair.only_weaker > pair.only_stronger))


def _compare(stronger: str, weaker: str, parts: Mapping[str, pd.DataFrame]) -> OrderViolation:
    strong, weak = (_broken(parts[name]) for name in (stronger, weaker))
    common = strong.index.intersection(weak.index)
    strong, weak = strong.loc[common], weak.loc[common]
    return OrderViolation(stronger, weaker, int((weak & ~strong).sum()), int((strong & ~weak).sum()), len(common))


def _broken(records: pd.DataFrame) -> pd.Series:
    """Say by sample id which correctly classified samples were broken."""
    broken = records["clean_ok"].astype(bool) & records["success"].astype(bool)
    return broken.set_axis(records["sample_id"])
