"""The published pages of studies: none is older than the records' version, and all have what a page must have."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from robustassay.evaluation.spec import SPEC_VERSION

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
OUTDATED: set[str] = set()
"""Pages of an earlier run format, which wait to be measured again."""

PAGES = [
    pytest.param(
        path.parent, id=path.parent.name, marks=[pytest.mark.xfail(strict=True)] * (path.parent.name in OUTDATED)
    )
    for path in sorted(STUDIES.glob("*/study.md"))
]


@pytest.mark.parametrize("folder", PAGES)
def test_a_page_is_not_older_than_the_run_format(folder):
    kept = json.loads((folder / "provenance.json").read_text())
    assert kept["run_format"] == SPEC_VERSION, "measure again, then `assay study NAME --publish docs/studies/PAGE`"


@pytest.mark.parametrize("folder", PAGES)
def test_a_page_starts_with_its_findings_and_every_file_it_names_is_there(folder):
    text = (folder / "study.md").read_text(encoding="utf-8")
    assert re.match(r"# .*\n\n\| finding \| the paper \| here \| verdict \| because \|", text)
    findings = pd.read_csv(folder / "tables" / "findings.csv")
    assert set(findings["verdict"]) <= {"holds", "does not hold", "cannot be said"}
    assert findings[["published", "because"]].notna().all(axis=None)
    assert findings.loc[findings["verdict"] != "cannot be said", "measured"].notna().all()
    linked = set(re.findall(r"\]\(((?:figures|tables)/[^)]+)\)", text))
    kept = {str(path.relative_to(folder)) for name in ("figures", "tables") for path in (folder / name).iterdir()}
    assert linked | {"tables/findings.csv"} == kept
    assert re.search(r"Measured on \d{4}-\d\d-\d\d.* with commit `.*run format \d+", text)
    assert text.index("\n## Figures") < text.index("\n## Tables")
