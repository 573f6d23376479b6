"""Writes the study: the leaderboard, a page, its tables, its pictures and its findings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from robustassay.analysis.panels import Panel
from robustassay.errors import StoreFailed
from robustassay.leaderboard import Board, boards, gather
from robustassay.leaderboard import write as write_boards
from robustassay.leaderboard.writing import HEADING, lines
from robustassay.studies.analyses import Analysis
from robustassay.studies.page import Finding
from robustassay.studies.robustbench2021.findings import findings
from robustassay.studies.robustbench2021.plan import Scale
from robustassay.studies.workbench import Bench

FIGURES: Final = {
    "time": "Figure 2",
    "shift": "Figure 3",
    "calibration": "Figure 4",
    "ood": "Figure 5",
    "fairness": "Figure 6",
    "privacy": "Figure 7",
    "smoothness": "appendix F",
}
"""Which of the paper's figures an analysis is the counterpart of."""


NEEDS: Final = {
    "privacy": "it needs images the models were trained on (--members)",
    "fairness": "it needs several images of each class",
}
"""Why an analysis may be missing."""


@final
@dataclass(frozen=True, eq=False)
class Report:
    """What the study came to."""

    boards: tuple[Board, ...] = field(repr=False)
    analyses: tuple[Analysis, ...] = field(repr=False)
    findings: tuple[Finding, ...]


def write(
    bench: Bench,
    made: Sequence[Analysis],
    scale: Scale,
    out: Path,
    runs: Sequence[Path],
    published: Sequence[Path],
    draw: Callable[[Panel, Path], None],
) -> Report:
    """Write everything, and return what was found."""
    gathered = gather(runs, published)
    tables = boards(gathered.entries)
    found = findings(bench, {analysis.name: analysis for analysis in made})
    write_boards(tables, out / "leaderboard", gathered.problems)
    for analysis in made:
        analysis.write(out / "tables")
        for panel in analysis.panels:
            draw(panel, out / "figures" / f"{panel.name}.png")
    try:
        page = "\n".join(_page(bench, tables, made, found, scale))
        (out / "study.md").write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error
    return Report(tuple(tables), tuple(made), tuple(found))


def _page(
    bench: Bench, tables: Sequence[Board], made: Sequence[Analysis], found: Sequence[Finding], scale: Scale
) -> list[str]:
    text = ["# Croce et al. (2021), RobustBench, on this zoo", "", *_scope(bench, made, scale)]
    text += ["| finding | |", "|---|---|", *(f"| {one.number}. {one.claim} | {one.verdict} |" for one in found), ""]
    for board in tables:
        rows = [list(HEADING), ["---"] * len(HEADING), *lines(board)]
        text += [f"## Leaderboard: {board.threat}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    text += ["Per attack, with costs and flags: [leaderboard/board.md](leaderboard/board.md).", ""]
    text += [finding.markdown for finding in found]
    for analysis in made:
        text += [f"## {analysis.title} (as {FIGURES[analysis.name]})", ""]
        text += [*(f"- {sentence}" for sentence in analysis.says), ""]
        text += [f"![{panel.title}](figures/{panel.name}.png)" for panel in analysis.panels]
        text += ["", f"Numbers: {', '.join(f'[{name}.csv](tables/{name}.csv)' for name in analysis.tables)}.", ""]
    return text


def _scope(bench: Bench, made: Sequence[Analysis], scale: Scale) -> list[str]:
    attacked = sorted({len(result.records) for result in bench.results.values()})
    missing = [
        f"{figure}: {NEEDS[name]}."
        for name, figure in FIGURES.items()
        if name not in {analysis.name for analysis in made}
    ]
    return [
        f"{len(bench.models)} models, {scale.says}; {attacked[-1]} images under attack ({scale.attack}). "
        "Not as in the paper:",
        "",
        "- The models are those at hand, none of them trained with extra data to compare with.",
        "- Years and venues are those of the methods' papers.",
        "- Shifts are corruptions of the same images; outsiders are made from them too, unless others are named.",
        "- Temperatures are fitted on other images than they are judged on; the paper's variant stands beside.",
        *(f"- Left out, {sentence}" for sentence in missing),
        "",
    ]
