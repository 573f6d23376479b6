"""Models: the embedded zoo with its cards, and loading from files and other sources."""

from robustassay.models.loading import load, load_with_origin
from robustassay.models.zoo import card, names

__all__ = ["card", "load", "load_with_origin", "names"]
