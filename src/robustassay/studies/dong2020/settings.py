"""How much of the benchmark is run in each scope."""

import math
from dataclasses import dataclass
from typing import Final, final

from robustassay.studies.dong2020.attacks import NORMS, QUERY_GROUPS, TRANSFER_STEPS, BenchmarkAttack, RunKind
from robustassay.studies.dong2020.defenses import QUICK_DEFENSES
from robustassay.studies.scope import ScopeName
from robustassay.studies.timing import EOT_DRAWS
from robustassay.threat import L2, LInf, Norm


@final
@dataclass(frozen=True)
class DongSettings:
    """How much of the benchmark is run."""

    queries: int = 20_000
    samples: int = 500  # queries per step of NES, SPSA and NAttack
    fixed_steps: int = 100  # of BIM and MIM at the fixed eps
    searches: int = 12
    cw_steps: int = 100
    goals: tuple[bool, ...] = (False, True)  # whether targeted
    rows: tuple[str, ...] | None = None
    images: int | None = None
    query_images: int | None = None  # for score- and decision-based attacks
    search_images: int | None = None  # for searches of the smallest eps by score-based attacks
    white_box_search_images: int | None = None  # for those by white-box attacks
    transfer_search_images: int | None = None  # for those by transfer attacks
    cw_images: int | None = None  # for C&W, whose every image takes all steps
    random_images: int | None = None  # for white-box attacks on random models, whose gradients take several passes
    random_search_images: int | None = None  # for searches of the smallest eps on them
    random_transfer_images: int | None = None  # for transfer attacks on them, as verification draws every success anew
    random_query_images: int | None = None  # for score- and decision-based attacks on them
    transfer_steps: tuple[int, ...] = TRANSFER_STEPS
    without: frozenset[str] = frozenset()  # groups, attacks or kinds of run: of a norm, targeted, of random models, all
    norms: tuple[Norm, ...] = NORMS
    eot: int = EOT_DRAWS  # draws per gradient of a random model
    description: str = "the budgets of the paper's released scripts"
    left_out: str = ""  # what `without` means, with the reason, for the page

    def leaves_out(
        self, attack: BenchmarkAttack, norm: Norm, targeted: bool, kind: RunKind, random: bool = False
    ) -> bool:
        """Say whether a run is left out; `random` is one on a random model."""
        kind = kind.partition("-")[0]
        own = f"{attack.group} {attack.name}"
        names = (attack.group, attack.name, own, f"{attack.group} {kind}", f"{own} {kind}")
        which = ("", f" {norm.name}", *([" targeted"] * targeted), *([" random"] * random))
        which += (" targeted random",) * (targeted and random)
        return any(f"{name}{form}" in self.without for name in names for form in which)

    def images_of(self, attack: BenchmarkAttack, kind: RunKind, random: bool = False) -> int | None:
        """Return on how many images a run takes place, at most; None for all."""
        searches = kind == "eps"
        if attack.group in QUERY_GROUPS:
            limits = [self.search_images if searches else self.query_images, *[self.random_query_images] * random]
        elif attack.group == "transfer":
            limits = [*[self.transfer_search_images] * searches, *[self.random_transfer_images] * random]
        else:
            limits = [*[self.white_box_search_images] * searches, *[self.random_images] * random]
            limits += [self.cw_images] * (attack.name == "C&W")
        limits += [self.random_search_images] * (searches and random)
        return min((limit for limit in limits if limit is not None), default=None)

    def fill(self, text: str, source: str) -> str:
        """Fill the budgets into an attack's specification."""
        steps = math.ceil(self.queries / (self.samples + 1))  # one more query per step evaluates the current point
        budgets = {name: getattr(self, name) for name in ("queries", "samples", "fixed_steps", "searches", "cw_steps")}
        paths = {"linf_path": f"{0.125 * self.fixed_steps:g}", "l2_path": f"{0.15 * self.fixed_steps:g}"}
        return text.format(source=source, steps=steps, **budgets, **paths)


FULL: Final = DongSettings(images=1_000, query_images=100, search_images=25)
FULL_ON_GPU: Final = DongSettings(
    images=1_000,
    query_images=100,
    search_images=16,
    white_box_search_images=300,
    transfer_search_images=200,
    cw_images=200,
    random_images=200,
    random_search_images=50,
    transfer_steps=(1, 2, 5, 10, 20),
    eot=10,
    without=frozenset({"C&W random", "score eps random", "NES L2", "SPSA L2", "NAttack L2", "SPSA targeted",
                       "NAttack targeted", "ZOO targeted", "ZOO random", "Boundary targeted", "score targeted random",
                       "decision targeted random", "score eps targeted", "transfer steps L2", "transfer steps targeted",
                       "transfer steps random", "transfer eps targeted", "white-box eps targeted"}),
    left_out="C&W, ZOO and searches of the smallest eps by score-based attacks on random models; NES, SPSA and NAttack "
    "under L2; with a target, SPSA, NAttack, ZOO and Boundary, score- and decision-based attacks on random models, "
    "searches of the smallest eps, and transfer attacks by steps; and transfer attacks by steps under L2 and on random "
    "models: for their time on one GPU",
)  # fmt: skip
FULL_ON_CPU: Final = DongSettings(
    queries=1_000,
    samples=20,
    fixed_steps=20,
    images=300,
    query_images=100,
    white_box_search_images=150,
    random_images=100,
    eot=4,
    without=frozenset({"DeepFool", "C&W", "ZOO", "NAttack", "Boundary", "score L2", "score eps", "score targeted",
                       "decision targeted", "transfer eps", "transfer steps", "transfer targeted",
                       "white-box eps targeted", "white-box MIM eps", "white-box MIM targeted",
                       "white-box eps random"}),
    left_out="DeepFool, C&W, ZOO, NAttack and Boundary; score-based attacks under L2; searches of the "
    "smallest eps by all attacks but untargeted white-box FGSM and BIM, and those on random models; transfer attacks "
    "by steps; and targeted attacks but white-box FGSM and BIM: for their time on a CPU",
)  # fmt: skip
QUICK: Final = DongSettings(
    queries=1_000,
    samples=50,
    fixed_steps=20,
    searches=4,
    cw_steps=40,
    goals=(False,),
    rows=QUICK_DEFENSES,
    images=20,
    query_images=6,
    transfer_steps=(1, 10),
    without=frozenset({"ZOO", "MIM L2", "transfer L2", "score L2", "score eps"}),
    description="untargeted; 1,000 queries instead of 20,000 (50 per step instead of 500); at the fixed eps 20 steps "
    "of BIM and MIM instead of 100; C&W 4 x 40 steps instead of 12 x 100; no ZOO; of L2 only white-box attacks "
    "(without MIM) and decision-based ones; score-based attacks at the "
    "fixed eps only",
)


IMAGENET_NORMS: Final[tuple[Norm, ...]] = (LInf(16 / 255), L2(math.sqrt(0.001)))
"""The paper's radii; L2 is normalised: divided by the square root of the number of values of a network's input."""

IMAGENET: Final = DongSettings(
    images=200, query_images=20, search_images=10, norms=IMAGENET_NORMS, description="photographs"
)
IMAGENET_ON_GPU: Final = DongSettings(
    queries=2_000,
    samples=50,
    images=200,
    query_images=100,
    search_images=10,
    white_box_search_images=100,
    transfer_search_images=50,
    cw_images=50,
    random_images=50,
    random_transfer_images=50,
    random_query_images=32,
    transfer_steps=(1, 2, 5, 10, 20),
    norms=IMAGENET_NORMS,
    eot=4,
    without=frozenset({"score eps", "score L2", "score targeted", "decision targeted", "transfer steps L2",
                       "transfer steps targeted", "transfer eps targeted", "white-box eps targeted", "C&W random",
                       "DeepFool random", "white-box eps random", "transfer eps random", "transfer steps random"}),
    left_out="of attacks with a target all but white-box and transfer attacks at the fixed eps; searches of the "
    "smallest eps by score-based attacks, and by white-box and transfer attacks on random models; score-based attacks "
    "under L2; transfer attacks by steps under L2 and on random models; and C&W and DeepFool on random models: for "
    "their time on one GPU",
)  # fmt: skip
IMAGENET_ON_CPU: Final = DongSettings(
    queries=200,
    samples=20,
    fixed_steps=10,
    searches=2,
    cw_steps=20,
    goals=(False,),
    images=16,
    norms=IMAGENET_NORMS,
    eot=2,
    without=frozenset({"DeepFool", "ZOO", "white-box L2", "transfer L2", "score L2", "score eps", "transfer eps",
                       "transfer steps"}),
    left_out="targeted attacks, DeepFool, ZOO, transfer attacks by steps, and of L2 all but decision-based attacks, as "
    "in the paper's main text; and searches of the smallest eps by transfer- and score-based attacks, which do not fit "
    "into an hour of one core",
)  # fmt: skip
IMAGENET_QUICK: Final = DongSettings(
    queries=200,
    samples=20,
    searches=2,
    cw_steps=20,
    goals=(False,),
    rows=("Natural", "JPEG", "Bit-Red"),
    images=8,
    query_images=4,
    transfer_steps=(1, 10),
    norms=IMAGENET_NORMS,
    without=frozenset({"ZOO", "MIM", "DIM", "DeepFool", "white-box eps", "transfer L2", "score L2", "score eps",
                       "transfer eps", "Evolutionary", "SPSA", "NAttack"}),
    description="8 photographs, 4 for query-based attacks; untargeted; 200 queries instead of 20,000; C&W 2 x 20 "
    "steps; fixed radii only; one or two attacks per group, and no randomized defense",
)  # fmt: skip


SETTINGS: Final[dict[ScopeName, DongSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
ON_GPU: Final[dict[ScopeName, DongSettings]] = {"full": FULL_ON_GPU, "imagenet": IMAGENET_ON_GPU}
"""What one GPU measures in minutes; pages name the runs that did not end in time."""
ON_CPU: Final[dict[ScopeName, DongSettings]] = {"full": FULL_ON_CPU, "imagenet": IMAGENET_ON_CPU}
"""What a CPU measures instead; pages name the runs that did not end in time."""
