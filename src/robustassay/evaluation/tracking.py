"""Writes how a run goes to where its user follows experiments: TensorBoard, Weights & Biases, MLflow.

A logbook is a Progress like any other, so nothing else knows of it: `evaluate(..., progress=Tracking.to("mlflow"))`.
The packages are imported when a run starts, and none of them is a dependency.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol, Self, final

from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest, UnknownName
from robustassay.evaluation.progress import NoProgress, Progress


class Sheet(Protocol):
    """Where the numbers of one run are written."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Note values after so many finished samples."""

    def close(self) -> None:
        """The run has ended."""


@final
class Tracking:
    """Notes the robust accuracy so far, with its interval, whenever it or the number of finished samples changes."""

    def __init__(self, opens: Callable[[str], Sheet], also: Progress | None = None) -> None:
        self._opens, self._also = opens, also or NoProgress()
        self._sheet: Sheet | None = None
        self._noted: tuple[int, Rate] | None = None

    @classmethod
    def to(cls, place: str, folder: str | None = None, also: Progress | None = None) -> Self:
        """Write to a known place, in a folder or project of that name, and tell another Progress as well."""
        if place not in PLACES:
            raise UnknownName("place to log to", place, PLACES)
        return cls(lambda title: PLACES[place](title, folder), also)

    def start(self, title: str, samples: int, finished: int) -> None:
        """Open a sheet of that title."""
        self._sheet, self._noted = self._opens(title), None
        self._also.start(title, samples, finished)

    def update(self, finished: float, robust: Rate) -> None:
        """Note where the run stands; rows in flight count as standing until they fall."""
        now = int(finished), robust
        if self._sheet is not None and robust.total and now != self._noted:
            self._noted = now
            low, high = robust.interval()
            values = {"robust accuracy": robust.value, "robust accuracy low": low, "robust accuracy high": high}
            self._sheet.write(now[0], values)
        self._also.update(finished, robust)

    def finish(self) -> None:
        """Close the sheet, even where the run did not end well."""
        if self._sheet is not None:
            self._sheet.close()
            self._sheet = None
        self._also.finish()


@final
class _Functions:
    """A sheet made of two functions."""

    def __init__(self, write: Callable[[int, Mapping[str, float]], object], close: Callable[[], object]) -> None:
        self._write, self._close = write, close

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._write(step, values)

    def close(self) -> None:
        self._close()


def _tensorboard(title: str, folder: str | None) -> Sheet:
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(
        f"{folder or 'logs'}/{title.replace('/', '-')}"
    )

    def write(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return _Functions(write, writer.close)


def _wandb(title: str, folder: str | None) -> Sheet:
    run = _package("wandb", "wandb").init(project=folder or "assay", name=title, reinit=True)
    return _Functions(lambda step, values: run.log(dict(values), step=step), run.finish)


def _mlflow(title: str, folder: str | None) -> Sheet:
    mlflow = _package("mlflow", "mlflow")
    mlflow.set_experiment(folder or "assay")
    mlflow.start_run(run_name=title)

    def write(step: int, values: Mapping[str, float]) -> None:
        mlflow.log_metrics({name.replace(" ", "_"): value for name, value in values.items()}, step=step)

    return _Functions(write, mlflow.end_run)


PLACES: Final[dict[str, Callable[[str, str | None], Sheet]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def _package(module: str, install: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise BadRequest(f"To log there, install {install}: pip install {install}.") from None
