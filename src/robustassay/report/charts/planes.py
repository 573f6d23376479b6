"""Draws decision regions, boundaries, and logits along a ray."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from robustassay.analysis.geometry import Linearity, Numbers, Regions
from robustassay.report.charts.style import COLOURS, STYLES, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Paul Tol's muted scheme and its pale grey: readable with all kinds of colour vision.
FILLS: Final = (
    *("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#DDDDDD"),
)
OTHERS: Final = "#FFFFFF"  # classes beyond the ten that cover most
UNIT: Final = "RMSD, 1/255"
LONG_LABEL: Final = 20
"""Letters of a label of which no three fit below a square figure."""


def draw_image(pixels: Numbers, path: Path, title: str = "") -> None:
    """Draw one image, height x width x channels in [0, 1]."""
    with figure_of((3.2, 3.5), path) as figure:
        axes = figure.add_subplot()
        axes.imshow(pixels.squeeze(), cmap="grey", vmin=0, vmax=1, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_title(title, fontsize=10, parse_math=False)


def draw_regions(
    zooms: Mapping[str, Regions], path: Path, class_names: Sequence[str] = (), along: str = "gradient direction"
) -> None:
    """Draw one row per zoom and one panel per model; a class has the same colour in all panels."""
    models = list(next(iter(zooms.values())).labels)
    shown = _largest_classes(zooms.values())
    with figure_of((2.1 * len(models) + 1.0, 2.25 * len(zooms) + 0.9), path) as figure:
        panels = figure.subplots(len(zooms), len(models), squeeze=False)
        for row, (zoom, found) in zip(panels, zooms.items(), strict=True):
            for axes, model in zip(row, models, strict=True):
                _fill(axes, found, model, shown)
            row[0].set_ylabel(f"{zoom}\nrandom direction")
        for axes, model in zip(panels[0], models, strict=True):
            axes.set_title(model, fontsize=9)
        for axes in panels[-1]:
            axes.set_xlabel(f"{along}\n({UNIT})", fontsize=8)
        _legend(figure, shown, class_names)


def draw_boundaries(found: Regions, path: Path, title: str = "", along: str = "gradient direction") -> None:
    """Draw the boundary of the class in question for each model; outside of it the model predicts another class."""
    from matplotlib.lines import Line2D

    with figure_of((5.6, 5.4 + 0.2 * (len(found.margins) // 3)), path) as figure:
        axes, lines = figure.add_subplot(), []
        axes.grid(visible=False)
        for at, (model, margin) in enumerate(found.margins.items()):
            colour, style = COLOURS[at % len(COLOURS)], STYLES[at // len(COLOURS) % len(STYLES)]
            label = model
            if margin.min() < 0 < margin.max():
                axes.contour(found.ticks, found.ticks, margin, levels=[0.0], colors=[colour], linestyles=[style])
            else:
                label += " (everywhere)" if margin.min() >= 0 else " (nowhere)"
            lines.append(Line2D([], [], color=colour, ls=style, label=label))
        axes.plot(0, 0, "+", color="black", ms=9)
        axes.set(xlabel=f"{along} ({UNIT})", ylabel=f"random direction ({UNIT})")
        end = _extent(found)
        axes.set(xlim=(-end, end), ylim=(-end, end))
        axes.set_box_aspect(1)  # both directions have the same unit
        axes.set_title(title, fontsize=10)
        wide = 2 if max(len(str(line.get_label())) for line in lines) > LONG_LABEL else 3
        figure.legend(handles=lines, loc="outside lower center", ncols=wide, frameon=False, handlelength=3, fontsize=8)


def _extent(found: Regions) -> float:
    """Return how far from the centre to draw: a step beyond the farthest point of the class, or the whole square."""
    inside = np.any([margin >= 0 for margin in found.margins.values()], axis=0)
    far = np.abs(found.ticks)
    farthest = max(float((far * inside.any(axis)).max()) for axis in (0, 1))
    step = float(np.diff(found.ticks).max()) if len(found.ticks) > 1 else 0.0
    return min(float(far.max()), max(1.2 * farthest, farthest + step)) or float(far.max())


def draw_linearity(found: Mapping[str, Linearity], path: Path, class_names: Sequence[str] = ()) -> None:
    """Draw the logits of each model along its ray: the true class as a thick line, ten others as thin lines."""
    columns = 2 if len(found) == 4 else min(3, len(found))
    rows = -(-len(found) // columns)
    width = 4.5 if len(found) == 4 else 3.0  # the legend is as wide as three narrow panels
    with figure_of((width * columns + 0.8, 2.6 * rows + 0.7), path) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        classes = sorted({one for linear in found.values() for one in linear.top()})
        for axes, (model, linear) in zip(panels, found.items(), strict=False):
            for one in linear.top()[::-1]:
                true = one == linear.label
                colour, style = _line(classes.index(one))
                look = ("#D55E00", "-", 2.6) if true else (colour, style, 1.0)
                axes.plot(
                    linear.distortions, linear.logits[:, one], color=look[0], linestyle=look[1], linewidth=look[2]
                )
            axes.set_title(model, fontsize=9)
            axes.set_xlabel(f"distortion ({UNIT})", fontsize=8)
            axes.set_ylabel("logit", fontsize=8)
            axes.tick_params(labelsize=8)
        for axes in panels[len(found) :]:
            axes.set_axis_off()
        _lines_legend(figure, classes, {linear.label for linear in found.values()}, class_names)


def _largest_classes(found: Any) -> list[int]:
    """Return the classes that cover most of the area, one per colour, the class in question first."""
    every = np.concatenate([labels.ravel() for one in found for labels in one.labels.values()])
    about = next(iter(found)).about
    classes, counts = np.unique(every, return_counts=True)
    order = sorted(zip(-counts, classes.tolist(), strict=True), key=lambda pair: (pair[1] != about, *pair))
    return [one for _, one in order[: len(FILLS)]]


def _fill(axes: "Axes", found: Regions, model: str, shown: Sequence[int]) -> None:
    from matplotlib.colors import ListedColormap

    codes = np.full_like(found.labels[model], len(FILLS))
    for code, one in enumerate(shown):
        codes[found.labels[model] == one] = code
    end = float(found.ticks[-1])
    palette = ListedColormap([*FILLS, OTHERS])
    extent = (-end, end, -end, end)
    axes.imshow(codes, cmap=palette, vmin=0, vmax=len(FILLS), origin="lower", extent=extent, interpolation="nearest")
    axes.plot(0, 0, "+", color="white", ms=8, mew=2.4)
    axes.plot(0, 0, "+", color="black", ms=7, mew=1.0)
    axes.tick_params(labelsize=7)
    axes.grid(visible=False)
    axes.set_xticks([-end, 0, end])
    axes.set_yticks([-end, 0, end])


def _legend(figure: "Figure", shown: Sequence[int], class_names: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(facecolor=fill, edgecolor="#888888", label=_name(one, class_names))
        for one, fill in zip(shown, FILLS, strict=False)
    ]
    if len(shown) == len(FILLS) < len(class_names):
        patches.append(Patch(facecolor=OTHERS, edgecolor="#888888", label="other"))
    figure.legend(handles=patches, loc="outside lower center", ncols=min(6, len(patches)), frameon=False, fontsize=8)


def _lines_legend(figure: "Figure", classes: Sequence[int], true: set[int], class_names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color="#D55E00", linewidth=2.6, label=f"true: {_name(min(true), class_names)}")]
    for at, one in enumerate(classes):
        if {one} != true:
            colour, style = _line(at)
            handles.append(Line2D([], [], color=colour, ls=style, label=_name(one, class_names)))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8, handlelength=3)


def _line(at: int) -> tuple[str, str]:
    """Return a colour and a style for a class; only the true class has its colour."""
    rest = [colour for colour in COLOURS if colour != "#D55E00"]
    return rest[at % len(rest)], STYLES[at // len(rest) % len(STYLES)]


def _name(one: int, class_names: Sequence[str]) -> str:
    return class_names[one] if one < len(class_names) else f"class {one}"
