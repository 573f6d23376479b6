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
    from robustassay.models import table
    from robustassay.registry import registered

    terminal, wanted = Terminal(), [word.lower().replace("∞", "inf") for word in words or ()]
    if kind in ("attacks", "defenses") and len(wanted) == 1 and _show_one(terminal, kind.removesuffix("s"), wanted[0]):
        return
    known = {"attacks": _attacks, "defenses": _defenses, "models": _models, "datasets": _datasets}
    shown = 0
    for title, columns, rows in known[kind]():
        text = [f"{title} {' '.join(row)}".lower().replace("l∞", "linf") for row in rows]
        chosen = [row for row, line in zip(rows, text, strict=True) if all(word in line for word in wanted)]
        if chosen:
            terminal.title(title)
            terminal.listing(columns, chosen, drop=[name for name in ("parameters", "description") if kind == "models"])
        shown += len(chosen)
    if shown and kind == "models":
        terminal.paragraph(table.CAPTION)
    if not shown and kind in ("attacks", "defenses") and len(wanted) == 1:
        raise UnknownName(kind.removesuffix("s"), wanted[0], registered(kind.removesuffix("s")))
    if not shown:
        raise BadRequest(f"No line of `assay list {kind}` holds {' and '.join(wanted)}: leave words out.")


Section = tuple[str, list[str], list[list[str]]]


def _attacks() -> list[Section]:
    from robustassay import attacks
    from robustassay.eps import format_norm
    from robustassay.registry import registered

    known = registered("attack")
    groups: dict[str, list[list[str]]] = {title: [] for title in GROUPS.values()}
    for name in attacks.attack_names():
        row = [name, ", ".join(format_norm(norm.name) for norm in known[name].norms), _summary(known[name])]
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
    import inspect

    from robustassay import attacks, defenses
    from robustassay.eps import format_norm
    from robustassay.registry import describe, registered, setting_texts, spell_setting

    names = attacks.attack_names() if kind == "attack" else defenses.defense_names()
    if name not in names:
        return False
    cls: Any = registered(kind)[name]
    terminal.title(name)
    for paragraph in inspect.cleandoc(cls.__doc__ or "").split("\n\n"):
        terminal.paragraph(" ".join(paragraph.split()))
    if kind == "attack":
        info = cls.info
        facts = {
            "norms": ", ".join(format_norm(norm.name) for norm in cls.norms),
            "attacker sees": GROUPS.get(cls.__module__.split(".")[-2], "").partition(":")[0].lower(),
            "finds": "the nearest adversarial point" if cls.seeks_minimum else "a point within the radius",
            "targeted": "yes" if cls.can_target else "no",
            "formula": info.formula,
            "papers": ", ".join(f"arXiv:{number}" for number in info.papers),
        }
        terminal.listing(["about", ""], [[key, value] for key, value in facts.items() if value])
    texts = setting_texts(cls)
    if texts:
        defaults = describe(kind, cls())
        rows = [[setting, spell_setting(defaults[setting]), text] for setting, text in texts.items()]
        terminal.listing(["setting", "default", "meaning"], rows)
    terminal.command("Example:", _example(kind, name, cls))
    return True


def _example(kind: str, name: str, cls: Any) -> str:
    """Write a command with the attack or defense, and with its first number; of an attack, another than the default."""
    import dataclasses

    from robustassay.threat import LInf

    numbers = {field.name: field.default for field in dataclasses.fields(cls) if type(field.default) is int}
    factor = {"attack": 2, "defense": 1}[kind]
    changed = [f"{key}={factor * value if value < 1000 else value // 2}" for key, value in numbers.items()][:1]
    changed = changed or [f"{field.name}=resnet20-pgd" for field in dataclasses.fields(cls) if field.default == ""]
    spec = f"{name}:{changed[0]}" if changed else name
    if kind == "defense":
        return f"assay eval resnet20-natural --defense {spec} --limit 16"
    norm = "" if LInf in cls.norms else f" --norm {cls.norms[0].name}"
    return f"assay eval resnet20-natural --attack {spec}{norm} --limit 16"


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
