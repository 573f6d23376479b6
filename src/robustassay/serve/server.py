"""Runs the application: on the command line until told to stop, or beside a test."""

import contextlib
import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from robustassay.errors import BadModel, BadRequest
from robustassay.serve.config import Offer
from robustassay.target import LocalModel

if TYPE_CHECKING:
    import uvicorn

BACKLOG: Final = 4096

PATIENCE_S: Final = 3
"""How long a service that is told to stop waits for its last answers."""


def check_installed() -> None:
    """Say what to install where the extra is missing."""
    if any(importlib.util.find_spec(needed) is None for needed in ("fastapi", "uvicorn")):
        raise BadRequest("Serving needs FastAPI and uvicorn: install them with pip install 'robustassay[serve]'.")


def count_classes(module: nn.Module, shape: tuple[int, int, int], device: torch.device) -> int:
    """Show a grey image to a model and count what it answers with."""
    try:
        with torch.no_grad():
            logits = module.to(device)(torch.full((8, *shape), 0.5, device=device))
        return int(logits.shape[1])
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadModel(
            f"The model cannot process images of {'x'.join(map(str, shape))} ({reason}): name its size with --shape."
        ) from error


def serve(
    module: nn.Module, offer: Offer, host: str, port: int, device: torch.device, tell: Callable[[str], None]
) -> None:
    """Tell where, and answer requests until interrupted."""
    with contextlib.closing(_listen(host, port)) as listener:
        server = _server(module, offer, device, "warning")
        shown = f"[{host}]" if ":" in host else host
        tell(f"http://{shown}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


@contextlib.contextmanager
def running(module: nn.Module, offer: Offer, port: int = 0) -> Iterator[str]:
    """Serve on loopback from another thread for as long as the block lasts; gives the address."""
    listener = _listen("127.0.0.1", port)
    server = _server(module, offer, torch.device("cpu"), "error")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _server(module: nn.Module, offer: Offer, device: torch.device, log_level: str) -> "uvicorn.Server":
    check_installed()
    import uvicorn

    from robustassay.serve.app import build

    network = LocalModel(module.eval(), len(offer.labels), device, offer.max_batch)
    options: dict[str, Any] = {"log_level": log_level, "access_log": False, "server_header": False}
    return uvicorn.Server(
        uvicorn.Config(build(network, offer), timeout_graceful_shutdown=PATIENCE_S, backlog=BACKLOG, **options)
    )


def _listen(host: str, port: int) -> socket.socket:
    """Open the door first, so that a port that is taken is a sentence and not a log."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends answers without delay only where it reads TCP here.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)  # from here on clients wait instead of being turned away
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadRequest(f"Nothing can be served on {host}:{port} ({error}): choose another with --port.") from error
    return listener
