"""Imports the optional libraries of adapters; a missing one is an error that says what to install."""

import importlib
import sys
from functools import cache
from typing import Any, cast

from robustassay.errors import BadRequest


def need(package: str, extra: str) -> Any:
    """Import a package of an extra; if it is missing, the error says how to install it."""
    try:
        return _import(package)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        raise BadRequest(f"This model needs the package {missing}: pip install 'robustassay[{extra}]'.") from None
    except (ImportError, RuntimeError, AttributeError) as error:
        raise BadRequest(
            f"The package {package} is installed but fails to import ({str(error).partition(chr(10))[0]}): "
            f"pip install --upgrade 'robustassay[{extra}]'."
        ) from error


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    # A module whose import failed must be imported again; the modules that it imported stay.
    for name in [name for name in sys.modules if name.split(".")[0] in (package.split(".")[0], "torchvision")]:
        del sys.modules[name]
    _declare_torchvision_operators()
    return importlib.import_module(package)


@cache
def _declare_torchvision_operators() -> Any:
    """Register the operators that a torchvision built for another torch lacks; its models do not use them.

    PyPI's torchvision beside a CPU build of torch cannot load its compiled part, and fails at the first mention of
    these. The library object must live as long as they are to be known, hence the cache.
    """
    from torch.library import Library

    library: Any = cast(Any, Library)("torchvision", "DEF")  # torch does not annotate it
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
