"""Runs one attack on one wave of samples, then has every claim verified."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.errors import AssayError, ModelFailed
from robustassay.evaluation.verify import ClaimedImages, Verdict, measure, verify
from robustassay.records import SCHEMA
from robustassay.rng import Streams
from robustassay.target import GradientAccess, Ledger, NoRowsLeft, StartImages, SurrogateFailed, TargetModel
from robustassay.target.precision import full_precision
from robustassay.threat import Ball, Targeted, ThreatModel, labels_of
from robustassay.threat.losses import logit_margin

RETRIES: Final = 2
"""How often rows whose claim did not verify are attacked again, each time held to a clearer success."""

LAST_STEPS: Final = 5
"""Gradient steps in full precision on the samples that half precision may have kept from falling."""

LAST_STEP: Final = 0.05
"""Length of each as a fraction of the radius: enough to cross a margin error, too short to strengthen the attack."""

FULL_PRECISION: Final = "full-precision"
"""The stage under which the claims of that closer look are booked."""


@final
@dataclass(frozen=True)
class Wave:
    """The samples in flight together."""

    ids: Sequence[str]
    x0: Tensor
    labels: Tensor
    start_images: StartImages | None = None  # images to start from; those of the wave by default


def run_wave(
    network: TargetModel,
    attack: Attack[Any],
    threat: ThreatModel,
    wave: Wave,
    seed: int,
    query_budget: int | None,
    on_step: Callable[[Ledger], None],
) -> tuple[pa.Table, Tensor]:
    """Attack a wave and return its verified records and its adversarial images, clean where none was found."""
    started, searched = time.perf_counter(), network.for_search(attack.seeks_minimum)
    ledger, clean_logits = _open_ledger(searched, attack, threat, wave, seed, query_budget)
    rng = Streams.of(seed, wave.ids, network.device)
    search = _Search(searched, attack, threat, ledger, rng, wave, seed, on_step)
    try:
        with full_precision(
            network.device
        ):  # a surrogate in half precision is called as it is, but with the same kernels
            rows, verdict = search.run()
    except SurrogateFailed:
        return run_wave(network.exact, attack, threat, wave, seed, query_budget, on_step)
    columns = _verdicts(wave, ledger, clean_logits, rows, verdict) | _costs(ledger, time.perf_counter() - started)
    columns["other_objectives"] = search.judge_other_objectives()
    records = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    x_adv, holds = wave.x0.cpu().clone(), rows[torch.from_numpy(verdict.valid).to(rows.device)]
    x_adv[holds.cpu()] = ledger.x_adv[holds].cpu()
    return records, x_adv


def _open_ledger(
    network: TargetModel, attack: Attack[Any], threat: ThreatModel, wave: Wave, seed: int, query_budget: int | None
) -> tuple[Ledger, Tensor]:
    """Look at the clean images; return the books of an attack on them, and their logits."""
    exact = network.exact
    drawn = exact.drawn_logits(wave.x0)
    exact.check()
    clean_logits = drawn.mean(1)
    goal = threat.goal(wave.ids, wave.labels, clean_logits, seed)
    eps = torch.full((len(wave.ids),), threat.norm.eps, device=network.device)
    objectives = {name: partial(cost, attack) for name, cost in attack.objectives.items()}
    budget = (
        query_budget
        if query_budget is not None or issubclass(attack.access, GradientAccess)
        else attack.planned_queries
    )
    ledger = Ledger(
        Ball(threat.norm, wave.x0, eps), goal, attack.seeks_minimum, budget, objectives, network.margin_error
    )
    ledger.record_clean(clean_logits)
    if network.draws > 1:
        looks = network.draws if issubclass(attack.access, GradientAccess) else 1
        ledger.expect_noise(goal.margin(drawn).std(1) / looks**0.5)
    return ledger, clean_logits


@final
@dataclass(frozen=True)
class _Search:
    """One attack on one wave."""

    network: TargetModel
    attack: Attack[Any]
    threat: ThreatModel
    ledger: Ledger
    rng: Streams
    wave: Wave
    seed: int
    on_step: Callable[[Ledger], None]

    def run(self) -> tuple[Tensor, Verdict]:
        """Attack, verify, and attack again where a claim was refused: a near miss must not end a search as robust."""
        standing = torch.ones_like(self.ledger.claimed)
        for attempt in range(1 + RETRIES):
            for _ in range(getattr(self.attack, "restarts", 1)):
                self._attack_once(standing)
            self._look_closer(standing)
            rows, verdict = self._verify()
            refused = torch.from_numpy(~verdict.valid).to(rows.device)
            if attempt == RETRIES or not refused.any():
                break
            seen = torch.from_numpy(verdict.margin).to(rows.device, torch.float32)
            problems = [problem for problem in verdict.problem if problem]
            self.ledger.reject(rows[refused], seen[refused], problems)
            standing = torch.zeros_like(standing).index_fill(0, rows[refused], True)
        return rows, verdict

    def _attack_once(self, standing: Tensor) -> None:
        """Run the attack on the rows that still stand, and look at the last point it returns."""
        self.ledger.marked_finished[:] = False
        rows = (standing & ~self.ledger.done).nonzero().squeeze(1)
        if not len(rows):
            return
        box = self.attack.access(
            self.network, self.ledger, self.rng.among(rows), rows, self.on_step, start_images=self.wave.start_images
        )
        with suppress(NoRowsLeft):
            box.decisions(self.attack(box, box.ball.centre))
        self.network.check()

    def _look_closer(self, standing: Tensor) -> None:
        """After an inexact search, check each row's nearest miss on the exact model; go on from the close ones."""
        ledger, exact, margin_error = self.ledger, self.network.exact, self.network.margin_error
        rows = (standing & ~ledger.claimed).nonzero().squeeze(1)
        if ledger.nearest_miss is None or not len(rows):
            return
        with ledger.without_margin_error(FULL_PRECISION):
            margin = ledger.claim_nearest_misses(rows, exact.logits(ledger.nearest_miss[rows]))
            ledger.marked_finished[:] = False
            rows = rows[(margin <= 2 * margin_error) & ~ledger.done[rows]]
            if issubclass(self.attack.access, GradientAccess) and len(rows):
                box = GradientAccess(
                    exact, ledger, self.rng.among(rows), rows, self.on_step, start_images=self.wave.start_images
                )
                with suppress(NoRowsLeft):
                    box.decisions(_last_steps(box, ledger.nearest_miss[rows]))
        exact.check()

    def _verify(self) -> tuple[Tensor, Verdict]:
        """Have all claims verified; return their rows and the verdict."""
        rows = self.ledger.claimed.nonzero().squeeze(1)
        return rows, self._judge(rows, self.ledger.x_adv[rows])

    def judge_other_objectives(self) -> list[list[dict[str, Any]] | None]:
        """Verify the points that are best by other objectives too; None where the attack has no such objectives."""
        ledger = self.ledger
        if not ledger.objectives:
            return [None] * len(self.wave.ids)
        found: list[list[dict[str, Any]]] = [[] for _ in self.wave.ids]
        for objective, best in ledger.objectives.items():
            rows = best.found.nonzero().squeeze(1)
            valid = self._judge(rows, best.x_adv[rows]).valid
            delta = _array((best.x_adv[rows].double() - ledger.ball.centre[rows].double()).flatten(1))
            sizes = {norm: measure(delta, norm) for norm in ("L1", "L2", "Linf")}
            for at, row in enumerate(rows.tolist()):
                found[row].append(
                    {"objective": objective, "valid": valid[at]} | {norm: size[at] for norm, size in sizes.items()}
                )
        return list(found)

    def _judge(self, rows: Tensor, x_adv: Tensor) -> Verdict:
        ledger, goal, norm = self.ledger, self.ledger.goal, self.threat.norm
        claims = ClaimedImages(
            x0=ledger.ball.centre[rows],
            x_adv=x_adv,
            wanted=goal.labels[rows],
            targeted=isinstance(goal, Targeted),
            norm=norm.name,
            eps=norm.eps,
            any_distance=ledger.seeks_minimum,
            seeds=[f"{self.seed}/{self.wave.ids[row]}" for row in rows.tolist()] if self.network.random else None,
        )
        try:
            with np.errstate(invalid="ignore"):  # infinity less infinity is found below
                verdict = verify(self.network.module, self.network.device, claims)
        except AssayError:
            raise
        except Exception as error:
            raise ModelFailed(f"The model raised an error while claims were verified: {error}") from error
        claimed = np.isfinite(_array(x_adv.flatten(1).double())).all(1)
        if np.isnan(verdict.margin[claimed]).any():
            raise ModelFailed("The model returned NaN while claims were verified: check it for overflow.")
        return verdict


def _last_steps(box: GradientAccess, x: Tensor) -> Tensor:
    """Climb a little from x."""
    for _ in range(LAST_STEPS):
        gradient, _ = box.gradient(x, logit_margin)
        (x,) = box.drop_finished(box.ball.step(x, gradient, LAST_STEP * box.ball.eps))
    return x


def _verdicts(wave: Wave, ledger: Ledger, clean_logits: Tensor, rows: Tensor, verdict: Verdict) -> dict[str, Any]:
    """Return the columns of the records that say what was found."""
    n, goal = len(wave.ids), ledger.goal
    redrawn = [None] * n if verdict.redrawn is None else _at(rows, verdict.redrawn, n)
    success = verdict.valid & verdict.within_eps
    margin = ledger.lowest_margin.double().index_copy(0, rows, torch.from_numpy(verdict.margin).to(rows.device))
    clean_label = labels_of(clean_logits)
    claimed, valid, problem = _array(ledger.claimed), _at(rows, verdict.valid, n), _at(rows, verdict.problem, n)
    for row, why in ledger.rejected.items():
        if valid[row] is None:  # refused, attacked again, and nothing better was found
            claimed[row], valid[row], problem[row] = True, False, why
    return {
        "sample_id": list(wave.ids),
        "label": _array(wave.labels),
        "target": _array(goal.labels) if isinstance(goal, Targeted) else [None] * n,
        "clean_label": _array(clean_label),
        "clean_confidence": _array(clean_logits.double().softmax(1).amax(1)),
        "clean_ok": _array(clean_label == wave.labels),
        "claimed": claimed,
        "valid": valid,
        "problem": problem,
        "success": [bool(found) for found in _at(rows, success, n)],
        "distance": _at(rows, verdict.distance, n),
        "adv_label": _at(rows, verdict.label, n),
        "adv_confidence": _at(rows, verdict.confidence, n),
        "redrawn": redrawn,
        "margin": _array(margin),
        "clean_margin": _array(ledger.clean_margin.double()),
        "uint8_ok": _at(rows, [ok if won else None for ok, won in zip(verdict.uint8_ok, success, strict=True)], n),
        "claimed_at_iteration": _at(rows, _array(ledger.claims.iteration[rows]), n),
        "claimed_at_query": _at(rows, _array(ledger.claims.query[rows]), n),
        "improvements": ledger.claims.improvements(),
        "claimed_by": ledger.claimed_by,
    }


def _costs(ledger: Ledger, seconds: float) -> dict[str, Any]:
    """Return what each row cost; time is shared by model passes, a backward counting as two forwards."""
    passes = 1.0 + ledger.forwards + 2 * ledger.backwards
    counts = {name: _array(getattr(ledger, name)) for name in ("iterations", "forwards", "backwards", "queries")}
    return {**counts, "seconds": _array(passes.double() / passes.sum() * seconds)}


def _array(values: Tensor) -> Any:
    return values.cpu().numpy()


def _at(rows: Tensor, values: Sequence[Any] | Any, n: int) -> list[Any]:
    """Put values at their rows and None elsewhere."""
    column: list[Any] = [None] * n
    for row, value in zip(rows.tolist(), values, strict=True):
        column[row] = value
    return column
