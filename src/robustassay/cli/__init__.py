"""The command line: parse, call, print. Heavy imports wait inside the commands."""

import os
import sys
from collections.abc import Callable
from typing import Final

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

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
from robustassay.cli.examples import EXAMPLES, examples_of
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

NEEDED: Final = {
    "MODEL": "a model of the zoo (`assay list models` shows them) or path/to/file.py:factory",
    "RUN": "the folder of a finished run, such as one in runs/",
}
"""What the arguments of these names are; MODELS and RUNS are the same, several times."""

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
COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "run": run.run,
    "eval": evaluate.evaluate,
    "doctor": doctor.doctor,
    "list": listing.listing,
    "show": stored.show,
    "compare": stored.compare,
    "report": report.report,
    "view": stored.view,
    "curve": curve.curve,
    "corruptions": corruptions.corruptions,
    "analyze": analyze.analyze,
    "train": train.train,
    "serve": serve.serve,
    "bench": bench.bench,
}
for name, command in COMMANDS.items():
    app.command(command, name=name, help_epilogue=examples_of(name))
for group in (leaderboard, study, zoo):
    app.command(group)
app.register_install_completion_command()


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; errors of ours are printed as one sentence, without a traceback."""
    keep_freed_memory()
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except AssayError as error:
        print(f"assay: {escape_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except CycloptsError as error:
        print(f"assay: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("assay: interrupted; run the same command again to resume.", file=sys.stderr)
        return 130
    return 0


def _sentence(error: CycloptsError) -> str:
    """Say what is wrong with the words of a command, and what to write instead."""
    argument, command = getattr(error, "argument", None), " ".join(error.command_chain or ())
    if not isinstance(error, MissingArgumentError) or argument is None or argument.name.startswith("-"):
        return str(error)
    what = NEEDED.get(argument.name.removesuffix("S"), argument.name)
    example = f", as in `{EXAMPLES[command][0]}`" if command in EXAMPLES else f": see `assay {command} --help`"
    return f"`assay {command}` needs {what}{example}."
