"""Draws images sent to a service and the labels it returned, after Table 6 of Liu et al. 2017."""

from pathlib import Path

from robustassay.report.charts.style import figure_of
from robustassay.studies.service_transfer import SHOWN, ServiceMeasurements


def draw_examples(measured: ServiceMeasurements, path: Path) -> None:
    """Draw one row per group: its images, each with the labels of the clean and the changed image and the target."""
    groups, classes = measured.groups, measured.dataset.classes
    with figure_of((1.75 * SHOWN, 2.35 * len(groups)), path, dpi=130) as figure:
        for strip, one in zip(figure.subfigures(len(groups), 1, squeeze=False).flat, groups, strict=True):
            strip.suptitle(f"{one.group.title} ({one.group.source or 'no model'})", fontsize=9, x=0.01, ha="left")
            for axes, row in zip(strip.subplots(1, SHOWN, squeeze=False).flat, one.examples(), strict=False):
                image = one.answers.images[row]
                axes.imshow(one.x_adv[row].permute(1, 2, 0).numpy().squeeze(), cmap="grey", vmin=0, vmax=1)
                target = "" if image.target is None else f"\ntarget: {classes[image.target]}"
                label = f"clean: {image.clean_label}\nnow: {image.label}{target}"
                axes.set_xlabel(label, fontsize=8, parse_math=False)
            for axes in strip.axes:
                axes.set(xticks=[], yticks=[])
                axes.grid(visible=False)
                axes.spines[:].set_visible(False)
