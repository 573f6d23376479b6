"""Pictures with few colours keep the colours of thin lines."""

import numpy as np
from PIL import Image, ImageDraw

from robustassay.report.charts.few_colours import COLOURS as MOST
from robustassay.report.charts.few_colours import shrink
from robustassay.report.charts.style import COLOURS


def test_lines_keep_their_colours_beside_many_shades(tmp_path):
    shades = np.linspace(160, 255, 300 * 300 * 3).reshape(300, 300, 3)
    drawn = Image.fromarray(np.random.default_rng(0).permuted(shades, axis=2).astype(np.uint8))
    canvas = ImageDraw.Draw(drawn)
    for at, colour in enumerate(COLOURS):
        canvas.line((0, 20 + 30 * at, 299, 40 + 30 * at), fill=colour, width=2)
    drawn.save(tmp_path / "drawn.png")
    shrink(tmp_path / "drawn.png", tmp_path / "few.png")
    with Image.open(tmp_path / "few.png") as few:
        kept = np.unique(np.asarray(few.convert("RGB")).reshape(-1, 3).astype(int), axis=0)
    assert len(kept) <= MOST
    for colour in COLOURS:
        wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
        assert np.abs(kept - wanted).max(1).min() <= 8, colour
