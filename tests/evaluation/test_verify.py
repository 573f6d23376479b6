"""Verification shares no code with the search."""

import ast
import hashlib
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from robustassay.evaluation import verify as verification
from robustassay.evaluation.verify import _own_precision, _seeded
from robustassay.rng import seeded
from robustassay.target.precision import full_precision


def test_verify_imports_nothing_else_of_the_package():
    tree = ast.parse(Path(verification.__file__).read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert "torch" in modules
    assert not [module for module in modules if module.startswith("robustassay")]


@pytest.mark.parametrize("precision", [full_precision, _own_precision])
def test_both_precisions_turn_off_what_the_user_has_set(precision):
    """Two separate functions; this test holds them to the same effect."""
    torch.set_float32_matmul_precision("medium")
    try:
        with precision(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_draws_of_verification_are_a_function_of_the_seed_alone():
    device, before = torch.device("cpu"), torch.get_rng_state()
    python, numpy = random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    drawn = []
    for seed_block in (_seeded, seeded):
        with seed_block("0/s1", device):
            drawn.append((torch.rand(4).tolist(), np.random.random(4).tolist(), random.random()))
    assert drawn[0] == drawn[1], "stored records depend on these draws"
    assert torch.equal(torch.get_rng_state(), before)
    assert (random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()) == (python, numpy)
    assert hashlib.blake2b(b"0/s1", digest_size=8).digest().hex() == "9c473bdd87e2a4f1"
