"""`assay leaderboard`: entries from records, checked and ranked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from robustassay.errors import BadRequest

if TYPE_CHECKING:
    from robustassay.leaderboard.admission import Check

leaderboard = App(
    name="leaderboard", help="Rank models by their records: add a submission, check it, build the tables."
)


@leaderboard.command
def add(
    card: str,
    runs: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    board: Path = Path("leaderboard"),
) -> None:
    """Add finished runs of a model, with a card that describes it.

    Parameters
    ----------
    card
        A JSON file that describes the model (at least its name), or the name of an embedded model.
    runs
        Folders of runs, or records files.
    board
        Folder of the leaderboard; each entry is a folder in `entries` that can be sent to others.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.leaderboard import submission

    added = submission.add(submission.read_card(card), runs, board)
    Terminal().say(f"Added {added.card().name} with {len(added.files)} runs: {added.folder}")


@leaderboard.command
def check(
    what: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    model: str | None = None,
    data: str | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    reattack: int = 16,
) -> None:
    """Check a model against the admission rules, or a submission against its own claims.

    The rules: non-zero gradients, a deterministic forward pass, no optimisation loop. For a submission: card and
    records without contradictions, clean predictions, every kept image, and some of the unbroken samples, which are
    attacked again. Everything else is called unverified. Exits with 2 if a check fails.

    Parameters
    ----------
    what
        Names of models as for `assay eval`, folders of submissions or runs, or records files.
    model
        The model of a submission, if it is not an embedded one behind defenses; its code will be run.
    data
        A dataset (see `assay list datasets`); by default the one of the runs, or cifar10-1k.
    device
        cpu or cuda; by default a GPU if there is one.
    reattack
        Number of unbroken samples per run that are attacked again, chosen at random.
    """
    from robustassay.cli.terminal import Terminal

    words = {True: "passed", False: "FAILED", None: "unverified"}
    found = [(one, check) for one in what for check in _checks(one, model, data, device, reattack)]
    Terminal().listing(
        ["checked", "rule", "verdict", "reason"],
        [[one, check.rule, words[check.passed], check.text] for one, check in found],
    )
    failed = [f"{one}: {check.rule}" for one, check in found if check.passed is False]
    if failed:
        raise BadRequest(f"{len(failed)} of {len(found)} checks failed ({'; '.join(failed[:3])}): see the table.")


def _checks(what: str, model: str | None, data: str | None, device: str | None, reattack: int) -> "list[Check]":
    from robustassay import data as datasets
    from robustassay.evaluation.model_ref import ModelRef, choose_device
    from robustassay.leaderboard import Submission
    from robustassay.leaderboard.admission import admit
    from robustassay.leaderboard.gather import CARD
    from robustassay.leaderboard.recheck import check_records
    from robustassay.store import Store

    chosen, path = choose_device(device), Path(what)
    if (path / CARD).is_file():
        return Submission(path).check(model, data, chosen, reattack)
    if path.suffix == ".parquet" or Store(path).exists():
        return check_records(path, model, data, chosen, reattack)[0]
    if path.exists() or path.is_symlink():
        raise BadRequest(f"{what} holds no submission, run or records file: name one of these, or a model.")
    return admit(ModelRef.of(what), datasets.load(data or "cifar10-1k"), chosen)


@leaderboard.command
def build(
    runs: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    board: Path = Path("leaderboard"),
    published: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    quiet: bool = False,
) -> None:
    """Build the leaderboard from records: board.json, board.csv and board.md.

    Parameters
    ----------
    runs
        Folders of runs, or folders above them, to rank with the entries that were added.
    board
        Folder of the leaderboard; its entries are read.
    published
        Folders in RobustBench's `model_info` form; their entries are added, marked as published.
    out
        Folder to write to; by default the folder of the leaderboard.
    quiet
        Print the tables only.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.leaderboard import boards, gather, write
    from robustassay.leaderboard.columns import HEADING, lines

    terminal = Terminal(quiet=quiet)
    own = [board / "entries"] if (board / "entries").is_dir() else []
    found = gather([*own, *(runs or [])], published or [])
    made, folder = boards(found.entries), out or board
    write(made, folder, found.problems)
    for one in made:
        terminal.say(f"{one.threat}, {len(one.entries)} entries")
        terminal.listing(list(HEADING), lines(one))
    for problem in found.problems:
        terminal.say(f"Left out: {problem}")
    terminal.say(f"Saved {folder / 'board.json'}, board.csv and board.md")
