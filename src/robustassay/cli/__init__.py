"""The command line: parse, call, print. Heavy imports wait inside the commands."""

import os
import sys
from typing import Final

from cyclopts import App, CycloptsError, Parameter

import robustassay as ra
from robustassay.cli import analyze, bench, corruptions, curve, doctor, evaluate, listing, report, run, serve, train
from robustassay.cli.leaderboard import leaderboard
from robustassay.cli.study import study
from robustassay.cli.zoo import zoo
from robustassay.errors import AssayError
from robustassay.malloc_settings import keep_freed_memory
from robustassay.printable import escape_lines

EXAMPLES: Final = """
Examples:

```
assay run
assay list models
assay eval resnet20-natural --attack pgd --norm Linf --eps 8/255
assay eval my_model.py:make --data images/ --attack pgd:steps=100,restarts=5 --norm L2 --eps 0.5
assay curve runs/ --versus eps -o curve.png
```

Exit codes: 0 done, 1 the evaluation failed, 2 bad request, 130 interrupted and resumable.
"""

# Waiting threads that spin make a run ten times slower where other processes need the cores.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

app = App(
    name="assay",
    help=(ra.__doc__ or "").splitlines()[0],
    help_epilogue=EXAMPLES,
    help_format="markdown",
    version=ra.__version__,
    default_parameter=Parameter(negative=()),
)
app.command(run.run)
app.command(evaluate.evaluate, name="eval")
app.command(doctor.doctor)
app.command(listing.listing, name="list")
app.command(report.report)
app.command(curve.curve)
app.command(corruptions.corruptions)
app.command(analyze.analyze)
app.command(leaderboard)
app.command(study)
app.command(train.train)
app.command(serve.serve)
app.command(bench.bench)
app.command(zoo)


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
