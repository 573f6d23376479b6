"""The page and folder of a study: findings first, published number beside ours, every table a CSV."""

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from robustassay.cli.study.command import run_study
from robustassay.errors import BadRequest, Interrupted, StoreFailed
from robustassay.evaluation.progress import NoProgress
from robustassay.evaluation.spec import SPEC_VERSION
from robustassay.interrupt import graceful_interrupt
from robustassay.studies import paper_models
from robustassay.studies.catalogue import PAPERS
from robustassay.studies.page import MISSING, Figure, Finding, Scale, Setup, Table, combined, findings_table
from robustassay.studies.paper_models import PaperModel
from robustassay.studies.provenance import Measured, Provenance, commit, provenance_of
from robustassay.studies.scope import Scope
from robustassay.studies.study import Plan, Study
from robustassay.studies.task import UNKNOWN_COST, ComputeTask, TaskCost
from robustassay.studies.timing import time_left
from robustassay.studies.writer import write

FINDINGS = [
    Finding(1, "robust | accurate", "holds", ("numbers",), "57 %", "60 % (50 % to 70 %, n = 90)", "60 % is more"),
    Finding(2, "no number", "cannot be said", ("too few",)),
]


def write_more(measurements: None, out: Path) -> None:
    (out / "more.txt").write_text("more")


SETUP = Setup((Scale("images", "10", "1,000"),), ("fewer images",), ("How.",), ("slow: it was slow.",))
PROVENANCE = Provenance((Measured("2026-01-02", "abc", 6, "CPU"),), "2026-01-03", "def", "assay study paper")


def no_plan(scope):
    raise AssertionError("not planned here")


def study(findings=(), tables=(), figures=(), plan=no_plan):

    return Study[None](
        name="paper",
        title="A paper",
        plan=plan,
        setup=lambda _: SETUP,
        findings=lambda _: list(findings),
        tables=lambda _: list(tables),
        figures=lambda _: list(figures),
        attach=write_more,
    )


def drawn_in(drawn):
    def draw(figure, path):
        drawn.append(path.name)
        path.write_text("")

    return draw


def test_the_page_starts_with_the_findings_and_the_published_number_stands_beside_ours(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    tables = [Table("t", "T", ("a",), (("1",),), frame, ("a note",)), Table("whole", "W", ("a",), (), frame)]
    figures = [Figure("one", "One", None), Figure("two", "Two", None, "pair"), Figure("three", "Three", None, "pair")]
    drawn: list[str] = []
    report = write(study(FINDINGS, tables, figures), None, tmp_path, drawn_in(drawn), PROVENANCE)
    page = report.page.read_text()
    assert page.startswith("# A paper\n\n| finding | the paper | here | verdict | because |")
    assert "| 1. robust \\| accurate | 57 % | 60 % (50 % to 70 %, n = 90) | holds | 60 % is more |" in page
    assert f"| 2. no number | {MISSING} | {MISSING} | cannot be said | {MISSING} |" in page
    order = ["| finding", "run format 6", "| images | 10 | 1,000 |", "- fewer images", "How.", "![One]", "### pair"]
    order += ["## Tables", "- a note", "### 1. robust", "- slow: "]
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)
    assert "| ![Two](figures/two.png) | ![Three](figures/three.png) |" in page
    assert "**W** ([CSV](tables/whole.csv))" in page
    assert drawn == ["one.png", "two.png", "three.png"]
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {"findings", "t", "whole"}
    assert pd.read_csv(tmp_path / "tables" / "findings.csv")["published"].tolist()[0] == "57 %"
    assert (tmp_path / "more.txt").read_text() == "more"


def test_tables_have_six_digits_and_whole_counts(tmp_path):
    frame = pd.DataFrame({"rate": [2 / 3, float("nan")], "count": [4286026.0, 1.0], "name": ["=x", "y"]})
    write(study(tables=[Table("t", "T", (), (), frame)]), None, tmp_path, drawn_in([]), PROVENANCE)
    assert (tmp_path / "tables" / "t.csv").read_text() == "rate,count,name\n0.666667,4286026.0,'=x\n,1.0,y\n"


def test_another_page_in_the_folder_leaves_no_file_of_the_first(tmp_path):
    write(study(figures=[Figure("one", "One", None)]), None, tmp_path, drawn_in([]), PROVENANCE)
    write(study(figures=[Figure("two", "Two", None)]), None, tmp_path, drawn_in([]), PROVENANCE)
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["two.png"]


def test_a_claim_holds_only_if_every_part_does():
    assert combined(["holds", "holds"]) == "holds"
    assert combined(["holds", "cannot be said"]) == combined([]) == "cannot be said"
    assert combined(["holds", "does not hold", "cannot be said"]) == "does not hold"


def test_published_pages_are_made_of_finished_tasks_and_say_where_they_come_from(tmp_path):
    out, published = tmp_path / "out", tmp_path / "published"
    done: list[str] = []

    def task_named(name):
        return ComputeTask((name,), name, 3, lambda: name in done, lambda _: done.append(name), lambda: 0.0)

    def plan(scope):
        tasks = [task_named(name) for name in ("a", "b")]
        return Plan(tuple(tasks), lambda results: None, partial=scope.quick)

    paper = study(FINDINGS, [Table("t", "T", ("a",), (("1",),), pd.DataFrame({"a": [1]}))], plan=plan)
    with pytest.raises(BadRequest, match="2 of 2 tasks are not finished"):
        run_study(paper, Scope(out), True, published)
    done.append("a")
    with pytest.raises(BadRequest, match="1 of 2 tasks are not finished, the first of them b"):
        run_study(paper, Scope(out), True, published)
    run_study(paper, Scope(out, quick=True), True, published)
    assert "b" not in done
    run_study(paper, Scope(out, limit=3), True)
    run_study(paper, Scope(out, limit=3), True, published)
    page, kept = (published / "study.md").read_text(), json.loads((published / "provenance.json").read_text())
    assert f"commit `{commit()}` (run format {SPEC_VERSION}) on CPU." in page
    assert "by `assay study paper --limit 3`" in page
    assert kept["run_format"] == SPEC_VERSION
    assert (published / "tables" / "t.csv").exists()


def test_the_command_on_a_page_names_no_folder_of_this_machine(tmp_path):
    scope = Scope(tmp_path, "imagenet", data=f"nips2017:{tmp_path}", models=(f"{tmp_path}/net.py:make", "R&P"), seed=3)
    assert scope.command("su2018") == (
        'assay study su2018 --dataset imagenet --data nips2017:FOLDER --models net.py:make "R&P" --seed 3'
    )


def test_results_of_another_run_format_are_not_published(tmp_path):
    Measured("2026-01-02", "abc", SPEC_VERSION - 1, "CPU").keep(tmp_path)
    with pytest.raises(BadRequest, match="measure again"):
        provenance_of(tmp_path, "assay study paper")


def test_the_commit_is_that_of_the_source_or_the_one_given(monkeypatch):
    commit.cache_clear()
    monkeypatch.setenv("ASSAY_COMMIT", "0123")
    assert commit() == "0123"
    commit.cache_clear()
    monkeypatch.delenv("ASSAY_COMMIT")
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    if head.returncode == 0:
        assert head.stdout.startswith(commit().removesuffix(" with changes"))
    commit.cache_clear()


NETWORKS: paper_models.PaperModels = {
    "imagenet": (
        PaperModel("VGG-16", "torchvision:vgg16", "VGG", 16, 138_357_544),
        PaperModel("ALP", "", "ResNet", note="name its file with --models"),
    )
}


def test_paper_stands_for_the_papers_own_networks(tmp_path):
    scope, notes = paper_models.resolve(NETWORKS, Scope(tmp_path, "imagenet", models=("mine", "paper", "mine")))
    assert scope.models == ("mine", "torchvision:vgg16")
    assert notes == ["Left out: ALP; name its file with --models."]
    found = paper_models.find(NETWORKS, "torchvision:vgg16")
    assert found is not None
    assert found.depth == 16
    assert paper_models.find(NETWORKS, "") is None
    assert paper_models.resolve(NETWORKS, Scope(tmp_path, models=("mine",)))[0].models == ("mine",)
    with pytest.raises(BadRequest, match="try --dataset imagenet"):
        paper_models.resolve(NETWORKS, Scope(tmp_path, "cifar10", models=("paper",)))


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="choose another place"):
        write(study(FINDINGS), None, tmp_path / "file", drawn_in([]), PROVENANCE)
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
