"""Sound lower bounds on the margins of a plain network over a box around an image.

Interval bound propagation (Gowal et al. 2018, arXiv:1810.12715) goes forward through the layers. CROWN-IBP (Zhang et
al. 2020, arXiv:1906.06316) then goes backward from the outputs, with a linear relaxation of every relu from those
intervals. The better of the two bounds holds per output. Both assume exact arithmetic: certify in float64.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.errors import BadModel
from robustassay.models.architectures.layers import Normalise


@dataclass(frozen=True, eq=False)
class Interval:
    """All points within `radius` of `centre`, coordinate by coordinate."""

    centre: Tensor
    radius: Tensor

    @classmethod
    def around(cls, x: Tensor, eps: float | Tensor) -> "Interval":
        """Return the images within L∞ distance eps of x, with pixels in [0, 1]."""
        lower, upper = (x - eps).clamp(min=0), (x + eps).clamp(max=1)
        return cls((lower + upper) / 2, (upper - lower) / 2)


@dataclass(frozen=True, eq=False)
class ConvBounds:
    """Bounds through a convolution with a known input shape."""

    layer: nn.Conv2d
    shape_in: torch.Size

    def propagate(self, interval: Interval) -> Interval:
        """Return the tightest interval that contains all outputs for inputs in an interval."""
        layer = self.layer
        radius = F.conv2d(interval.radius, layer.weight.abs(), None, layer.stride, layer.padding)
        return Interval(layer(interval.centre), radius)

    def backward(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Rewrite linear functions of the outputs, [images, functions, ...], as functions of the inputs."""
        layer = self.layer
        stride, padding, kernel = layer.stride[0], int(layer.padding[0]), layer.kernel_size[0]
        output_padding = self.shape_in[-1] - ((coefficients.shape[-1] - 1) * stride - 2 * padding + kernel)
        flat = coefficients.flatten(0, 1)
        input_coefficients = F.conv_transpose2d(
            flat, layer.weight, None, stride, padding, output_padding=output_padding
        )
        bias = layer.bias
        shift = coefficients.new_zeros(()) if bias is None else torch.einsum("nfchw,c->nf", coefficients, bias)
        return input_coefficients.reshape(*coefficients.shape[:2], *input_coefficients.shape[1:]), shift


@dataclass(frozen=True, eq=False)
class DenseBounds:
    """Bounds through a dense layer."""

    layer: nn.Linear

    def propagate(self, interval: Interval) -> Interval:
        """Return the tightest interval that contains all outputs for inputs in an interval."""
        return Interval(self.layer(interval.centre), F.linear(interval.radius, self.layer.weight.abs()))

    def backward(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Rewrite linear functions of the outputs as functions of the inputs."""
        return coefficients @ self.layer.weight, coefficients @ self.layer.bias


@dataclass(frozen=True, eq=False)
class ChannelAffine:
    """Bounds through one factor and one shift per channel: a normalisation, or a batch norm with known statistics."""

    factor: Tensor
    shift: Tensor

    def propagate(self, interval: Interval) -> Interval:
        """Return the tightest interval that contains all outputs for inputs in an interval."""
        return Interval(interval.centre * self.factor + self.shift, interval.radius * self.factor.abs())

    def backward(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Rewrite linear functions of the outputs as functions of the inputs."""
        return coefficients * self.factor, (coefficients * self.shift).flatten(2).sum(2)


@dataclass(frozen=True, eq=False)
class FlattenBounds:
    """Bounds through a flatten layer with a known input shape."""

    shape_in: torch.Size

    def propagate(self, interval: Interval) -> Interval:
        """Return the flattened interval."""
        return Interval(interval.centre.flatten(1), interval.radius.flatten(1))

    def backward(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same functions in the input shape."""
        return coefficients.reshape(*coefficients.shape[:2], *self.shape_in[1:]), coefficients.new_zeros(())


@dataclass(frozen=True, eq=False)
class ReluBounds:
    """Bounds through a relu whose input lies in a known interval."""

    interval: Interval

    def propagate(self, interval: Interval) -> Interval:
        """Return the tightest interval that contains all outputs for inputs in an interval."""
        lower, upper = F.relu(interval.centre - interval.radius), F.relu(interval.centre + interval.radius)
        return Interval((lower + upper) / 2, (upper - lower) / 2)

    def backward(self, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Bound linear functions of the outputs from below by functions of the inputs."""
        centre, radius = self.interval.centre[:, None], self.interval.radius[:, None]
        lower, upper = centre - radius, centre + radius
        # The chord is an upper bound of the relu; a line through 0 with slope 0 or 1 is a lower bound.
        relu_upper = F.relu(upper)
        chord = relu_upper / (relu_upper + F.relu(-lower)).clamp(min=1e-12)
        lower_slope = (upper > -lower).to(coefficients.dtype)
        negative = coefficients.clamp(max=0)
        shift = negative * chord * F.relu(-lower)
        return coefficients.clamp(min=0) * lower_slope + negative * chord, shift.flatten(2).sum(2)


LayerBounds = ConvBounds | DenseBounds | ChannelAffine | FlattenBounds | ReluBounds


def margin_bounds(network: nn.Module, x: Tensor, y: Tensor, eps: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of x, and per class a lower bound on the logit of y minus its logit within eps of x.

    The bound of y against itself is 0. In training mode batch norms take their statistics from x, and update them.
    """
    *body, head = network.children()
    if not isinstance(head, nn.Linear):
        raise BadModel(
            "Bounds need a plain sequence of layers that ends in a dense layer: use the convnet architecture."
        )
    h, start = x, Interval.around(x, eps)
    interval, layers = start, []
    for layer in body:
        # The features of x are needed too: batch norms in training mode use them.
        layers.append(_layer_bounds(layer, h, interval))
        h, interval = layer(h), layers[-1].propagate(interval)
    # Bounds on differences of logits are tighter than bounds on logits: common terms cancel first.
    eye = torch.eye(head.out_features, dtype=h.dtype, device=h.device)
    differences = eye[y][:, None] - eye
    coefficients, shift = differences @ head.weight, differences @ head.bias
    interval_margins = minimum_over(coefficients, interval) + shift
    for layer_bounds in reversed(layers):
        coefficients, extra = layer_bounds.backward(coefficients)
        shift = shift + extra
    return head(h), torch.maximum(interval_margins, minimum_over(coefficients, start) + shift)


def minimum_over(coefficients: Tensor, interval: Interval) -> Tensor:
    """Return the minimum of linear functions, [images, functions, ...], over an interval."""
    smallest = coefficients * interval.centre[:, None] - coefficients.abs() * interval.radius[:, None]
    return smallest.flatten(2).sum(2)


def is_certified(network: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return, per image, whether y is certified as the label of all images within eps; float64 networks only."""
    if x.dtype != torch.float64:
        raise BadModel("A certificate needs a network and images in float64: convert both with double().")
    with torch.no_grad():
        _, margins = margin_bounds(network, x, y, eps)
    return (margins.scatter(1, y[:, None], torch.inf) > 0).all(1)


def _layer_bounds(layer: nn.Module, h: Tensor, interval: Interval) -> LayerBounds:
    match layer:
        case nn.Conv2d():
            return ConvBounds(layer, h.shape)
        case nn.Linear():
            return DenseBounds(layer)
        case nn.ReLU():
            return ReluBounds(interval)
        case nn.Flatten():
            return FlattenBounds(h.shape)
        case Normalise():
            return ChannelAffine(1 / layer.deviation, -layer.mean / layer.deviation)
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            return _batch_norm(layer, h)
        case _:
            raise BadModel(f"Bounds do not support the layer {type(layer).__name__}: use the convnet architecture.")


def _batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d, h: Tensor) -> ChannelAffine:
    over = [dimension for dimension in range(h.dim()) if dimension != 1]
    mean, variance = layer.running_mean, layer.running_var
    if layer.training:
        mean, variance = h.mean(over), h.var(over, correction=0)
    assert mean is not None
    assert variance is not None
    factor = layer.weight / (variance + layer.eps).sqrt()
    shape = (-1, *(1,) * (h.dim() - 2))
    return ChannelAffine(factor.view(shape), (layer.bias - mean * factor).view(shape))
