"""The finished runs of the benchmark by defense and attack, and the numbers that tables and findings share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import final

import pandas as pd

from robustassay.analysis import curves
from robustassay.analysis.curves import Curve, Measure, Versus
from robustassay.analysis.rates import Rate, clean_accuracy
from robustassay.evaluation import Result
from robustassay.studies.dong2020.attacks import ATTACKS, AttackGroup, BenchmarkAttack, RunKind
from robustassay.studies.dong2020.defenses import BenchmarkDefense, Role
from robustassay.studies.dong2020.settings import FULL, DongSettings
from robustassay.studies.task import Key
from robustassay.threat import L2, Norm


@final
@dataclass(frozen=True)
class DongMeasurements:
    """The finished runs; curves over normalised L2 are in its unit."""

    defenses: tuple[BenchmarkDefense, ...]
    missing: tuple[BenchmarkDefense, ...]  # asked for, and not in the zoo
    results: Mapping[Key, Result] = field(repr=False)
    settings: DongSettings = FULL
    photographs: bool = False
    units: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    unfinished: tuple[Key, ...] = ()  # runs that a page of finished work leaves out

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The threat models; of L2 on photographs normalised."""
        return self.settings.norms

    @property
    def labels(self) -> tuple[str, ...]:
        """The defenses' names."""
        return tuple(defense.label for defense in self.defenses)

    def of_role(self, role: Role) -> list[str]:
        """Return the names of the rows that a finding is about."""
        return [row.label for row in self.defenses if row.role == role]

    def find(self, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool, *kinds: RunKind) -> Result | None:
        """Return the first of these runs that exists."""
        keys = (run_key(defense, attack, norm, targeted, kind) for kind in kinds)
        return next((self.results[key] for key in keys if key in self.results), None)

    def over_eps(
        self, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool = False, success: bool = False
    ) -> Curve | None:
        """Return the curve over eps."""
        found = self.find(defense, attack, norm, targeted, "eps", "both")
        return self._curve(found, defense, "eps", norm, targeted or success)

    def over_effort(
        self, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool = False, success: bool = False
    ) -> Curve | None:
        """Return the curve over iterations or queries at the fixed eps; attacks of one step or one query have none."""
        if attack.group == "transfer" or attack.name == "FGSM":
            return None
        versus: Versus = "iterations" if attack.group == "white-box" else "queries"
        found = self.find(defense, attack, norm, targeted, "fixed", "both")
        return self._curve(found, defense, versus, norm, targeted or success)

    def over_steps(
        self, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool = False, success: bool = False
    ) -> dict[int, Rate]:
        """Return the rate of a transfer attack at the fixed eps, by its iterations on the substitute model."""
        rates = {}
        for steps in self.settings.transfer_steps if attack.by_steps else ():
            found = self.find(defense, attack, norm, targeted, f"steps-{steps}")
            curve = self._curve(found, defense, "eps", norm, targeted or success)
            if curve is not None:
                rates[steps] = curve.at(norm.eps)
        return rates

    def fixed(self, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool = False) -> Curve | None:
        """Return a curve that is known at the fixed eps at least."""
        found = self.find(defense, attack, norm, targeted, "fixed", "both")
        return self._curve(found, defense, "eps", norm, targeted)

    def robust_samples(self, defense: str, attack: BenchmarkAttack, norm: Norm) -> pd.Series | None:
        """Say by sample id which samples the untargeted attack does not break at the fixed eps."""
        curve = self.fixed(defense, attack, norm)
        return None if curve is None else curve.unbroken(norm.eps)

    def unconfirmed(self, defense: str, attack: BenchmarkAttack, norm: Norm) -> pd.Series | None:
        """Say by sample id which samples count as robust only because a claim of the attack did not verify."""
        found = self.find(defense, attack, norm, False, "fixed", "both")
        if found is None:
            return None
        records = found.records
        refused = records["claimed"].fillna(False).astype(bool) & ~records["valid"].fillna(False).astype(bool)
        return pd.Series(refused.to_numpy(bool), pd.Index(records["sample_id"]))

    def robust_to_all(self, defense: str, norm: Norm, *groups: AttackGroup) -> tuple[pd.Series, list[str]] | None:
        """Say which samples no attack of these groups breaks at the fixed eps, and name the attacks."""
        found = {
            attack.name: robust
            for attack in ATTACKS
            if attack.group in groups and (robust := self.robust_samples(defense, attack, norm)) is not None
        }
        if not found:
            return None
        return pd.concat(found.values(), axis=1, join="inner").all(axis=1), list(found)

    def clean(self, defense: str) -> tuple[Rate, pd.Series] | None:
        """Return the clean accuracy on the largest set of samples of any run, and which of them are correct."""
        records = [result.records for key, result in self.results.items() if key[0] == defense]
        if not records:
            return None
        most = max(records, key=len)
        correct = pd.Series(most["clean_ok"].to_numpy(bool), pd.Index(most["sample_id"]))
        return clean_accuracy(most), correct

    def _curve(self, result: Result | None, defense: str, versus: Versus, norm: Norm, success: bool) -> Curve | None:
        if result is None:
            return None
        measure: Measure = "success" if success else "accuracy"
        curve = curves.of_run(result.manifest, result.records, versus, measure, None, defense)
        unit = self.units.get(defense, 1.0) if isinstance(norm, L2) else 1.0
        return curve if versus != "eps" or unit == 1.0 else curve.scaled(unit)


def run_key(defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool, kind: RunKind) -> Key:
    """Name a run."""
    return defense, norm.name + ("-targeted" if targeted else ""), attack.slug, kind
