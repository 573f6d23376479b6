"""`assay serve`: a model behind HTTP."""

from pathlib import Path
from typing import Literal

from robustassay.errors import BadRequest


def serve(
    model: str,
    /,
    *,
    name: str = "model",
    host: str = "127.0.0.1",
    port: int = 8000,
    shape: str = "3x32x32",
    labels: Path | None = None,
    label_only: bool = False,
    top_k: int | None = None,
    decimals: int | None = None,
    rate: float | None = None,
    key_from: str | None = None,
    max_batch: int = 64,
    latency: float = 0.0,
    faults: str = "",
    device: Literal["cpu", "cuda"] | None = None,
) -> None:
    """Put a model behind HTTP, as a black box to attack.

    It speaks the Open Inference Protocol (/v2/models/NAME/infer) and takes a PNG or JPEG file at /classify; health is
    at /v2/health/ready and what it has done at /metrics.

    Parameters
    ----------
    model
        A zoo name, behind defenses if you like (`jpeg|resnet20-natural`), or `path/to/file.py:factory`.
    name
        What the model is called in addresses.
    host
        Where to listen; this machine only, by default.
    port
        Where to listen; 0 takes any that is free.
    shape
        Of an image: channels x height x width.
    labels
        A text file with a label for each class, one a line; by default those of the model's data, else numbers.
    label_only
        Show the best label and no confidence.
    top_k
        Show so many labels; all by default.
    decimals
        Round confidences to so many decimals.
    rate
        Requests a second that each client may make.
    key_from
        Name of the environment variable that holds the API key; none is asked for by default.
    max_batch
        Images a forward pass.
    latency
        Seconds that every answer takes longer, for tests.
    faults
        What goes wrong how often, for tests, such as `errors=0.1,hangs=0.1,bursts=0.02`.
    device
        Where to run; a GPU where there is one, by default.
    """
    from dataclasses import replace

    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation.model_ref import ModelRef, choose_device
    from robustassay.serve import Faults, Offer
    from robustassay.serve.server import check_installed, count_classes
    from robustassay.serve.server import serve as run

    check_installed()
    chosen = choose_device(device)
    module, size, mischief = ModelRef.of(model).module, _shape(shape), Faults.parse(faults)
    offer = Offer(
        labels=_labels(labels, model, count_classes(module, size, chosen)),
        shape=size,
        name=name,
        label_only=label_only,
        top_k=top_k,
        decimals=decimals,
        api_key=None if key_from is None else _key(key_from),
        per_second=rate,
        max_batch=max_batch,
        faults=replace(mischief, latency=latency) if latency else mischief,
    )

    def tell(address: str) -> None:
        Terminal().say(f"Serving {model} at {address}/classify and {address}/v2/models/{name}/infer; Ctrl-C stops.")

    run(module, offer, host, port, chosen, tell)


def _labels(path: Path | None, model: str, classes: int) -> tuple[str, ...]:
    from robustassay import models
    from robustassay.data.cifar10 import CLASSES

    if path is not None:
        try:
            found = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        except (OSError, ValueError) as error:
            raise BadRequest(f"{path} must be a text file with one label a line ({error}).") from error
        if len(found) != classes:
            raise BadRequest(f"{path} has {len(found)} labels and the model {classes} classes: give one line each.")
        return found
    inner = model.rsplit("|", 1)[-1].strip()
    of_cifar = inner in models.names() and models.card(inner).dataset.startswith("cifar10") and classes == len(CLASSES)
    return CLASSES if of_cifar else tuple(map(str, range(classes)))


def _key(variable: str) -> str:
    import os

    key = os.environ.get(variable, "")
    if not key:
        raise BadRequest(f"The environment variable {variable} holds no API key: set it, or leave --key-from out.")
    return key


def _shape(text: str) -> tuple[int, int, int]:
    sides = text.lower().split("x")
    if len(sides) != 3 or not all(side.isdigit() for side in sides):
        raise BadRequest(f"A shape is channels x height x width, such as 3x32x32, not {text!r}.")
    return int(sides[0]), int(sides[1]), int(sides[2])
