"""Attacks fitted to a model that hides from plain ones: what an adviser prescribes, carried out and put on record.

Whoever gives advice registers as an `adviser`, as the doctor does under the name "auto"; evaluation knows none of them.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from torch import nn

from robustassay import attacks
from robustassay.errors import BadRequest
from robustassay.evaluation.flags import Flag
from robustassay.evaluation.result import CONFIRMS, Result
from robustassay.registry import lookup
from robustassay.target import LocalModel, TargetModel
from robustassay.threat import ThreatModel

if TYPE_CHECKING:
    from robustassay.data import Dataset
    from robustassay.evaluation.run import Job

ADAPTIVE: Final = "adaptive"
"""The key in a manifest that says what was found wrong with the model and what was done about it."""


@final
@dataclass(frozen=True)
class Remedy:
    """Attacks on a module that answers as the model does and is differentiated in a better way."""

    name: str
    because: str
    how: str
    module: nn.Module
    attacks: tuple[str, ...]


@final
@dataclass(frozen=True)
class Advice:
    """What an adviser found, in plain values, and what to do about it, in this order."""

    findings: Mapping[str, Any] = field(default_factory=dict)
    remedies: Sequence[Remedy] = ()

    @property
    def remarks(self) -> dict[str, Any]:
        """What a manifest says of this advice; nothing where none was asked for."""
        return {ADAPTIVE: dict(self.findings)} if self.findings else {}

    def follow(
        self, job: "Job", network: TargetModel, flags: Sequence[Flag], parts: Mapping[str, Result], folder: Path
    ) -> dict[str, Result]:
        """Attack what stands with one remedy after the other; return the results so far and these."""
        found = dict(parts)
        for remedy in self.remedies:
            for number, attack in enumerate(remedy.attacks, 1):
                label = f"{remedy.name}-{number}" if len(remedy.attacks) > 1 else remedy.name
                standing = _standing(Result.worst_of(found))
                if standing:
                    found[label] = _attack(job, network, flags, remedy, attack, standing, parts, folder / label)
        return found


class Adviser(ABC):
    """Looks at a model before it is attacked."""

    @abstractmethod
    def advise(self, network: TargetModel, flags: Sequence[Flag], dataset: "Dataset", threat: ThreatModel) -> Advice:
        """Say what is wrong with a model, and how to attack it nevertheless."""


def seek_advice(job: "Job", network: TargetModel, flags: Sequence[Flag], adviser: str | None) -> Advice:
    """Ask the adviser of this name; no name, no advice."""
    if adviser is None:
        return Advice()
    if type(network) is not LocalModel:
        raise BadRequest("A service shows no gradients to examine: attack it without --adaptive.")
    chosen: Adviser = lookup("adviser", adviser)()
    return chosen.advise(network, flags, job.dataset.whole, job.threat)


def _standing(result: Result) -> set[str]:
    records = result.records
    standing = records["clean_ok"].astype(bool) & ~records["success"].astype(bool)
    return set(records["sample_id"][standing])


def _attack(
    job: "Job",
    network: TargetModel,
    flags: Sequence[Flag],
    remedy: Remedy,
    attack: str,
    standing: set[str],
    parts: Mapping[str, Result],
    folder: Path,
) -> Result:
    """Run one attack of a remedy on the samples that stand; its run is of this model, but of another attack."""
    rows = [row for row, sample in enumerate(job.dataset.ids) if sample in standing]
    smaller = dataclasses.replace(job, dataset=job.dataset.select(rows), shard=(1, 1))
    chosen = attacks.create(attack)
    treated = network.around(remedy.module)
    plain = job.spec(chosen, treated)
    spec = dataclasses.replace(plain, attack={**plain.attack, "remedy": remedy.name})
    remarks = {
        "key": spec.key,
        "spec": dataclasses.asdict(spec),
        CONFIRMS: [part.manifest["key"] for part in parts.values()],
        ADAPTIVE: {"remedy": remedy.name, "because": remedy.because, "how": remedy.how},
    }
    store = smaller.open(treated, flags, chosen, folder, remarks)
    return smaller.run(treated, chosen, store)
