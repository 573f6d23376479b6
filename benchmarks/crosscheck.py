"""Compares our attacks with those of other libraries on embedded models and writes docs/crosscheck.md.

    python benchmarks/crosscheck.py [--rows 16] [--only fmn,cw] [--out docs/crosscheck.md]

Every library's images are judged by `robustassay.evaluation.verify`: inside the pixel box, another label, distance in
float64. One process a model, so two cores suffice.
"""

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

import robustassay as ra
from benchmarks import peers
from benchmarks.winners import winner
from robustassay import attacks, data
from robustassay.eps import format_norm
from robustassay.evaluation.verify import ClaimedImages, verify
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.registry import lookup
from robustassay.target import LocalModel
from robustassay.threat import Norm, ThreatModel

MODELS = ("resnet20-natural", "resnet20-pgd")
SLOW = ("cw", "cw-fast", "ead", "ead-fast")  # ART takes minutes for these
LIBRARIES = ("ours", *peers.PACKAGES)
EPS, BUDGET = 8 / 255, "L∞ 8/255"
STEPS, SEARCHES, INITIAL_C, TARGETS, QUERIES = 40, 6, 0.1, 3, 300
SETTINGS = {
    "deepfool": "",
    "cw": f"steps={STEPS},search_steps={SEARCHES},initial_c={INITIAL_C}",
    "cw-fast": f"steps={STEPS},search_steps={SEARCHES}",
    "ead": f"steps={STEPS},search_steps={SEARCHES},initial_c={INITIAL_C}",
    "ead-fast": f"steps={STEPS},search_steps={SEARCHES}",
    "ddn": f"steps={STEPS}",
    "fmn": f"steps={STEPS}",
    "fab": f"steps={STEPS // 2},targets={TARGETS}",
    "pgd": f"steps={STEPS}",
    "mim": f"steps={STEPS}",
    "apgd": f"steps={STEPS}",
    "apgd:loss=dlr": f"steps={STEPS}",
    "apgd-t": f"steps={STEPS},targets={TARGETS}",
    "square": f"steps={QUERIES},rescale_schedule=True",
}

HEAD = """# Our attacks beside those of other libraries

Made by `make crosscheck` with {versions}, torch {torch}.

The first {rows} images of cifar10-1k that a model classifies correctly; half as many for C&W and EAD, twice as many for
attacks within a radius. All attacks are untargeted and have equal steps: {steps}, except

- C&W and EAD: {steps} steps in each of {searches} searches for c, from c = {initial_c}; `cw-fast` and `ead-fast` begin
  at the c that a linear model needs;
- APGD-T: {steps} steps towards each of {targets} classes; FAB: half as many towards each;
- Square: {queries} queries, its schedule scaled to them; DeepFool: 50 steps, 2 % overshoot.

A step has no fixed cost: ART's C&W tries several step lengths per step. We verified all points: clipped to [0, 1],
label from a new forward pass, distance in float64. "authors" is the package of AutoAttack's authors. "Best" is the
lowest median among the libraries that broke the most images; "tie" means that another library is within 1 % of ours.
"""

REMARKS = """
Notes. torchattacks' C&W does not search for c: it makes all steps at c = 1. foolbox's L2 FMN never projects, and its
MI-FGSM adds up signs. The FAB of torchattacks and of the authors stops at the first class that succeeds, so both were
run class by class and the nearest point was kept. Early stops of C&W and EAD depend on the batch in foolbox,
torchattacks and adv-lib. One image is {unit:.1f} points of robust accuracy.
"""


@final
@dataclass
class Row:
    """One attack under one norm: what each library reached."""

    attack: str
    norm: str
    median: dict[str, float] = field(default_factory=dict)
    broken: dict[str, float] = field(default_factory=dict)
    raised: list[str] = field(default_factory=list)

    def add(self, library: str, distances: np.ndarray, eps: float | None) -> None:
        """Add a library's distances, infinite where it failed."""
        won = np.isfinite(distances) if eps is None else distances <= eps + 1e-6
        self.median[library] = float(np.median(distances)) if eps is None else 100 * float(1 - won.mean())
        self.broken[library] = float(won.mean())

    def line(self) -> str:
        """Write the row of the table."""
        most = max(self.broken.values()) if self.norm != BUDGET else 0
        able = {library: number for library, number in self.median.items() if self.broken[library] >= most}
        cells = [self._cell(library) for library in LIBRARIES]
        return f"| {self.attack} | {format_norm(self.norm)} | {' | '.join(cells)} | {winner(able)} |"

    def _cell(self, library: str) -> str:
        if library not in self.median:
            return "error" if library in self.raised else ""
        number, part = self.median[library], self.broken[library]
        if self.norm == BUDGET:
            return f"{number:.1f}"
        shown = f"{number:.4g}" if np.isfinite(number) else "none"
        return shown if part == 1 else f"{shown} ({part:.0%})"


def images_for(model: nn.Module, rows: int) -> tuple[Tensor, Tensor]:
    """Return the first images that a model classifies correctly."""
    sample = data.load("cifar10-1k")
    x, y = sample.images(list(range(4 * rows))), torch.as_tensor(sample.labels[: 4 * rows])
    with torch.no_grad():
        right = model(x).argmax(1) == y
    return x[right][:rows], y[right][:rows]


def ours(spec: str, norm: Norm, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Run our attack as the evaluation does and return its points, clean images where it failed."""
    network = LocalModel(model, 10, torch.device("cpu"), 32)
    wave = Wave([str(row) for row in range(len(x))], x, y)
    return run_wave(network, attacks.create(spec), ThreatModel(norm, None), wave, 0, None, lambda ledger: None)[1]


def judge(model: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor, norm: str) -> np.ndarray:
    """Return the distances of points that verify; infinite for the others."""
    claims = ClaimedImages(x, x_adv.detach().float().clamp(0, 1), y, False, norm, 1.0, any_distance=True)
    verdict = verify(model, torch.device("cpu"), claims)
    return np.where(verdict.valid, verdict.distance, np.inf)


def compare(name: str, rows: int, only: list[str]) -> list[Row]:
    """Run everything on one model."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model = ra.load_model(name)
    found = []
    tables = [(norm, None, peers.minimum_norm(norm, STEPS, SEARCHES, INITIAL_C, TARGETS)) for norm in peers.ORDER]
    for norm, eps, table in [*tables, ("Linf", EPS, peers.fixed_budget(EPS, STEPS, TARGETS, QUERIES))]:
        for attack, theirs in table.items():
            if only and attack.partition(":")[0] not in only:
                continue
            kind = lookup("norm", norm)(EPS if eps else 1)
            row = Row(attack, norm if eps is None else BUDGET)
            x, y = images_for(model, 2 * rows if eps else rows // 2 if attack in SLOW else rows)
            spec = f"{attack}{',' if ':' in attack else ':'}{SETTINGS[attack]}"
            everyone: dict[str, peers.Peer] = {"ours": lambda *of, s=spec, k=kind: ours(s, k, *of), **theirs}
            for library, run in everyone.items():
                torch.manual_seed(0)
                np.random.seed(0)
                try:
                    row.add(library, judge(model, x, y, run(model, x, y), norm), eps)
                except Exception as error:
                    if library == "ours":
                        raise
                    print(name, attack, library, repr(error), flush=True)
                    row.raised.append(library)
            print(name, row.line(), flush=True)
            found.append(row)
    return found


def table(title: str, rows: list[Row]) -> str:
    """Write one table."""
    head = f"| attack | norm | {' | '.join(LIBRARIES)} | best |\n" + "|---" * (len(LIBRARIES) + 3) + "|\n"
    return f"\n## {title}\n\n{head}" + "\n".join(row.line() for row in rows) + "\n"


def main() -> None:
    """Compare on all models at once and write the page."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=16)
    options.add_argument("--only", default="")
    options.add_argument("--out", type=Path, default=Path("docs/crosscheck.md"))
    chosen = options.parse_args()
    only = [name for name in chosen.only.split(",") if name]
    with ProcessPoolExecutor(len(MODELS), get_context("spawn")) as pool:
        results = list(pool.map(compare, MODELS, [chosen.rows] * 2, [only] * 2))
    page = HEAD.format(
        versions=peers.versions(),
        torch=torch.__version__.partition("+")[0],
        rows=chosen.rows,
        steps=STEPS,
        searches=SEARCHES,
        initial_c=INITIAL_C,
        targets=TARGETS,
        queries=QUERIES,
    )
    for name, rows in zip(MODELS, results, strict=True):
        free, fixed = ([row for row in rows if (row.norm == BUDGET) == budget] for budget in (False, True))
        page += table(f"{name}: median distance (and part of images broken, if not all)", free) if free else ""
        page += table(f"{name}: robust accuracy in %", fixed) if fixed else ""
    chosen.out.write_text(page + REMARKS.format(unit=50 / chosen.rows))


if __name__ == "__main__":
    main()
