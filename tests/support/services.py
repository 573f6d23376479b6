"""A small convolutional model to serve, its data, and malicious files."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from robustassay import data
from robustassay.data import Dataset
from robustassay.serve import ServiceConfig

SHAPE = (3, 8, 8)
NAMES = ("red", "green", "blue", "grey")
GERMAN_NAMES = ("rot", "gruen", "blau", "grau")


class Tiny(nn.Module):
    """Four classes of 8 x 8 images, by random weights; fast enough for thousands of queries."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.net = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, len(NAMES))
            )
        with torch.no_grad():  # else one class would be the answer to nearly everything
            noise = np.random.default_rng(1).uniform(size=(256, *SHAPE)).astype(np.float32)
            self.net[3].bias -= self.net(torch.from_numpy(noise)).mean(0)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 12 * self.net(x)
        return logits


def dataset(n: int) -> Dataset:
    """Random 8-bit images, each with the label the model gives it."""
    x = torch.from_numpy(np.random.default_rng(5).integers(0, 256, (n, *SHAPE), dtype=np.uint8))
    with torch.no_grad():
        labels = Tiny()(x.float() / 255).argmax(1)
    return data.from_arrays(x.numpy(), labels.numpy(), name="tiny", classes=NAMES)


def service_config(**settings: Any) -> ServiceConfig:
    return ServiceConfig(**{"labels": NAMES, "shape": SHAPE, **settings})


def file_of(image: Tensor, kind: str = "PNG") -> bytes:
    pixels = (image * 255).round().byte().permute(1, 2, 0).numpy()
    return save(Image.fromarray(pixels), kind)


def save(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def bomb(side: int) -> bytes:
    """A PNG of a few kilobytes that unpacks to side x side pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1 << 20), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
