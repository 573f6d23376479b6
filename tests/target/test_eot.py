"""Means over draws follow the majority of the draws, not the draw with the largest logits."""

from itertools import cycle

import pytest
import torch

from robustassay.target.eot import Draws, of_equal_size

SMALL = torch.tensor([[2.0, 0.0, 0.0]])
LARGE = torch.tensor([[0.0, 0.0, 900.0]])


def drawing(*drawn):
    """Return a model that draws these logits in turn."""
    turns = cycle(drawn)
    return lambda x: next(turns).expand(len(x), -1)


def test_no_draw_outweighs_the_majority():
    draws = Draws(3)
    found = draws.mean_logits(drawing(SMALL, LARGE, SMALL), torch.zeros(4, 1))
    assert torch.cat((SMALL, LARGE, SMALL)).mean(0).argmax() == 2, "or the plain mean would do"
    assert (found.argmax(1) == 0).all()


def test_draws_of_like_size_keep_their_bits():
    drawn = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    spread = drawn.amax(2) - drawn.amin(2)
    like = drawn / spread[:, :, None]
    assert torch.equal(of_equal_size(like), like)


def test_only_rows_of_unequal_size_are_scaled():
    drawn = torch.stack([torch.cat((SMALL, SMALL)), torch.cat((LARGE, SMALL)), torch.cat((SMALL, SMALL))])
    found = of_equal_size(drawn)
    assert found[1, 0, 2] == pytest.approx(2.0)
    assert torch.equal(found[:, 1], drawn[:, 1])


def test_draws_without_any_spread_have_a_gradient():
    drawn = torch.zeros(3, 2, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(of_equal_size(drawn).sum(), drawn)
    assert torch.equal(gradient, torch.ones_like(gradient))


def test_one_draw_is_never_scaled():
    assert torch.equal(Draws(1).stack(drawing(LARGE), torch.zeros(1, 1))[0], LARGE)
