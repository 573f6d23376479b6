"""Rules for choices, counts and draws: values stay, and a class gains by what speaks for it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from robustassay.doctor.function_rules import FunctionRules

Function = Callable[[Tensor], Tensor]

CLASSES = 5
TABLE = torch.eye(CLASSES)
LABELS = torch.tensor([4, 2, 0, 1, 3])
ENDS = torch.linspace(-3, 3, 13)


def copies(h: Tensor) -> Tensor:
    """Three copies of the values, a little apart: row, copy, class."""
    return torch.stack([h, 0.9 * h, h + 0.01 * torch.arange(CLASSES)], 1)


def overwritten(h: Tensor) -> Tensor:
    """Values of a random map that are replaced behind the graph's back."""
    out = h @ torch.randn(CLASSES, CLASSES, generator=torch.Generator().manual_seed(1))
    out.data.copy_(h)
    return out


CHOICES: dict[str, Function] = {
    "one-hot of the winner": lambda h: F.one_hot(h.argmax(1), CLASSES).float(),
    "winner by max": lambda h: F.one_hot(h.max(1).indices, CLASSES).to(h),
    "winner of minus": lambda h: TABLE[(-h).argmin(1)],
    "row of a table": lambda h: F.embedding(h.argmax(-1), TABLE),
    "labels of a table": lambda h: F.one_hot(LABELS[h[:, LABELS].argmax(1)], CLASSES).float(),
    "counted votes": lambda h: F.one_hot(copies(h).argmax(2), CLASSES).sum(1).float(),
    "votes by comparison": lambda h: torch.stack(
        [(copies(h).argmax(2) == k).float().mean(1) for k in range(CLASSES)], 1),
    "most frequent": lambda h: F.one_hot(copies(h).argmax(2).mode(1).values, CLASSES).float(),
    "votes side by side": lambda h: F.one_hot(
        torch.stack([z.argmax(1) for z in copies(h).unbind(1)], 1), CLASSES).float().sum(1),
    "bincount": lambda h: torch.stack(
        [torch.bincount(z.argmax(1), minlength=CLASSES) for z in copies(h)]).float(),
    "strongest two": lambda h: torch.zeros_like(h).scatter(1, h.topk(2, 1).indices, 1.0),
    "strongest two in place": lambda h: torch.zeros_like(h).scatter_(1, h.topk(2).indices, 1.0),
    "ranks": lambda h: h.argsort(1).argsort(1).to(h),
    "ranks from the top": lambda h: -h.argsort(1, descending=True).argsort(1).float(),
    "first in order": lambda h: F.one_hot(h.argsort(1, descending=True)[:, 0], CLASSES).float(),
    "picked from a table": lambda h: TABLE.expand(len(h), -1, -1).gather(
        1, h.argmax(1)[:, None, None].expand(-1, 1, CLASSES)).squeeze(1),
    "picked by a pair": lambda h: TABLE.expand(len(h), -1, -1)[torch.arange(len(h)), h.argmax(1)],
    "bits that differ": lambda h: -((h > 0) ^ torch.ones(CLASSES, dtype=torch.bool)).float(),
    "bits that are equal": lambda h: ((h > 0) == torch.tensor(True)).to(h),
    "intervals": lambda h: F.embedding(torch.bucketize(h, ENDS), torch.arange(14.0)[:, None]).squeeze(-1),
    "intervals as one-hot": lambda h: F.one_hot(torch.searchsorted(ENDS, h.detach()), 14).to(h) @ torch.arange(14.0),
    "overwritten values": overwritten,
}  # fmt: skip

DRAWS: dict[str, Function] = {
    "coins": lambda h: torch.bernoulli(h.sigmoid()),
    "photons": lambda h: torch.poisson(h.exp()),
    "labels": lambda h: F.one_hot(torch.multinomial(h.softmax(1), 7, replacement=True), CLASSES).sum(1).float(),
    "coins by comparison": lambda h: (torch.rand_like(h) < h.sigmoid()).float(),
}


def gains(function: Function, h: Tensor, soft: bool = False) -> tuple[Tensor, Tensor]:
    """Return the values, and how class 3 gains by the value of each class."""
    given = h.clone().requires_grad_()
    torch.manual_seed(0)
    with FunctionRules(len(h), soft) as rules:
        out = rules.with_gradient(function(1 * given))
    (found,) = torch.autograd.grad(out[:, 3].sum(), given)
    return out.detach(), found


@pytest.fixture
def h() -> Tensor:
    return torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", [*CHOICES, *DRAWS])
def test_values_stay_and_a_class_gains_by_its_own_value(name, soft, h):
    function = (CHOICES | DRAWS)[name]
    out, found = gains(function, h, soft)
    torch.manual_seed(0)
    assert torch.equal(out, function(1 * h))
    assert (found[:, 3] > 0).all()
    assert (found[:, 3:4] >= found).all(), "no other value speaks more for it"


def test_a_choice_has_the_same_gradient_in_any_batch(h):
    for name in ("counted votes", "strongest two", "ranks"):
        alone = torch.cat([gains(CHOICES[name], row[None])[1] for row in h])
        assert torch.allclose(alone, gains(CHOICES[name], h)[1], atol=1e-6), name


def test_a_choice_that_nothing_uses_is_no_rule(h):
    rules = FunctionRules(len(h))
    with rules:
        (1 * h.clone().requires_grad_()).max(1).values.sum()
    assert not rules.used
