"""Figures of one result, for notebooks: its curves and its adversarial images."""

import io
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from robustassay.analysis.curves import Curve
from robustassay.errors import BadRequest
from robustassay.evaluation.figures import ResultFigures
from robustassay.registry import register
from robustassay.report.charts.style import COLOURS, LOOK, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from robustassay.data import Dataset
    from robustassay.evaluation import Result

SHOWN: Final = 0.95
"""A curve over eps ends where this part of the broken samples is broken."""


@final
@register("figures", "matplotlib")
class MatplotlibFigures(ResultFigures):
    """Draws with matplotlib, which is an extra."""

    def curves(self, curves: list[Curve], norm: str) -> Any:
        """Draw every curve with its 95 % band."""
        figure = _figure((6.4, 3.8))
        axes = figure.add_subplot()
        scale = 255.0 if curves[0].versus == "eps" and norm == "Linf" else 1.0
        for at, curve in enumerate(curves):
            _draw(axes, curve, at, scale)
        unit = (" (1/255)" if scale != 1 else "") if curves[0].versus == "eps" else ""
        axes.set(xlabel=f"{curves[0].versus}{unit}", ylabel=curves[0].measure, ylim=(0, 1.02))
        axes.set_xlim(left=0)
        axes.legend(frameon=False)
        return figure

    def examples(self, result: "Result", dataset: "Dataset", count: int) -> Any:
        """Draw one column per broken sample: the image, the perturbation, the adversarial image."""
        x_adv, rows = result.x_adv, _spread(result, count)
        place = {sample: row for row, sample in enumerate(dataset.ids)}
        if x_adv is None or x_adv.dim() != 4:
            raise BadRequest("There are no images to show: evaluate images with keep_images=True.")
        figure = _figure((1.5 * len(rows) + 0.6, 5.4))
        axes = figure.subplots(3, len(rows), squeeze=False)
        for column, row in enumerate(rows):
            record = result.records.iloc[row]
            x0 = dataset.images([place[record["sample_id"]]])[0]
            change = x_adv[row] - x0
            shown = (x0, 0.5 + change / (2 * change.abs().max().clamp(min=1e-12)), x_adv[row])
            for part, pixels in zip(axes[:, column], shown, strict=True):
                part.imshow(np.clip(pixels.permute(1, 2, 0).numpy(), 0, 1).squeeze(), cmap="gray", vmin=0, vmax=1)
                part.set(xticks=[], yticks=[])
            axes[0, column].set_title(_caption(dataset, record["clean_label"], record["clean_confidence"]), fontsize=8)
            axes[2, column].set_title(_caption(dataset, record["adv_label"], record["adv_confidence"]), fontsize=8)
        for part, text in zip(axes[:, 0], ("image", "perturbation,\nscaled", "adversarial"), strict=True):
            part.set_ylabel(text)
        return figure


def _figure(size: tuple[float, float]) -> Any:
    """Return a figure that notebooks show by themselves, without pyplot and its global state."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise BadRequest("A picture needs matplotlib: pip install 'robustassay[plots]'.") from None

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            content = io.BytesIO()
            self.savefig(content, format="png", dpi=110)
            return content.getvalue()

    with mpl.rc_context(LOOK):
        return NotebookFigure(figsize=size, layout="constrained")


def _draw(axes: "Axes", curve: Curve, at: int, scale: float) -> None:
    frame = curve.to_frame()
    x = frame[curve.versus].to_numpy(np.float64) * scale
    rate, low, high = (frame[name].to_numpy(np.float64) for name in (curve.measure, "low", "high"))
    colour = COLOURS[at % len(COLOURS)]
    if curve.only_at is not None:
        axes.errorbar(x, rate, np.abs((rate - low, high - rate)), fmt="o", color=colour, capsize=3, label=curve.label)
        return
    axes.step(x, rate, where="post", color=colour, linestyle=STYLES[at % len(STYLES)], label=curve.label)
    axes.fill_between(x, low, high, step="post", color=colour, alpha=0.13, linewidth=0)
    broken = curve.breaks_at[np.isfinite(curve.breaks_at)]
    if curve.versus == "eps" and len(broken) and broken.max() > 0:
        axes.set_xlim(right=1.05 * scale * float(broken.quantile(SHOWN)))


def _spread(result: "Result", count: int) -> list[int]:
    """Choose broken samples, spread over the data."""
    fell = result.records["success"].astype(bool) & result.records["clean_ok"].astype(bool)
    broken = np.flatnonzero(fell.to_numpy())
    if not len(broken):
        raise BadRequest("No image was broken, so there is no adversarial image to show.")
    return [int(row) for row in broken[:: max(1, len(broken) // max(1, count))][: max(1, count)]]


def _caption(dataset: "Dataset", label: Any, confidence: Any) -> str:
    name = dataset.classes[int(label)] if int(label) < len(dataset.classes) else str(label)
    return f"{name} {float(confidence):.0%}"
