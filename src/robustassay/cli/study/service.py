"""`assay study service`: section 7 of Liu et al. 2017 on a remote service."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from robustassay.cli.study.options import DEFAULT, StudyOptions


def service(
    address: str,
    /,
    *,
    options: StudyOptions = DEFAULT,
    models: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    examples: Path = Path("runs/liu2017"),
    held_out: str | None = None,
    max_queries: int | None = None,
    out: Path = Path("runs/service"),
) -> None:
    """Send a service the examples of `assay study liu2017`, and count those that mislead it (its section 7).

    Only attack services you own or are authorised to test. Stored answers are not asked for again, so the same command
    resumes for free.

    Parameters
    ----------
    address
        An address such as http://127.0.0.1:8000/classify, or the TOML file that describes a service.
    models
        The models of that study, where they were named there.
    examples
        The folder of that study.
    held_out
        The model behind the service, by its name in that study: the examples of the ensemble without it are sent. By
        default the target of its Figure 1.
    max_queries
        Number of images sent in all, at most.
    out
        Folder of the tables, figures and the page.
    """
    from robustassay.cli.evaluate import capped_service
    from robustassay.cli.study.command import run_study
    from robustassay.studies.service_page import service_study

    scope = options.scope(models, out)
    study = service_study(capped_service(address, max_queries), held_out, replace(scope, out=examples))
    run_study(study, scope, options.quiet, options.publish)
