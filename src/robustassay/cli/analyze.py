"""`assay analyze`: what else a set of models is like."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from robustassay.errors import BadRequest

if TYPE_CHECKING:
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
    outside: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    members: str | None = None,
    attack: str = "pgd",
    norm: Literal["Linf", "L2"] = "Linf",
    eps: str | None = None,
    robust_limit: int | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    seed: int = 0,
    out: Path = Path("runs/analyses"),
    quiet: bool = False,
) -> None:
    """Analyse models beyond robust accuracy: tables as CSV and pictures as PNG, everything kept and resumable.

    Kinds: shift (accuracy on other data), calibration (ECE and temperatures), ood (AUROC of confidence), fairness
    (accuracy of each class), privacy (membership inference), smoothness (local Lipschitz estimates), time (by year and
    venue of the method).

    Parameters
    ----------
    models
        Names of models, as for `assay eval`.
    what
        Kinds of analyses, with commas between them.
    data
        A dataset (see `assay list datasets`).
    limit
        Images, the first ones; all by default.
    shift
        For shift: datasets of the same classes, or corruptions of --data such as `fog:severity=3`.
    outside
        For ood: datasets of other things, or `noise`, `scrambled` or `shuffled` made from --data.
    members
        For privacy: a dataset that the models were trained on.
    attack
        The attack that robust accuracy is measured with.
    norm
        How perturbations are measured.
    eps
        Radius; by default 8/255 (Linf) or 0.5 (L2).
    robust_limit
        Images for the attack, where it takes long; as many as for the rest by default.
    device
        Where to compute; a GPU where there is one.
    seed
        Of all random numbers.
    out
        Folder of the pieces, tables and pictures.
    quiet
        Print the tables only.
    """
    from robustassay import data as datasets
    from robustassay.cli.options import norm_of
    from robustassay.cli.terminal import Terminal
    from robustassay.errors import UnknownName
    from robustassay.report.charts import panels
    from robustassay.studies import analyses
    from robustassay.studies.study import time_left
    from robustassay.studies.workbench import MEMBERS, OUTSIDE, SHIFT, TEST, Workbench
    from robustassay.threat import ThreatModel

    kinds = list(dict.fromkeys(kind.strip() for kind in what.split(",") if kind.strip()))
    for unknown in [kind for kind in kinds if kind not in analyses.KINDS]:
        raise UnknownName("analysis", unknown, analyses.KINDS)
    if not kinds:
        raise BadRequest(f"Name an analysis with --what: {', '.join(analyses.KINDS)}.")
    test = datasets.load(data).take(limit)
    chosen = {TEST: test}
    chosen |= {f"{SHIFT}{name}": _shifted(name, test, seed).take(None) for name in shift or ()}
    chosen |= {f"{OUTSIDE}{name}": _outside(name, test, seed) for name in outside or ()}
    if members is not None:
        whole = datasets.load(members)
        chosen[MEMBERS] = whole.take(min(len(whole), len(test)))
    threat = ThreatModel(norm_of(norm, eps))
    bench = Workbench(tuple(dict.fromkeys(models)), chosen, out, threat, attack, robust_images=robust_limit,
                      seed=seed, device=device)  # fmt: skip
    needs = analyses.needs(bench, kinds)
    terminal = Terminal(quiet=quiet)
    terminal.say(f"{len(needs)} pieces of work, {time_left(bench.estimate(needs))}.")
    with terminal.progress(len(needs)) as progress:
        done = bench.run(needs, progress)
    for found in analyses.make(done, kinds):
        found.write(out)
        for panel in found.panels:
            panels.draw(panel, out / f"{panel.name}.png")
        terminal.say(found.title)
        terminal.listing([str(name) for name in found.table], _cells(found.table))
        for sentence in found.says:
            terminal.say(sentence)
    terminal.say(f"Tables and pictures: {out}")


def _cells(table: "pd.DataFrame") -> list[list[str]]:
    def shown(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    return [[shown(value) for value in row] for row in table.itertuples(index=False)]


def _shifted(name: str, test: "Dataset", seed: int) -> "Dataset":
    """Take a dataset, or spoil the images at hand."""
    from robustassay import data as datasets
    from robustassay.data import corruptions as spoiling

    if name.partition(":")[0] in spoiling.KINDS:
        return spoiling.corrupt(test, name, seed)
    whole = datasets.load(name)
    return whole.take(min(len(whole), len(test)))


def _outside(name: str, test: "Dataset", seed: int) -> "Dataset":
    from robustassay import data as datasets
    from robustassay.studies.out_of_distribution import KINDS, out_of_distribution_images

    if name in KINDS:
        return out_of_distribution_images(test, name, seed)
    whole = datasets.load(name)
    return whole.take(min(len(whole), len(test)))
