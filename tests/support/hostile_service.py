"""A service that writes any bytes it likes, as slowly as it likes."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

ANSWER = json.dumps({"predictions": [{"label": "red", "confidence": 0.9}, {"label": "blue", "confidence": 0.1}]})

Script = Callable[[int, bytes], Iterable[bytes]]
"""From the number of a request, starting at 0, and its bytes to the pieces of the response."""


def response(body: bytes | str = ANSWER, status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole response; `content_type="text/plain"` becomes the header content-type."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(content)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def dripped(content: bytes, seconds: float = 0.05) -> Iterator[bytes]:
    """Send one byte at a time."""
    for byte in content:
        yield bytes([byte])
        time.sleep(seconds)


@dataclass
class HostileService:
    """The address, and all requests so far."""

    address: str
    requests: list[bytes] = field(default_factory=list)


@contextlib.contextmanager
def hostile(script: Script) -> Iterator[HostileService]:
    """Serve until the block ends; every request has a connection of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    service = HostileService(f"http://127.0.0.1:{listener.getsockname()[1]}/classify")
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = _receive(connection)
            service.requests.append(request)
            for piece in script(len(service.requests) - 1, request):
                if over.is_set():
                    return
                connection.sendall(piece)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _receive(connection: socket.socket) -> bytes:
    """Read one request with its body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body
