"""The fifteen attacks of Dong et al. with the settings of their released scripts."""

from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.threat import L2, LInf, Norm

AttackGroup = Literal["white-box", "transfer", "score", "decision"]
RunKind = Literal["eps", "fixed", "both"]
"""A run for the curve over eps, a run at the fixed eps, or one run of a minimum-distance attack, which gives both."""

NORMS: Final[tuple[Norm, ...]] = (LInf(8 / 255), L2(1.0))


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

    @property
    def slug(self) -> str:
        """Name of the attack in folders."""
        return f"{self.group}-{self.name}"

    def specifications(self, norm: Norm) -> tuple[str, ...]:
        """Return what to run under a norm; nothing where the attack does not support it."""
        return self.linf if isinstance(norm, LInf) else self.l2


_ESTIMATED: Final = ":steps={steps},samples={samples}"
_THROUGH: Final = "transfer:source={source},attack="
ATTACKS: Final = (
    BenchmarkAttack("white-box", "FGSM", ("fgsm",) * 2, ("fg",) * 2),
    BenchmarkAttack(
        "white-box",
        "BIM",
        ("bim:steps=10,rel_step=0.15", "bim:steps=100,rel_step=0.125"),
        ("bim:steps=10,rel_step=0.15", "bim:steps=100,rel_step=0.15"),
    ),
    BenchmarkAttack(
        "white-box",
        "MIM",
        ("mim:steps=10,path=1.5", "mim:steps=100,path=12.5"),
        ("mim:steps=10,path=1.5", "mim:steps=100,path=15"),
    ),
    BenchmarkAttack("white-box", "DeepFool", ("deepfool:steps=100",), ("deepfool:steps=100",), can_target=False),
    BenchmarkAttack("white-box", "C&W", (), ("cw:search_steps={searches},steps={cw_steps},initial_c=1.0",)),
    BenchmarkAttack("transfer", "FGSM", (_THROUGH + "fgsm",) * 2, (_THROUGH + "fg",) * 2),
    BenchmarkAttack("transfer", "BIM", *((_THROUGH + "bim(steps=10,rel_step=0.15)",) * 2,) * 2),
    BenchmarkAttack("transfer", "MIM", *((_THROUGH + "mim(steps=10,path=1.5)",) * 2,) * 2),
    BenchmarkAttack("transfer", "DIM", *((_THROUGH + "dim(steps=10,path=1.5)",) * 2,) * 2),
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
