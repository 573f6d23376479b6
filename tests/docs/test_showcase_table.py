"""The five lines of the README are those of a showcase."""

import re

import pytest
from tools import showcase_table

from robustassay.studies.showcase import CorruptionBar, Corruptions, Showcase, ShowcaseRow

ROW = ShowcaseRow("m", "m", 0.9, None, 0.4, 0.3, 0.5, "AutoAttack-grade", "because", "assay eval m", ())
FOUND = Showcase("d", 10, "Linf 8/255", 0, (ROW,), Corruptions(("fog",), 3, 10, (CorruptionBar("m", 1, 1, 1, 1),)), "")


@pytest.mark.parametrize("page", showcase_table.PAGES, ids=lambda page: page.name)
def test_the_page_holds_five_lines_and_can_be_written_anew(page):
    text = page.read_text()
    part = text.partition(showcase_table.BEGIN)[2].partition(showcase_table.END)[0]
    lines = re.findall(r"^\| .*%.*\|$", part, re.MULTILINE)
    assert len(lines) == 6, "the heading and five lines"
    again = showcase_table.renewed(text, FOUND)
    assert "| m | 90.0% | – | **40.0% (30.0% to 50.0%)** | because |" in again
    assert showcase_table.renewed(again, FOUND) == again


def test_a_page_without_marks_is_refused():
    with pytest.raises(SystemExit, match="lacks"):
        showcase_table.renewed("# assay\n", FOUND)
