"""`timm:NAME[:FILE]`: timm's classifiers, with the weights timm names for them or a given file."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robustassay.errors import BadModel, BadRequest, UnknownName
from robustassay.models.sources import Loaded
from robustassay.models.sources.extras import need
from robustassay.models.sources.fitting import put
from robustassay.models.sources.preparation import Preparation, Prepared
from robustassay.models.sources.torchvision import fetch_weights
from robustassay.models.weights import read_weights, sha256_of


def load(rest: str) -> Loaded:
    """Load a classifier by name, with a tag such as resnet18.a1_in1k or without."""
    timm = need("timm", "timm")
    name, _, file = rest.partition(":")
    if not timm.is_model(name):
        known = timm.list_models()  # over a thousand: only similar names are printed
        near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
        if near:
            raise UnknownName("timm model", name, near)
        raise BadRequest(f"There is no timm model called {name!r}: `timm.list_models()` lists them.")
    settings = timm.create_model(name).pretrained_cfg
    path = Path(file) if file else _fetch(settings, name)
    weights = read_weights(path)
    head = weights.get(f"{settings.get('classifier')}.weight")
    classes = settings["num_classes"] if head is None else len(head)
    network = put(timm.create_model(name, num_classes=classes), weights, name)
    return Loaded(Prepared(network, preparation(settings)), sha256_of(path))


def preparation(settings: Mapping[str, Any]) -> Preparation:
    """Return the preparation from timm's description: input size and crop fraction."""
    try:
        _, height, width = settings["input_size"]
        crop = float(settings.get("crop_pct") or 0.875)
        whole = settings.get("crop_mode", "center") == "squash"
        resize = (int(height / crop), int(width / crop)) if whole or height != width else int(height / crop)
        return Preparation(
            (height, width),
            resize,
            settings.get("interpolation") or "bicubic",
            tuple(settings["mean"]),
            tuple(settings["std"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadModel(
            f"The model's configuration does not say how it wants its images ({error}): wrap it in a file of yours."
        ) from error


def _fetch(settings: Mapping[str, Any], name: str) -> Path:
    if settings.get("hf_hub_id"):
        from robustassay.models.sources.hub import Repository

        return Repository.open(settings["hf_hub_id"]).weights()
    if settings.get("url"):
        return fetch_weights(settings["url"])
    raise BadRequest(f"timm has no weights for {name}: name a file of yours, as in timm:{name}:FILE.safetensors.")
