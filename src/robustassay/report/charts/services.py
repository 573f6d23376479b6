"""Draws what a service was shown and what it said, after Table 6 of Liu et al. 2017."""

from collections.abc import Sequence
from pathlib import Path

from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.studies.service import SHOWN, Shown, examples


def draw_examples(shown: Sequence[Shown], dataset: Dataset, path: Path) -> None:
    """Draw a row a group: its images, and under each the service's label clean and changed, and the target."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadRequest("The pictures need matplotlib: pip install 'robustassay[plots]'.") from None

    figure = Figure(figsize=(1.75 * SHOWN, 2.35 * len(shown)), layout="constrained")
    for strip, one in zip(figure.subfigures(len(shown), 1, squeeze=False).flat, shown, strict=True):
        strip.suptitle(f"{one.group.title} ({one.group.source or 'no model'})", fontsize=9, x=0.01, ha="left")
        for axes, row in zip(strip.subplots(1, SHOWN, squeeze=False).flat, examples(one), strict=False):
            image = one.said.images[row]
            axes.imshow(one.x_adv[row].permute(1, 2, 0).numpy().squeeze(), cmap="grey", vmin=0, vmax=1)
            aim = "" if image.target is None else f"\ntarget: {dataset.classes[image.target]}"
            axes.set_xlabel(f"clean: {image.clean_label}\nnow: {image.label}{aim}", fontsize=8, parse_math=False)
        for axes in strip.axes:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
    figure.savefig(path, dpi=130, metadata={"Software": None})
