"""Draws the figures of studies: which function of the report draws which content."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustassay.studies.page import Figure


def draw_small(figure: "Figure", path: Path) -> None:
    """Draw a figure with few colours, in a third of the bytes, as documentation keeps every version of it."""
    from robustassay.report.charts.few_colours import shrink
    from robustassay.studies.liu2017.figures import ExampleImage

    draw(figure, path)
    if not isinstance(figure.content, ExampleImage):  # a photograph has many
        shrink(path, path)


def draw(figure: "Figure", path: Path) -> None:
    """Draw a figure by the type of its content."""
    from robustassay.analysis.law import Scatter
    from robustassay.analysis.panels import Bars, HeatMap, Lines, Panel, Points, Reliabilities
    from robustassay.analysis.transfer import TransferMatrix
    from robustassay.report.charts import defense_panels, matrices, panels, planes, scatter, services
    from robustassay.studies.dong2020.figures import DefensePanels
    from robustassay.studies.liu2017.figures import (
        BoundaryMap,
        ErrorIntervals,
        ExampleImage,
        Histograms,
        LogitLines,
        RegionMaps,
        SuccessCounts,
    )
    from robustassay.studies.service_page import ServiceExamples

    match figure.content:
        case DefensePanels() as shown:
            defense_panels.draw(shown, path)
        case Scatter() as found:
            scatter.draw(found, path, figure.title)
        case TransferMatrix() as matrix:
            matrices.draw_transfer(matrix, path, figure.title)
        case Points() | Bars() | Lines() | Reliabilities() | HeatMap() as content:
            panels.draw(Panel(figure.name, figure.title, content), path)
        case Histograms(values, axis):
            matrices.draw_distributions(values, path, axis, figure.title)
        case ExampleImage(pixels, title):
            planes.draw_image(pixels, path, title)
        case RegionMaps(regions, along, classes):
            planes.draw_regions(regions, path, classes, along)
        case BoundaryMap(regions, title, along):
            planes.draw_boundaries(regions, path, title, along)
        case ErrorIntervals(wrong, end, axis):
            matrices.draw_rays(wrong, end, path, axis, figure.title)
        case SuccessCounts(counts, total, axis):
            matrices.draw_versus(counts, total, path, axis, figure.title)
        case LogitLines(logits, classes):
            planes.draw_linearity(logits, path, classes)
        case ServiceExamples() as examples:
            services.draw_examples(examples, path)
        case other:
            raise TypeError(f"No drawing function for {type(other).__name__}: add one to cli/study/drawing.py.")
