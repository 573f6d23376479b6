"""The command line: parse, call, print. Heavy imports wait inside the commands."""

import os
import sys
from typing import Final

from cyclopts import App, CycloptsError, Parameter

import robustassay as ra
from robustassay.cli import (
    analyze,
    bench,
    corruptions,
    curve,
    doctor,
    evaluate,
    listing,
    report,
    run,
    serve,
    stored,
    train,
)
from robustassay.cli.examples import examples_of
from robustassay.cli.leaderboard import leaderboard
from robustassay.cli.study import study
from robustassay.cli.zoo import zoo
from robustassay.errors import AssayError
from robustassay.malloc_settings import keep_freed_memory
from robustassay.printable import escape_lines

EPILOGUE: Final = """
`assay COMMAND --help` shows the options and examples of a command; `assay --install-completion` lets the shell complete
them.

Exit codes: 0 done, 1 the evaluation failed, 2 bad request, 130 interrupted and resumable.
"""

# Waiting threads that spin make a run ten times slower where other processes need the cores.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

app = App(
    name="assay",
    help=(ra.__doc__ or "").splitlines()[0],
    help_epilogue=EPILOGUE,
    help_format="markdown",
    version=ra.__version__,
    default_parameter=Parameter(negative=()),
)
for command in (run.run, doctor.doctor, report.report, curve.curve, corruptions.corruptions, analyze.analyze):
    app.command(command, help_epilogue=examples_of(command.__name__))
app.command(evaluate.evaluate, name="eval", help_epilogue=examples_of("eval"))
app.command(listing.listing, name="list", help_epilogue=examples_of("list"))
for command in (stored.show, stored.compare, stored.view, train.train, serve.serve, bench.bench):
    app.command(command, help_epilogue=examples_of(command.__name__))
for group in (leaderboard, study, zoo):
    app.command(group)
app.register_install_completion_command()


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; errors of ours are printed as one sentence, without a traceback."""
    keep_freed_memory()
    try:
        app(arguments, exit_on_error=False, result_action="return_value")
    except AssayError as error:
        print(f"assay: {escape_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except CycloptsError:  # already printed, with the nearest option
        return 2
    except KeyboardInterrupt:
        print("assay: interrupted; run the same command again to resume.", file=sys.stderr)
        return 130
    return 0
