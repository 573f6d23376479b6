"""`assay study service`: section 7 of Liu et al. on a service of yours."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def service(
    address: str,
    /,
    *,
    single: str = "vgg16-natural",
    ensemble: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    attack: str = "mim:steps=20,path=2",
    norm: Literal["Linf", "L2"] = "Linf",
    eps: str | None = None,
    data: str = "cifar10-1k",
    limit: int = 50,
    max_queries: int | None = None,
    seed: int = 0,
    out: Path = Path("runs/service"),
    quiet: bool = False,
) -> None:
    """Show a service images made on models of the zoo, and see how many mislead it (Liu et al. 2017, section 7).

    Only attack services you own or are authorised to test. What was answered once is not asked again, so the same
    command resumes for free.

    Parameters
    ----------
    address
        An address such as http://127.0.0.1:8000/classify, or the TOML file that describes a service.
    single
        The zoo model that one half of the images is made on.
    ensemble
        The zoo models that the other half is made on, all at once.
    attack
        The attack that makes them.
    norm
        How perturbations are measured.
    eps
        Their radius on the [0, 1] pixel scale; by default 8/255 (Linf) or 0.5 (L2).
    data
        A dataset of the models' classes.
    limit
        How many images, each shown clean and in five versions.
    max_queries
        Images that may be sent in all, at most.
    seed
        Of targets and noise.
    out
        Folder of the answers, rates and pictures.
    quiet
        Print the table only.
    """
    from robustassay import data as datasets
    from robustassay.cli.evaluate import capped_service
    from robustassay.cli.options import DEFAULT_EPS
    from robustassay.cli.terminal import Terminal
    from robustassay.eps import parse_eps
    from robustassay.registry import lookup
    from robustassay.report.charts.services import draw_examples
    from robustassay.studies import service as section7

    terminal = Terminal(quiet=quiet)
    dataset = datasets.load(data)
    dataset = dataset.take(min(limit, len(dataset)))
    threat = lookup("norm", norm)(parse_eps(eps or DEFAULT_EPS[norm]))
    asked = section7.groups(single, ensemble or ["resnet56-natural", "inception-natural", "densenet40-natural"])
    target = capped_service(address, max_queries)
    shown = section7.perform(target, dataset, threat, attack, asked, seed, terminal.say)
    how = f"{len(dataset)} images of {dataset.name}, {attack} within {threat}; {target.budget}."
    section7.write(shown, dataset, how, out, draw_examples)
    rates = section7.table(shown)
    terminal.listing(list(rates.columns), [[str(cell) for cell in row] for row in rates.to_numpy().tolist()])
    terminal.say(f"Answers, rates and pictures: {out / 'study.md'}")
