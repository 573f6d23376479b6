"""A model from the user's own Python file: `path/to/file.py:factory`."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from robustassay.errors import BadModel, BadRequest, UnknownName

if TYPE_CHECKING:
    from torch import nn


USER_MODULE: Final = "assay_user_"
"""Start of the name under which a user's file is in `sys.modules`."""


def is_file_spec(spec: str) -> bool:
    """Return whether a model is given as a Python file and a function."""
    return ".py:" in spec or spec.endswith(".py")


def load_from_file(spec: str) -> "tuple[nn.Module, str]":
    """Run the file, call its function, and return the model and the hash of the file."""
    from torch import nn

    path_text, _, factory_name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    path = Path(path_text)
    if not factory_name:
        raise BadRequest(f"Name the function in {path} that returns the model, as in {path}:make_model.")
    if not path.is_file():
        raise BadRequest(f"There is no file {path}: check the path of the Python file.")
    module_name = f"{USER_MODULE}{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec_of_file = importlib.util.spec_from_file_location(module_name, path)
    if spec_of_file is None or spec_of_file.loader is None:
        raise BadRequest(f"{path} is no Python file: give the path of a file that ends in .py.")
    module = importlib.util.module_from_spec(spec_of_file)
    sys.modules[module_name] = module  # dataclasses and pickles in the file need this entry
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec_of_file.loader.exec_module(module)
        factory = getattr(module, factory_name, None)
        if factory is None:
            raise UnknownName(f"factory in {path}", factory_name, [n for n in vars(module) if not n.startswith("_")])
        model = factory()
    except (BadRequest, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        raise BadModel(f"{spec} raised {type(error).__name__}: {error}; fix the function and try again.") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    if not isinstance(model, nn.Module):
        raise BadModel(f"{spec} returned a {type(model).__name__}: it must return a torch.nn.Module.")
    return model, hashlib.sha256(path.read_bytes()).hexdigest()
