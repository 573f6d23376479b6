"""Measures the sensitivity of the self-test on honest and masked models; writes docs/self-test.md.

    python -m benchmarks.self_test_page [--samples 16] [--rows FILE] [--only MODEL...]

Every finished row is saved in the file of rows, so the command can be stopped and called again.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.masked import Lies, Masked, quantised, rippled
from torch import Tensor, nn

import robustassay as ra
from benchmarks import measured
from robustassay import attacks, models
from robustassay.analysis.rates import Rate
from robustassay.attacks.attack import Attack
from robustassay.evaluation.prepare import prepare
from robustassay.evaluation.self_test import run_self_test
from robustassay.interrupt import graceful_interrupt
from robustassay.results.self_test import LIMIT, SelfTest
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf


@dataclass(frozen=True)
class WrongSign(Attack[GradientAccess]):
    """PGD that descends instead of ascending: a bug that no record shows."""

    access = GradientAccess
    norms = (LInf, L2, L1)
    steps: int = 40

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Step along the negative gradient."""
        x = view.ball.sample(view.rng)
        for _ in range(self.steps):
            gradient, _ = view.gradient(x)
            x = view.ball.step(x, -gradient, 0.1 * view.ball.eps)
            (x,) = view.drop_finished(x)
        return x


MUST_FAIL: Final = ("pgd:steps=1", "pgd with a wrong sign")
MUST_PASS: Final = ("pgd", "apgd", "express")
CHOSEN_ON: Final = ("resnet20-natural", "resnet20-pgd", "vgg11-natural")
HONEST: Final = ("mobilenet025-natural", "alexnet-natural", "convnet-ibp", "resnet20x2-pgd", "densenet40-natural")
MASKED: Final[dict[str, Callable[[nn.Module], nn.Module]]] = {
    "quantised input": quantised,
    "rippled input": rippled,
    "logits times 1,000": lambda module: Masked(module, after=lambda z: 1000 * z),
    "reversed gradient": lambda module: Lies(module, lambda slope: -slope),
    "tanh of the logits": lambda module: Masked(module, after=lambda z: (4 * z).tanh()),
}
MASKED_BASES: Final = {"chosen": "vgg11-natural", "held out": "mobilenet025-natural"}

HEAD: Final = f"""# Self-test

Every evaluation tests its own attack: it plants, in a few samples, an adversarial example that is known to exist
inside the ball, and the attack must find it ([how](verification.md#the-self-test)). An attack that finds less than
{LIMIT:.0%} of them fails, and its robust accuracy is called an upper bound only. This page shows what passes and what
fails. `python -m benchmarks.self_test_page` writes it. {{measured}}

L∞ 8/255, {{samples}} samples of cifar10-1k per row; `pgd` takes 40 steps. "planted" counts the samples in which an
example could be planted. Passes are forward and backward passes per sample, those for the planting included. The limit
and the hardness of the planted examples were chosen on the models marked "chosen on"; the others were only measured.

| model | group | attack | found | planted | 95 % interval | verdict | forward | backward |
|---|---|---|---|---|---|---|---|---|
"""

LIMITS: Final = """
A masked model that passes is one whose mask the planted head does not meet:
[what a pass does not show](verification.md#the-self-test).
"""


def main() -> None:
    """Measure every row that is not there yet, and write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=16)
    options.add_argument("--rows", type=Path, default=Path("build/self_test.json"))
    options.add_argument("--only", nargs="*", default=None)
    options.add_argument("--out", type=Path, default=Path("docs/self-test.md"))
    chosen = options.parse_args()
    rows: dict[str, dict[str, Any]] = json.loads(chosen.rows.read_text()) if chosen.rows.is_file() else {}
    for name, group, module, names in _plan():
        if chosen.only is not None and name not in chosen.only:
            continue
        for attack in names:
            key = f"{name} / {attack}"
            if key not in rows:
                rows[key] = _row(name, group, attack, measure(module(), name, attack, chosen.samples))
                chosen.rows.parent.mkdir(parents=True, exist_ok=True)
                chosen.rows.write_text(json.dumps(rows, indent=1))
                print(_line(rows[key]), flush=True)
    ordered = sorted(rows.values(), key=lambda row: str(row["group"]))
    chosen.out.write_text(page(ordered, chosen.samples))


def _plan() -> list[tuple[str, str, Callable[[], nn.Module], Sequence[str]]]:
    every = (*MUST_FAIL, *MUST_PASS)
    plan: list[tuple[str, str, Callable[[], nn.Module], Sequence[str]]] = []
    for group, names in (("honest, chosen on", CHOSEN_ON), ("honest, held out", HONEST)):
        plan += [(name, group, lambda name=name: models.load(name), every) for name in names]  # type: ignore[misc]
    for group, base in MASKED_BASES.items():
        where = "chosen on" if group == "chosen" else group
        plan += [
            (f"{base}, {name}", f"masked, {where}", lambda base=base, mask=mask: mask(models.load(base)), ("pgd",))  # type: ignore[misc]
            for name, mask in MASKED.items()
        ]
    return plan


def measure(module: nn.Module, name: str, attack: str, samples: int) -> SelfTest:
    """Run the self-test of an attack on the first samples."""
    made = WrongSign() if attack == MUST_FAIL[1] else attacks.create(attack)
    search = ra.Search(despite_flags=True, precision="exact")
    prepared = prepare(module, "cifar10-1k", LInf(8 / 255), made, limit=64, name=name, search=search)
    with graceful_interrupt() as stop:
        return run_self_test(prepared, made, prepared.dataset.ids[:samples], stop)


def _row(name: str, group: str, attack: str, test: SelfTest) -> dict[str, Any]:
    known = {"model": name, "group": group, "attack": attack, "samples": len(test.asked)}
    return known | measured.stamp() | test.to_json()


def _line(row: dict[str, Any]) -> str:
    rate = Rate(sum(row["found"].values()), len(row["found"]))
    low, high = rate.interval()
    verdict = ("passed" if row["passed"] else "failed") if rate.total else f"not examined ({row['not_examined']})"
    costs = [f"{row[key] / row['samples']:.0f}" for key in ("forwards", "backwards")]
    cells = [
        row["model"],
        row["group"],
        row["attack"],
        rate.count,
        rate.total,
        f"{low:.0%} to {high:.0%}",
        verdict,
        *costs,
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def page(rows: list[dict[str, Any]], samples: int) -> str:
    """Write the page: all rows, then how many of each kind came out as they must."""
    text = (
        HEAD.format(samples=samples, measured=measured.sentence(rows))
        + "\n".join(map(_line, rows))
        + "\n\n## Summary\n\n"
    )
    for group in dict.fromkeys(row["group"] for row in rows):
        some = [row for row in rows if row["group"] == group]
        honest = group.startswith("honest")
        fail = [row for row in some if not honest or row["attack"] in MUST_FAIL]
        good = [row for row in some if honest and row["attack"] in MUST_PASS]
        failed = sum(not row.get("passed", False) for row in fail)
        passed = sum(bool(row.get("passed", False)) for row in good)
        text += f"- {group}: {failed} of {len(fail)} evaluations that must not pass did not"
        text += f"; {passed} of {len(good)} that must pass did.\n" if good else ".\n"
    return text + LIMITS


if __name__ == "__main__":
    main()
