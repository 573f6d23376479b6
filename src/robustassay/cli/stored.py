"""`assay show`, `assay compare` and `assay view`: finished runs, read from their folders."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from robustassay.errors import BadRequest

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation import Result


def show(run: Path, /, *, json: bool = False) -> None:
    """Show a finished run: its numbers, its warnings, the samples that nearly fell, and the command that repeats it.

    Parameters
    ----------
    run
        Folder of a run, or of several attacks on one model.
    json
        Print the numbers as JSON instead.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.report.repeat import repeat_evaluation

    terminal, result = Terminal(), _load(run)
    parts = list(result.parts.values())
    if json:
        terminal.json([*(parts or [result]), *([result] if parts else [])])
        return
    terminal.table(parts or [result])
    if parts:
        terminal.result(result)
    terminal.warnings(result)
    _show_closest(terminal, result)
    repeated = repeat_evaluation(run)
    if repeated.command is not None:
        terminal.command("Command that repeats it:", repeated.command)
    if repeated.note is not None:
        terminal.paragraph(repeated.note)


def _show_closest(terminal: "Terminal", result: "Result", count: int = 5) -> None:
    """List the unbroken samples with the least margin left."""
    from robustassay.analysis import rates

    records = result.records
    standing = records[rates.unbroken(records)]
    classes = _class_names(result)
    rows = [
        [
            str(row.sample_id),
            classes.get(str(row.label), str(row.label)),
            f"{row.clean_margin:.3g}",
            f"{row.margin:.3g}",
        ]
        for row in standing.nsmallest(count, "margin").itertuples()
    ]
    if rows:
        terminal.title("Unbroken samples that came closest")
        terminal.listing(["sample", "class", "margin before", "least margin under attack"], rows)


def _class_names(result: "Result") -> dict[str, str]:
    """Return the names of the classes by number; none where the data are not embedded or not found here."""
    from robustassay import data
    from robustassay.errors import AssayError

    spec = next(iter(result.parts.values()), result).manifest["spec"]["data"]
    if not data.names_no_path(spec["name"]):
        return {}
    try:
        return {str(number): name for number, name in enumerate(data.load(spec["name"]).classes)}
    except AssayError:
        return {}


def compare(first: Path, second: Path, /, *, json: bool = False) -> None:
    """Compare two finished runs on the same samples, by an exact paired test (McNemar).

    Parameters
    ----------
    first
        Folder of a run, or of several attacks on one model.
    second
        Folder of the other run: another model, or another attack on the same model.
    json
        Print the numbers as JSON instead.
    """
    from json import dumps

    from robustassay.analysis.compare import compare as paired
    from robustassay.cli.terminal import Terminal

    terminal, results = Terminal(), (_load(first), _load(second))
    _check_comparable(*results)
    found = paired(results[0].records, results[1].records)
    low, high = found.interval()
    if json:
        numbers = {
            "samples": found.samples,
            "both": found.both,
            "only_first": found.only_first,
            "only_second": found.only_second,
            "neither": found.neither,
            "difference": found.difference,
            "interval": [low, high],
            "p_value": found.chance,
        }
        print(dumps(numbers, indent=2))
        return
    terminal.table(results)
    rows = [
        ["both", str(found.both)],
        ["only the first", str(found.only_first)],
        ["only the second", str(found.only_second)],
        ["neither", str(found.neither)],
    ]
    terminal.listing([f"of {found.samples} samples, robust in", "samples"], rows)
    side = "higher" if found.difference > 0 else "lower"
    by = (
        f"the first is {abs(100 * found.difference):.1f} percentage points {side}"
        if found.difference
        else "no difference"
    )
    said = "The runs differ" if found.chance < 0.05 else "These samples do not tell the runs apart"
    terminal.paragraph(
        f"{said}: {by} (95 % interval of the "
        f"difference {100 * low:+.1f} to {100 * high:+.1f}; p = {found.chance:.2g}, exact McNemar test)."
    )


def view(
    runs: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    port: int = 0,
    no_browser: bool = False,
) -> None:
    """Serve a report on this machine and open it in the browser; Ctrl-C ends.

    Parameters
    ----------
    runs
        A report (a folder with index.html), or folders of runs, of which a report is made first.
    port
        Port to listen on; any free one by default.
    no_browser
        Print the address only.
    """
    import tempfile
    import webbrowser

    from robustassay.cli.terminal import Terminal
    from robustassay.report import build

    with tempfile.TemporaryDirectory(prefix="assay-") as scratch:
        is_report = len(runs) == 1 and (runs[0] / "index.html").is_file()
        page = runs[0] if is_report else build(runs, Path(scratch) / "report").parent
        with _file_server(page, port) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}/"
            Terminal().say(f"Report: {address}; Ctrl-C ends.")
            if not no_browser:
                webbrowser.open(address)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return


def _file_server(folder: Path, port: int) -> "ThreadingHTTPServer":
    """Return a server of the files of a folder, for this machine only."""
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Print no line per request."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))
    except OSError as error:
        raise BadRequest(f"Port {port} is taken ({error.strerror}): choose another with --port.") from error


def _load(folder: Path) -> "Result":
    from robustassay.evaluation import Result

    return Result.load(folder)


def _check_comparable(first: "Result", second: "Result") -> None:
    """Refuse runs on other data; another threat is compared, as the table shows it."""
    data = [next(iter(result.parts.values()), result).manifest["spec"]["data"]["sha256"] for result in (first, second)]
    if data[0] != data[1]:
        raise BadRequest("The runs are on other data: compare runs on the same images.")
