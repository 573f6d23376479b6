"""Runs one attack on one wave of samples and verifies every claim."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.errors import AssayError, ModelFailed
from robustassay.evaluation.search_columns import search_columns
from robustassay.evaluation.verify import ClaimedImages, Verdict, measure, verify
from robustassay.evaluation.wave_records import cost_columns, outcome_columns, to_numpy
from robustassay.records import SCHEMA
from robustassay.rng import Streams
from robustassay.target import (
    GradientAccess,
    Ledger,
    NoRowsLeft,
    StartImages,
    SurrogateFailed,
    TargetModel,
    callers_environment,
)
from robustassay.target.precision import full_precision
from robustassay.threat import Ball, Targeted, ThreatModel
from robustassay.threat.losses import logit_margin

RETRIES: Final = 2
"""How often rows whose claim was not valid are attacked again, each time with a lower `margin_limit`."""

RANDOM_RETRIES: Final = 8
"""The same for a random model and an attack with a budget of queries, which one draw may end early by chance."""

FINAL_STEPS: Final = 5
"""Gradient steps in full precision on samples where reduced precision may have hidden a success."""

FINAL_STEP_SIZE: Final = 0.05
"""Length of these steps as a fraction of the radius: enough to cross the margin error, too short to add strength."""

FULL_PRECISION: Final = "full-precision"
"""Name of the stage that these claims are recorded under."""


@final
@dataclass(frozen=True)
class Wave:
    """The samples that are attacked together."""

    ids: Sequence[str]
    x0: Tensor
    labels: Tensor
    start_images: StartImages | None = None  # for decision attacks; by default the images of the wave

    def among(self, rows: Tensor) -> "Wave":
        """Return the wave of some of the samples."""
        return replace(self, ids=[self.ids[row] for row in rows.tolist()], x0=self.x0[rows], labels=self.labels[rows])


def run_wave(
    target: TargetModel,
    attack: Attack[Any],
    threat: ThreatModel,
    wave: Wave,
    seed: int,
    query_budget: int | None,
    on_step: Callable[[Ledger], None],
) -> tuple[pa.Table, Tensor]:
    """Attack a wave; return its verified records and its adversarial images, clean where none was found.

    Samples on which the target's surrogate is not good are searched on the model itself.
    """
    searched = target.for_search(attack.needs_exact_search(threat.norm))
    with full_precision(target.device):
        is_exact = searched.rows_for_exact_search(wave.x0, wave.labels)
    parts = [(searched, (~is_exact).nonzero().squeeze(1)), (target.exact, is_exact.nonzero().squeeze(1))]
    if not len(parts[1][1]):
        return _run_wave(searched, attack, threat, wave, seed, query_budget, on_step)
    found = [
        _run_wave(model, attack, threat, wave.among(rows), seed, query_budget, on_step)
        for model, rows in parts
        if len(rows)
    ]
    order = torch.cat([rows for _, rows in parts]).argsort().cpu()
    records, x_adv = pa.concat_tables(table for table, _ in found), torch.cat([images for _, images in found])
    return records.take(order.numpy()), x_adv[order]


def _run_wave(
    target: TargetModel,
    attack: Attack[Any],
    threat: ThreatModel,
    wave: Wave,
    seed: int,
    query_budget: int | None,
    on_step: Callable[[Ledger], None],
) -> tuple[pa.Table, Tensor]:
    """Attack a wave on one target."""
    started = time.perf_counter()
    ledger, clean_logits = _open_ledger(target, attack, threat, wave, seed, query_budget)
    rng = Streams.of(seed, wave.ids, target.device)
    search = _WaveSearch(target, attack, threat, ledger, rng, wave, seed, on_step)
    try:
        with full_precision(target.device):  # a surrogate in half precision does not set this itself
            rows, verdict = search.run()
    except SurrogateFailed:
        return _run_wave(target.exact, attack, threat, wave, seed, query_budget, on_step)
    columns = outcome_columns(wave.ids, wave.labels, ledger, clean_logits, rows, verdict)
    columns |= search_columns(ledger, clean_logits, rows, verdict, target.gives_scores)
    columns |= cost_columns(ledger, time.perf_counter() - started)
    columns["other_objectives"] = search.verify_other_objectives()
    records = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    x_adv, holds = wave.x0.cpu().clone(), rows[torch.from_numpy(verdict.valid).to(rows.device)]
    x_adv[holds.cpu()] = ledger.x_adv[holds].cpu()
    return records, x_adv


def _open_ledger(
    target: TargetModel, attack: Attack[Any], threat: ThreatModel, wave: Wave, seed: int, query_budget: int | None
) -> tuple[Ledger, Tensor]:
    """Evaluate the clean images; return a new ledger and the clean logits."""
    exact = target.exact
    drawn = exact.drawn_logits(wave.x0)
    exact.check()
    clean_logits = drawn.mean(1)
    goal = threat.goal(wave.ids, wave.labels, clean_logits, seed)
    eps = torch.full((len(wave.ids),), threat.norm.eps, device=target.device)
    objectives = {name: partial(cost, attack) for name, cost in attack.objectives.items()}
    budget = (
        query_budget
        if query_budget is not None or issubclass(attack.access, GradientAccess)
        else attack.planned_queries
    )
    ledger = Ledger(
        Ball(threat.norm, wave.x0, eps), goal, attack.seeks_minimum, budget, objectives, target.margin_error
    )
    ledger.record_clean(clean_logits)
    if target.draws > 1:
        draws_per_query = target.draws if issubclass(attack.access, GradientAccess) else 1
        ledger.expect_noise(goal.margin(drawn).std(1) / draws_per_query**0.5)
    return ledger, clean_logits


@final
@dataclass(frozen=True)
class _WaveSearch:
    """One attack on one wave, with retries for claims that are not valid."""

    target: TargetModel
    attack: Attack[Any]
    threat: ThreatModel
    ledger: Ledger
    rng: Streams
    wave: Wave
    seed: int
    on_step: Callable[[Ledger], None]

    def run(self) -> tuple[Tensor, Verdict]:
        """Attack, verify, and attack again the rows whose claim was not valid: they are not robust yet."""
        to_attack = torch.ones_like(self.ledger.claimed)
        held = self._verify_claims(~to_attack)  # none yet
        retries = RANDOM_RETRIES if self.target.random and self.ledger.query_budget is not None else RETRIES
        for attempt in range(1 + retries):
            for _ in range(self.attack.repeats):
                self._attack_once(to_attack)
            self._recheck_lowest_margin_points(to_attack)
            rows, verdict = _in_order(held, self._verify_claims(to_attack))
            refused = torch.from_numpy(~verdict.valid).to(rows.device)
            if attempt == retries or not refused.any():
                break
            held = self._reject(rows, verdict)
            to_attack = torch.zeros_like(to_attack).index_fill(0, rows[refused], True)
        for level in range(self.ledger.surer_levels):
            rows, verdict = self._with_surer_claims(rows, verdict, level)
        return rows, verdict

    def _reject(self, rows: Tensor, verdict: Verdict) -> tuple[Tensor, Verdict]:
        """Take the claims back that are not valid; return the others."""
        refused = torch.from_numpy(~verdict.valid).to(rows.device)
        seen = torch.from_numpy(verdict.margin).to(rows.device, torch.float32)
        problems = [problem for problem in verdict.problem if problem]
        self.ledger.reject(rows[refused], seen[refused], problems)
        return rows[~refused], verdict.among(np.flatnonzero(verdict.valid))

    def _with_surer_claims(self, rows: Tensor, verdict: Verdict, level: int) -> tuple[Tensor, Verdict]:
        """Of rows whose claims were not valid, verify the claims with larger margins that the search came across."""
        held = self._reject(rows, verdict)
        left = torch.zeros_like(self.ledger.marked_finished)
        left[list(self.ledger.rejected)] = True
        left[held[0]] = False
        if not left.any():
            return held
        self.ledger.take_surer_claims(left.nonzero().squeeze(1), level)
        return _in_order(held, self._verify_claims(left))

    def _attack_once(self, to_attack: Tensor) -> None:
        """Run the attack on these rows if they are not done, and evaluate the last point that it returns."""
        self.ledger.marked_finished[:] = False
        rows = (to_attack & ~self.ledger.done).nonzero().squeeze(1)
        if not len(rows):
            return
        access = self.attack.access(
            self.target, self.ledger, self.rng.among(rows), rows, self.on_step, start_images=self.wave.start_images
        )
        with suppress(NoRowsLeft):
            access.decisions(self.attack(access, access.ball.centre))
        self.target.check()

    def _recheck_lowest_margin_points(self, to_attack: Tensor) -> None:
        """After a search on a surrogate, evaluate each row's point of lowest margin on the exact model.

        Rows whose margin there is at most twice the margin error get a few more gradient steps on the exact model.
        """
        ledger, exact, margin_error = self.ledger, self.target.exact, self.target.margin_error
        rows = (to_attack & ~ledger.claimed).nonzero().squeeze(1)
        if ledger.lowest_margin_point is None or not len(rows):
            return
        with ledger.without_margin_error(FULL_PRECISION):
            margin = ledger.claim_lowest_margin_points(rows, exact.logits(ledger.lowest_margin_point[rows]))
            ledger.marked_finished[:] = False
            rows = rows[(margin <= 2 * margin_error) & ~ledger.done[rows]]
            if issubclass(self.attack.access, GradientAccess) and len(rows):
                access = GradientAccess(
                    exact, ledger, self.rng.among(rows), rows, self.on_step, start_images=self.wave.start_images
                )
                with suppress(NoRowsLeft):
                    access.decisions(_final_steps(access, ledger.lowest_margin_point[rows]))
        exact.check()

    def _verify_claims(self, attacked: Tensor) -> tuple[Tensor, Verdict]:
        """Verify the claims of the rows that were attacked now; return these rows and the verdict."""
        rows = (self.ledger.claimed & attacked).nonzero().squeeze(1)
        return rows, self._verify_images(rows, self.ledger.x_adv[rows])

    def verify_other_objectives(self) -> list[list[dict[str, Any]] | None]:
        """Verify the best points by other objectives too; None where the attack has no other objectives."""
        ledger = self.ledger
        if not ledger.objectives:
            return [None] * len(self.wave.ids)
        found: list[list[dict[str, Any]]] = [[] for _ in self.wave.ids]
        for objective, best in ledger.objectives.items():
            rows = best.found.nonzero().squeeze(1)
            valid = self._verify_images(rows, best.x_adv[rows]).valid
            delta = to_numpy((best.x_adv[rows].double() - ledger.ball.centre[rows].double()).flatten(1))
            sizes = {norm: measure(delta, norm) for norm in ("L1", "L2", "Linf")}
            for at, row in enumerate(rows.tolist()):
                found[row].append(
                    {"objective": objective, "valid": valid[at]} | {norm: size[at] for norm, size in sizes.items()}
                )
        return list(found)

    def _verify_images(self, rows: Tensor, x_adv: Tensor) -> Verdict:
        ledger, goal, norm = self.ledger, self.ledger.goal, self.threat.norm
        claims = ClaimedImages(
            x0=ledger.ball.centre[rows],
            x_adv=x_adv,
            wanted=goal.labels[rows],
            targeted=isinstance(goal, Targeted),
            norm=norm.name,
            eps=norm.eps,
            any_distance=ledger.seeks_minimum,
            seeds=[f"{self.seed}/{self.wave.ids[row]}" for row in rows.tolist()] if self.target.random else None,
        )
        try:
            with np.errstate(invalid="ignore"), callers_environment():  # infinity minus infinity is handled below
                verdict = verify(self.target.module, self.target.device, claims)
        except AssayError:
            raise
        except Exception as error:
            raise ModelFailed(f"The model raised an error while claims were verified: {error}") from error
        finite = np.isfinite(to_numpy(x_adv.flatten(1).double())).all(1)
        if np.isnan(verdict.margin[finite]).any():
            raise ModelFailed("The model returned NaN while claims were verified: check it for overflow.")
        return verdict


def _in_order(held: tuple[Tensor, Verdict], new: tuple[Tensor, Verdict]) -> tuple[Tensor, Verdict]:
    """Join claims that held before with new ones, in the order of rows."""
    rows, order = torch.cat((held[0], new[0])).sort()
    return rows, held[1].joined(new[1]).among(order.cpu().numpy())


def _final_steps(access: GradientAccess, x: Tensor) -> Tensor:
    """Take a few small gradient steps from x."""
    for _ in range(FINAL_STEPS):
        gradient, _ = access.gradient(x, logit_margin)
        (x,) = access.drop_finished(access.ball.step(x, gradient, FINAL_STEP_SIZE * access.ball.eps))
    return x
