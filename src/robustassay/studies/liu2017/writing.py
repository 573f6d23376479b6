"""The study's folder: tables, pictures, findings, and one page that shows them all."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from robustassay.errors import StoreFailed
from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.figures import Figure, figures
from robustassay.studies.liu2017.findings import findings
from robustassay.studies.liu2017.tables import tables, top_of
from robustassay.studies.page import Finding, Table
from robustassay.studies.study import listed

TITLE: Final = "# Liu et al. 2017, Delving into Transferable Adversarial Examples and Black-box Attacks"


def write(bench: Bench, draw: Callable[[Figure, Path], None]) -> tuple[list[Table], list[Finding]]:
    """Write everything, and return the tables and findings."""
    out = bench.out
    made, drawn, found = tables(bench), figures(bench), findings(bench)
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        (out / "tables").mkdir(parents=True, exist_ok=True)
        for table in made:
            table.frame.to_csv(out / "tables" / f"{table.name}.csv", index=False)
        for figure in drawn:
            draw(figure, out / "figures" / f"{figure.name}.png")
        (out / "study.md").write_text(_page(bench, made, drawn, found), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error
    return made, found


def _page(bench: Bench, made: list[Table], drawn: list[Figure], found: list[Finding]) -> str:
    parts = [f"{TITLE}, on {bench.dataset.name}", "", *(f"- {line}" for line in _settings(bench)), "", "# Findings", ""]
    parts += [one.markdown for one in found]
    parts += [
        "# Tables",
        "",
        "In brackets: 95 % Wilson intervals. A row `-name` is made on all models but that one.",
        "",
    ]
    parts += [table.markdown for table in made]
    parts += ["# Figures", ""]
    parts += [f"**{figure.title}**\n\n![{figure.title}](figures/{figure.name}.png)\n" for figure in drawn]
    return "\n".join(parts)


def _settings(bench: Bench) -> list[str]:
    scale, images, classes = bench.scale, len(bench.images), len(bench.dataset.classes)
    few = "" if top_of(bench) == 5 else f"; top-{top_of(bench)} stands for its top-5, as there are {classes} classes"
    return [
        f"Models: {listed(list(bench.members))}. Scale: {scale.says}.",
        f"Images: the first {images} of {bench.dataset.name} that all models classify correctly, so that both ways to "
        "count (all examples; those whose clean image both models know) agree.",
        f"Optimisation: Adam, {scale.steps} steps, learning rate {scale.rate:g} (0 to 255 scale), the paper's. Several "
        "models share that rate and their updates are summed, instead of the paper's 8 for each, which moves small "
        "images by an RMSD above 80: ensembles' examples lie closer than the paper's.",
        "FG and FGS go as far as optimisation on the same source did, on average.",
        f"Targets are drawn at random (the paper's were chosen by hand){few}.",
        "Not here: Tables 6 and 34 and Figure 2, which show images sent to an online service: "
        "`assay study service` sends them to one.",
    ]
