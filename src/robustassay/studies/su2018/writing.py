"""Writes the study: a page, its tables, its figures and its findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from robustassay.analysis.law import Scatter
from robustassay.analysis.transfer import TransferMatrix
from robustassay.eps import format_eps
from robustassay.errors import StoreFailed
from robustassay.studies.page import Finding
from robustassay.studies.su2018.bench import Bench
from robustassay.studies.su2018.comparison import beside
from robustassay.studies.su2018.findings import findings
from robustassay.studies.su2018.tables import WORDS, matrix, scatter, tables

SMALL_IMAGES: Final = (
    "- The models are small ones for CIFAR-10, trained here; accuracies lie closer together than on ImageNet.",
    "- Matching rates of targets are top-1: of ten classes, the best five would hold nearly everything.",
)
PHOTOGRAPHS: Final = (
    "- The networks are those whose weights are at hand, three of them among the paper's 18; there is no VGG.",
    "- The photographs are those named, which may have been chosen among what a network knows; accuracies in the law "
    "are the publishers', on the validation set.",
    "- Each network sees photographs, and is attacked, at its own size; a larger image is cut at the centre for a "
    "smaller network, and a smaller one set on black, as in the authors' program.",
)


@final
@dataclass(frozen=True, eq=False)
class Figure:
    """Something to draw: models by accuracy and robustness, or a heat map."""

    name: str
    title: str
    content: Scatter | TransferMatrix


def figures(bench: Bench) -> Iterator[Figure]:
    """List the counterparts of Figures 2 to 5."""
    for metric in bench.metrics:
        if len(bench.of_metric(metric)):
            title = f"As Figure 2: {metric.title}, {WORDS[bench.goal]}"
            yield Figure(f"scatter-{metric.key}", title, scatter(bench, metric))
    for goal, way in bench.outcomes:
        plain = "".join(letter if letter.isalnum() else "-" for letter in way.lower().replace("κ=", "")).strip("-")
        title = f"As Figures 3 to 5: {way}, {WORDS[goal]}"
        yield Figure(f"transfer-{goal}-{plain}", title, matrix(bench, goal, way))


def write(bench: Bench, out: Path, draw: Callable[[Figure, Path], None]) -> list[Finding]:
    """Write everything that the work at hand can say, and return the findings."""
    made, drawn, found = tables(bench), list(figures(bench)), findings(bench)
    made = [beside(bench), *made] if bench.scale.photographs else made
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for table in made:
            table.frame.to_csv(out / f"{table.name}.csv", index=False)
        for figure in drawn:
            draw(figure, out / "figures" / f"{figure.name}.png")
            if isinstance(figure.content, TransferMatrix):
                figure.content.rates.to_csv(out / f"{figure.name}.csv")
        where = "ImageNet" if bench.scale.photographs else "this zoo"
        lines = [f"# Su et al. (2018), Is Robustness the Cost of Accuracy?, on {where}", "", *_scope(bench)]
        lines += [
            "| finding | |",
            "|---|---|",
            *(f"| {one.number}. {one.claim} | {one.verdict} |" for one in found),
            "",
        ]
        lines += [finding.markdown for finding in found]
        lines += [table.markdown for table in made]
        for figure in drawn:
            lines += [f"## {figure.title}", "", f"![{figure.title}](figures/{figure.name}.png)", ""]
        (out / "study.md").write_text("\n".join(lines), encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error
    return found


def _scope(bench: Bench) -> list[str]:
    sizes = [len(result.records) for result in bench.results.values()]
    doubts = {name: text for result in bench.results.values() for name, text in result.flags.items()}
    at, twice = (format_eps(n * bench.scale.fixed / 255) for n in (1, 2))
    lines = [
        f"Measured on {min(sizes)} to {max(sizes)} images, {len(bench.models)} models: {bench.scale.says}. Not as in "
        "the paper:",
        "",
        *(PHOTOGRAPHS if bench.scale.photographs else SMALL_IMAGES),
        "- EAD-L1 has no kappa here, and transfers are shown for the smallest and the largest kappa of C&W.",
        "- L2 is divided by the number of pixels, height times width, as in the paper. At one and the same change a "
        "pixel that falls as images grow, so where sizes differ the verdicts rest on RMSD too.",
        f"- I-FGSM and FGSM examples that are shown to other models have taken all their steps at {at} ({twice}).",
        "",
    ]
    if doubts:
        lines += ["Reasons to doubt some of the runs:", "", *(f"- {name}: {text}" for name, text in doubts.items()), ""]
    return lines
