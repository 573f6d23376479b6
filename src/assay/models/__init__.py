"""The embedded models: what there is, where each came from, and how to get one."""

from assay.models.zoo import card, load, names

__all__ = ["card", "load", "names"]
