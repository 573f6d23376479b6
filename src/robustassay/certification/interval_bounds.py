"""Sound bounds on what a plain network can say anywhere in a box around an image.

Interval bounds (Gowal et al. 2018, arXiv:1810.12715) go forward through the layers. CROWN-IBP (Zhang et al. 2020,
arXiv:1906.06316) then goes backward from the outputs, with lines around every relu drawn from those intervals;
the better of the two holds for every output. Both hold for exact arithmetic: certify in float64.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadModel
from robustassay.models.architectures.layers import Normalise


@dataclass(frozen=True, eq=False)
class Box:
    """All points within `radius` of `centre`, coordinate by coordinate."""

    centre: Tensor
    radius: Tensor

    @classmethod
    def around(cls, x: Tensor, eps: float | Tensor) -> "Box":
        """Return the images within eps of x in L-infinity that are images: pixels stay in [0, 1]."""
        lowest, highest = (x - eps).clamp(min=0), (x + eps).clamp(max=1)
        return cls((lowest + highest) / 2, (highest - lowest) / 2)


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, between features of known shape."""

    layer: nn.Conv2d
    shape_in: torch.Size

    def onward(self, box: Box) -> Box:
        """Return the smallest box around the image of a box."""
        layer = self.layer
        radius = F.conv2d(box.radius, layer.weight.abs(), None, layer.stride, layer.padding)
        return Box(layer(box.centre), radius)

    def backward(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Rewrite linear functions of the outputs, [images, functions, ...], as functions of the inputs."""
        layer = self.layer
        stride, padding, kernel = layer.stride[0], int(layer.padding[0]), layer.kernel_size[0]
        lost = self.shape_in[-1] - ((slopes.shape[-1] - 1) * stride - 2 * padding + kernel)
        flat = slopes.flatten(0, 1)
        before = F.conv_transpose2d(flat, layer.weight, None, stride, padding, output_padding=lost)
        shift = slopes.new_zeros(()) if layer.bias is None else torch.einsum("nfchw,c->nf", slopes, layer.bias)
        return before.reshape(*slopes.shape[:2], *before.shape[1:]), shift


@dataclass(frozen=True, eq=False)
class Dense:
    """A dense layer."""

    layer: nn.Linear

    def onward(self, box: Box) -> Box:
        """Return the smallest box around the image of a box."""
        return Box(self.layer(box.centre), F.linear(box.radius, self.layer.weight.abs()))

    def backward(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Rewrite linear functions of the outputs as functions of the inputs."""
        return slopes @ self.layer.weight, slopes @ self.layer.bias


@dataclass(frozen=True, eq=False)
class Scale:
    """One factor and one shift a channel: a normalisation, or a batch norm whose statistics are known."""

    factor: Tensor
    shift: Tensor

    def onward(self, box: Box) -> Box:
        """Return the smallest box around the image of a box."""
        return Box(box.centre * self.factor + self.shift, box.radius * self.factor.abs())

    def backward(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Rewrite linear functions of the outputs as functions of the inputs."""
        return slopes * self.factor, (slopes * self.shift).flatten(2).sum(2)


@dataclass(frozen=True, eq=False)
class Flattening:
    """Features of known shape, in one row."""

    shape_in: torch.Size

    def onward(self, box: Box) -> Box:
        """Return the same box in one row."""
        return Box(box.centre.flatten(1), box.radius.flatten(1))

    def backward(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same functions of features in their shape."""
        return slopes.reshape(*slopes.shape[:2], *self.shape_in[1:]), slopes.new_zeros(())


@dataclass(frozen=True, eq=False)
class Relu:
    """A relu whose input is known to lie in a box."""

    box: Box

    def onward(self, box: Box) -> Box:
        """Return the smallest box around the image of a box."""
        lower, upper = F.relu(box.centre - box.radius), F.relu(box.centre + box.radius)
        return Box((lower + upper) / 2, (upper - lower) / 2)

    def backward(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Bound linear functions of the outputs from below by functions of the inputs."""
        lower, upper = (self.box.centre - self.box.radius)[:, None], (self.box.centre + self.box.radius)[:, None]
        # The chord lies above the relu; below it lies any line through 0, here the nearer of slopes 0 and 1.
        reach = F.relu(upper)
        chord = reach / (reach + F.relu(-lower)).clamp(min=1e-12)
        beneath = (upper > -lower).to(slopes.dtype)
        falling = slopes.clamp(max=0)
        shift = falling * chord * F.relu(-lower)
        return slopes.clamp(min=0) * beneath + falling * chord, shift.flatten(2).sum(2)


Step = Convolution | Dense | Scale | Flattening | Relu


def bounded(network: nn.Module, x: Tensor, y: Tensor, eps: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of x, and for every class a lower bound on y's lead over it all over the box around x.

    The lead of y over itself is 0. In training mode batch norms take their statistics from x, and count them.
    """
    *body, head = network.children()
    if not isinstance(head, nn.Linear):
        raise BadModel("Bounds need a plain chain of layers that ends in a dense one: use the convnet architecture.")
    h, start = x, Box.around(x, eps)
    box, steps = start, []
    for layer in body:
        # Follows the images themselves too: batch norms in training look at them.
        steps.append(_step(layer, h, box))
        h, box = layer(h), steps[-1].onward(box)
    # Leads instead of logits in the last layer: what all logits share cancels before it is bounded.
    eye = torch.eye(head.out_features, dtype=h.dtype, device=h.device)
    versus = eye[y][:, None] - eye
    slopes, shift = versus @ head.weight, versus @ head.bias
    by_intervals = lowest(slopes, box) + shift
    for step in reversed(steps):
        slopes, more = step.backward(slopes)
        shift = shift + more
    return head(h), torch.maximum(by_intervals, lowest(slopes, start) + shift)


def lowest(slopes: Tensor, box: Box) -> Tensor:
    """Return the least value of linear functions, [images, functions, ...], in a box."""
    least = slopes * box.centre[:, None] - slopes.abs() * box.radius[:, None]
    return least.flatten(2).sum(2)


def certified(network: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Tell for which images no image within eps can change the network's right answer; float64 networks only."""
    if x.dtype != torch.float64:
        raise BadModel("A certificate needs a network and images in float64: rounding must not decide.")
    with torch.no_grad():
        _, leads = bounded(network, x, y, eps)
    return (leads.scatter(1, y[:, None], torch.inf) > 0).all(1)


def _step(layer: nn.Module, h: Tensor, box: Box) -> Step:
    match layer:
        case nn.Conv2d():
            return Convolution(layer, h.shape)
        case nn.Linear():
            return Dense(layer)
        case nn.ReLU():
            return Relu(box)
        case nn.Flatten():
            return Flattening(h.shape)
        case Normalise():
            return Scale(1 / layer.deviation, -layer.mean / layer.deviation)
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            return _batch_norm(layer, h)
        case _:
            raise BadModel(f"No bounds are known for a {type(layer).__name__}: use the convnet architecture.")


def _batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d, h: Tensor) -> Scale:
    over = [dimension for dimension in range(h.dim()) if dimension != 1]
    mean, variance = layer.running_mean, layer.running_var
    if layer.training:
        mean, variance = h.mean(over), h.var(over, correction=0)
    assert mean is not None
    assert variance is not None
    factor = layer.weight / (variance + layer.eps).sqrt()
    shape = (-1, *(1,) * (h.dim() - 2))
    return Scale(factor.view(shape), (layer.bias - mean * factor).view(shape))
