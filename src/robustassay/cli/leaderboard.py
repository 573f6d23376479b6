"""`assay leaderboard`: entries from records, checked and ranked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from robustassay.errors import BadRequest, EvaluationFailed

if TYPE_CHECKING:
    from robustassay.leaderboard.admission import Check

leaderboard = App(
    name="leaderboard", help="Rank models by their records: add a submission, sign it, check it, build the tables."
)

_VERDICTS: Final = {True: "passed", False: "FAILED", None: "unverified"}
_CUT_OFF: Final = {
    "none": "which had no network",
    "guarded": "in which Python refused connections; this system cannot take the network from a process",
    "allowed": "with network, as you asked",
}


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
    device: str | None = None,
    reattack: int = 16,
    time_limit: float = 60,
    memory_limit: float = 8,
    network: bool = False,
    signers: Path | None = None,
) -> None:
    """Check a model against the admission rules, or a submission against its own claims.

    The rules: non-zero gradients, a deterministic forward pass, no optimisation loop. For a submission: card and
    records without contradictions, clean predictions, every kept image, and some of the unbroken samples, which are
    attacked again. Everything else is called unverified. A submission is checked in a process without network and with
    limits; if that process ends without a result, the submission is "not checked". Exits with 2 if a check fails.

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
    time_limit
        Minutes that the check of a submission may take.
    memory_limit
        Memory that it may use, in GiB.
    network
        Let it open connections, for example if the model that you name with --model is downloaded.
    signers
        Keys of people you know, in the form of OpenSSH's allowed signers: lines such as `alice ssh-ed25519 AAAA...`.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.leaderboard.checking import CheckRequest, count_runs, holds_records
    from robustassay.leaderboard.limited_check import Limits, check_limited

    terminal, limits = Terminal(), Limits(time_limit, memory_limit, network)
    options = (model, data, device, reattack, None if signers is None else str(signers))
    rows, failed, unchecked = [], [], []
    with terminal.progress(sum(map(count_runs, what))) as progress:
        for one in what:
            try:
                if holds_records(one):
                    outcome = check_limited(CheckRequest(one, *options), limits, progress)
                    checks, cut_off = outcome.checks, _CUT_OFF[outcome.network]
                    terminal.say(f"{one} was checked in a process of its own, {cut_off}.")
                else:
                    checks = _admission(one, data, device)
            except EvaluationFailed as error:
                rows.append([one, "", "not checked", str(error)])
                unchecked.append(one)
                continue
            rows += [[one, check.rule, _VERDICTS[check.passed], check.text] for check in checks]
            failed += [f"{one}: {check.rule}" for check in checks if check.passed is False]
    terminal.listing(["checked", "rule", "verdict", "reason"], rows)
    if failed:
        raise BadRequest(f"{len(failed)} of {len(rows)} checks failed ({'; '.join(failed[:3])}): see the table.")
    if unchecked:
        raise EvaluationFailed(f"{len(unchecked)} of {len(what)} were not checked ({unchecked[0]}): see the table.")


def _admission(what: str, data: str | None, device: str | None) -> "list[Check]":
    """Check a model that the user names against the admission rules."""
    from robustassay import data as datasets
    from robustassay.evaluation.model_ref import ModelRef, choose_device
    from robustassay.leaderboard.admission import admit

    path = Path(what)
    if path.exists() or path.is_symlink():
        raise BadRequest(f"{what} holds no submission, run or records file: name one of these, or a model.")
    return admit(ModelRef.of(what), datasets.load(data or "cifar10-1k"), choose_device(device))


@leaderboard.command
def sign(submission: Path, /, *, key: Path) -> None:
    """Sign a submission or a run with an SSH key, so that boards show the key and changes are noticed.

    Parameters
    ----------
    submission
        Folder of a submission or a run.
    key
        Your private SSH key, such as ~/.ssh/id_ed25519, or the public key of one in your SSH agent.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.leaderboard import signature

    signer = signature.sign(submission, key.expanduser())
    Terminal().say(f"Signed {submission} with the key {signer.fingerprint}: send {signature.SIGNATURE} with it.")


@leaderboard.command
def build(
    runs: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    board: Path = Path("leaderboard"),
    published: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    signers: Path | None = None,
    quiet: bool = False,
) -> None:
    """Build the leaderboard from records: board.json, board.csv and board.md.

    Parameters
    ----------
    runs
        Folders of runs or of `assay corruptions`, or folders above them, to rank with the entries that were added.
    board
        Folder of the leaderboard; its entries are read.
    published
        `robustbench` for the 236 embedded entries (March 2025), or folders in RobustBench's `model_info` form; their
        entries are added, marked as published.
    out
        Folder to write to; by default the folder of the leaderboard. Only files of an earlier board are replaced.
    signers
        Keys of people you know, in the form of OpenSSH's allowed signers; others are shown as unknown keys.
    quiet
        Print the tables only.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.leaderboard import boards, gather, write
    from robustassay.leaderboard.columns import SHORT_HEADING, lines

    terminal = Terminal(quiet=quiet)
    own = [board / "entries"] if (board / "entries").is_dir() else []
    found = gather([*own, *(runs or [])], published or [], signers)
    made, folder = boards(found.entries), out or board
    write(made, folder, found.problems)
    for one in made:
        terminal.say(f"{one.threat}, {len(one.entries)} entries")
        terminal.listing(list(SHORT_HEADING), lines(one, SHORT_HEADING))
    for problem in found.problems:
        terminal.say(f"Left out: {problem}")
    terminal.say(f"Saved {folder / 'board.json'}, board.csv and board.md")
