"""`assay list`: lists attacks, defenses, models and datasets."""

from typing import Literal


def listing(kind: Literal["attacks", "defenses", "models", "datasets"], /) -> None:
    """List the available attacks, defenses, models or datasets.

    Parameters
    ----------
    kind
        What to list.
    """
    from robustassay.cli.terminal import Terminal

    known = {"attacks": _attacks, "defenses": _defenses, "models": _models, "datasets": _datasets}
    columns, rows = known[kind]()
    Terminal().listing(columns, rows)


def _attacks() -> tuple[list[str], list[list[str]]]:
    from robustassay import attacks
    from robustassay.registry import registered

    known = registered("attack")
    rows = [
        [name, ", ".join(norm.name for norm in known[name].norms), _settings(known[name]), _summary(known[name])]
        for name in attacks.attack_names()
    ]
    return ["attack", "norms", "settings", "description"], rows


def _defenses() -> tuple[list[str], list[list[str]]]:
    from robustassay import defenses
    from robustassay.registry import registered

    known = registered("defense")
    rows = [[name, _settings(known[name]), _summary(known[name])] for name in defenses.defense_names()]
    return ["defense", "settings", "description"], rows


def _settings(kind: type) -> str:
    import dataclasses

    return ", ".join(f"{field.name}={field.default}" for field in dataclasses.fields(kind))


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _models() -> tuple[list[str], list[list[str]]]:
    from robustassay import models
    from robustassay.models import table

    return list(table.COLUMNS), [list(table.row(models.card(name))) for name in models.names()]


def _datasets() -> tuple[list[str], list[list[str]]]:
    from robustassay import data

    return ["dataset", "description"], [[name, data.describe(name)] for name in data.names()]
