"""What the README shows is true: its code runs, and its model table is the one the cards give."""

import re
from pathlib import Path

from assay import models

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_the_model_table_is_what_the_cards_say():
    rows = []
    for card in map(models.card, models.names()):
        cells = (f"`{card.name}`", card.title, f"{card.parameters:,}", f"{card.clean_accuracy:.1%}")
        rows.append("| " + " | ".join([*cells, f"{card.robust_accuracy:.1%}"]) + " |")
    assert "\n".join(rows) in README
