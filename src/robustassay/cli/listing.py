"""`assay list`: lists attacks, defenses, models and datasets, or shows one attack or defense."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal

GROUPS: Final = {
    "baseline": "Baselines: random noise, no access to the model",
    "gradient": "Gradients: the attacker differentiates the model",
    "nearest": "Gradients, nearest adversarial point: the attacker looks for the smallest perturbation",
    "score": "Scores: the attacker sees the outputs for its queries",
    "decision": "Labels: the attacker sees only the predicted label",
    "transfer": "Transfer: the attacker has a substitute model",
}
"""The folders of attacks, and what an attacker sees in each."""


def listing(
    kind: Literal["attacks", "defenses", "models", "datasets"],
    words: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    /,
) -> None:
    """List the available attacks, defenses, models or datasets; a name or other words select some.

    Parameters
    ----------
    kind
        What to list.
    words
        The name of an attack or defense shows it with all its settings; other words filter the list, such as
        `scores`, `L2` or `square`.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.errors import BadRequest, UnknownName
    from robustassay.registry import registered

    terminal, wanted = Terminal(), [word.lower() for word in words or ()]
    if kind in ("attacks", "defenses") and len(wanted) == 1 and _show_one(terminal, kind.removesuffix("s"), wanted[0]):
        return
    known = {"attacks": _attacks, "defenses": _defenses, "models": _models, "datasets": _datasets}
    shown = 0
    for title, columns, rows in known[kind]():
        chosen = [row for row in rows if all(word in f"{title} {' '.join(row)}".lower() for word in wanted)]
        if chosen:
            terminal.title(title)
            terminal.listing(columns, chosen, drop=[name for name in ("parameters", "description") if kind == "models"])
        shown += len(chosen)
    if not shown and kind in ("attacks", "defenses") and len(wanted) == 1:
        raise UnknownName(kind.removesuffix("s"), wanted[0], registered(kind.removesuffix("s")))
    if not shown:
        raise BadRequest(f"No line of `assay list {kind}` holds {' and '.join(wanted)}: leave words out.")


Section = tuple[str, list[str], list[list[str]]]


def _attacks() -> list[Section]:
    from robustassay import attacks
    from robustassay.registry import registered

    known = registered("attack")
    groups: dict[str, list[list[str]]] = {title: [] for title in GROUPS.values()}
    for name in attacks.attack_names():
        row = [name, ", ".join(norm.name for norm in known[name].norms), _summary(known[name])]
        groups.setdefault(GROUPS.get(known[name].__module__.split(".")[-2], "Other packages"), []).append(row)
    return [(title, ["attack", "norms", "description"], rows) for title, rows in groups.items() if rows]


def _defenses() -> list[Section]:
    from robustassay import defenses
    from robustassay.registry import registered

    known = registered("defense")
    rows = [[name, _settings(known[name]), _summary(known[name])] for name in defenses.defense_names()]
    return [("", ["defense", "settings", "description"], rows)]


def _show_one(terminal: "Terminal", kind: str, name: str) -> bool:
    """Print the documentation, the settings and a command of one attack or defense; False where there is none."""
    import dataclasses
    import inspect

    from robustassay import attacks, defenses
    from robustassay.registry import registered

    names = attacks.attack_names() if kind == "attack" else defenses.defense_names()
    if name not in names:
        return False
    cls: Any = registered(kind)[name]
    terminal.title(name)
    terminal.paragraph(inspect.cleandoc(cls.__doc__ or ""))
    if kind == "attack":
        info = cls.info
        facts = {
            "norms": ", ".join(norm.name for norm in cls.norms),
            "attacker sees": GROUPS.get(cls.__module__.split(".")[-2], "").partition(":")[0].lower(),
            "finds": "the nearest adversarial point" if cls.seeks_minimum else "a point within the radius",
            "targeted": "yes" if cls.can_target else "no",
            "formula": info.formula,
            "papers": ", ".join(f"arXiv:{number}" for number in info.papers),
        }
        terminal.listing(["about", ""], [[key, value] for key, value in facts.items() if value])
    fields = [[field.name, str(field.default)] for field in dataclasses.fields(cls)]
    if fields:
        terminal.listing(["setting", "default"], fields)
    first = f"{name}:{fields[0][0]}={fields[0][1]}" if fields else name
    option = "--attack" if kind == "attack" else "--defense"
    terminal.paragraph(f"assay eval resnet20-pgd {option} '{first}' --limit 16")
    return True


def _settings(kind: type) -> str:
    import dataclasses

    return ", ".join(f"{field.name}={field.default}" for field in dataclasses.fields(kind))


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _models() -> list[Section]:
    from robustassay import models
    from robustassay.models import table

    return [("", list(table.COLUMNS), [list(table.row(models.card(name))) for name in models.names()])]


def _datasets() -> list[Section]:
    from robustassay import data

    return [("", ["dataset", "description"], [[name, data.describe(name)] for name in data.names()])]
