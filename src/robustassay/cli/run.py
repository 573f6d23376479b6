"""`assay run`: the showcase."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.studies.showcase import Showcase


def run(
    *,
    limit: int = 150,
    seed: int = 0,
    out: Path = Path("runs/showcase"),
    report: Path = Path("report"),
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Evaluate five embedded models: what PGD says of each, what assay says, and why; then write a report.

    It takes about three minutes on two cores. Finished work is kept: run it again to resume, or with a larger limit to
    extend it.

    Parameters
    ----------
    limit
        Number of images, of the 1,000 embedded ones.
    seed
        Seed of all random numbers.
    out
        Folder of the runs and of showcase.json, which holds the table.
    report
        Folder of the report.
    quiet
        Print the final table only.
    json
        Print the table as JSON instead.
    """
    from dataclasses import asdict
    from json import dumps

    from robustassay.cli.terminal import Terminal
    from robustassay.report import build
    from robustassay.studies import quickstart

    terminal = Terminal(quiet=quiet or json)
    with terminal.progress(quickstart.RUNS) as progress:
        found = quickstart.run_showcase(out, limit, seed, progress)
    page = build([out], report)
    if json:
        print(dumps(asdict(found), indent=2))
        return
    _show(terminal, found)
    terminal.say(f"Report: {page}")
    terminal.say(f"Your own model: {found.next}")


def _show(terminal: "Terminal", found: "Showcase") -> None:
    """Print the table, and the accuracy under corruptions as bars."""
    rows = [
        [
            row.label,
            f"{row.clean:.1%}",
            "–" if row.pgd is None else f"{row.pgd:.1%}",
            f"{row.assay:.1%} ({100 * row.low:.1f} to {100 * row.high:.1f})",
            row.why,
        ]
        for row in found.rows
    ]
    terminal.listing(["model", "clean", "PGD says", "assay says (interval)", "why"], rows)
    kinds = ", ".join(found.corruptions.kinds)
    bars = [
        [bar.model, f"{'█' * round(20 * bar.corrupted):<20}", f"{bar.corrupted:.1%} (clean {bar.clean:.1%})"]
        for bar in found.corruptions.bars
    ]
    terminal.listing(["without an attacker", f"accuracy under {kinds}", ""], bars)
