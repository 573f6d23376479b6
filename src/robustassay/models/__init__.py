"""The embedded models: what there is, where each came from, and how to get one; and models from elsewhere."""

from robustassay.models.loading import load, load_with_origin
from robustassay.models.zoo import card, names

__all__ = ["card", "load", "load_with_origin", "names"]
