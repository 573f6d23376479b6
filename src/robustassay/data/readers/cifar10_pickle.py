"""Reads the python batches of CIFAR-10 and CIFAR-100, which are pickles, without running any code that a pickle names.

The numpy functions that a batch names are replaced by the inert classes below; any other name is refused. Neither
foreign code nor numpy's own unpickling runs; the pixels come from plain bytes.
"""

import io
import pickle
import pickletools
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from robustassay.errors import BadData

PIXELS = 3 * 32 * 32


class _Stored:
    """The arguments and the state of a pickled object, unchanged."""

    def __init__(self, *args: object) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Array(_Stored):
    """Replaces an array; its state is (version, shape, dtype, fortran order, bytes)."""


class _Dtype(_Stored):
    """Replaces a dtype; its first argument is the type code."""


# Python 2 wrote the official files; numpy 2 writes its own name for the same function.
_REPLACEMENTS: dict[tuple[str, str], type[_Stored]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Stored,
    ("numpy", "dtype"): _Dtype,
}


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Stored]:
        if (module, name) not in _REPLACEMENTS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no CIFAR file needs")
        return _REPLACEMENTS[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def parse_batch(
    content: bytes, file: str, labels: str = "labels", dataset: str = "CIFAR-10"
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return the pixels [n, 3072] and labels [n] of a batch; raise BadData if the file is anything else."""
    try:
        _check_memo(content)
        batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        fields = {key.decode("ascii") if isinstance(key, bytes) else key: batch[key] for key in batch}
        return _pixels(fields["data"]), _labels(fields[labels])
    except Exception as error:  # a damaged pickle can raise any exception
        raise BadData(
            f"{file} is not a {dataset} python batch ({type(error).__name__}: {error}): "
            f"unpack {dataset.lower()}-python.tar.gz again, and do not trust this copy; no code in it was run."
        ) from error


def _check_memo(content: bytes) -> None:
    # Unpickling allocates up to the largest memo index: a few bytes could request all the memory.
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError("its memo is larger than the file")


def _pixels(stored: object) -> npt.NDArray[np.uint8]:
    if not isinstance(stored, _Array):
        raise ValueError("its data is not an array")
    _, shape, dtype, fortran_order, raw = stored.state
    if not isinstance(dtype, _Dtype) or dtype.args[0] not in ("u1", b"u1") or not isinstance(raw, bytes):
        raise ValueError("its data is not uint8")
    pixels = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise ValueError(f"its data has shape {list(pixels.shape)} and not [n, {PIXELS}]")
    return pixels


def _labels(stored: object) -> npt.NDArray[np.int64]:
    if not isinstance(stored, list) or not all(type(label) is int for label in stored):
        raise ValueError("its labels are not a list of integers")
    return np.array(stored, np.int64)
