"""Drawn images of the ninth part: hands of clocks, kinds of soil, counted lamps."""

from typing import Final

import torch
from torch import Tensor

from benchmarks.model_collection.images import SOURCES, Pair


def places(down: int, across: int) -> tuple[Tensor, Tensor]:
    """Return the row and the column of every pixel."""
    rows, columns = torch.meshgrid(torch.arange(float(down)), torch.arange(float(across)), indexing="ij")
    return rows, columns


def hands(count: int = 2400) -> Pair:
    """Draw a hand of one of eight directions and five lengths, 24 x 24 and grey: 40 classes."""
    draw = torch.Generator().manual_seed(40)
    y = torch.arange(count) % 40
    rows, columns = places(24, 24)
    turn, down, across, level = torch.rand(4, count, 1, 1, generator=draw)
    angle = 2 * torch.pi * ((y // 5).view(-1, 1, 1) + 0.3 * (turn - 0.5)) / 8
    down, across = rows - 11 - down, columns - 11 - across
    along = down * angle.sin() + across * angle.cos()
    aside = across * angle.sin() - down * angle.cos()
    beyond = (-along).clamp(min=0) + (along - 2 - 2 * (y % 5).view(-1, 1, 1)).clamp(min=0)
    hand = torch.exp(-(aside.square() + beyond.square()) / 1.5)
    x = 0.2 * torch.rand(count, 24, 24, generator=draw) + (0.5 + 0.3 * level) * hand
    return x.clamp(0, 1)[:, None], y


SOILS: Final = ((1, -1, 1, -1), (-1, 1, -1, 1), (1, 1, -1, -1), (-1, -1, 1, 1), (1, -1, -1, 1), (-1, 1, 1, -1))
"""Per class the channels in which an ellipse is brighter and darker than what lies around it."""


def soils(count: int = 1500) -> Pair:
    """Draw an ellipse in four channels, 12 x 20: six classes."""
    draw = torch.Generator().manual_seed(6)
    y = torch.arange(count) % 6
    rows, columns = places(12, 20)
    top, left, high, wide, grey = torch.rand(5, count, 1, 1, generator=draw)
    apart = ((rows - 4 - 4 * top) / (3 + high)).square() + ((columns - 6 - 8 * left) / (4 + 2 * wide)).square()
    inside = torch.sigmoid(6 * (1 - apart))[:, None]
    x = 0.35 + 0.3 * grey[:, None] + 0.18 * torch.tensor(SOILS)[y][:, :, None, None] * inside
    return (x + 0.06 * torch.randn(count, 4, 12, 20, generator=draw)).clamp(0, 1), y


def lamps(count: int = 2100) -> Pair:
    """Draw up to six lamps in a row of six places, 14 x 40 and grey: seven classes by their number."""
    draw = torch.Generator().manual_seed(7)
    y = torch.arange(count) % 7
    rows, columns = places(14, 40)
    lit = torch.rand(count, 6, generator=draw).argsort(1).argsort(1) < y[:, None]
    down, across = torch.rand(2, count, 6, 1, 1, generator=draw)
    down, across = rows - 5 - 3 * down, columns - 4 - 6 * torch.arange(6).view(-1, 1, 1) - 2 * across
    lamp = torch.exp(-(down.square() + across.square()) / 3) * lit[:, :, None, None]
    x = 0.15 * torch.rand(count, 14, 40, generator=draw) + 0.6 * lamp.sum(1)
    return x.clamp(0, 1)[:, None], y


SOURCES.update({"hands": hands, "soils": soils, "lamps": lamps})
