"""`assay study`: repeat a paper's experiments, one command per paper."""

from cyclopts import App

from robustassay.cli.study.command import command_for
from robustassay.cli.study.service import service
from robustassay.studies.catalogue import PAPERS

study = App(name="study", help="Repeat a paper's experiments: tables, figures, and which findings hold.")
for _paper in PAPERS.values():
    study.command(command_for(_paper), name=_paper.name)
study.command(service)
