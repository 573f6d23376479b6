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
    """Show accuracy or attack success versus radius, iterations or queries, from finished runs.

    No attack is run. Over eps, a minimum-norm attack such as fmn, or any attack with `--smallest-eps`, gives a whole
    curve; an attack within a fixed radius gives one point. Every rate has its 95 % interval.

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold some.
    versus
        The quantity of the x axis.
    rate
        Accuracy over all samples, or success over the correctly classified ones (targeted: over all).
    eps
        Over iterations or queries: the distance within which a success counts; by default the eps of the run.
    at
        Points at which the table shows the rates, such as `2/255 4/255 8/255`; the file has all steps.
    worst_case
        One curve per model: the worst case over its attacks.
    values
        Number of values of an image, such as 150528: L2 distances are divided by its square root (Dong et al. 2020).
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
        terminal.say(f"Left out: {title} covers only samples that other runs left in doubt; --worst-case includes it.")
    if out is not None:
        curve_chart.save(chart, out)
        terminal.say(f"Saved {out}")
