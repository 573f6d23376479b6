"""The fifteen attacks of Dong et al. with the settings of their released scripts."""

from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.threat import L2, LInf, Norm

AttackGroup = Literal["white-box", "transfer", "score", "decision"]
QUERY_GROUPS: Final = ("score", "decision")
RunKind = str
"""`eps`: a run for the curve over eps; `fixed`: one at the fixed eps; `both`: one run of a minimum-distance attack, for
both; `steps-N`: a transfer attack at the fixed eps whose examples took N steps on the substitute model."""

TRANSFER_STEPS: Final = (1, 2, 5, 10, 20, 50, 100)
"""Iterations of transfer attacks for the curve over attack strength; step sizes are those of white-box attacks."""

NORMS: Final[tuple[Norm, ...]] = (LInf(8 / 255), L2(1.0))


_ESTIMATED: Final = ":steps={steps},samples={samples}"
_THROUGH: Final = "transfer:source={source},attack="


@final
@dataclass(frozen=True)
class BenchmarkAttack:
    """One attack of the benchmark: what to run under each norm, over eps and at the fixed eps.

    A minimum-distance attack has one run for both. Braces are filled in from the settings.
    """

    group: AttackGroup
    name: str
    linf: tuple[str, ...] = ()
    l2: tuple[str, ...] = ()
    can_target: bool = True
    by_steps: str = ""  # name of the attack on the substitute, where a transfer attack has a curve over steps

    @property
    def slug(self) -> str:
        """Name of the attack in folders."""
        return f"{self.group}-{self.name}"

    def specifications(self, norm: Norm) -> tuple[str, ...]:
        """Return what to run under a norm; nothing where the attack does not support it."""
        return self.linf if isinstance(norm, LInf) else self.l2

    def of_steps(self, norm: Norm, steps: int) -> str:
        """Return a transfer attack of some steps, with the step size of the white-box attack at the fixed eps."""
        size = 0.125 if isinstance(norm, LInf) else 0.15
        move = f"rel_step={size}" if self.by_steps == "bim" else f"path={round(size * steps, 6)}"
        return f"{_THROUGH}{self.by_steps}(steps={steps},{move})"


ATTACKS: Final = (
    BenchmarkAttack("white-box", "FGSM", ("fgsm",) * 2, ("fg",) * 2),
    BenchmarkAttack(
        "white-box",
        "BIM",
        ("bim:steps=10,rel_step=0.15", "bim:steps={fixed_steps},rel_step=0.125"),
        ("bim:steps=10,rel_step=0.15", "bim:steps={fixed_steps},rel_step=0.15"),
    ),
    BenchmarkAttack(
        "white-box",
        "MIM",
        ("mim:steps=10,path=1.5", "mim:steps={fixed_steps},path={linf_path}"),
        ("mim:steps=10,path=1.5", "mim:steps={fixed_steps},path={l2_path}"),
    ),
    BenchmarkAttack("white-box", "DeepFool", ("deepfool:steps=100",), ("deepfool:steps=100",), can_target=False),
    BenchmarkAttack("white-box", "C&W", (), ("cw:search_steps={searches},steps={cw_steps},initial_c=1.0",)),
    BenchmarkAttack("transfer", "FGSM", (_THROUGH + "fgsm",) * 2, (_THROUGH + "fg",) * 2),
    BenchmarkAttack("transfer", "BIM", *((_THROUGH + "bim(steps=10,rel_step=0.15)",) * 2,) * 2, by_steps="bim"),
    BenchmarkAttack("transfer", "MIM", *((_THROUGH + "mim(steps=10,path=1.5)",) * 2,) * 2, by_steps="mim"),
    BenchmarkAttack("transfer", "DIM", *((_THROUGH + "dim(steps=10,path=1.5)",) * 2,) * 2, by_steps="dim"),
    BenchmarkAttack("score", "ZOO", (), ("zoo",)),
    BenchmarkAttack("score", "NES", (f"nes{_ESTIMATED},rel_step=0.125",) * 2, (f"nes{_ESTIMATED},rel_step=0.15",) * 2),
    BenchmarkAttack(
        "score", "SPSA", (f"spsa{_ESTIMATED},rel_step=0.125",) * 2, (f"spsa{_ESTIMATED},rel_step=0.277",) * 2
    ),
    BenchmarkAttack("score", "NAttack", (f"nattack{_ESTIMATED}",) * 2, (f"nattack{_ESTIMATED}",) * 2),
    BenchmarkAttack(
        "decision",
        "Boundary",
        (),
        ("boundary:queries={queries},check_every=10,window_around=100,window_towards=30",),
    ),
    BenchmarkAttack("decision", "Evolutionary", (), ("evolutionary:queries={queries}",)),
)
