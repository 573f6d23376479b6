"""Adding an attack takes one source file: the lists, the pages and the tests find it by its registration."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import attack_pages

from robustassay import attacks, registry
from robustassay.cli import main
from tests.attacks import test_attacks as conformance

SOURCE = '''"""A toy attack."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2


@final
@register("attack", "toy")
@dataclass(frozen=True)
class Toy(Attack[GradientAccess]):
    """One short step (Nobody 2020, arXiv:2001.00001)."""

    info = AttackInfo(papers=("2001.00001",), formula="x = x0 + part * g(x0)")
    access = GradientAccess
    norms = (L2,)

    part: float = 0.5

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Step."""
        return view.ball.step(x0, view.gradient(x0)[0], self.part * view.ball.eps)
'''


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[None]:
    """Import the file as if it lay among the attacks of the package."""
    (tmp_path / "toy.py").write_text(SOURCE)
    name = "robustassay.attacks.gradient.toy"
    spec = importlib.util.spec_from_file_location(name, tmp_path / "toy.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
        yield
    finally:
        registry._known["attack"].pop("toy", None)
        del sys.modules[name]


@pytest.mark.usefixtures("toy")
def test_the_command_line_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attacks"]) == 0
    assert "toy" in capsys.readouterr().out.split()
    assert attacks.create("toy:part=0.25").planned_steps is None


@pytest.mark.usefixtures("toy")
def test_the_page_and_the_readme_show_it() -> None:
    page, readme = attack_pages.page(), attack_pages.renewed(attack_pages.README.read_text())
    assert "### toy" in page
    assert "x = x0 + part * g(x0)" in page
    assert "[arXiv:2001.00001]" in page
    assert "| `part` | float | `0.5` |" in page
    assert "`tim` `toy` |" in readme


@pytest.mark.usefixtures("toy")
def test_the_conformance_tests_try_it_and_ask_for_its_row() -> None:
    assert "toy-L2" in [row.id for row in conformance.registered_attacks()]
    with pytest.raises(AssertionError):
        conformance.test_every_registered_attack_has_its_row_here()
