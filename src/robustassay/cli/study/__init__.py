"""`assay study`: a paper's experiments on this zoo, one command a paper."""

from cyclopts import App

from robustassay.cli.study.dong2020 import dong2020
from robustassay.cli.study.liu2017 import liu2017
from robustassay.cli.study.robustbench2021 import robustbench2021
from robustassay.cli.study.service import service
from robustassay.cli.study.su2018 import su2018

study = App(name="study", help="Repeat a paper's experiments on this zoo: tables, figures, and which findings hold.")
study.command(dong2020)
study.command(liu2017)
study.command(robustbench2021)
study.command(service)
study.command(su2018)
