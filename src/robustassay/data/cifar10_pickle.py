"""CIFAR-10's python batches are pickles: read here without running anything a pickle names.

Where a batch names numpy's functions, it gets the inert stand-ins below; any other name is refused. So
neither foreign code nor numpy's own unpickling ever runs; the pixels are taken from plain bytes at the end.
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
    """What a pickle says about an object, kept as it is."""

    def __init__(self, *args: object) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Array(_Stored):
    """Stands in for an array; its state is (version, shape, dtype, fortran order, bytes)."""


class _Dtype(_Stored):
    """Stands in for a dtype; its first argument is the type code."""


# Python 2 wrote the official files; numpy 2 writes its own name for the same function.
_STAND_INS: dict[tuple[str, str], type[_Stored]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Stored,
    ("numpy", "dtype"): _Dtype,
}


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Stored]:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 file needs")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def parse_batch(content: bytes, file: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return the pixels [n, 3072] and labels [n] of a batch, or refuse the file without running any of it."""
    try:
        _check_memo(content)
        batch = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        fields = {key.decode("ascii") if isinstance(key, bytes) else key: batch[key] for key in batch}
        return _pixels(fields["data"]), _labels(fields["labels"])
    except Exception as error:  # a damaged pickle can raise anything at all
        raise BadData(
            f"{file} is not a CIFAR-10 python batch ({type(error).__name__}: {error}): "
            "unpack cifar-10-python.tar.gz again, and trust no other copy; nothing in it was run."
        ) from error


def _check_memo(content: bytes) -> None:
    # Unpickling allocates up to the largest memo index: a few bytes could ask for all the memory there is.
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError("its memo is larger than the file")


def _pixels(stored: object) -> npt.NDArray[np.uint8]:
    if not isinstance(stored, _Array):
        raise ValueError("its data is no array")
    _, shape, dtype, fortran_order, raw = stored.state
    if not isinstance(dtype, _Dtype) or dtype.args[0] not in ("u1", b"u1") or not isinstance(raw, bytes):
        raise ValueError("its data is not uint8")
    pixels = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")
    if pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise ValueError(f"its data has shape {list(pixels.shape)} and not [n, {PIXELS}]")
    return pixels


def _labels(stored: object) -> npt.NDArray[np.int64]:
    if not isinstance(stored, list) or not all(type(label) is int for label in stored):
        raise ValueError("its labels are no list of whole numbers")
    return np.array(stored, np.int64)
