"""Writes the progress of a run to an experiment tracker: TensorBoard, Weights & Biases or MLflow.

Tracking is a Progress: `evaluate(..., progress=Tracking.to("mlflow"))`. The packages are imported when a run starts;
none of them is a dependency.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol, Self, final

from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest, UnknownName
from robustassay.evaluation.progress import NoProgress, Progress


class LogWriter(Protocol):
    """Writes the numbers of one run."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write values after `step` finished samples."""

    def close(self) -> None:
        """The run has ended."""


@final
class Tracking:
    """Writes the robust accuracy so far, with its interval, whenever it or the number of finished samples changes."""

    def __init__(self, opens: Callable[[str], LogWriter], also: Progress | None = None) -> None:
        self._open_writer, self._inner = opens, also or NoProgress()
        self._writer: LogWriter | None = None
        self._last: tuple[int, Rate] | None = None

    @classmethod
    def to(cls, tracker: str, folder: str | None = None, also: Progress | None = None) -> Self:
        """Write to a tracker, in a folder or project of that name; `also` receives the same progress."""
        if tracker not in TRACKERS:
            raise UnknownName("tracker", tracker, TRACKERS)
        return cls(lambda title: TRACKERS[tracker](title, folder), also)

    def start(self, title: str, samples: int, finished: int) -> None:
        """Open a log of that title."""
        self._writer, self._last = self._open_writer(title), None
        self._inner.start(title, samples, finished)

    def update(self, finished: float, robust: Rate) -> None:
        """Write the robust accuracy; rows in flight count as robust until they are broken."""
        now = int(finished), robust
        if self._writer is not None and robust.total and now != self._last:
            self._last = now
            low, high = robust.interval()
            values = {"robust accuracy": robust.value, "robust accuracy low": low, "robust accuracy high": high}
            self._writer.write(now[0], values)
        self._inner.update(finished, robust)

    def finish(self) -> None:
        """Close the log, with or without success."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._inner.finish()


@final
class _Functions:
    """A log writer made of two functions."""

    def __init__(self, write: Callable[[int, Mapping[str, float]], object], close: Callable[[], object]) -> None:
        self._write, self._close = write, close

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._write(step, values)

    def close(self) -> None:
        self._close()


def _tensorboard(title: str, folder: str | None) -> LogWriter:
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(
        f"{folder or 'logs'}/{title.replace('/', '-').replace('∞', 'inf')}"
    )

    def write(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return _Functions(write, writer.close)


def _wandb(title: str, folder: str | None) -> LogWriter:
    run = _package("wandb", "wandb").init(project=folder or "assay", name=title, reinit=True)
    return _Functions(lambda step, values: run.log(dict(values), step=step), run.finish)


def _mlflow(title: str, folder: str | None) -> LogWriter:
    mlflow = _package("mlflow", "mlflow")
    mlflow.set_experiment(folder or "assay")
    mlflow.start_run(run_name=title)

    def write(step: int, values: Mapping[str, float]) -> None:
        mlflow.log_metrics({name.replace(" ", "_"): value for name, value in values.items()}, step=step)

    return _Functions(write, mlflow.end_run)


TRACKERS: Final[dict[str, Callable[[str, str | None], LogWriter]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def _package(module: str, install: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise BadRequest(f"This tracker needs {install}: pip install {install}.") from None
