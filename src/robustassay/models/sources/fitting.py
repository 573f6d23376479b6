"""Loads tensors from a file into a network, strictly."""

from collections.abc import Mapping

from torch import Tensor, nn

from robustassay.errors import BadWeights


def count_classes(network: nn.Module, weights: Mapping[str, Tensor], name: str) -> int:
    """Return the number of classes of a weights file: the length of the last tensor of its architecture."""
    last = list(network.state_dict())[-1]
    if last not in weights:
        raise BadWeights(f"The weights have no {last}, the last layer of {name}: name the right architecture.")
    return len(weights[last])


def put(network: nn.Module, weights: Mapping[str, Tensor], name: str) -> nn.Module:
    """Load all weights into a network; weights of another architecture are an error."""
    try:
        network.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1].strip()
        raise BadWeights(f"The weights do not fit {name} ({first}): name the right architecture.") from error
    return network
