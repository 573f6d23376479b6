"""The result of an evaluation: one record per sample, and the numbers computed from them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pandas as pd
import pyarrow as pa

from robustassay.analysis import curves, rates, trust
from robustassay.analysis.random_protocols import RandomProtocols, random_protocols
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation import plausibility
from robustassay.evaluation.arguments import as_dataset
from robustassay.evaluation.figures import result_figures
from robustassay.evaluation.result_display import to_html
from robustassay.evaluation.spec import check_version
from robustassay.records import SCHEMA, to_pandas
from robustassay.results import run_warnings
from robustassay.results.discovery import child_run_folders
from robustassay.results.evidence import Evidence, attack_traits, evidence, proved_samples
from robustassay.results.identity import comparison, confirmed_run_keys
from robustassay.results.self_test import SelfTest
from robustassay.results.worst_case import attacked_samples, worst_case
from robustassay.store import Store

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class Result:
    """The records of one evaluation, one row per sample.

    For several attacks, `parts` holds the result of each, and the records are the worst case per sample, with a column
    `attack` that names the attack of the row. `failures` maps samples without a record to the error that the model
    raised on them: they count neither as robust nor as broken.
    """

    manifest: Mapping[str, Any]
    records: pd.DataFrame = field(repr=False)
    x_adv: "torch.Tensor | None" = field(repr=False)
    parts: Mapping[str, "Result"] = field(default_factory=dict, repr=False)
    failures: Mapping[str, str] = field(default_factory=dict, repr=False)
    dataset: Dataset | None = field(default=None, repr=False, compare=False)  # None after `load`

    @property
    def clean_accuracy(self) -> float:
        """Part of the samples classified correctly without an attack."""
        return rates.clean_accuracy(self.records).value

    @property
    def robust_accuracy(self) -> float:
        """Part of the samples classified correctly and not broken: an upper bound of the true robust accuracy."""
        return rates.robust_accuracy(self.records).value

    @property
    def attack_success_rate(self) -> float:
        """Part of the correctly classified samples (targeted: of all samples) on which the attack reached its goal."""
        return rates.attack_success_rate(self.records).value

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the robust accuracy."""
        return rates.robust_accuracy(self.records).interval()

    @property
    def invalid_claims(self) -> int:
        """How many claimed successes were not verified, over all attacks; they count as failures of the attack."""
        if self.parts:
            return sum(part.invalid_claims for part in self.parts.values())
        return run_warnings.invalid_claims([self])

    @property
    def flags(self) -> dict[str, str]:
        """Warnings about the robust accuracy, each with what it means; empty if there are none."""
        if not self.parts:
            return run_warnings.run_flags(self.manifest, self.records, self.failures)
        found = run_warnings.merged_flags(self.parts.values())
        found.pop(trust.UNJUDGED, None)
        return found | trust.unjudged(rates.robust_accuracy(self.records), self.failures)

    @property
    def assessment(self) -> str:
        """How far the robust accuracy can be trusted, and what to do next, in one line."""
        return plausibility.assessment(self)

    @property
    def notes(self) -> list[str]:
        """Sentences about what looks wrong: implausible clean accuracy, unusual radii."""
        return list(plausibility.notes(self))

    @property
    def doubtful(self) -> list[str]:
        """The ids of unbroken samples that a stronger attack may still break."""
        manifests = self._manifests
        return run_warnings.samples_in_doubt(
            self.records, self.flags, proved_samples(manifests), attack_traits(manifests)
        )

    @property
    def random_protocols(self) -> RandomProtocols | None:
        """The robust accuracy of a random model under three protocols; None for other models."""
        return random_protocols(self.records)

    @property
    def self_test(self) -> SelfTest:
        """How many planted adversarial examples the attack found, or all attacks together."""
        return self.evidence.self_test

    @property
    def evidence(self) -> Evidence:
        """How the robust accuracy was earned: grade of the attacks, self-test, certified lower bound."""
        return evidence(self._manifests, set(self.records["sample_id"][rates.unbroken(self.records)]))

    @property
    def _manifests(self) -> list[Mapping[str, Any]]:
        return [part.manifest for part in self.parts.values()] or [self.manifest]

    @property
    def fall_probability(self) -> dict[str, float]:
        """The probability, by sample id, that each unbroken sample falls to AutoAttack; zero where a proof says so."""
        stands = rates.unbroken(self.records)
        probability = trust.fall_probability(self.records, self.flags, attack_traits(self._manifests))
        found = dict(zip(self.records["sample_id"], probability, strict=True))
        proved = proved_samples(self._manifests)
        return {one: 0.0 if one in proved else found[one] for one in self.records["sample_id"][stands]}

    @property
    def stages(self) -> dict[str, float]:
        """The robust accuracy after each stage of a composed attack; empty for a simple one."""
        stages = trust.after_each_stage(self.records, self.manifest.get("stages", ()))
        return {name: rate.value for name, rate in stages.items()}

    def curve(
        self, versus: curves.Versus = "eps", rate: curves.Measure = "accuracy", eps: float | None = None
    ) -> curves.Curve:
        """Return accuracy or attack success versus eps, iterations or queries; for several attacks, the worst case.

        `eps` is the distance within which a success of a minimum-norm attack counts; a curve over eps needs none.
        """
        if "counting" in self.manifest:
            raise BadRequest("Draw the full result instead: the 8-bit view has no curve.")
        if not self.parts:
            return curves.of_run(self.manifest, self.records, versus, rate, eps)
        parts = {
            name: curves.of_run(part.manifest, part.records, versus, rate, eps, name)
            for name, part in self.parts.items()
        }
        whole = next(iter(parts.values()))
        confirmed = [
            part.over(whole) if confirmed_run_keys(self.parts[name].manifest) else part for name, part in parts.items()
        ]
        return curves.merge(confirmed, f"worst case of {', '.join(parts)}")

    def plot(self, versus: curves.Versus | None = None, rate: curves.Measure = "accuracy") -> Any:
        """Draw the curve of every attack and of the worst case; return a matplotlib Figure.

        By default over eps for attacks that give a whole curve, over queries for attacks without gradients, else over
        iterations.
        """
        runs = [run for run in self.parts.values() if not confirmed_run_keys(run.manifest)] or [self]
        axis = versus or _natural_axis(runs)
        drawn = [
            curves.of_run(run.manifest, run.records, axis, rate, label=run.manifest["spec"]["attack"]["name"])
            for run in runs
        ]
        if len(self.parts) > 1:
            drawn.append(dataclasses.replace(self.curve(axis, rate), label="worst case"))
        return result_figures().curves(drawn, str(runs[0].manifest["spec"]["threat"]["norm"]))

    def show_examples(self, count: int = 6, data: Any = None) -> Any:
        """Draw broken samples: image, perturbation and adversarial image; return a matplotlib Figure.

        `data` is needed only for a loaded result whose data have no name that `assay` knows.
        """
        spec = self._manifests[0]["spec"]["data"]
        dataset = as_dataset(data) if data is not None else self.dataset or as_dataset(spec["name"])
        if dataset.sha256 != spec["sha256"]:
            raise BadRequest(f"These are not the images of the run, {spec['name']}: give them as data=.")
        return result_figures().examples(self, dataset, count)

    def counting_uint8_only(self) -> "Result":
        """Return a copy that counts only successes that remain after rounding to 8 bits."""
        still_succeeds = self.records["success"] & self.records["uint8_ok"].fillna(False)
        manifest = {**self.manifest, "counting": "8-bit successes only"}
        return dataclasses.replace(self, manifest=manifest, records=self.records.assign(success=still_succeeds))

    @classmethod
    def worst_of(cls, parts: Mapping[str, "Result"]) -> "Result":
        """Merge the results of several attacks on one model, threat and set of samples."""
        parts = dict(sorted(parts.items(), key=lambda item: bool(confirmed_run_keys(item[1].manifest))))
        first = next(iter(parts.values()))
        everyone = attacked_samples(first)
        for name, part in parts.items():
            if comparison(part.manifest["spec"]) != comparison(first.manifest["spec"]):
                raise BadRequest(f"{name} is a run of another model, data or threat: load the runs one by one.")
            samples = attacked_samples(part)
            if not (samples <= everyone if confirmed_run_keys(part.manifest) else samples == everyone):
                raise BadRequest(f"{name} covers other samples than the rest: finish all runs first, or load it alone.")
        records = worst_case(parts)
        failed = {sample: why for part in parts.values() for sample, why in part.failures.items()}
        failures = {sample: why for sample, why in failed.items() if sample not in set(records["sample_id"])}
        manifest = {"parts": {name: part.manifest for name, part in parts.items()}}
        return cls(manifest, records, _gather_images(records, parts), dict(parts), failures)

    def save(self, path: str | Path) -> None:
        """Write the result to a folder that `Result.load` reads; records already there are kept."""
        folder = Path(path)
        if "counting" in self.manifest:
            raise BadRequest("Save the full result instead: the 8-bit view is not a run.")
        if self.parts:
            for name, part in self.parts.items():
                part.save(folder / name)
            return
        store = Store.open(folder, self.manifest)
        new = ~self.records["sample_id"].isin(store.done()).to_numpy(bool)
        if new.any():
            table = pa.Table.from_pandas(self.records[new], schema=SCHEMA, preserve_index=False)
            store.append(table, None if self.x_adv is None else self.x_adv[new])
        store.note_redone(self.records["sample_id"].tolist())
        store.note_failures({sample: why for sample, why in self.failures.items() if sample not in store.failures()})

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read a run, or a folder of runs on the same samples as one."""
        folder = Path(path)
        if Store(folder).exists():
            return cls.of_store(Store(folder))
        runs = child_run_folders(folder)
        if not runs:
            below = sorted(one.name for one in folder.glob("*") if one.is_dir() and child_run_folders(one))
            several = f"holds the runs of {', '.join(below)}: give the folder of one of them."
            raise BadRequest(f"{path} {several if below else 'holds no run: give the folder named by --out.'}")
        return cls.worst_of({run.name: cls.of_store(Store(run)) for run in runs})

    @classmethod
    def of_store(cls, store: Store, ids: "list[str] | None" = None) -> "Result":
        """Read the records of some samples, in that order; by default of all samples, in the order of their ids."""
        import torch

        check_version(store.manifest(), store.path)
        failures = store.failures()

        records = to_pandas(store.records()).set_index("sample_id")
        asked = sorted({*records.index, *failures}, key=lambda sample: (len(sample), sample)) if ids is None else ids
        ids = [sample for sample in asked if sample not in failures]
        images = store.images()
        x_adv = torch.stack([images[sample] for sample in ids]) if ids and images.keys() >= set(ids) else None
        failed = {sample: failures[sample] for sample in asked if sample in failures}
        return cls(store.manifest(), records.loc[ids].reset_index(), x_adv, failures=failed)

    @property
    def title(self) -> str:
        """Model, data, attack and threat; of several attacks, their names."""
        return str(self.manifest.get("title", "worst case of " + ", ".join(self.parts)))

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.title}: clean {rates.percent(self.clean_accuracy)}, robust {rates.percent(self.robust_accuracy)} "
            f"(95 % interval {low:.1%} to {high:.1%}, {len(self.records)} samples; {self.evidence.label}"
            f"{f'; the model failed on {len(self.failures)} more' if self.failures else ''})"
        )

    def __repr__(self) -> str:
        return f"<Result {self}>"

    def _repr_html_(self) -> str:
        return to_html(self)


def _natural_axis(runs: Sequence[Result]) -> curves.Versus:
    over_eps = (curves.of_run(run.manifest, run.records, "eps", "accuracy") for run in runs)
    if all(curve.only_at is None for curve in over_eps):
        return "eps"
    return "iterations" if any(run.records["backwards"].sum() for run in runs) else "queries"


def _gather_images(records: pd.DataFrame, parts: Mapping[str, Result]) -> "torch.Tensor | None":
    """Take each sample's image from the attack of its row; the images of a part are in the order of its records."""
    import torch

    where = {
        name: {sample: row for row, sample in enumerate(part.records["sample_id"])} for name, part in parts.items()
    }
    images = []
    for sample, name in zip(records["sample_id"], records["attack"], strict=True):
        x_adv = parts[name].x_adv
        if x_adv is None:
            return None
        images.append(x_adv[where[name][sample]])
    return torch.stack(images)
