"""The page and folder of a study: findings first, published number beside ours, every table a CSV."""

from pathlib import Path

import pandas as pd
import pytest

from robustassay.errors import Interrupted, StoreFailed
from robustassay.evaluation.progress import NoProgress
from robustassay.interrupt import graceful_interrupt
from robustassay.studies.catalogue import PAPERS
from robustassay.studies.page import MISSING, Figure, Finding, Table, findings_table
from robustassay.studies.study import Plan, Study
from robustassay.studies.task import UNKNOWN_COST, ComputeTask, TaskCost
from robustassay.studies.timing import time_left
from robustassay.studies.writer import write

FINDINGS = [
    Finding(1, "robust | accurate", "holds", ("because",), published="57 %", measured="60 % (50 % to 70 %, n = 90)"),
    Finding(2, "no number", "cannot be said", ("too few",)),
]


def write_more(measurements: None, out: Path) -> None:
    (out / "more.txt").write_text("more")


def study(findings=(), tables=(), figures=()):
    def no_plan(scope):
        raise AssertionError("not planned here")

    return Study[None](
        name="paper",
        title="A paper",
        plan=no_plan,
        setup=lambda _: ["How."],
        findings=lambda _: list(findings),
        tables=lambda _: list(tables),
        figures=lambda _: list(figures),
        attach=write_more,
    )


def test_the_page_starts_with_the_findings_and_the_published_number_stands_beside_ours(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    tables = [Table("t", "T", ("a",), (("1",),), frame, ("a note",)), Table("whole", "W", ("a",), (), frame)]
    figures = [Figure("one", "One", None), Figure("two", "Two", None, "pair"), Figure("three", "Three", None, "pair")]
    drawn = []
    report = write(study(FINDINGS, tables, figures), None, tmp_path, lambda figure, path: drawn.append(path.name))
    page = report.page.read_text()
    assert page.startswith("# A paper\n\n| finding | the paper | here | verdict |")
    assert "| 1. robust \\| accurate | 57 % | 60 % (50 % to 70 %, n = 90) | holds |" in page
    assert f"| 2. no number | {MISSING} | {MISSING} | cannot be said |" in page
    order = ["| finding", "## How it was measured", "![One]", "## pair", "## Tables", "- a note", "### 1. robust"]
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)
    assert "| ![Two](figures/two.png) | ![Three](figures/three.png) |" in page
    assert "**W**: [whole.csv](tables/whole.csv)" in page
    assert drawn == ["one.png", "two.png", "three.png"]
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {"findings", "t", "whole"}
    assert pd.read_csv(tmp_path / "tables" / "findings.csv")["published"].tolist()[0] == "57 %"
    assert (tmp_path / "more.txt").read_text() == "more"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="choose another place"):
        write(study(FINDINGS), None, tmp_path / "file", lambda figure, path: None)
    assert len(findings_table([]).lines) == 0


def task(name, seconds=1.0, finished=False, compute=lambda results: len(results)):
    return ComputeTask((name,), name, 3, lambda: finished, compute, lambda: seconds)


def test_a_plan_runs_tasks_in_order_and_hands_on_their_results():
    plan = Plan((task("a"), task("b"), task("c", finished=True)), dict)
    assert plan.seconds() == 2
    assert plan.run(NoProgress()) == {("a",): 0, ("b",): 1, ("c",): 2}


def test_an_interrupt_ends_a_plan_after_the_task_in_progress():
    ran = []

    def interrupted(results):
        ran.append("a")
        with graceful_interrupt() as stop:
            stop.asked = True

    with pytest.raises(Interrupted, match="resume"):
        Plan((task("a", compute=interrupted), task("b", compute=lambda _: ran.append("b"))), dict).run(NoProgress())
    assert ran == ["a"]


def test_costs_that_tasks_share_count_once_and_an_unknown_cost_makes_no_estimate():
    shared = TaskCost(1.0, {"model": 10.0})
    assert TaskCost.total([shared, shared, TaskCost(0.5)]) == 12.5
    assert "about 2.0 minutes" in time_left(120)
    assert time_left(0) == "all of them finished"
    assert "no estimate" in time_left(TaskCost.total([shared, UNKNOWN_COST]))


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_of_the_catalogue_has_a_study_of_its_name(name):
    found = PAPERS[name].study()
    assert found.name == name
    assert found.title
