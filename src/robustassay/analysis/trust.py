"""What one run shows, and what in its records speaks against believing it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import permutations
from typing import Final, final

import pandas as pd

from robustassay.analysis import rates
from robustassay.analysis.rates import Rate

CLOSE_CALL: Final = 0.05
"""A sample that stands with less than this part of its clean margin left may fall to the next attack."""

UNMOVED: Final = 0.95
"""One that has more than this left was not moved: the attack failed there, which is no robustness."""

BLIND_GAIN: Final = 0.002
"""Where an attack without gradients breaks more than this part after the others, gradients hid something
(Croce & Hein 2020)."""

WITHOUT_GRADIENTS: Final = "square"

UNJUDGED: Final = "unjudged"
"""The flag of a run in which the model itself failed on some samples."""

HARMLESS: Final = frozenset({"randomised"})
"""Flags that the evaluation answers itself, by averaging and re-drawing."""


@final
@dataclass(frozen=True)
class Summary:
    """The numbers of one run."""

    clean: Rate
    robust: Rate
    success: Rate
    confirmed: int  # claims of the attack that verified, those of minimum-norm attacks beyond eps included
    invalid: Mapping[str, int]  # claims that did not verify, by reason
    eight_bits: Rate  # successes of the attack that survive rounding to 8 bits
    median_distance: float  # of the same; NaN without one
    forwards: float  # mean passes a sample
    backwards: float
    seconds: float

    @property
    def samples(self) -> int:
        """How many samples have a record."""
        return self.clean.total

    @property
    def invalid_claims(self) -> int:
        """How many claims did not verify."""
        return sum(self.invalid.values())

    @property
    def claims(self) -> int:
        """How many successes the attack claimed."""
        return self.confirmed + self.invalid_claims


def unjudged(robust: Rate, failures: Mapping[str, str]) -> dict[str, str]:
    """Say what the samples leave open that the model failed on: each may be robust or broken."""
    if not failures:
        return {}
    total, (sample, why) = robust.total + len(failures), next(iter(failures.items()))
    return {
        UNJUDGED: f"The model failed on {len(failures)} of {total} samples, such as {sample!r} ({why.rstrip('.')}): "
        "they count neither as robust nor as broken, so the robust accuracy of all lies between "
        f"{robust.count / total:.1%} and {(robust.count + len(failures)) / total:.1%}."
    }


def summarise(records: pd.DataFrame) -> Summary:
    """Read the numbers of one run off its records.

    A clean mistake succeeds before the attack begins; it says nothing of distance or rounding and is left out there.
    """
    found = records[(records["claimed_at_query"] > 0).fillna(False).astype(bool)]
    won = found[found["success"].astype(bool)]
    return Summary(
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
    """Count the claimed successes that did not verify, by reason."""
    failed = records[records["claimed"].astype(bool) & ~records["valid"].fillna(True).astype(bool)]
    counts = failed["problem"].fillna("no reason recorded").value_counts().sort_index()
    return {str(problem): int(count) for problem, count in counts.items()}


def covering(parts: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Keep the parts that hold the same samples as the largest.

    A part with fewer samples would make the worst case look better than it is: what it never attacked would stand.
    """
    wanted = set(max(parts.values(), key=len)["sample_id"])
    return {name: records for name, records in parts.items() if set(records["sample_id"]) == wanted}


def doubtful(records: pd.DataFrame, flags: Collection[str]) -> pd.Series:
    """Say which standing samples a stronger attack may still break: close calls, samples no attack could move.

    Where a flag says that gradients may mislead, every sample that stands is in doubt.
    """
    standing = records["clean_ok"].astype(bool) & ~records["success"].astype(bool)
    left = records["margin"] / records["clean_margin"]
    alarmed = bool(set(flags) - HARMLESS - {UNJUDGED})  # that other samples failed says nothing of these
    return standing & (alarmed | (left < CLOSE_CALL) | (left > UNMOVED))


def flags_of(records: pd.DataFrame) -> dict[str, str]:
    """Return the flags that only a finished run can raise, with what each means."""
    gain = int((records["claimed_by"] == WITHOUT_GRADIENTS).fillna(False).astype(bool).sum())
    if gain <= BLIND_GAIN * len(records):
        return {}
    text = (
        f"Square, which sees no gradient, broke {gain} samples that the stages before it left standing: gradients "
        "may mislead, and a stronger attack may find more."
    )
    return {"square-gains": text}


def after_each_stage(records: pd.DataFrame, stages: Collection[str]) -> dict[str, Rate]:
    """Return the robust accuracy after each stage of a composed attack, in the order they ran."""
    standing, found = rates.clean_accuracy(records).count, {}
    broken = records[records["clean_ok"].astype(bool) & records["success"].astype(bool)]["claimed_by"].value_counts()
    for stage in stages:
        standing -= int(broken.get(stage, 0))
        found[stage] = Rate(standing, len(records))
    return found


class Effort(Enum):
    """How hard an attack tries, as its records show."""

    NOISE = auto()
    ONE_STEP = auto()
    NO_GRADIENT = auto()
    ITERATED = auto()


# Where the weaker of such a pair wins, gradients mislead or the stronger attack is broken (Athalye et al. 2018,
# arXiv:1802.00420). One step may lose to a patient attack without gradients, so that pair says nothing.
MUST_NOT_LOSE_TO: Final[Mapping[Effort, Collection[Effort]]] = {
    Effort.NOISE: (),
    Effort.ONE_STEP: (Effort.NOISE,),
    Effort.NO_GRADIENT: (Effort.NOISE,),
    Effort.ITERATED: (Effort.NOISE, Effort.ONE_STEP, Effort.NO_GRADIENT),
}


def effort(records: pd.DataFrame, is_noise: bool) -> Effort:
    """Tell how hard an attack tried from what it spent on the sample that held out longest."""
    if is_noise:
        return Effort.NOISE
    if not (records["backwards"] > 0).any():
        return Effort.NO_GRADIENT
    return Effort.ITERATED if (records["iterations"] > 1).any() else Effort.ONE_STEP


@final
@dataclass(frozen=True)
class Upset:
    """A stronger attack that broke fewer samples than a weaker one."""

    stronger: str
    weaker: str
    only_weaker: int  # samples that the weaker one alone broke
    only_stronger: int
    samples: int

    @property
    def chance(self) -> float:
        """How often two equally strong attacks would differ at least so far (sign test, McNemar 1947)."""
        from scipy.stats import binomtest

        found = binomtest(self.only_weaker, self.only_weaker + self.only_stronger, alternative="greater")
        return float(found.pvalue)


@final
@dataclass(frozen=True)
class Ranking:
    """How many pairs of attacks could be compared, and those that came out the wrong way round."""

    pairs: int
    upsets: tuple[Upset, ...]


def rank(parts: Mapping[str, pd.DataFrame], noise: Collection[str] = ()) -> Ranking:
    """Compare each attack with every weaker one on the samples both faced; `noise` names the random ones."""
    efforts = {name: effort(records, name in noise) for name, records in parts.items()}
    compared = [
        _compare(stronger, weaker, parts)
        for stronger, weaker in permutations(parts, 2)
        if efforts[weaker] in MUST_NOT_LOSE_TO[efforts[stronger]]
    ]
    pairs = [pair for pair in compared if pair.samples]
    return Ranking(len(pairs), tuple(pair for pair in pairs if pair.only_weaker > pair.only_stronger))


def _compare(stronger: str, weaker: str, parts: Mapping[str, pd.DataFrame]) -> Upset:
    strong, weak = (_broken(parts[name]) for name in (stronger, weaker))
    common = strong.index.intersection(weak.index)
    strong, weak = strong.loc[common], weak.loc[common]
    return Upset(stronger, weaker, int((weak & ~strong).sum()), int((strong & ~weak).sum()), len(common))


def _broken(records: pd.DataFrame) -> pd.Series:
    """Say by sample id which correctly classified samples fell."""
    fell = records["clean_ok"].astype(bool) & records["success"].astype(bool)
    return fell.set_axis(records["sample_id"])
