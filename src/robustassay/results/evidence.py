"""The evidence grade: how a robust accuracy was earned. This is the only place that decides it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, final

from robustassay.analysis.doubt import AttackTraits
from robustassay.analysis.rates import Rate
from robustassay.registry import describe, lookup, registered
from robustassay.results import self_test
from robustassay.results.cross_check import CrossCheck, first_failed
from robustassay.results.identity import ADAPTIVE, attack_name, confirmed_run_keys, is_noise, norm_name
from robustassay.results.self_test import SelfTest

CERTIFIED: Final = "certified"
"""Manifest key of the samples on which robustness was proved."""

STANDARD: Final = ("autoattack", "express")
"""Attacks strong enough for the headline robust accuracy, the first choice first."""


class Grade(Enum):
    """How strong the attacks were, from the weakest; the value is the text that people read."""

    SINGLE = "upper bound (single attack)"
    SEVERAL = "upper bound (several attacks)"
    AUTOATTACK = "AutoAttack-grade"
    ADAPTIVE = "adaptive, after diagnosis"


@final
@dataclass(frozen=True)
class Evidence:
    """How a robust accuracy was earned: the grade, the self-test, and a proved lower bound where there is one."""

    grade: Grade
    self_test: SelfTest
    certified: Rate | None = None
    cross_check: CrossCheck = CrossCheck()  # noqa: RUF009, a frozen value

    @property
    def earned(self) -> bool:
        """Whether the attacks were of AutoAttack-grade or adaptive, and passed the self-test and the cross-check."""
        return not self.warnings

    @property
    def warnings(self) -> list[str]:
        """Why the number is an upper bound only, in a few words each."""
        found = [self.grade.value] if self.grade in (Grade.SINGLE, Grade.SEVERAL) else []
        if not self.cross_check.passed:
            found.append(f"cross-check broke {self.cross_check.short}")
        if not self.self_test.examined:
            return [*found, "no self-test"]
        rate = self.self_test.rate
        return found if self.self_test.passed else [*found, f"self-test {rate.count} of {rate.total}"]

    @property
    def label(self) -> str:
        """The grade in few words: an attack that fails its self-test or cross-check earns none."""
        failed = ["self-test failed"] if self.self_test.examined and not self.self_test.passed else []
        failed += [] if self.cross_check.passed else ["cross-check failed"]
        attacks = self.grade.value.removeprefix("upper bound (").removesuffix(")")
        return f"upper bound ({', '.join([attacks, *failed])})" if failed else self.grade.value

    @property
    def summary(self) -> str:
        """Everything in one line."""
        certified = "" if self.certified is None else f"; certified lower bound {self.certified.value:.1%}"
        return f"{self.label}; self-test: {self.self_test.summary}{certified}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        certified = None if self.certified is None else {"count": self.certified.count, "total": self.certified.total}
        return {
            "grade": self.grade.name.lower(),
            "label": self.label,
            "earned": self.earned,
            "self_test": self.self_test.to_json(),
            "certified": certified,
            "cross_check": self.cross_check.to_json(),
        }


def evidence(manifests: Iterable[Mapping[str, Any]], unbroken: Collection[str] | None = None) -> Evidence:
    """Judge the runs of one model under one threat by their manifests, and by the samples that none of them broke."""
    runs = list(manifests)
    tests = self_test.merge(SelfTest.of(manifest) for manifest in runs)
    return Evidence(_grade(runs), tests, _certified(runs), first_failed(runs, unbroken))


def is_standard(manifest: Mapping[str, Any]) -> bool:
    """Say whether the attack of a run is AutoAttack or express with settings no weaker than its defaults."""
    name, threat = attack_name(manifest), manifest["spec"].get("threat", {})
    if name not in STANDARD or name not in registered("attack") or threat.get("query_budget") is not None:
        return False
    settings = manifest["spec"]["attack"]
    default = describe("attack", lookup("attack", name)())
    versions = ("standard", "plus", *(("rand",) if "eot" in manifest["spec"].get("model", {}) else ()))
    return settings.get("version", "standard") in versions and {**settings, "version": 0} == {**default, "version": 0}


def _grade(runs: list[Mapping[str, Any]]) -> Grade:
    adaptive = [manifest.get(ADAPTIVE, {}) for manifest in runs]
    diagnosed = any("indicators" in entry for entry in adaptive)
    treated = any("remedy" in entry for entry in adaptive)
    standard = _has_standard_attack(runs)
    if diagnosed and (treated or standard):
        return Grade.ADAPTIVE
    if standard:
        return Grade.AUTOATTACK
    attacks = [manifest for manifest in runs if not is_noise(manifest)]
    return Grade.SEVERAL if len(attacks) > 1 else Grade.SINGLE


def _has_standard_attack(runs: list[Mapping[str, Any]]) -> bool:
    """Say whether a standard attack ran on all samples; a confirming run attacks few of them."""
    return any(is_standard(manifest) for manifest in runs if not confirmed_run_keys(manifest))


def attack_traits(manifests: Iterable[Mapping[str, Any]]) -> AttackTraits:
    """Return what the probability of a fall needs to know of the attacks on one model under one threat."""
    runs = list(manifests)
    return AttackTraits(norm_name(runs[0]), _has_standard_attack(runs))


def proved_samples(manifests: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the samples on which robustness was proved."""
    entries = (manifest.get(CERTIFIED) for manifest in manifests)
    return frozenset(str(one) for entry in entries if isinstance(entry, Mapping) for one in entry.get("samples", ()))


def _certified(runs: list[Mapping[str, Any]]) -> Rate | None:
    entries = [manifest[CERTIFIED] for manifest in runs if isinstance(manifest.get(CERTIFIED), Mapping)]
    return max(
        (Rate(int(one["count"]), int(one["total"])) for one in entries), key=lambda rate: rate.value, default=None
    )
