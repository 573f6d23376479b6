"""The benchmark of many architectures."""

import torch
from benchmarks import throughput


def test_ours_are_compared_with_the_better_of_the_others():
    row = throughput.measure(throughput.ARCHITECTURES["tiny"], 8, 1, torch.device("cpu"))
    assert row["bare"] > 0
    assert row["ours"] > 0
    rows = {"good": row | {"bare": 10.0, "autocast": 20.0, "ours": 19.5}, "slow": row | {"bare": 10.0, "ours": 9.0}}
    text = throughput.page({"machine": "m", "rows": rows | {"none": {"left out": "no library"}}})
    assert "| 0.97 | yes |" in text
    assert "| 0.90 | no |" in text
    assert "no library" in text
