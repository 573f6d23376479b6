"""`assay study`: a paper's experiments on this zoo, one command a paper."""

from cyclopts import App

from assay.cli.study.dong2020 import dong2020
from assay.cli.study.service import service

study = App(name="study", help="Repeat a paper's experiments on this zoo: tables, figures, and which findings hold.")
study.command(dong2020)
study.command(service)
