"""What the documentation shows is so: its code runs, its commands parse, its generated pages are current, it builds."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import nbformat
import pytest
from benchmarks import cost_model
from cyclopts import CycloptsError, MissingArgumentError
from tools import api_page, attack_pages, notebooks, page_outputs

import robustassay as ra
from robustassay import attacks, registry
from robustassay.cli import app
from robustassay.eps import format_norm
from robustassay.registry import lookup

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, *languages: str) -> list[str]:
    """Return the fenced blocks of a text, without the indent of the list they may stand in."""
    found = [(language, indent, body) for indent, language, body in FENCE.findall(text)]
    return [
        re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for language, indent, body in found if language in languages
    ]


def commands(text: str) -> list[str]:
    """Return every line that calls assay, in blocks of any kind but Python, or indented."""
    lines = [line for block in blocks(text, "", "console") for line in block.splitlines()]
    lines += [line for line in text.splitlines() if line.startswith("    ")]
    called = (re.sub(r"^\s*(?:\$ )?(?:\.venv/bin/)?(?=assay )", "", line) for line in lines)
    return [line.split("  #")[0].strip() for line in called if line.startswith("assay ")]


def mentions(text: str) -> list[str]:
    """Return what stands between backquotes and calls assay; it may leave out what the sentence does not need."""
    return re.findall(r"`(assay [^`]+)`", text)


def problem_with(command: str, may_lack: bool = False) -> str | None:
    """Say why a command line would be refused before it does anything; names stand for themselves."""
    words = shlex.split(command.replace("|", "/"))[1:]
    if words[0] not in app:
        return f"there is no command {words[0]}"
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError as error:
        return None if may_lack else str(error)
    except CycloptsError as error:
        return str(error)
    return None


# ------------------------------------------------------------------------------------------------ code and commands

WITH_CODE = [page for page in PAGES[1:] if blocks(page.read_text(), "python")]  # the README's is in test_readme


@pytest.fixture
def guest():
    """The name under which a page runs; what it registers as an example must not be there for other tests."""
    yield "page_of_the_docs"
    for known in registry._known.values():
        for name in [name for name, cls in known.items() if cls.__module__ == "page_of_the_docs"]:
            del known[name]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, guest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": guest}
    if page in page_outputs.PAGES:
        text = page.read_text()
        assert without_numbers(page_outputs.renewed(text, namespace)) == without_numbers(text), "run make docs"
        return
    for number, block in enumerate(blocks(page.read_text(), "python"), 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)


def without_numbers(text: str) -> str:
    """Return a text whose numbers and spaces are masked: another processor may break one sample more."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,/ %]*|inf|NaN|None|True|False", "#", text))


def test_pages_with_code_are_the_ones_that_teach():
    taught = {page.stem for page in WITH_CODE}
    assert {
        "start",
        "tutorial",
        "scale",
        "verification",
        "own-model",
        "write-attack",
        "write-defense",
        "add-model",
        "http",
    } <= taught


def test_every_block_says_what_it_is():
    """A block in an unknown language would be neither run nor checked."""
    for page in PAGES:
        languages = {language for _, language, _ in FENCE.findall(page.read_text())}
        assert languages <= {"", "python", "console", "text", "toml"}, page.name
        assert page.read_text().count("```") == 2 * len(FENCE.findall(page.read_text())), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_line_parses(page):
    text = page.read_text()
    wrong = {command: why for command in commands(text) if (why := problem_with(command))}
    wrong |= {command: why for command in mentions(text) if (why := problem_with(command, may_lack=True))}
    assert not wrong


def test_the_check_of_commands_sees_what_is_wrong():
    text = "    assay eval a --x 1  # why\n`assay run`\n```console\n$ assay doctor m --limit 8\n```\n"
    assert commands(text) == ["assay doctor m --limit 8", "assay eval a --x 1"]
    assert mentions(text) == ["assay run"]
    assert problem_with("assay eval resnet20-pgd --attack pgd square --eps 8/255") is None
    assert problem_with("assay eval --adaptive auto", may_lack=True) is None
    assert problem_with("assay eval --adaptive auto")
    assert problem_with("assay eval resnet20-pgd --atack pgd", may_lack=True)
    assert problem_with("assay evaluate resnet20-pgd --attack pgd")
    assert problem_with("assay bench resnet20-pgd --limit many")


# ------------------------------------------------------------------------------------------------ generated pages


@pytest.mark.parametrize("tool", [attack_pages, api_page], ids=lambda tool: tool.__name__)
def test_generated_pages_are_current(tool):
    assert tool.PAGE.read_text() == tool.page(), f"run python -m {tool.__name__}"


def test_the_cost_tables_are_current():
    known = json.loads(cost_model.FILE.read_text())
    text = cost_model.PAGE.read_text()
    assert cost_model.renewed(text, known) == text, "run python -m benchmarks.cost_model"
    assert list(known["passes"]) == list(cost_model.LINEUP)
    assert len(known["passes"]) == 20


@pytest.mark.parametrize("name", ["fgsm", "pgd", "ddn"])
def test_the_cost_tables_count_what_an_attack_does(name):
    """Steps and gradients by hand: one look at the last point, one gradient a step."""
    known = json.loads(cost_model.FILE.read_text())["passes"][name]
    steps = getattr(lookup("attack", name)(), "steps", 1)
    assert known == cost_model.passes(name) == {"forwards": steps + 1, "backwards": steps}


@pytest.mark.parametrize("name", attacks.attack_names())
def test_every_attack_is_on_its_page_with_all_that_is_known_of_it(name):
    cls, page = lookup("attack", name), attack_pages.PAGE.read_text()
    _, _, rest = page.partition(f"\n### {name}\n")
    part = re.split(r"\n#{2,3} ", rest)[0]
    assert cls.info.formula, "the class states its formula"
    assert cls.info.formula in part
    for field in fields(cls):
        assert f"| `{field.name}` | {' | '.join(attack_pages.default(field.default))} |" in part
    for norm in cls.norms:
        assert format_norm(norm.name) in part
    papers = re.findall(r"arXiv:(\d{4}\.\d{4,5})", cls.__doc__ or "")
    assert set(papers) == set(cls.info.papers), "the docstring names the papers of the class"
    for paper in papers:
        assert f"[arXiv:{paper}]" in part


def test_the_attack_pages_are_made_anew():
    readme = PAGES[0].read_text()
    assert attack_pages.page() == attack_pages.PAGE.read_text(), "run python -m tools.attack_pages"
    assert attack_pages.renewed(readme) == readme, "run python -m tools.attack_pages"
    assert not [name for name in attacks.attack_names() if f"`{name}`" not in readme]


def test_rows_of_other_pages_are_shown_where_they_belong():
    assert attack_pages.belongs("apgd", "apgd:loss=dlr")
    assert attack_pages.belongs("square", "square Linf")
    assert not attack_pages.belongs("apgd", "apgd-t")
    rows = [["square Linf", "125"], ["square Linf", "1,000"]]
    assert [attack_pages.at_most_queries(["attack", "queries"], row, rows) for row in rows] == [False, True]
    assert attack_pages.crosschecks("cw").count("| cw | L2 |") == 2, "one row a model, and no other attack's"
    assert "| ead |" not in attack_pages.crosschecks("cw")


def test_every_public_name_is_in_the_reference():
    page = api_page.PAGE.read_text()
    for name in ra.__all__:
        assert name == "__version__" or f"### robustassay.{name}\n" in page
    for argument in ("query_budget", "despite_flags", "smallest_eps", "precision"):
        assert f"| `{argument}` |" in page


# ------------------------------------------------------------------------------------------------ the site


def test_links_and_pictures_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_site_builds_without_a_warning(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(tmp_path / "zensical.toml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "build" / "docs"
    for page in PAGES[2:]:
        assert (site / f"{page.stem}.html").is_file(), f"{page.name} is not in the site"
    assert not re.findall(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', (site / "index.html").read_text())


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r'"([\w./-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    assert named == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


# ------------------------------------------------------------------------------------------------ notebooks


@pytest.mark.long
@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_notebook_runs_from_top_to_bottom(name):
    done = subprocess.run(
        [sys.executable, "-m", "tools.notebooks", "--check", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_the_page_of_a_notebook_shows_its_outputs(name, tmp_path):
    notebook = nbformat.read(notebooks.FOLDER / f"{name}.ipynb", as_version=4)
    assert notebook.cells[-1].outputs, "run python -m tools.notebooks"
    assert notebooks.page(name, notebook, tmp_path) == (notebooks.FOLDER / f"{name}.md").read_text()


# ------------------------------------------------------------------------------------------------ the glossary

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
TERMS = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", GLOSSARY, re.MULTILINE)


def texts_that_use_terms() -> str:
    """Return the code and the pages, the glossary and names of files left out."""
    files = [*(ROOT / "src" / "robustassay").rglob("*.py"), *(page for page in PAGES if page.stem != "glossary")]
    return "\n".join(path.read_text() for path in files).lower().replace("_", " ").replace("-", " ")


def test_every_term_of_the_glossary_is_used():
    text = texts_that_use_terms()
    unused = [term for term, _ in TERMS if not re.search(rf"\b{re.escape(term.lower().replace('-', ' '))}", text)]
    assert not unused


def test_the_glossary_is_sorted_and_defines_each_term_once_in_a_sentence():
    terms = [term.lower() for term, _ in TERMS]
    assert len(terms) > 40
    assert terms == sorted(set(terms))
    for term, meaning in TERMS:
        assert meaning.endswith("."), term


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "index", "start", "tutorial", "own-model", "verification"])
def test_pages_that_newcomers_read_link_to_the_glossary(name):
    (page,) = (page for page in PAGES if page.stem == name)
    assert "glossary.md" in page.read_text()
