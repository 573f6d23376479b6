"""`assay analyze`: analyses of models beyond robust accuracy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from robustassay.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from robustassay.data import Dataset


def analyze(
    models: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    what: str = "calibration,fairness",
    data: str = "cifar10-1k",
    limit: int | None = None,
    shift: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    ood: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    members: str | None = None,
    attack: str = "pgd",
    norm: str = "Linf",
    eps: str | None = None,
    robust_limit: int | None = None,
    device: str | None = None,
    seed: int = 0,
    out: Path = Path("runs/analyses"),
    quiet: bool = False,
) -> None:
    """Analyse models beyond robust accuracy: tables as CSV, figures as PNG; finished work is kept.

    Kinds: shift (accuracy on other data), robust-shift (robust accuracy on other data), calibration (ECE and
    temperatures), ood (AUROC of confidence), fairness (accuracy of each class), privacy (membership inference),
    smoothness (local Lipschitz estimates), transfer (adversarial examples between the models), time (by year and venue
    of the method).

    Parameters
    ----------
    models
        Names of models, as for `assay eval`.
    what
        Kinds of analyses, comma-separated.
    data
        A dataset (see `assay list datasets`).
    limit
        Number of images, from the first; all by default.
    shift
        For shift: datasets of the same classes, or corruptions of --data such as `fog:severity=3`.
    ood
        For ood: out-of-distribution datasets, or `noise`, `scrambled` or `shuffled`, which are made from --data.
    members
        For privacy: a dataset that the models were trained on.
    attack
        The attack that robust accuracy is measured with.
    norm
        How perturbations are measured.
    eps
        Radius; by default 8/255 (Linf) or 0.5 (L2).
    robust_limit
        Number of images for the attack; as many as for the rest by default.
    device
        Where to compute; a GPU if there is one.
    seed
        Seed of all random numbers.
    out
        Folder of the runs, tables and figures.
    quiet
        Print the tables only.
    """
    from robustassay.cli.options import norm_of
    from robustassay.cli.terminal import Terminal
    from robustassay.errors import UnknownName
    from robustassay.report.charts import panels
    from robustassay.studies import analyses
    from robustassay.studies.analyses.setup import AnalysisSetup
    from robustassay.studies.timing import time_left
    from robustassay.threat import ThreatModel

    kinds = list(dict.fromkeys(kind.strip() for kind in what.split(",") if kind.strip()))
    for unknown in [kind for kind in kinds if kind not in analyses.ANALYSES]:
        raise UnknownName("analysis", unknown, analyses.ANALYSES)
    if not kinds:
        raise BadRequest(f"Name an analysis with --what: {', '.join(analyses.ANALYSES)}.")
    chosen = _datasets(data, limit, shift or (), ood or (), members, seed)
    threat = ThreatModel(norm_of(norm, eps, ("Linf", "L2")))
    names = tuple(dict.fromkeys(models))
    setup = AnalysisSetup(names, chosen, out, threat, attack, robust_images=robust_limit, seed=seed, device=device)
    plan = setup.plan(analyses.requires(setup, kinds))
    terminal = Terminal(quiet=quiet)
    terminal.say(f"{len(plan.tasks)} tasks, {time_left(plan.seconds())}.")
    with terminal.progress(len(plan.tasks)) as progress:
        measured = plan.run(progress)
    for found in analyses.make(measured, kinds):
        found.write(out)
        for panel in found.panels:
            panels.draw(panel, out / f"{panel.name}.png")
        terminal.say(found.title)
        terminal.listing([str(name) for name in found.table], _cells(found.table))
        for sentence in found.notes:
            terminal.say(sentence)
    terminal.say(f"Tables and figures: {out}")


def _datasets(
    data: str, limit: int | None, shift: "Sequence[str]", ood: "Sequence[str]", members: str | None, seed: int
) -> "dict[str, Dataset]":
    from robustassay import data as datasets
    from robustassay.studies.analyses.model_measurements import ATTACKED, MEMBERS, OOD, SHIFT, TEST

    test = datasets.load(data).take(limit)
    chosen = {TEST: test}
    shifted = {name: _shifted(name, test, seed) for name in shift}
    chosen |= {f"{prefix}{name}": other for name, other in shifted.items() for prefix in (SHIFT, ATTACKED)}
    chosen |= {f"{OOD}{name}": _out_of_distribution(name, test, seed) for name in ood}
    if members is not None:
        whole = datasets.load(members)
        chosen[MEMBERS] = whole.take(min(len(whole), len(test)))
    return chosen


def _cells(table: "pd.DataFrame") -> list[list[str]]:
    def shown(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    return [[shown(value) for value in row] for row in table.itertuples(index=False)]


def _shifted(name: str, test: "Dataset", seed: int) -> "Dataset":
    """Load a dataset, or corrupt the test images."""
    from robustassay import data as datasets
    from robustassay.data import corruptions

    if name.partition(":")[0] in corruptions.KINDS:
        return corruptions.corrupt(test, name, seed)
    whole = datasets.load(name)
    return whole.take(min(len(whole), len(test)))


def _out_of_distribution(name: str, test: "Dataset", seed: int) -> "Dataset":
    from robustassay import data as datasets
    from robustassay.studies.out_of_distribution import KINDS, out_of_distribution_images

    if name in KINDS:
        return out_of_distribution_images(test, name, seed)
    whole = datasets.load(name)
    return whole.take(min(len(whole), len(test)))
