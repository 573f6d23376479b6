"""A process that parses large requests: JSON of megabytes would keep this one from answering anybody else.

Run as a program it reads bodies from its standard input, each after its length, and writes for each a line of JSON and
the pixels.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from robustassay.serve.http_error import HttpError
from robustassay.serve.tensor_request import Shape, parse

LENGTH: Final = struct.Struct(">Q")
NICENESS: Final = 5
"""Below the model's priority: small requests, which need no parser, come first."""


@final
class ParserProcess:
    """Starts the process at the first large request, and again if it has died."""

    def __init__(self, shape: Shape, max_images: int) -> None:
        self._arguments = [json.dumps([shape, max_images])]
        self._process: subprocess.Popen[bytes] | None = None
        self.thread: Final = ThreadPoolExecutor(1, thread_name_prefix="parser")

    def parse(self, body: bytes) -> tuple[NDArray[np.float32], str | None]:
        """Parse one request; to be called in `thread` only."""
        try:
            return _ask(self._running(), body)
        except (OSError, EOFError) as error:
            self.close()
            raise HttpError(503, "The request was not parsed: try again.", retry_after=1) from error

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                process.communicate()

    def stop(self) -> None:
        """End the process for good."""
        self.close()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            # -P: no module is imported from the working folder
            command = [sys.executable, "-P", "-m", "robustassay.serve.parser_process", *self._arguments]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process


def _ask(process: "subprocess.Popen[bytes]", body: bytes) -> tuple[NDArray[np.float32], str | None]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(LENGTH.pack(len(body)) + body)
    process.stdin.flush()
    answer = json.loads(_read_exactly(process.stdout, None))
    if "error" in answer:
        raise HttpError(answer["status"], answer["error"])
    pixels = np.frombuffer(_read_exactly(process.stdout, answer["bytes"]), dtype=np.float32)
    return pixels.reshape(answer["shape"]).copy(), answer["id"]


def _read_exactly(stream: IO[bytes], count: int | None) -> bytes:
    """Read so many bytes, or a line."""
    found = stream.readline() if count is None else stream.read(count)
    if not found or (count is not None and len(found) < count):
        raise EOFError
    return found


def _answer(body: bytes, shape: Shape, max_images: int) -> tuple[dict[str, Any], bytes]:
    try:
        images, request_id = parse(body, shape, max_images)
    except HttpError as error:
        return {"status": error.status, "error": error.message}, b""
    return {"shape": images.shape, "bytes": images.nbytes, "id": request_id}, images.tobytes()


def main() -> None:
    """Answer until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then ends this process
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    shape, max_images = json.loads(sys.argv[1])
    while head := sys.stdin.buffer.read(LENGTH.size):
        body = sys.stdin.buffer.read(LENGTH.unpack(head)[0])
        answer, pixels = _answer(body, tuple(shape), max_images)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + pixels)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
