"""Draws images sent to a service and the labels it returned, after Table 6 of Liu et al. 2017."""

from pathlib import Path

from robustassay.report.charts.style import figure_of
from robustassay.studies.service_page import ServiceExamples

PER_ROW = 2
"""Pairs; with more, the labels are too small to read at the width of a page."""

LINE = 0.15
"""Height of a line of labels, in inches."""


def draw_examples(found: ServiceExamples, path: Path) -> None:
    """Draw pairs of images, the clean one and the adversarial one, each with its labels below."""
    pairs = len(found.texts)
    rows = -(-pairs // PER_ROW)
    lines = max(text.count("\n") + 1 for texts in found.texts for text in texts)
    with figure_of((3.6 * PER_ROW, (2.05 + LINE * lines) * rows), path, dpi=130) as figure:
        panels = figure.subplots(rows, 2 * PER_ROW, squeeze=False).ravel()
        for at, texts in enumerate(found.texts):
            for axes, image, text in zip(
                panels[2 * at : 2 * at + 2], (found.clean[at], found.adversarial[at]), texts, strict=True
            ):
                axes.imshow(image.permute(1, 2, 0).numpy().squeeze(), cmap="grey", vmin=0, vmax=1)
                axes.set_xlabel(text, fontsize=8.5, parse_math=False)
        for axes in panels:
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
