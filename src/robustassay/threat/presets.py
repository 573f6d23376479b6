"""Threats of leaderboards and papers, by name."""

from types import MappingProxyType

from robustassay.errors import UnknownName
from robustassay.threat.norms import L2, LInf, Norm

PRESETS = MappingProxyType(
    {
        "cifar10-linf": LInf(8 / 255),
        "cifar10-l2": L2(0.5),
        "cifar100-linf": LInf(8 / 255),
        "cifar100-l2": L2(0.5),
        "imagenet-linf": LInf(4 / 255),  # RobustBench (Croce et al. 2021)
        "imagenet-linf-16": LInf(16 / 255),  # Dong et al. 2020
    }
)


def preset(name: str) -> Norm:
    """Return the norm and radius of a known threat, such as cifar10-linf."""
    if name.lower() not in PRESETS:
        raise UnknownName("threat", name, PRESETS)
    return PRESETS[name.lower()]
