"""`assay serve`: serves a model over HTTP."""

from pathlib import Path

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
    trust_proxy: str | None = None,
    key_from: str | None = None,
    max_batch: int = 64,
    latency: float = 0.0,
    faults: str = "",
    device: str | None = None,
) -> None:
    """Serve a model over HTTP, as a black box to attack.

    The service answers requests of the Open Inference Protocol (/v2/models/NAME/infer) and PNG or JPEG files sent to
    /classify. Its state is at /v2/health/ready, its metrics at /metrics (with the API key).

    Parameters
    ----------
    model
        A zoo name, optionally with defenses (`jpeg|resnet20-natural`), or `path/to/file.py:factory`.
    name
        Name of the model in the addresses.
    host
        Address to listen on; by default only this machine can connect. Any other address needs an API key.
    port
        Port to listen on; 0 takes any free port.
    shape
        Shape of an image: channels x height x width.
    labels
        Text file with one label per class and line; default: the classes of the model's data, or numbers.
    label_only
        Show only the best label, without its confidence.
    top_k
        Number of labels to show; default: all.
    decimals
        Number of decimals of the confidences; default: all.
    rate
        Limit of images per second and client; default: none.
    trust_proxy
        Address of a reverse proxy in front of the service: its header X-Forwarded-For names the client.
    key_from
        Name of the environment variable with the API key; default: no key is needed.
    max_batch
        Images per forward pass.
    latency
        Seconds added to every response, for tests.
    faults
        Faults to inject, with their rates, for tests: `errors=0.1,hangs=0.1,bursts=0.02`.
    device
        Device to run on; default: a GPU if there is one.
    """
    from dataclasses import replace

    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation.model_ref import ModelRef, choose_device
    from robustassay.serve import Faults, ServiceConfig
    from robustassay.serve.server import check_installed, count_classes
    from robustassay.serve.server import serve as run

    check_installed()
    chosen = choose_device(device)
    module, image_shape, injected = ModelRef.of(model).module, _parse_shape(shape), Faults.parse(faults)
    config = ServiceConfig(
        labels=_labels(labels, model, count_classes(module, image_shape, chosen)),
        shape=image_shape,
        name=name,
        label_only=label_only,
        top_k=top_k,
        decimals=decimals,
        api_key=None if key_from is None else _read_key(key_from),
        per_second=rate,
        trusted_proxy=trust_proxy,
        max_batch=max_batch,
        faults=replace(injected, latency=latency) if latency else injected,
    )

    def on_start(address: str) -> None:
        Terminal().say(f"Serving {model} at {address}/classify and {address}/v2/models/{name}/infer; Ctrl-C stops.")

    run(module, config, host, port, chosen, on_start)


def _labels(path: Path | None, model: str, classes: int) -> tuple[str, ...]:
    from robustassay import models
    from robustassay.data.readers.cifar10 import CLASSES

    if path is not None:
        try:
            found = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        except (OSError, ValueError) as error:
            raise BadRequest(f"{path} must be a text file with one label per line ({error}).") from error
        if len(found) != classes:
            raise BadRequest(f"{path} has {len(found)} labels and the model {classes} classes: write one per line.")
        return found
    inner = model.rsplit("|", 1)[-1].strip()
    of_cifar = inner in models.names() and models.card(inner).dataset.startswith("cifar10") and classes == len(CLASSES)
    return CLASSES if of_cifar else tuple(map(str, range(classes)))


def _read_key(variable: str) -> str:
    import os

    key = os.environ.get(variable, "")
    if not key:
        raise BadRequest(f"The environment variable {variable} holds no API key: set it, or omit --key-from.")
    return key


def _parse_shape(text: str) -> tuple[int, int, int]:
    sides = text.lower().split("x")
    if len(sides) != 3 or not all(side.isdigit() for side in sides):
        raise BadRequest(f"The shape must be channels x height x width, such as 3x32x32, not {text!r}.")
    return int(sides[0]), int(sides[1]), int(sides[2])
