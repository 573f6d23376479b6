"""`assay doctor`: whether attacks may fail on a model without notice, and the remedies."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.doctor import Diagnosis


def doctor(
    model: str,
    /,
    *,
    data: str = "cifar10-1k",
    norm: str = "Linf",
    eps: str | None = None,
    limit: int = 32,
    device: str | None = None,
    defense: str | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Diagnose whether attacks on a model may fail without notice, and name a remedy for each cause.

    `assay eval MODEL --adaptive auto` does the same and applies the remedies.

    Parameters
    ----------
    model
        A zoo name, `path/to/file.py:factory`, or one kept elsewhere, as for `assay eval`.
    data
        A dataset name or path.
    norm
        Norm of the perturbation.
    eps
        Radius on the [0, 1] pixel scale, such as `8/255`; by default that of `assay eval`.
    limit
        Number of images, from the first; misclassified ones are left out.
    device
        Device to run on; by default a GPU where there is one.
    defense
        Defense before the model, such as `jpeg:quality=75`.
    quiet
        Print the table only.
    json
        Print everything as JSON instead.
    """
    import json as writer

    from robustassay import data as datasets
    from robustassay.cli.options import norm_of
    from robustassay.cli.terminal import Terminal
    from robustassay.doctor import diagnose

    terminal = Terminal(quiet=quiet or json)
    found = diagnose(
        f"{defense}|{model}" if defense else model,
        datasets.load(data),
        norm_of(norm, eps, ("Linf", "L2", "L1")),
        samples=limit,
        device=device,
        on_indicator=lambda indicator: terminal.say(f"checked: {indicator}"),
    )
    if json:
        print(writer.dumps(found.to_json(), indent=2))
    else:
        _show(terminal, found)


def _show(terminal: "Terminal", found: "Diagnosis") -> None:
    """Print the indicators and the remedies."""
    from robustassay.doctor import REMEDIES

    values = ["" if one.unexamined else f"{one.value:.3g}" for one in found.results]
    rows = [
        [one.indicator, found.verdict(one), value, f"{one.limit:.3g}", one.evidence]
        for one, value in zip(found.results, values, strict=True)
    ]
    terminal.listing(["indicator", "verdict", "value", "limit", "evidence"], rows)
    if found.remedies:
        terminal.listing(["remedy", "for"], [[REMEDIES[name], found.because(name)] for name in found.remedies])
    notes = "".join(f"; {one.note}" for one in found.results if one.note and not one.strong)
    terminal.say(f"{found}{notes} ({found.seconds:.0f} s)")
