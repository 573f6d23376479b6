"""`assay zoo`: lists the embedded models, shows their cards, and compares both."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from robustassay.data import Dataset
    from robustassay.models.verification import Verification

zoo = App(name="zoo", help="List the embedded models, show their cards, and verify the models against their cards.")

Folder = Annotated[Path | None, Parameter(help="Folder of cards and weights; default: the embedded zoo.")]


@zoo.command(name="list")
def listing(*, folder: Folder = None, json: bool = False) -> None:
    """List the models with their accuracies: clean, under PGD-20 and under express, both at L∞ 8/255.

    Parameters
    ----------
    json
        Print the cards as one JSON list.
    """
    import json as writer
    from dataclasses import asdict

    from robustassay import models
    from robustassay.cli.terminal import Terminal
    from robustassay.models import table

    place = _place(folder)
    cards = [models.card(name, place) for name in models.names(place)]
    if json:
        print(writer.dumps([asdict(card) for card in cards], indent=2))
    else:
        rows = [list(table.row(card)) for card in cards]
        terminal = Terminal()
        terminal.listing(list(table.COLUMNS), rows, drop=["parameters", "description"])
        terminal.paragraph(table.CAPTION)


@zoo.command
def show(name: str, /, *, folder: Folder = None, json: bool = False) -> None:
    """Show the card of a model: its origin and its measurements.

    Parameters
    ----------
    name
        A model of `assay zoo list`.
    json
        Print the card as it is stored.
    """
    from dataclasses import asdict

    from robustassay import models
    from robustassay.cli.terminal import Terminal

    card = models.card(name, _place(folder))
    if json:
        print(card.to_json(), end="")
    else:
        Terminal().listing([card.name, card.title], list(_lines(asdict(card)))[2:])


@zoo.command
def verify(
    *names: str,
    data: str = "cifar10-1k",
    limit: int | None = None,
    folder: Folder = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Compare the hash of the weights and the clean accuracy of models with their cards; exit code 1 if they differ.

    Weights are read only from safetensors, so no code in a file runs. Accuracies differ if an exact binomial test
    rejects the accuracy of the card at a significance level of one in a million.

    Parameters
    ----------
    names
        Models of `assay zoo list`; default: all.
    data
        Images to measure on (see `assay list datasets`).
    limit
        Number of images, from the first on; default: all.
    quiet
        Print only the final table.
    json
        Print the results as JSON instead of a table.
    """
    import json as writer
    from dataclasses import asdict

    from robustassay import data as datasets
    from robustassay import models
    from robustassay.cli.terminal import Terminal
    from robustassay.errors import BadRequest, EvaluationFailed

    place = _place(folder)
    chosen = names or models.names(place)
    if not chosen:
        raise BadRequest(f"{place} contains no model: give the folder of the cards.")
    for name in chosen:
        models.card(name, place)  # a misspelt name is reported before any long work
    dataset = datasets.load(data).take(limit)
    found = list(_checked(chosen, dataset, place, quiet or json))
    if json:
        print(writer.dumps([asdict(one) for one in found], indent=2))
    else:
        columns = ["model", "verdict", "correct", "measured", "card", "p-value", "problem"]
        Terminal().listing(columns, [_cells(one) for one in found])
    bad = [one.name for one in found if one.problem]
    if bad:
        raise EvaluationFailed(f"{len(bad)} of {len(found)} models differ from their cards: {', '.join(bad)}.")


def _checked(names: Sequence[str], dataset: "Dataset", folder: Path, quiet: bool) -> "Iterator[Verification]":
    """Verify the models in turn: one line per model, and a progress bar in a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from robustassay.models.verification import verify as check

    err = Console(stderr=True, quiet=quiet)
    with Progress(console=err, transient=True, disable=quiet or not err.is_terminal) as bars:
        task = bars.add_task("images", total=len(names) * len(dataset))
        for at, name in enumerate(names, 1):
            one = check(name, dataset, folder, partial(bars.advance, task))
            bars.update(task, completed=at * len(dataset))  # a changed file is not measured
            err.print(f"[{at}/{len(names)}] {name}: {one.verdict}", markup=False, highlight=False)
            yield one


def _cells(one: "Verification") -> list[str]:
    measured = [f"{one.correct}/{one.images}", f"{one.accuracy:.1%}"] if one.accuracy is not None else ["", ""]
    p_value = "" if one.p_value is None else f"{one.p_value:.2g}"
    return [one.name, one.verdict, *measured, f"{one.card_accuracy:.1%}", p_value, one.problem or ""]


def _lines(content: Mapping[str, Any], under: str = "") -> Iterator[list[str]]:
    """Flatten a card into pairs of field and value; settings share a line, each measurement has its own."""
    for name, value in content.items():
        title = f"{under}{name.replace('_', ' ')}"
        if name in ("architecture", "recipe_fields"):
            yield [title, ", ".join(f"{key}={setting}" for key, setting in value.items())]
        elif isinstance(value, Mapping):
            yield from _lines(value, "" if name == "measurements" else f"{title}: ")
        elif value not in ("", [], None):
            yield [title, _readable(name, value)]


def _readable(name: str, value: Any) -> str:
    if isinstance(value, float) and "accuracy" in name:
        return f"{value:.2%}"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _place(folder: Path | None) -> Path:
    from robustassay.models.zoo import EMBEDDED

    return EMBEDDED if folder is None else folder
