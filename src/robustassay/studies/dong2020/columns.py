"""The fifteen attacks of Dong et al. with the settings of their released scripts, and the runs they make."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.studies.dong2020.rows import QUICK_ROWS, Row, substitute_for
from robustassay.studies.study import Cell, Passes
from robustassay.threat import L2, LInf, Norm, RandomTarget, ThreatModel

Group = Literal["white-box", "transfer", "score", "decision"]
Kind = Literal["eps", "fixed", "both"]
"""A run for the curve over eps, one at the fixed eps, or one of an attack that seeks the minimum, which gives both."""

NORMS: Final[tuple[Norm, ...]] = (LInf(8 / 255), L2(1.0))
ATTEMPTS: Final = 6
"""Whole attacks' worth of passes that the search of a sample's smallest eps takes, about; half with gradients, as an
attempt that succeeds ends early."""


@final
@dataclass(frozen=True)
class Column:
    """One attack: how it is spelled under each norm it knows, in the run over eps and in the one at the fixed eps.

    An attack that seeks the minimum has one run for both. Braces are filled in from the scale.
    """

    group: Group
    name: str
    linf: tuple[str, ...] = ()
    l2: tuple[str, ...] = ()
    can_target: bool = True

    @property
    def place(self) -> str:
        """Name the column in folders."""
        return f"{self.group}-{self.name}"

    def spelled(self, norm: Norm) -> tuple[str, ...]:
        """Return the attacks to run under a norm; none where the attack does not know it."""
        return self.linf if isinstance(norm, LInf) else self.l2


_ESTIMATED: Final = ":steps={steps},samples={samples}"
_THROUGH: Final = "transfer:source={source},attack="
COLUMNS: Final = (
    Column("white-box", "FGSM", ("fgsm",) * 2, ("fg",) * 2),
    Column(
        "white-box",
        "BIM",
        ("bim:steps=10,rel_step=0.15", "bim:steps=100,rel_step=0.125"),
        ("bim:steps=10,rel_step=0.15", "bim:steps=100,rel_step=0.15"),
    ),
    Column(
        "white-box",
        "MIM",
        ("mim:steps=10,path=1.5", "mim:steps=100,path=12.5"),
        ("mim:steps=10,path=1.5", "mim:steps=100,path=15"),
    ),
    Column("white-box", "DeepFool", ("deepfool:steps=100",), ("deepfool:steps=100",), can_target=False),
    Column("white-box", "C&W", (), ("cw:search_steps={searches},steps={cw_steps},initial_c=1.0",)),
    Column("transfer", "FGSM", (_THROUGH + "fgsm",) * 2, (_THROUGH + "fg",) * 2),
    Column("transfer", "BIM", *((_THROUGH + "bim(steps=10,rel_step=0.15)",) * 2,) * 2),
    Column("transfer", "MIM", *((_THROUGH + "mim(steps=10,path=1.5)",) * 2,) * 2),
    Column("transfer", "DIM", *((_THROUGH + "dim(steps=10,path=1.5)",) * 2,) * 2),
    Column("score", "ZOO", (), ("zoo",)),
    Column("score", "NES", (f"nes{_ESTIMATED},rel_step=0.125",) * 2, (f"nes{_ESTIMATED},rel_step=0.15",) * 2),
    Column("score", "SPSA", (f"spsa{_ESTIMATED},rel_step=0.125",) * 2, (f"spsa{_ESTIMATED},rel_step=0.277",) * 2),
    Column("score", "NAttack", (f"nattack{_ESTIMATED}",) * 2, (f"nattack{_ESTIMATED}",) * 2),
    Column(
        "decision",
        "Boundary",
        (),
        ("boundary:queries={queries},check_every=10,window_around=100,window_towards=30",),
    ),
    Column("decision", "Evolutionary", (), ("evolutionary:queries={queries}",)),
)


@final
@dataclass(frozen=True)
class Scale:
    """How much of the benchmark is done."""

    queries: int = 20_000
    samples: int = 500  # points that NES, SPSA and NAttack ask about in a step
    searches: int = 12
    cw_steps: int = 100
    goals: tuple[bool, ...] = (False, True)  # whether targeted
    rows: tuple[str, ...] | None = None
    images: int | None = None
    query_images: int | None = None  # of score- and decision-based attacks
    without: frozenset[str] = frozenset()  # groups, attacks or kinds of run, with the norm behind them or for both
    norms: tuple[Norm, ...] = NORMS
    says: str = "the budgets of the paper's released scripts"

    def leaves_out(self, column: Column, norm: Norm, kind: Kind) -> bool:
        """Say whether a run is none of this scale's."""
        names = (column.group, column.name, f"{column.group} {column.name}", f"{column.group} {kind}")
        return any(said in self.without for name in names for said in (name, f"{name} {norm.name}"))

    def fill(self, text: str, source: str) -> str:
        """Write an attack out."""
        steps = math.ceil(self.queries / (self.samples + 1))  # a step looks at where it stands, too
        budgets = {name: getattr(self, name) for name in ("queries", "samples", "searches", "cw_steps")}
        return text.format(source=source, steps=steps, **budgets)


FULL: Final = Scale()
QUICK: Final = Scale(
    queries=1_000,
    samples=50,
    searches=4,
    cw_steps=40,
    goals=(False,),
    rows=QUICK_ROWS,
    images=28,
    query_images=8,
    without=frozenset({"ZOO", "MIM L2", "transfer L2", "score L2", "score eps"}),
    says="untargeted; 1,000 queries instead of 20,000 (50 points a step instead "
    "of 500); C&W 4 x 40 steps instead of 12 x 100; no ZOO; of L2 only white-box attacks (without MIM) and "
    "decision-based ones; score-based attacks at the fixed eps only",
)


IMAGENET_NORMS: Final[tuple[Norm, ...]] = (LInf(16 / 255), L2(12.3))
"""As in the paper: its L2 radius is the root of a thousandth of the number of values, of images of 224 x 224 here."""

IMAGENET: Final = Scale(
    images=100, query_images=20, norms=IMAGENET_NORMS, says="100 photographs, 20 for attacks that query"
)
IMAGENET_QUICK: Final = Scale(
    queries=200,
    samples=20,
    searches=2,
    cw_steps=20,
    goals=(False,),
    rows=("Natural", "JPEG", "Bit-Red"),
    images=8,
    query_images=4,
    norms=IMAGENET_NORMS,
    without=frozenset({"ZOO", "MIM", "DIM", "DeepFool", "white-box eps", "transfer L2", "score L2", "score eps",
                       "transfer eps", "Evolutionary", "SPSA", "NAttack"}),
    says="8 photographs, 4 for attacks that query; untargeted; 200 queries instead of 20,000; C&W 2 x 20 steps; fixed "
    "radii only; one attack of each kind or two, and no defense that draws random numbers",
)  # fmt: skip


def cells(rows: Sequence[Row], scale: Scale) -> tuple[Cell, ...]:
    """List the runs, row by row, so that each model is loaded once."""
    return tuple(
        _cell(row, column, norm, targeted, kind, text, scale)
        for row in rows
        for norm in scale.norms
        for targeted in scale.goals
        for column in COLUMNS
        if column.can_target or not targeted
        for kind, text in _runs(column, norm)
        if not scale.leaves_out(column, norm, kind)
    )


def place(row: str, column: Column, norm: Norm, targeted: bool, kind: Kind) -> tuple[str, ...]:
    """Say where the result of a run is looked up."""
    return row, norm.name + ("-targeted" if targeted else ""), column.place, kind


def _runs(column: Column, norm: Norm) -> list[tuple[Kind, str]]:
    texts = column.spelled(norm)
    if len(texts) < 2:
        return [("both", text) for text in texts]
    return [("eps", texts[0]), ("fixed", texts[1])]


def _cell(row: Row, column: Column, norm: Norm, targeted: bool, kind: Kind, text: str, scale: Scale) -> Cell:
    by_query = column.group in ("score", "decision")
    return Cell(
        place=place(row.label, column, norm, targeted, kind),
        model=row.model,
        threat=ThreatModel(norm, RandomTarget() if targeted else None),
        attack=scale.fill(text, substitute_for(row.model) if column.group == "transfer" else ""),
        plan=_plan(column, kind, text, scale),
        smallest_eps=kind == "eps",
        # The search of the smallest eps makes whole attacks, each of them with the attack's own plan.
        query_budget=scale.queries if by_query and kind != "eps" else None,
        limit=scale.query_images if by_query else None,
        source=substitute_for(row.model) if column.group == "transfer" else None,
    )


def _plan(column: Column, kind: Kind, text: str, scale: Scale) -> Passes:
    """Count the passes that a run may take for a sample."""
    attempts = ATTEMPTS if kind == "eps" else 1
    if column.group in ("score", "decision"):
        return Passes(forwards=attempts * scale.queries)
    if column.name == "C&W":
        return Passes(gradients=scale.searches * scale.cw_steps)
    if column.name == "DeepFool":
        return Passes(gradients=50)  # five steps or so, in each a gradient for every class
    steps = int(text.rpartition("steps=")[2].partition(",")[0].rstrip(")")) if "steps=" in text else 1
    return (
        Passes(on_source=attempts * steps)
        if column.group == "transfer"
        else Passes(gradients=-(-attempts // 2) * steps)
    )
