"""`assay curve`: robustness curves from finished runs."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from robustassay.eps import parse_eps


def curve(
    runs: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    versus: Literal["eps", "iterations", "queries"] = "eps",
    rate: Literal["accuracy", "success"] = "accuracy",
    eps: str | None = None,
    at: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    worst_case: bool = False,
    values: int | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    quiet: bool = False,
) -> None:
    """Show accuracy or attack success over perturbation budget, iterations or queries, from finished runs.

    Nothing is run again. Over eps, an attack that seeks the minimum, such as fmn, or any with `--smallest-eps`, gives
    a whole curve, and one on a fixed budget the point at its own eps. Every rate has its 95 % interval.

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold some.
    versus
        What lies along the axis.
    rate
        Accuracy over all samples, or success over those classified correctly (over all, where targeted).
    eps
        Over iterations or queries, how close an attack that seeks the minimum must come; its run's eps by default.
    at
        Where the table shows the rates, such as `2/255 4/255 8/255`; the file has every step.
    worst_case
        One curve a model: each sample falls to the first of its attacks.
    values
        Values in an image, such as 150528: L2 distances are then normalised by its root (Dong et al. 2020).
    out
        Also write a picture (.png, .svg; needs the extra `plots`) or the data (.csv, .parquet).
    quiet
        Print the table only.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.report.charts import curve_chart

    if out is not None:
        curve_chart.check_name(out)
    within = None if eps is None else parse_eps(eps)
    chart = curve_chart.read_chart(runs, versus, rate, within, worst_case, values)
    terminal = Terminal(quiet=quiet)
    terminal.listing(*chart.table([parse_eps(place) for place in at or ()]))
    for title in chart.left_out:
        terminal.say(f"Left out: {title} looked only at what other runs left in doubt; --worst-case counts it.")
    if out is not None:
        curve_chart.save(chart, out)
        terminal.say(f"Saved {out}")
