"""Published figures and tables become smaller, and say the same."""

import json

import pandas as pd
from PIL import Image
from tools import shrink_docs

from robustassay.report.charts.few_colours import COLOURS


def test_figures_tables_and_boards_become_smaller_once(tmp_path):
    for name in ("figures", "tables", "leaderboard"):
        (tmp_path / name).mkdir()
    drawing = Image.new("RGB", (200, 200), "white")
    drawing.putdata([(at % 200, 255, 0) for at in range(200 * 200)])
    drawing.quantize(200).save(tmp_path / "figures" / "drawing.png")
    drawing.save(tmp_path / "figures" / "photograph.png")
    photograph = (tmp_path / "figures" / "photograph.png").read_bytes()
    frame = pd.DataFrame({"rate": [1 / 3, 2e-12 / 3], "count": [4286026.0, 7.0], "day": ["2026-11-19", "0.10.1"]})
    frame.to_csv(tmp_path / "tables" / "t.csv", index=False)
    frame.to_csv(tmp_path / "leaderboard" / "board.csv", index=False)
    board = {
        "format": "f",
        "boards": [{"norm": "Linf", "entries": [{"a": 1, "b": [0.5]}, {"a": None}]}],
        "left_out": [],
    }
    (tmp_path / "leaderboard" / "board.json").write_text(json.dumps(board, indent=2))

    assert shrink_docs.main([tmp_path]) > 0
    with Image.open(tmp_path / "figures" / "drawing.png") as shown:
        assert len(shown.getcolors() or []) <= COLOURS
    assert (tmp_path / "figures" / "photograph.png").read_bytes() == photograph
    assert (tmp_path / "tables" / "t.csv").read_text() == (
        "rate,count,day\n0.333333,4286026.0,2026-11-19\n6.66667e-13,7.0,0.10.1\n"
    )
    assert pd.read_csv(tmp_path / "leaderboard" / "board.csv").equals(frame)
    text = (tmp_path / "leaderboard" / "board.json").read_text()
    assert json.loads(text) == board
    assert '\n{"a": 1, "b": [0.5]},\n{"a": null}\n' in text
    assert shrink_docs.main([tmp_path]) == 0
