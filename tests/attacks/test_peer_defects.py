"""The verified defects of other libraries, each with the test that keeps it out of this one.

The list is of what was reproduced in, or is plain from, the code of foolbox, torchattacks, CleverHans, ART, ARES 2,
AutoAttack, adv-lib, RobustBench and others; numbers are ours. Defects that only a setting, a pin or an attack of theirs
can have say so.
"""

import ast
import importlib
import pkgutil
import random
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import attacks
from robustassay.attacks.attack import Attack
from robustassay.target import fused
from robustassay.threat import LInf
from tests.attacks.test_attacks import CASES, make
from tests.support.toys import Constant, Spy, images, run, two_classes

ROOT = Path(__file__).parents[2]
SOURCE = Path(ra.__file__).parent
HERE = "test_peer_defects"

DEFECTS: dict[int, tuple[str, str]] = {
    1: (
        "a projection that never projects, so every result has the step's size (foolbox L2 FMN)",
        "test_minimum_norm_b::test_fmn_finds_the_exact_distance_of_linear_models",
    ),
    2: ("momentum over signs instead of gradients (foolbox MI-FGSM)", "test_oracles::test_mim_is_not_that_of_foolbox"),
    3: (
        "a failed sample returned as a black image (foolbox C&W, EAD)",
        "test_minimum_norm_a::test_a_row_that_stands_is_handed_back_clean_beside_one_that_falls",
    ),
    4: (
        "rescaling called an L1 projection (foolbox L1 PGD)",
        "test_threat::test_projection_equals_a_bisection_on_the_multiplier",
    ),
    5: (
        "one estimate for the whole batch (foolbox ES)",
        "test_score_attacks::test_every_attack_is_worth_its_queries_and_rows_stay_strangers",
    ),
    6: (
        "one random direction for the whole batch (foolbox Boundary)",
        "test_decision_attacks::test_two_rows_of_one_image_go_their_own_ways",
    ),
    7: (
        "negative logits masked by zero, pixels at 0 and 1 frozen (torchattacks C&W)",
        "test_minimum_norm_a::test_cw_moves_the_pixels_of_binary_images",
    ),
    8: (
        "the clean image changed by the attack (torchattacks EAD)",
        f"{HERE}::test_no_attack_writes_to_the_clean_images",
    ),
    9: ("defaults that cannot move (torchattacks SPSA)", f"{HERE}::test_every_attack_works_as_it_is_made_by_default"),
    10: ("the model shown 2x (CleverHans SPSA)", f"{HERE}::test_no_attack_shows_the_model_a_point_outside_the_box"),
    11: ("a default that raises (ARES 2 SPSA)", f"{HERE}::test_every_attack_works_as_it_is_made_by_default"),
    12: (
        "a product that is no dot product, steps that never adapt (ARES 2 Boundary)",
        "test_decision_attacks::test_the_exact_distance_is_met_within_the_stated_budget",
    ),
    13: (
        "settings that change from image to image (ARES 2 Evolutionary)",
        f"{HERE}::test_no_attack_remembers_anything",
    ),
    14: (
        "noise added again at every step (ART ZOO)",
        "test_score_attacks::test_zoo_moves_each_value_as_its_own_adam",
    ),
    15: (
        "float64 where the model wants float32 (ART HopSkipJump)",
        f"{HERE}::test_no_attack_shows_the_model_a_point_outside_the_box",
    ),
    16: ("a module that is imported and not declared (ART AutoAttack)", f"{HERE}::test_every_import_is_declared"),
    17: ("a resume that always raises (auto-attack)", f"{HERE}::test_autoattack_is_saved_resumed_and_summed_up"),
    18: ("a crash after the whole run (RobustBench)", f"{HERE}::test_autoattack_is_saved_resumed_and_summed_up"),
    19: (
        "windows drawn once for the whole batch (auto-attack Square)",
        "test_square::test_a_row_gets_the_same_alone_and_in_company",
    ),
    20: (
        "the clock as a seed, and the user's generator moved (auto-attack)",
        f"{HERE}::test_generators_of_the_user_are_left_alone",
    ),
    21: ("one lucky draw taken for a success (auto-attack rand)", f"{HERE}::test_one_lucky_draw_is_no_success"),
    22: (
        "points inside the ball moved onto its sphere (adv-lib FMN)",
        "test_threat::test_projection_moves_no_point_that_is_inside",
    ),
    23: (
        "modules that Python has dropped; targets taken for true classes (adv-lib)",
        f"{HERE}::test_everything_can_be_imported_without_a_warning",
    ),
    24: (
        "the first member's score for the whole population (NATTACK's authors)",
        "test_score_attacks::test_nattack_weighs_standardised_rewards",
    ),
    25: (
        "a target left instead of reached in half precision (robustness)",
        f"{HERE}::test_a_target_is_approached_in_either_precision",
    ),
    26: ("the wrong mixing weight (P-RGF until 2023)", "test_score_attacks::test_the_mixing_weight_is_the_best_of_all"),
    27: (
        "points outside the box asked about and returned (attackbox OPT)",
        f"{HERE}::test_no_attack_shows_the_model_a_point_outside_the_box",
    ),
    28: (
        "all stop when one has spent its budget (BlackboxBench)",
        "test_decision_attacks::test_rows_whose_budgets_differ_are_cut_each_at_its_own",
    ),
    29: (
        "a function that SciPy has dropped (smoothing)",
        "test_defenses::test_bounds_and_votes_are_those_of_scipys_exact_tests",
    ),
    30: (
        "a release pinned to a torch of years ago (auto_LiRPA)",
        f"{HERE}::test_torch_is_asked_for_by_its_least_version_only",
    ),
}

QUERIES = 80
"""Enough for an attack to show what it does with its images."""

SEARCHES = [name for name in attacks.attack_names() if CASES[name].on_toys]


@pytest.mark.parametrize("number", range(1, 31))
def test_every_defect_has_its_test(number):
    what, where = DEFECTS[number]
    file, name = where.split("::")
    assert what
    assert re.search(rf"^def {name}\(", next((ROOT / "tests").rglob(f"{file}.py")).read_text(), re.MULTILINE), where


def norm_of(attack: Attack[Any], eps: float) -> Any:
    kinds = {kind.name: kind for kind in type(attack).norms}
    name = next(name for name in ("Linf", "L2", "L1", "L0") if name in kinds)
    return kinds[name](eps * {"Linf": 1, "L2": 3, "L1": 10, "L0": 100}[name])


# ---------------------------------------------------------------- every attack


@pytest.fixture(scope="module")
def problem():
    """Images on both walls of the box and a model they do not fool at once."""
    model = two_classes(12)
    x = images(4, (3, 2, 2), low=0.0, high=1.0).round(decimals=1)
    with torch.no_grad():
        return model, x, model(x).argmax(1)


@pytest.mark.parametrize("name", SEARCHES)
def test_no_attack_shows_the_model_a_point_outside_the_box(problem, name):
    """Nor anything but float32, whatever numpy prefers."""
    model, x, labels = problem
    spy = Spy(model)
    _, x_adv = run(spy, make(name), norm_of(make(name), 0.4), x, labels, query_budget=QUERIES)
    seen = torch.cat(spy.seen)
    assert len(seen) > len(x), "it asked nothing"
    assert seen.min() >= 0
    assert seen.max() <= 1
    assert {one.dtype for one in (*spy.seen, x_adv)} == {torch.float32}


@pytest.mark.parametrize("name", SEARCHES)
def test_no_attack_writes_to_the_clean_images(problem, name):
    """Where nothing can be broken, every image comes back as it was, to the last bit."""
    _, x, _ = problem
    before, labels = x.clone(), torch.zeros(len(x), dtype=torch.int64)
    records, x_adv = run(Constant(), make(name), norm_of(make(name), 0.2), x, labels, query_budget=QUERIES)
    assert torch.equal(x, before)
    assert torch.equal(x_adv, before)
    assert not records["success"].any()


@pytest.mark.parametrize("name", SEARCHES)
def test_no_attack_remembers_anything(problem, name):
    """Frozen, and the second run of one object is the first one again."""
    model, x, labels = problem
    attack = make(name)
    assert type(attack).__dataclass_params__.frozen  # type: ignore[attr-defined]
    told = repr(attack)
    runs = [run(model, attack, norm_of(attack, 0.2), x, labels, query_budget=QUERIES) for _ in range(2)]
    assert repr(attack) == told
    assert torch.equal(runs[0][1], runs[1][1])
    one, other = (records.drop(columns="seconds").astype(str) for records, _ in runs)
    assert one.equals(other)


NEEDS_MORE = {"uniform-noise", "gaussian-noise", "minimum-radius", "prgf"}
"""Noise finds nothing on purpose, and the others want to be told of an attack or a surrogate."""


DEFAULTS = [name for name in SEARCHES if name not in NEEDS_MORE]
SLOW = {name: pytest.param(name, marks=pytest.mark.long) for name in ("cw", "cw-fast", "ead", "ead-fast")}


@pytest.mark.parametrize("name", [SLOW.get(name, name) for name in DEFAULTS])
def test_every_attack_works_as_it_is_made_by_default(name):
    """On two images that lie near the boundary, and with queries enough for images as small as these."""
    model, x, attack = two_classes(12, margin=0.2), images(2, (3, 2, 2)), attacks.create(name)
    with torch.no_grad():
        labels = model(x).argmax(1)
    queries = {"cw": 5000} | dict.fromkeys(("cw-fast", "ead", "ead-fast", "nattack", "nes", "spsa"), 2000)
    records, _ = run(model, attack, norm_of(attack, 0.5), x, labels, query_budget=queries.get(name, 400))
    assert records["success"].all()


def test_generators_of_the_user_are_left_alone():
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    data = (images(6, (3, 2, 2)), torch.arange(6) % 3)
    torch.manual_seed(1)
    random.seed(3)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    first = ra.evaluate(net, data, LInf(0.1), ["pgd:restarts=2", "square:steps=20"])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert random.getstate() == states[2]
    torch.manual_seed(4)
    again = ra.evaluate(net, data, LInf(0.1), ["pgd:restarts=2", "square:steps=20"])
    assert again.records.drop(columns="seconds").astype(str).equals(first.records.drop(columns="seconds").astype(str))


class Moody(nn.Module):
    """Right about every image, but in three draws of ten says something else, whatever it is shown."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.chance = chance
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.eval()

    def forward(self, x):
        wrong = torch.rand(len(x)) < self.chance
        z = torch.zeros(len(x), 3)
        z[:, 0] = torch.where(wrong, -1.0, 1.0)
        return z + 1e-3 * self.scale * x.flatten(1)[:, :3]


@pytest.mark.parametrize(("chance", "falls"), [(0.3, False), (0.8, True)])
def test_one_lucky_draw_is_no_success(chance, falls):
    """An attack that asks often enough sees a wrong answer; a success is what most fresh draws say."""
    data = (images(8, (3, 2, 2)), torch.zeros(8, dtype=torch.int64))
    result = ra.evaluate(Moody(chance), data, LInf(0.1), "uniform-noise:steps=40", search=ra.Search(despite_flags=True))
    assert result.records["success"].all() == falls
    assert result.records["success"].any() == falls


def test_a_target_is_approached_in_either_precision():
    model, x = two_classes(48), images(8, (3, 4, 4))
    with torch.no_grad():
        labels = model(x).argmax(1)
    rule = ra.LabelList({f"{row}": 1 - int(label) for row, label in enumerate(labels)})
    threat = ra.ThreatModel(LInf(0.4), rule)
    found = [
        ra.evaluate(model, (x, labels), threat, "pgd", search=ra.Search(precision=precision)).attack_success_rate
        for precision in ("fast", "exact")
    ]
    assert found == [1.0, 1.0]


def test_autoattack_is_saved_resumed_and_summed_up(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 10)).eval()
    data = (images(10, (3, 8, 8)), torch.arange(10))
    how: dict[str, Any] = {"threat": LInf(0.01), "attack": "autoattack:steps=4,queries=20", "out": tmp_path / "run"}
    half = ra.evaluate(net, data, limit=5, **how)
    whole = ra.evaluate(net, data, **how)
    assert len(half.records) == 5
    assert len(whole.records) == 10
    assert 0 <= whole.robust_accuracy <= whole.clean_accuracy
    alone = ra.evaluate(net, data, LInf(0.01), "autoattack:steps=4,queries=20")
    assert whole.robust_accuracy == alone.robust_accuracy


# ---------------------------------------------------------------- the package itself

# How a package is asked for, where that is not how it is imported; starlette is a part of what fastapi is.
NAMES = {"PIL": "pillow", "starlette": "fastapi", "markdown_it": "markdown-it-py", "mpl_toolkits": "matplotlib"}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def test_every_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for many in project["optional-dependencies"].values() for one in many)]
    declared = {re.split(r"[<>=\[~!; ]", one)[0].lower() for one in asked}
    used = (
        {name for path in SOURCE.rglob("*.py") for name in imported(path)}
        - set(sys.stdlib_module_names)
        - {"robustassay"}
    )
    assert {"torch", "numpy"} <= used
    assert {NAMES.get(name, name).lower() for name in used - {"triton"}} <= declared, "triton comes with torch for CUDA"


def test_everything_can_be_imported_without_a_warning():
    left_out = "__main__" if fused.HAS_TRITON else "__main__|fused_kernels"
    modules = pkgutil.walk_packages([str(SOURCE)], "robustassay.")
    names = [module.name for module in modules if not re.search(left_out, module.name)]
    assert len(names) > 100
    for name in names:
        importlib.import_module(name)
    gone = {"distutils", "imp", "asyncore", "asynchat", "cgi", "pipes", "telnetlib"}
    assert not {name for path in SOURCE.rglob("*.py") for name in imported(path)} & gone


def test_torch_is_asked_for_by_its_least_version_only():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [one for one in project["dependencies"] if "<" in one or "==" in one]
