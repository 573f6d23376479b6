"""What the README shows is true: its code runs, and its model table is the one the cards give."""

import re
from pathlib import Path

import pytest
from benchmarks.doctor_rates import read
from benchmarks.doctor_rates_page import NEWEST, is_alarmed, is_right, misses_doctor, rate
from benchmarks.model_collection import COLLECTION, LATER
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
        measured = [found for name in ("express", "autoattack") if (found := card.measurements.get(name))]
        numbers = (
            card.clean_accuracy,
            card.robust_accuracy,
            *(found["robust"] / found["images"] for found in measured),
        )
        assert re.findall(r"[\d.]+%", line) == [f"{number:.1%}" for number in numbers]
        assert [int(count.replace(",", "")) for count in re.findall(r"of ([\d,]+)", line)[1:]] == [
            found["images"] for found in measured
        ]
        assert f" {card.parameters:,} " in line


def test_the_rates_of_the_doctor_are_those_that_were_measured():
    rows = read(ROOT / "docs/doctor-rates.jsonl")
    unseen = [entry for entry in COLLECTION if entry.part in LATER]
    missed, alarms = rate(unseen, "masked", misses_doctor, rows), rate(unseen, "honest", is_alarmed, rows)
    assert f"missed {missed.split(' (')[0]} masked models" in " ".join(README.split())
    newest = [entry for entry in COLLECTION if entry.part in NEWEST]
    last = rate(newest, "masked", misses_doctor, rows)
    assert f"and none of the last {last.removeprefix('0 of ').split(' (')[0]};" in " ".join(README.split())
    alarmed = [rows[entry.name] for entry in unseen if entry.kind == "honest" and is_alarmed(rows.get(entry.name, {}))]
    expected = f"{alarms.split(' (')[0]} honest models raised an alarm, {sum(map(is_right, alarmed))} of them rightly"
    fresh = rate([entry for entry in newest if entry.part == NEWEST[-1]], "honest", is_alarmed, rows).split(" (")[0]
    assert f"{expected}, and {fresh.replace('of', 'of the last', 1)}:" in " ".join(README.split())
