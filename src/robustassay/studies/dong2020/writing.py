"""The study's folder: tables, pictures, findings, and one page that shows them all."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from robustassay.errors import StoreFailed
from robustassay.studies.dong2020.bench import Bench
from robustassay.studies.dong2020.figures import ELSEWHERE, Figure, Panel, figures
from robustassay.studies.dong2020.findings import findings
from robustassay.studies.dong2020.tables import tables
from robustassay.studies.page import Finding, Table
from robustassay.studies.study import listed


def write(bench: Bench, out: Path, draw: Callable[[Panel, Path], None]) -> list[Finding]:
    """Write everything that the runs at hand can say, and return the findings."""
    made, drawn, found = tables(bench), figures(bench), findings(bench)
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for table in made:
            (out / f"{table.name}.md").write_text(table.markdown, encoding="utf-8")
            table.frame.to_csv(out / f"{table.name}.csv", index=False)
        for figure in drawn:
            for panel in figure.panels:
                draw(panel, out / "figures" / f"{panel.name}.png")
        (out / "findings.md").write_text(_findings(bench, found), encoding="utf-8")
        (out / "study.md").write_text(_page(bench, made, drawn, found), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error
    return found


def left_out(bench: Bench) -> list[str]:
    """Say what of the paper is not here, or not as it is there."""
    rows = [f"{row.label}: its model {row.model} is not in the zoo." for row in bench.missing]
    return [
        *rows,
        ELSEWHERE,
        "Transfer attacks have no curve over strength: the model under attack sees one query of each.",
        "Curves over eps count the smallest radius at which an attempt, or a point between it and the clean image, "
        "succeeded; at the fixed eps they can lie below the tables, whose rates come from one plain attack there.",
    ]


def doubts(bench: Bench) -> list[str]:
    """Name every reason to doubt a run, with the runs it is about."""
    texts, places = {}, defaultdict[str, list[tuple[str, ...]]](list)
    for there, result in bench.results.items():
        found = dict(result.flags)
        if result.invalid_claims:
            found["invalid-claims"] = "Claims of success did not verify; these samples count as standing."
        for name, text in found.items():
            texts[name] = text
            places[name].append(there)
    return [f"{name}: {texts[name]} In {_grouped(bench, found)}." for name, found in places.items()]


def _grouped(bench: Bench, places: list[tuple[str, ...]]) -> str:
    """Write runs row by row; a row of which all are meant is named alone."""
    said = []
    for label in dict.fromkeys(there[0] for there in places):
        own = [" ".join(there[1:]) for there in places if there[0] == label]
        whole = len(own) == sum(there[0] == label for there in bench.results)
        said.append(f"all runs of {label}" if whole else f"{len(own)} of {label} ({', '.join(own)})")
    return "; ".join(said)


def _scope(bench: Bench) -> list[str]:
    sizes = sorted({len(result.records) for result in bench.results.values()}, reverse=True)
    images = f"{sizes[0]} images" + (
        f" ({listed([str(size) for size in sizes[1:]])} in some runs)" if sizes[1:] else ""
    )
    lines = [
        f"Measured on {images}: {bench.says}. Left out, or not as in the paper:",
        "",
        *(f"- {said}" for said in left_out(bench)),
        "",
    ]
    found = doubts(bench)
    return [*lines, "Reasons to doubt some of the runs:", "", *(f"- {said}" for said in found), ""] if found else lines


def _findings(bench: Bench, found: list[Finding]) -> str:
    lead = "# The five findings of Dong et al. (2020), section 5.3, on this zoo"
    how = "Differences are in percentage points, on the same samples, with 95 % intervals; p-values are exact and, "
    how += "within a finding, Holm-corrected unless marked."
    return "\n".join([lead, "", how, "", *_scope(bench), *(finding.markdown for finding in found)])


def _page(bench: Bench, made: list[Table], drawn: list[Figure], found: list[Finding]) -> str:
    lines = ["# Dong et al. (2020), Benchmarking Adversarial Robustness, on this zoo", "", *_scope(bench)]
    lines += ["| finding | |", "|---|---|", *(f"| {one.number}. {one.claim} | {one.verdict} |" for one in found)]
    lines += ["", "The numbers are in [findings.md](findings.md).", ""]
    lines += [table.markdown for table in made]
    for figure in drawn:
        lines += [f"## {figure.title}", ""]
        lines += [f"| {' | '.join(panel.attack for panel in figure.panels)} |", "|" + "---|" * len(figure.panels)]
        lines += ["| " + " | ".join(f"![{p.attack}](figures/{p.name}.png)" for p in figure.panels) + " |", ""]
    return "\n".join(lines)
