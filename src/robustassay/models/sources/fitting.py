"""Puts tensors read from a file into a network, strictly."""

from collections.abc import Mapping

from torch import Tensor, nn

from robustassay.errors import BadWeights


def count_classes(network: nn.Module, weights: Mapping[str, Tensor], name: str) -> int:
    """Read off a file how many classes it knows: the length of the tensor that a network of its kind has last."""
    last = list(network.state_dict())[-1]
    if last not in weights:
        raise BadWeights(f"The weights have no {last}, which {name} ends with: name the architecture they are for.")
    return len(weights[last])


def put(network: nn.Module, weights: Mapping[str, Tensor], name: str) -> nn.Module:
    """Load all weights into a network, or say that they are another's."""
    try:
        network.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1].strip()
        raise BadWeights(f"The weights do not fit {name} ({first}): name the architecture they are for.") from error
    return network
