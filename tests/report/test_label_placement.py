"""Names in figures: none lies on another, on a point, or outside the axes, where there is room."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from robustassay.report.charts.label_placement import place_names


@pytest.mark.parametrize("bars", [False, True])
def test_names_in_a_crowd_lie_on_no_other_and_inside_the_axes(bars):
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.add_subplot()
    points = np.array([(0.38, 0.50), (0.40, 0.52), (0.43, 0.52), (0.45, 0.51), (0.47, 0.57), (0.0, 0.5), (0.0, 0.51)])
    axes.plot(*points.T, "o")
    axes.margins(0.12, 0.14)
    reach = np.hstack((points[:, :1], points[:, 1:] - 0.05, points[:, 1:] + 0.05))
    names = [f"resnet20x{at}-some-training" for at in range(len(points))]
    place_names(figure, axes, points, points, names, reach if bars else np.empty((0, 3)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [Text.get_window_extent(text, canvas.get_renderer()) for text in axes.texts]  # without its line
    assert sorted(text.get_text() for text in axes.texts) == names
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 for box in boxes)
    if not bars:
        centres = axes.transData.transform(points)
        assert not any(box.contains(*centre) for box in boxes for centre in centres)
