"""Runs one attack on one wave of samples, then has every claim verified."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import pyarrow as pa
import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.evaluation.verify import Claims, Verdict, verify
from assay.records import SCHEMA
from assay.rng import Streams
from assay.target import Ledger, Network, NoRowsLeft
from assay.threat import Ball, Targeted, ThreatModel, labels_of

RETRIES: Final = 2
"""How often rows whose claim did not verify are attacked again, each time held to a clearer success."""


@final
@dataclass(frozen=True)
class Wave:
    """The samples in flight together."""

    ids: Sequence[str]
    x0: Tensor
    labels: Tensor


def run_wave(
    network: Network,
    attack: Attack[Any],
    threat: ThreatModel,
    wave: Wave,
    seed: int,
    query_budget: int | None,
    pulse: Callable[[Ledger], None],
) -> tuple[pa.Table, Tensor]:
    """Attack a wave and return its verified records and its adversarial images, clean where none was found."""
    started = time.perf_counter()
    clean_logits = network.logits(wave.x0)
    goal = threat.goal(wave.ids, wave.labels, clean_logits, seed)
    eps = torch.full((len(wave.ids),), threat.norm.eps, device=network.device)
    ledger = Ledger(Ball(threat.norm, wave.x0, eps), goal, attack.seeks_minimum, query_budget)
    ledger.look_at_clean(clean_logits)
    rng = Streams.of(seed, wave.ids, network.device)
    rows, verdict = _search_and_verify(network, attack, threat, ledger, rng, pulse)
    columns = _verdicts(wave, ledger, clean_logits, rows, verdict) | _costs(ledger, time.perf_counter() - started)
    records = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    x_adv, holds = wave.x0.cpu().clone(), rows[torch.from_numpy(verdict.valid).to(rows.device)]
    x_adv[holds.cpu()] = ledger.x_adv[holds].cpu()
    return records, x_adv


def _search_and_verify(
    network: Network,
    attack: Attack[Any],
    threat: ThreatModel,
    ledger: Ledger,
    rng: Streams,
    pulse: Callable[[Ledger], None],
) -> tuple[Tensor, Verdict]:
    """Attack, verify, and attack again where a claim was refused: a near miss must not end a search as robust."""
    standing = torch.ones_like(ledger.claimed)
    for attempt in range(1 + RETRIES):
        for _ in range(getattr(attack, "restarts", 1)):
            _attack_once(network, attack, ledger, rng, standing, pulse)
        rows, verdict = _verify(network, threat, ledger)
        refused = torch.from_numpy(~verdict.valid).to(rows.device)
        if attempt == RETRIES or not refused.any():
            break
        seen = torch.from_numpy(verdict.margin).to(rows.device, torch.float32)
        ledger.reopen(rows[refused], seen[refused], [problem for problem in verdict.problem if problem])
        standing = torch.zeros_like(standing).index_fill(0, rows[refused], True)
    return rows, verdict


def _attack_once(
    network: Network,
    attack: Attack[Any],
    ledger: Ledger,
    rng: Streams,
    standing: Tensor,
    pulse: Callable[[Ledger], None],
) -> None:
    """Run the attack on the rows that still stand, and look at the last point it returns."""
    ledger.dismissed[:] = False
    rows = (standing & ~ledger.done).nonzero().squeeze(1)
    if not len(rows):
        return
    box = attack.access(network, ledger, rng.among(rows), rows, pulse)
    try:
        box.decisions(attack(box, box.ball.centre))
    except NoRowsLeft:
        return


def _verify(network: Network, threat: ThreatModel, ledger: Ledger) -> tuple[Tensor, Verdict]:
    """Have all claims verified; return their rows and the verdict."""
    goal, rows = ledger.goal, ledger.claimed.nonzero().squeeze(1)
    claims = Claims(
        x0=ledger.ball.centre[rows],
        x_adv=ledger.x_adv[rows],
        wanted=goal.labels[rows],
        targeted=isinstance(goal, Targeted),
        norm=threat.norm.name,
        eps=threat.norm.eps,
        any_distance=ledger.seeks_minimum,
    )
    return rows, verify(network.module, network.device, claims)


def _verdicts(wave: Wave, ledger: Ledger, clean_logits: Tensor, rows: Tensor, verdict: Verdict) -> dict[str, Any]:
    """Return the columns of the records that say what was found."""
    n, goal = len(wave.ids), ledger.goal
    success = verdict.valid & verdict.within_eps
    margin = ledger.lowest_margin.double().index_copy(0, rows, torch.from_numpy(verdict.margin).to(rows.device))
    clean_label = labels_of(clean_logits)
    claimed, valid, problem = _array(ledger.claimed), _at(rows, verdict.valid, n), _at(rows, verdict.problem, n)
    for row, why in ledger.refused.items():
        if valid[row] is None:  # refused, attacked again, and nothing better was found
            claimed[row], valid[row], problem[row] = True, False, why
    return {
        "sample_id": list(wave.ids),
        "label": _array(wave.labels),
        "target": _array(goal.labels) if isinstance(goal, Targeted) else [None] * n,
        "clean_label": _array(clean_label),
        "clean_ok": _array(clean_label == wave.labels),
        "claimed": claimed,
        "valid": valid,
        "problem": problem,
        "success": [bool(found) for found in _at(rows, success, n)],
        "distance": _at(rows, verdict.distance, n),
        "adv_label": _at(rows, verdict.label, n),
        "margin": _array(margin),
        "uint8_ok": _at(rows, [ok if won else None for ok, won in zip(verdict.uint8_ok, success, strict=True)], n),
        "claimed_at_iteration": _at(rows, _array(ledger.claimed_at_iteration[rows]), n),
        "claimed_at_query": _at(rows, _array(ledger.claimed_at_query[rows]), n),
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
