"""`assay study service`: section 7 of Liu et al. 2017 on a remote service."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def service(
    address: str,
    /,
    *,
    single: str = "vgg16-natural",
    ensemble: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    attack: str = "mim:steps=20,path=2",
    norm: str = "Linf",
    eps: str | None = None,
    data: str = "cifar10-1k",
    limit: int = 50,
    max_queries: int | None = None,
    seed: int = 0,
    out: Path = Path("runs/service"),
    quiet: bool = False,
) -> None:
    """Send a service examples crafted on zoo models, and count those that mislead it (Liu et al. 2017, section 7).

    Only attack services you own or are authorised to test. Stored answers are not asked for again, so the same command
    resumes for free.

    Parameters
    ----------
    address
        An address such as http://127.0.0.1:8000/classify, or the TOML file that describes a service.
    single
        The zoo model that one half of the examples is crafted on.
    ensemble
        The zoo models of the ensemble that the other half is crafted on.
    attack
        The attack that crafts them.
    norm
        How perturbations are measured.
    eps
        Their radius on the [0, 1] pixel scale; by default 8/255 (Linf) or 0.5 (L2).
    data
        A dataset of the models' classes.
    limit
        Number of images; each is sent clean and in five versions.
    max_queries
        Number of images sent in all, at most.
    seed
        Seed of targets and noise.
    out
        Folder of the tables, figures and the page.
    quiet
        Print the tables only.
    """
    from robustassay.cli.evaluate import capped_service
    from robustassay.cli.options import norm_of
    from robustassay.cli.study.command import run_study
    from robustassay.studies.scope import Scope
    from robustassay.studies.service_transfer import ServiceSettings, service_study

    models = tuple(ensemble or ("resnet56-natural", "inception-natural", "densenet40-natural"))
    study = service_study(
        capped_service(address, max_queries),
        ServiceSettings(single, models, attack, norm_of(norm, eps, ("Linf", "L2"))),
    )
    run_study(study, Scope(out, data=data, limit=limit, seed=seed), quiet)
