"""`assay list`: what can be named."""

from typing import Literal


def listing(kind: Literal["attacks", "models", "datasets"], /) -> None:
    """List the attacks, models or datasets that can be named.

    Parameters
    ----------
    kind
        What to list.
    """
    from assay.cli.terminal import Terminal

    columns, rows = {"attacks": _attacks, "models": _models, "datasets": _datasets}[kind]()
    Terminal().listing(columns, rows)


def _attacks() -> tuple[list[str], list[list[str]]]:
    import dataclasses

    from assay import attacks
    from assay.registry import registered

    rows = []
    for name in attacks.attack_names():
        cls = registered("attack")[name]
        settings = ", ".join(f"{field.name}={field.default}" for field in dataclasses.fields(cls))
        rows.append([name, ", ".join(norm.name for norm in cls.norms), settings, (cls.__doc__ or "").splitlines()[0]])
    return ["attack", "norms", "settings", "what it does"], rows


def _models() -> tuple[list[str], list[list[str]]]:
    from assay import models

    cards = [models.card(name) for name in models.names()]
    rows = [
        [card.name, f"{card.clean_accuracy:.1%}", f"{card.robust_accuracy:.1%}", f"{card.parameters:,}", card.title]
        for card in cards
    ]
    return ["model", "clean", "PGD-20 Linf 8/255", "parameters", "what it is"], rows


def _datasets() -> tuple[list[str], list[list[str]]]:
    from assay import data

    return ["dataset", "what it is"], [[name, data.describe(name)] for name in data.names()]
