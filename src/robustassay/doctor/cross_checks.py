"""Checks that no other attack beats the white-box attacks: Square, transfer, inner values, other gradients.

An attack beats another on an image if it leaves a clearly lower margin. Few images then show what success rates show on
many only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import torch
from torch import Tensor

from robustassay import models
from robustassay.attacks.attack import Attack
from robustassay.attacks.gradient.apgd import APGD
from robustassay.attacks.gradient.mim import MIM
from robustassay.attacks.gradient.pma import PMA
from robustassay.attacks.score.square import Square
from robustassay.attacks.transfer.transfer import Transfer
from robustassay.doctor.clock import seconds_now
from robustassay.doctor.distillation import distil
from robustassay.doctor.gradient_fixes import FixedGradients, GradientFix, SmoothGradient
from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.margins import inner_scores
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.doctor.straight_through import UNSUITABLE, straight_through
from robustassay.doctor.taps import MAX_TAPS, taps_to_attack
from robustassay.doctor.value_fixes import value_fixes
from robustassay.errors import AssayError
from robustassay.rng import Streams
from robustassay.target import GradientAccess, Ledger

WHITE_BOX: Final = (APGD(steps=30), APGD(steps=30, loss="dlr"))
"""Gradient attacks on the images that the plain attack did not break."""

LONGER: Final = (PMA(steps=100), APGD(steps=100))
"""Gradient attacks that must fail, too, before another attack has beaten them: a short attack may be on its way."""

FIX_ATTACK: Final = PMA(steps=30)
"""The attack on inner scores and through repaired gradients; unlike Auto-PGD it never looks at the model's own loss."""

TAP_IMAGES: Final = 16
"""Images that inner scores are tried on."""

QUERIES: Final = 2500
MIN_QUERIES: Final = 300
SECONDS: Final = 25.0
"""Square makes at most so many queries per image, and fewer on a model for which they would take longer."""

FEW: Final = 6
"""Images that Square and smoothed gradients are tried on."""

SMOOTHING_SIZE: Final = 0.5
"""Size of the noise that smoothed gradients average over, as a fraction of a random perturbation."""

LEAD: Final = 0.1
"""Difference of margins, as a fraction of the clean margin, by which an attack beats another."""

MAX_LEAD: Final = 0.2
"""Fraction of the images on which the attack with less access may win; it may always win on one image."""

SUBSTITUTES: Final = ("resnet20-pgd", "resnet20-natural")
"""Examples crafted on a robust model transfer to natural models, and those of a natural model to other natural ones."""

REMEDIES_OF_BLACK_BOX: Final = ("bpda", "loss", "smoothing", "square", "transfer")

KIND: Final = "cross-checks"


@final
@dataclass(frozen=True)
class WhiteBox:
    """Images that gradient attacks do not break, and the lowest margins that these attacks reach."""

    probes: ProbeSet
    lowest: Tensor
    longer: tuple[Attack[GradientAccess], ...] = ()

    @classmethod
    def run(cls, probes: ProbeSet, unbroken: Tensor, lowest: Tensor) -> "WhiteBox":
        """Attack the images that the plain attack did not break with stronger gradient attacks."""
        left, margin = probes.among(unbroken), lowest[unbroken].double()
        for attack in WHITE_BOX:
            broken, found = left.attacked_by(attack)
            margin = torch.minimum(margin, found)[~broken]
            left = left.among(~broken)
        return cls(left, margin, LONGER)

    def first(self, count: int) -> ProbeSet:
        """Return the first images."""
        return self.probes.among(torch.arange(len(self.probes), device=self.lowest.device) < count)

    def beaten(self, margin: Tensor) -> Tensor:
        """Say on which of the first images another attack reached a clearly lower margin, also than longer attacks."""
        lead = LEAD * self.probes.clean[: len(margin)].double()
        found = margin < self.lowest[: len(margin)] - lead
        return found & (margin < self._lowest_of_longer[: len(margin)] - lead) if found.any() else found

    @cached_property
    def _lowest_of_longer(self) -> Tensor:
        """The lowest margins of the longer attacks, which are run once something else reached lower ones."""
        lowest = self.lowest
        for attack in self.longer:
            broken, margin = self.probes.attacked_by(attack)
            lowest = torch.minimum(lowest, margin).where(~broken, -torch.inf)
        return lowest

    def _compared(
        self, indicator: str, margin: Tensor, attacks: str, remedies: tuple[str, ...] = ()
    ) -> IndicatorResult:
        """Return the fraction of the first images on which other attacks reached a clearly lower margin."""
        count, gained = len(margin), int(self.beaten(margin).sum())
        return IndicatorResult(
            indicator,
            gained / count,
            max(MAX_LEAD, 1 / count),
            f"{attacks} reach lower margins than gradient attacks on {gained} of {count} images that those leave",
            remedies,
            weak_limit=0.0,
            kind=KIND,
        )


def black_box(white: WhiteBox) -> IndicatorResult:
    """Run Square on a few of the images that gradient attacks did not break."""
    name, few = "black-box beats white-box", white.first(FEW)
    if not len(few):
        return _nothing_left(name)
    queries = affordable_queries(few)
    _, margin = few.attacked_by(Square(steps=queries, rescale_schedule=True))
    return white._compared(name, margin, f"{queries} queries of Square", REMEDIES_OF_BLACK_BOX)


def affordable_queries(probes: ProbeSet) -> int:
    """Return how many queries per image the time allows."""
    return max(MIN_QUERIES, min(QUERIES, int(SECONDS / seconds_per_call(probes))))


def seconds_per_call(probes: ProbeSet) -> float:
    """Return the time of one forward pass over all images."""
    device = probes.target.device
    probes.target.logits(probes.x0)
    started = seconds_now(device)
    probes.target.logits(probes.x0)
    return max(seconds_now(device) - started, 1e-6)


def transfer(white: WhiteBox) -> IndicatorResult:
    """Run transfer attacks on the images that gradient attacks did not break."""
    name, probes = "transfer beats white-box", white.probes
    if not len(probes):
        return _nothing_left(name)
    if substitutes_apply(probes):
        sources = " and ".join(SUBSTITUTES)
        margins = [probes.attacked_by(Transfer(source))[1] for source in SUBSTITUTES]
    else:
        sources, margins = "a substitute distilled from the model", [_margin_by_distillation(probes)]
    how, remedies = f"examples crafted on {sources}", ("bpda", "smoothing", "transfer", "square")
    return white._compared(name, _lowest(margins), how, remedies)


def inner_layers(white: WhiteBox) -> IndicatorResult:
    """Attack inner layers in place of the logits, on the images that gradient attacks did not break."""
    name, tried = "inner layers beat white-box", white.first(TAP_IMAGES)
    if not len(tried):
        return _nothing_left(name)
    try:
        best = taps_to_attack(white.probes.target, white.probes.x0)[:MAX_TAPS]
    except UNSUITABLE as error:
        return IndicatorResult.not_examined(name, MAX_LEAD, f"the model fails when it is traced ({error})")
    if not best:
        return IndicatorResult(name, 0.0, MAX_LEAD, "nothing inside has other scores of all classes")
    margins = [_margin_through(tried, *inner_scores(white.probes, tap.output)) for tap in best]
    how = f"attacks on the outputs of {', '.join(tap.name for tap in best)}"
    return white._compared(name, _lowest(margins), how, ("logits", "square"))


def inactive_values(white: WhiteBox) -> IndicatorResult:
    """Move values inside that have no effect at the images, on the images that gradient attacks did not break."""
    name, tried = "inactive values beat white-box", white.first(TAP_IMAGES)
    if not len(tried):
        return _nothing_left(name)
    try:
        fixes = value_fixes(tried, straight_through(tried))
    except UNSUITABLE as error:
        return IndicatorResult.not_examined(name, MAX_LEAD, f"the model fails when it is traced ({error})")
    if not fixes:
        return IndicatorResult(name, 0.0, MAX_LEAD, "nothing inside is without effect and can be moved")
    margins = [_margin_through(tried, *fix) for fix, _ in fixes]
    how = f"attacks with {', '.join(how for _, how in fixes)}"
    return white._compared(name, _lowest(margins), how, ("inactive", "square"))


def fixed_gradients(white: WhiteBox) -> IndicatorResult:
    """Attack through straight-through rules, on the images that gradient attacks did not break."""
    name, probes = "fixed gradients beat white-box", white.probes
    if not len(probes):
        return _nothing_left(name)
    rules = straight_through(probes)
    if not rules:
        return IndicatorResult(name, 0.0, MAX_LEAD, "no function of the model rounds, chooses, detaches or saturates")
    margins = [_margin_through(probes, fix) for fix, _ in rules]
    return white._compared(name, _lowest(margins), f"attacks through {rules[-1][1]}", ("bpda", "square"))


def smoothed_gradients(white: WhiteBox) -> IndicatorResult:
    """Attack with gradients of noisy copies on a few of the images that gradient attacks did not break."""
    name, few = "smoothed gradients beat white-box", white.first(FEW)
    if not len(few):
        return _nothing_left(name)
    margin = _margin_through(few, SmoothGradient(smoothing_size(few)))
    return white._compared(name, margin, "attacks on the mean of noisy copies", ("smoothing", "square"))


def smoothing_size(probes: ProbeSet) -> float:
    """Return the size of the noise: a fraction of the root mean square of a random perturbation."""
    away = probes.ball(probes.norm.eps).sample(Streams.of(SEED, probes.ids, probes.x0.device))
    return SMOOTHING_SIZE * float((away - probes.x0).square().mean().sqrt())


def _margin_through(probes: ProbeSet, *fixes: GradientFix) -> Tensor:
    """Return the lowest margins that a gradient attack through fixes reaches; the clean ones if it fails."""
    fixed = probes.target.with_module(FixedGradients(probes.target.module, fixes))
    try:
        return replace(probes, target=fixed).attacked_by(FIX_ATTACK)[1]
    except AssayError:  # hooks cannot follow every model
        return probes.clean.double()


def substitutes_apply(probes: ProbeSet) -> bool:
    """Whether the substitutes have the same image shape and number of classes."""
    known = models.card(SUBSTITUTES[0])
    return tuple(probes.x0.shape[1:]) == (3, 32, 32) and probes.target.classes == known.classes


def _margin_by_distillation(probes: ProbeSet) -> Tensor:
    """Craft examples on a substitute distilled from the model; return the margins that the model has there."""
    ball, rows = probes.ball(probes.norm.eps), torch.arange(len(probes), device=probes.x0.device)
    rng = Streams.of(SEED, probes.ids, probes.x0.device)
    ledger = Ledger.never_done(ball, probes.goal)
    view = GradientAccess(distil(probes), ledger, rng, rows, lambda _: None)
    x_adv = MIM()(view, probes.x0)
    return probes.goal.margin(probes.target.mean_logits(x_adv)).double()


def _lowest(margins: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(margins)).amin(0)


def _nothing_left(indicator: str) -> IndicatorResult:
    return IndicatorResult(indicator, 0.0, MAX_LEAD, "gradient attacks break every image, so none is left to compare")
