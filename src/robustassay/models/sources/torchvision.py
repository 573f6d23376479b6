"""`torchvision:NAME[:WEIGHTS]`: torchvision's classifiers, with weights of its own or a given file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robustassay.errors import BadRequest, UnknownName
from robustassay.models.sources import Loaded
from robustassay.models.sources.cache import fetch
from robustassay.models.sources.extras import need
from robustassay.models.sources.fitting import count_classes, put
from robustassay.models.sources.preparation import Preparation, Prepared
from robustassay.models.weights import read_weights, sha256_of

_HASH_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.\w+$")


def load(rest: str) -> Loaded:
    """Load a classifier by name; its weights and its preparation come from torchvision's list."""
    zoo = need("torchvision.models", "torchvision")
    name, _, wanted = rest.partition(":")
    classifiers = zoo.list_models(module=zoo)
    if name not in classifiers:
        raise UnknownName("torchvision model", name, classifiers)
    choices = zoo.get_model_weights(name)
    if _is_file(wanted):
        file, transforms = Path(wanted), choices.DEFAULT.transforms()
    else:
        chosen = _choose(choices, name, wanted)
        file, transforms = fetch_weights(chosen.url), chosen.transforms()
    weights = read_weights(file)
    ported = _of_ported_network(weights) if name in ("inception_v3", "googlenet") else {}
    classes = count_classes(zoo.get_model(name, weights=None, **ported), weights, name)
    network = put(zoo.get_model(name, weights=None, num_classes=classes, **ported), weights, name)
    return Loaded(Prepared(network, _preparation(transforms)), sha256_of(file))


def fetch_weights(url: str) -> Path:
    """Download weights whose file name ends with the first digits of their hash, as in PyTorch."""
    name = url.rpartition("/")[2]
    digits = _HASH_IN_NAME.search(name)
    return fetch(url, f"torchvision/{name}", digits[1] if digits else None)


def _of_ported_network(weights: Mapping[str, Any]) -> dict[str, bool]:
    """Return the settings of the two networks whose weights were ported: another normalisation, and auxiliary heads.

    torchvision's own files hold those heads; a network that it has loaded, and a file saved from it, has none.
    """
    has_heads = any(key.lower().startswith("aux") for key in weights)
    return {"init_weights": False, "transform_input": True, "aux_logits": has_heads}


def _is_file(text: str) -> bool:
    return text.endswith((".pth", ".pt", ".safetensors"))


def _choose(choices: Any, name: str, wanted: str) -> Any:
    if not wanted:
        return choices.DEFAULT
    known = [member.name for member in choices]
    if wanted not in known:
        raise UnknownName(f"set of weights for {name}", wanted, known)
    return choices[wanted]


def _preparation(transforms: Any) -> Preparation:
    try:
        crop, resize = transforms.crop_size[0], transforms.resize_size[0]
        return Preparation(
            (crop, crop), resize, transforms.interpolation.value, tuple(transforms.mean), tuple(transforms.std)
        )
    except AttributeError as error:
        raise BadRequest("This torchvision model does not say how it wants its images: it is no classifier.") from error
