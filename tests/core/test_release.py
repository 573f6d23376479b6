"""What a release says of itself agrees: version, changelog, citation, tested systems."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.release_notes import CHANGELOG, notes

import robustassay as ra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def workflow(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return content


def test_the_changelog_has_a_section_of_this_version_which_becomes_the_notes_of_the_release():
    found = notes(f"v{ra.__version__}", CHANGELOG.read_text())
    assert found.count("\n- ") > 10
    assert "\n## " not in found


def test_a_tag_of_another_version_and_a_version_without_a_section_are_refused():
    with pytest.raises(SystemExit, match="change one of them"):
        notes("v9.9.9", CHANGELOG.read_text())
    with pytest.raises(SystemExit, match="no section"):
        notes(f"v{ra.__version__}", "# Changelog\n\n## 0.0.1 (then)\n\n- a\n")


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == ra.__version__
    released = re.search(rf"^## {re.escape(ra.__version__)} \((.*)\)$", CHANGELOG.read_text(), re.MULTILINE)
    assert released is not None
    assert citation["date-released"] == released[1]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]


def test_the_matrix_tests_what_the_package_declares():
    matrix = workflow("tests.yml")["jobs"]["matrix"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["strategy"]["matrix"]["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"
    (oldest,) = (one.removeprefix("torch>=") for one in PROJECT["dependencies"] if one.startswith("torch"))
    assert matrix["env"]["OLDEST_TORCH"] == oldest
    assert len(matrix["strategy"]["matrix"]["os"]) == 3


def test_the_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [(ROOT / ".github" / "workflows" / name).read_text() for name in ("tests.yml", "release.yml")]
    called = {target for text in texts for target in re.findall(r"run: make ([\w-]+)", text)}
    assert {"check", "coverage", "wheel"} <= called <= targets
