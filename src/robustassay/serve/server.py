"""Runs the application: until interrupted, or in a thread for the length of a block."""

import contextlib
import functools
import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from robustassay.errors import BadModel, BadRequest
from robustassay.serve.clients import is_loopback
from robustassay.serve.config import ServiceConfig
from robustassay.target import LocalModel

if TYPE_CHECKING:
    import uvicorn

SHUTDOWN_SECONDS: Final = 3
"""How long a service that shuts down waits for its last responses."""


def check_installed() -> None:
    """Raise an error that says what to install if the extra is missing."""
    if any(importlib.util.find_spec(needed) is None for needed in ("fastapi", "uvicorn")):
        raise BadRequest("Serving needs FastAPI and uvicorn: install them with pip install 'robustassay[serve]'.")


def count_classes(module: nn.Module, shape: tuple[int, int, int], device: torch.device) -> int:
    """Return the number of logits the model gives for a grey image."""
    try:
        with torch.no_grad():
            logits = module.to(device)(torch.full((8, *shape), 0.5, device=device))
        return int(logits.shape[1])
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadModel(
            f"The model cannot process images of {'x'.join(map(str, shape))} ({reason}): set the size with --shape."
        ) from error


def serve(
    module: nn.Module,
    config: ServiceConfig,
    host: str,
    port: int,
    device: torch.device,
    on_start: Callable[[str], None],
) -> None:
    """Call `on_start` with the address and answer requests until interrupted."""
    if config.api_key is None and not is_loopback(host):
        raise BadRequest(
            f"On {host or 'every address'} other machines can connect: set an API key with --key-from, "
            "or listen on 127.0.0.1."
        )
    with contextlib.closing(_listen(host, port, config.limits.connections)) as listener:
        server = _server(module, config, device)
        shown = f"[{host}]" if ":" in host else host
        on_start(f"http://{shown}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


@contextlib.contextmanager
def running(module: nn.Module, config: ServiceConfig, port: int = 0) -> Iterator[str]:
    """Serve on loopback in another thread until the block ends; yields the address."""
    listener = _listen("127.0.0.1", port, config.limits.connections)
    server = _server(module, config, torch.device("cpu"))
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


def _server(module: nn.Module, config: ServiceConfig, device: torch.device) -> "uvicorn.Server":
    check_installed()
    import uvicorn

    from robustassay.serve.app import build_app
    from robustassay.serve.connections import ConnectionTable
    from robustassay.serve.guarded_protocol import KEEP_ALIVE_SECONDS, GuardedProtocol

    model = LocalModel(module.eval(), len(config.labels), device, config.max_batch)
    table = ConnectionTable(config.limits, config.trusted_proxy)
    options: dict[str, Any] = {
        "http": functools.partial(GuardedProtocol, table, config.limits),
        "ws": "none",
        "proxy_headers": config.trusted_proxy is not None,
        "forwarded_allow_ips": [config.trusted_proxy or ""],
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": SHUTDOWN_SECONDS,
        "backlog": config.limits.connections,
        "log_level": "error",  # warnings name every malformed request
        "access_log": False,
        "server_header": False,
    }
    return uvicorn.Server(uvicorn.Config(build_app(model, config), **options))


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    """Bind the port before uvicorn starts, so that a port in use gives one clear error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # IPPROTO_TCP is explicit because asyncio sets TCP_NODELAY only on sockets that state it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)  # from here on clients wait instead of being refused
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadRequest(f"Cannot listen on {host}:{port} ({error}): choose another port with --port.") from error
    return listener
