"""What the README shows is true: its code runs, and its model table is the one the cards give."""

import re
from pathlib import Path

import pytest
from tools import zoo_table

from robustassay import models

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_the_model_table_is_what_the_cards_say():
    assert zoo_table.renewed(README) == README, "run python -m tools.zoo_table"
    for card in map(models.card, models.names()):
        (line,) = (line for line in README.splitlines() if line.startswith(f"| `{card.name}` |"))
        express = card.measurements["express"]
        numbers = (card.clean_accuracy, card.robust_accuracy, express["robust"] / express["images"])
        assert re.findall(r"[\d.]+%", line) == [f"{number:.1%}" for number in numbers]
        assert line.endswith(f"of {express['images']:,} |")
        assert f" {card.parameters:,} " in line


def test_the_rates_of_the_doctor_are_those_that_were_measured():
    page = (ROOT / "docs/doctor-rates.md").read_text()
    found = {
        (rate, part): (int(count), int(total))
        for rate in ("misses of `eval` and `doctor`", "false alarms of `doctor`")
        for part, count, total in re.findall(rf"{rate} \| (\w+) \|[^|]*\| (\d+) of (\d+) ", page)
    }
    missed, alarms = (
        [f"{count} of {total}" for count, total in (found[rate, part] for part in ("fresh", "latest", "newest"))]
        for rate in ("misses of `eval` and `doctor`", "false alarms of `doctor`")
    )
    said = " ".join(README.split())
    assert f"missed {missed[0]} masked models, and {missed[1]} and {missed[2]} later ones" in said
    assert f"{alarms[0]}, {alarms[1]} and {alarms[2]} honest models raised a false alarm" in said
