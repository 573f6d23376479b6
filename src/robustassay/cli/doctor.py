"""`assay doctor`: whether attacks would fail on a model unseen, and what to do about it."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.doctor import Diagnosis


def doctor(
    model: str,
    /,
    *,
    data: str = "cifar10-1k",
    norm: Literal["Linf", "L2", "L1"] = "Linf",
    eps: str | None = None,
    images: int = 32,
    device: Literal["cpu", "cuda"] | None = None,
    defense: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Examine a model for signs that attacks on it fail unseen, and name the remedy for each.

    `assay eval MODEL --adaptive auto` does the same and applies the remedies.

    Parameters
    ----------
    model
        A zoo name, `path/to/file.py:factory`, or one kept elsewhere, as for `assay eval`.
    data
        A dataset name or path.
    norm
        How perturbations are measured.
    eps
        Radius on the [0, 1] pixel scale, such as `8/255`; by default that of `assay eval`.
    images
        How many to try, the first ones; those classified wrongly are left out.
    device
        Where to run; a GPU where there is one, by default.
    defense
        What stands before the model, such as `jpeg:quality=75`.
    quiet
        Print the table only.
    json
        Print everything as JSON instead.
    """
    import json as writer

    from robustassay import data as datasets
    from robustassay.cli.evaluate import DEFAULT_EPS
    from robustassay.cli.terminal import Terminal
    from robustassay.doctor import diagnose
    from robustassay.registry import lookup

    terminal = Terminal(quiet=quiet or json)
    found = diagnose(
        f"{defense}|{model}" if defense else model,
        datasets.load(data),
        lookup("norm", norm)(DEFAULT_EPS[norm] if eps is None else eps),
        samples=images,
        device=device,
        watch=lambda indicator: terminal.say(f"looked at: {indicator}"),
    )
    if json:
        print(writer.dumps(found.to_json(), indent=2))
    else:
        _show(terminal, found)


def _show(terminal: "Terminal", found: "Diagnosis") -> None:
    """Print what was found, and what to do about it."""
    from robustassay.doctor import REMEDIES

    rows = [
        [one.indicator, one.verdict, f"{one.value:.3g}", f"{one.limit:.3g}", one.evidence] for one in found.findings
    ]
    terminal.listing(["indicator", "verdict", "value", "limit", "evidence"], rows)
    if found.remedies:
        terminal.listing(["remedy", "because of"], [[REMEDIES[name], found.because(name)] for name in found.remedies])
    notes = "".join(f"; {one.note}" for one in found.findings if one.note and not one.alarm)
    terminal.say(f"{found}{notes} ({found.seconds:.0f} s)")
