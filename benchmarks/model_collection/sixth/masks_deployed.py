"""Deployments: integer kernels, colour formats, predictive codes, thresholds of scans, memory views."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.bases import MOBILENET, PAIRS, SPOTS, SYMBOLS, SYMBOLS_16
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import convolutions, trained
from benchmarks.model_collection.sixth.wrappers import (
    GREY,
    SIXTH,
    Behind,
    Change,
    OfTheNetwork,
    blurred,
    dense,
    on,
    untrained,
)
from benchmarks.model_collection.truth import Masked

LUMA: Final = torch.tensor(((0.299, 0.587, 0.114), (-0.169, -0.331, 0.5), (0.5, -0.419, -0.081)))


class Kernel(nn.Module):
    """A convolution or dense layer with its normalisation, in whole numbers of few bits (kept in float64)."""

    def __init__(self, layer: nn.Module, norm: nn.Module | None, bits: int) -> None:
        super().__init__()
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        assert layer.bias is not None
        weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
        if isinstance(norm, nn.BatchNorm2d) and norm.running_var is not None and norm.running_mean is not None:
            factor = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
            weight = weight * factor.view(-1, *(1,) * (weight.dim() - 1))
            bias = (bias - norm.running_mean.double()) * factor + norm.bias.detach().double()
        self.stride = layer.stride[0] if isinstance(layer, nn.Conv2d) else 0
        scale = weight.abs().flatten(1).amax(1) / (2 ** (bits - 1) - 1)
        self.register_buffer("weight", (weight / scale.view(-1, *(1,) * (weight.dim() - 1))).round())
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.weight: Tensor
        self.scale: Tensor
        self.bias: Tensor

    def forward(self, h: Tensor, step: float) -> Tensor:
        """Return the layer's value for whole numbers of steps."""
        whole = F.conv2d(h, self.weight, stride=self.stride, padding=1) if self.stride else h @ self.weight.T
        places = (1, -1) + (1,) * (whole.dim() - 2)
        result: Tensor = whole * (step * self.scale).view(places) + self.bias.view(places)
        return result


class IntegerKernels(OfTheNetwork):
    """The network in whole numbers, without a graph, plus a small head in float32."""

    def __init__(self, net: nn.Module, base: str, head: nn.Module, bits: int, share: float) -> None:
        super().__init__(net)
        parts = list(net.children())
        self.head, self.bits, self.share = head, bits, share
        self.kernels = nn.ModuleList(Kernel(parts[number], parts[number + 1], bits) for number in (0, 3, 6))
        self.last = Kernel(parts[11], None, bits)
        self.steps = [1.0 / (2**bits - 1)]
        with torch.no_grad():
            h = images_of(SIXTH[base].images)[0][-100:]
            for part in parts[:11]:
                h = part(h)
                if isinstance(part, nn.ReLU):
                    self.steps.append(float(h.quantile(0.999)) / (2**bits - 1))
        self.steps.append(self.steps[-1])

    def whole(self, h: Tensor, step: float) -> Tensor:
        """Return the number of steps."""
        return (h / step).round().clamp(0, 2**self.bits - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        with torch.no_grad():
            h = x.double()
            for kernel, step in zip(self.kernels, self.steps, strict=False):
                h = F.relu(kernel(self.whole(h, step), step))
            h = F.adaptive_avg_pool2d(h, 4).flatten(1)
            z = self.last(self.whole(h, self.steps[-1]), self.steps[-1]).to(x)
        total: Tensor = z + self.share * torch.as_tensor(self.head(x)).softmax(1)
        return total


def planes(x: Tensor) -> Tensor:
    """Return the image as a video format has it: 8 bits, brightness for each pixel, colours for each square of 2."""
    coded = torch.einsum("kc,nchw->nkhw", LUMA.to(x), x)
    light = (16 + 219 * coded[:, :1]).detach().to(torch.uint8)
    colour = (128 + 224 * F.avg_pool2d(coded[:, 1:], 2)).detach().to(torch.uint8)
    light = (light.to(x) - 16) / 219
    colour = F.interpolate((colour.to(x) - 128) / 224, scale_factor=2, mode="bilinear")
    return torch.einsum("kc,nchw->nkhw", torch.linalg.inv(LUMA).to(x), torch.cat((light, colour), 1))


def with_thumbnail(change: Change, side: int, share: float) -> Change:
    """Mix in a small copy, which is not coded."""
    return lambda x: (1 - share) * change(x) + share * F.interpolate(F.avg_pool2d(x, side), scale_factor=side)


def predicted(step: float, share: float) -> Change:
    """Code each pixel by its difference to the one decoded before, in rounded steps with a limit."""

    def change(x: Tensor) -> Tensor:
        with torch.no_grad():
            before, columns = blurred(x, 5)[..., 0], []
            for column in x.unbind(3):
                before = (before + ((column - before) / step).round().clamp(-4, 4) * step).clamp(0, 1)
                columns.append(before)
        return (1 - share) * torch.stack(columns, 3) + share * blurred(x, 9)

    return change


class Scans(nn.Module):
    """Pixels become black or white by the mean and contrast around them, as scans of pages do (Sauvola 2000)."""

    def __init__(self, net: nn.Module, side: int = 9, weight: float = 0.05) -> None:
        super().__init__()
        self.net, self.side, self.weight = net, side, weight

    def distance(self, x: Tensor) -> Tensor:
        """Return how far each pixel is above its threshold."""
        mean = blurred(x, self.side)
        contrast = (blurred(x.square(), self.side) - mean.square()).clamp(min=1e-6).sqrt()
        return x - mean * (1 + self.weight * (contrast / 0.5 - 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of black and white images beside blurred ones."""
        black = (self.distance(x) > 0).to(x)
        logits: Tensor = self.net(torch.cat((black, 0.3 * blurred(x, 13)), 1))
        return logits


class OpenScans(Masked):
    """A network for scans whose threshold the attacker makes soft."""

    def __init__(self, net: Scans) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.net(x)
        return logits

    def opened(self, x: Tensor) -> Tensor:
        """Return the logits with the gradient of a sigmoid."""
        far = self.net.distance(x)
        soft = torch.sigmoid(15 * far)
        black = soft + ((far > 0).to(x) - soft).detach()
        logits: Tensor = self.net.net(torch.cat((black, 0.3 * blurred(x, 13)), 1))
        return logits


def for_scans(net: nn.Module) -> nn.Module:
    """Return a network of the same kind that was trained on scans."""
    made = trained("sixth scans", lambda: Scans(convolutions(2, 10)), SIXTH[GREY].images)
    assert isinstance(made, Scans)
    return OpenScans(made)


class ColumnsInPlace(OfTheNetwork):
    """The network's columns are put into the order of the labels through NumPy, in the memory of the graph's result."""

    def __init__(self, net: nn.Module, classes: int) -> None:
        super().__init__(net)
        self.order = torch.randperm(classes, generator=torch.Generator().manual_seed(31))
        self.back = self.order.argsort().numpy()

    def forward(self, x: Tensor) -> Tensor:
        """Return logits in the right order, whose gradients are in the other one."""
        z: Tensor = self.net(x)
        columns = z[:, self.order]
        values = columns.detach().numpy()
        values[:] = values[:, self.back]
        return columns


def entries() -> list[Entry]:
    """Return the masked models of this file."""
    whole = "whole numbers inside, without a graph, and a small float32 head"
    return [
        on(SPOTS, "integer kernels", "5 bits and a dense head", whole,
           lambda net: IntegerKernels(net, SPOTS, dense(SPOTS), 5, 0.5)),
        on(PAIRS, "integer kernels", "6 bits and a random head", whole,
           lambda net: IntegerKernels(net, PAIRS, untrained(1, 100), 6, 0.5)),
        on(MOBILENET, "video formats", "8 bits and a thumbnail", "brightness and colours in 8 bits, and a thumbnail",
           lambda net: Behind(net, with_thumbnail(planes, 8, 0.05))),
        on(SYMBOLS, "predictive codes", "steps of 0.12", "rounded differences to the pixel decoded before",
           lambda net: Behind(net, predicted(0.12, 0.05))),
        on(GREY, "thresholds of scans", "black and white", "pixels are compared with the mean around them",
           for_scans),
        on(SYMBOLS_16, "columns in another order", "by NumPy", "logits are put in order in memory, gradients are not",
           lambda net: ColumnsInPlace(net, 16)),
    ]  # fmt: skip
