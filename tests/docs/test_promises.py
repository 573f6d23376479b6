"""docs/promises.md and docs/licences.md say nothing that is not so."""

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

import robustassay as ra
from robustassay import models

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
SOURCE = Path(ra.__file__).parent
PROMISES = (ROOT / "docs" / "promises.md").read_text()
LICENCES = (ROOT / "docs" / "licences.md").read_text()
PROOFS = re.findall(r"`(test_\w+)::([\w:]+)`", PROMISES)


def has_test(file: str, name: str) -> bool:
    """Find a test, a method of a class of tests, or a machine that hypothesis runs as one."""
    text = next((ROOT / "tests").rglob(f"{file}.py")).read_text()
    *classes, last = name.split("::")
    if classes:
        (_, _, text) = text.partition(f"\nclass {classes[0]}")
        text = re.split(r"\n(?=\S)", text, maxsplit=1)[0]
    machine = re.search(rf"^class {last}\(RuleBasedStateMachine\)", text, re.MULTILINE)
    if machine and f"\nTest{last} = {last}.TestCase" in text:
        return True
    return bool(last.startswith("test_") and re.search(rf"^ *def {last}\(", text, re.MULTILINE))


@pytest.mark.parametrize(("file", "name"), PROOFS, ids=lambda part: str(part))
def test_every_test_named_in_the_promises_exists(file, name):
    assert has_test(file, name)


def test_the_check_sees_what_does_not_exist():
    assert not has_test("test_promises", "test_that_nobody_wrote")
    assert not has_test("test_promises", "has_test")
    assert not has_test("test_models", "TestZoo::test_never_runs_a_malicious_pickle")
    assert has_test("test_models", "TestReadWeights::test_never_runs_a_malicious_pickle")


def test_every_promise_is_proved():
    rows = re.findall(r"^\| (\d+) \|.*$", PROMISES, re.MULTILINE)
    assert rows == [str(number) for number in range(1, len(rows) + 1)]
    assert len(rows) >= 10
    for line in PROMISES.splitlines():
        if re.match(r"\| \d+ \|", line):
            assert re.search(r"`test_\w+::", line), line


def table(heading: str) -> list[list[str]]:
    part = LICENCES.partition(heading)[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| ")
    ]


def test_every_bundled_file_that_is_no_code_has_its_licence():
    patterns = [
        pattern
        for files, *_ in table("| files | what | from | licence |")
        for pattern in re.findall(r"`([^`]+)`", files)
    ]
    found = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    bundled = {
        path
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and not path.name.startswith(".")
    }
    assert len(bundled) > 40
    assert not {str(path.relative_to(SOURCE)) for path in bundled - found}, "name them in docs/licences.md"


def test_the_zoo_is_under_the_licence_that_is_said():
    said = next(row[-1] for row in table("| files | what | from | licence |") if "safetensors" in row[0])
    assert {models.card(name).licence for name in models.names()} == {said}


def test_every_dependency_is_listed_with_the_licence_it_states():
    listed = {name: row[1] for row in table("| package | licence |") for name in row[0].split(", ")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[<>=]", one)[0] for one in project["dependencies"]} == listed.keys()
    for name, said in listed.items():
        about: Any = metadata(name)
        stated = " ".join(
            [
                about.get("License-Expression") or "",
                (about.get("License") or "")[:300],
                *(about.get_all("Classifier") or []),
            ]
        ).lower()
        word = {"BSD-3-Clause": "bsd", "Apache-2.0": "apache", "MIT": "mit", "MIT-CMU": "mit-cmu"}[said]
        assert word in stated, f"{name} says {stated[:100]}"
