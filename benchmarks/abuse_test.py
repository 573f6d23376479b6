"""Measures how `assay serve` treats a good client while others abuse the service.

    python -m benchmarks.abuse_test resnet20-natural --seconds 600

The good client sends one image at a time, ten times a second: first alone, then during the abuse, then alone again.
The abuse: connections that send a byte now and then, batches of 4 MB as fast as they are answered, and garbage. All
come from this machine; the abusers have one address and the good client another, unless `--one-address` is given.
Prints the 95th percentile of the good client's latencies in each phase, their ratio, the errors that it saw, and the
memory of the service (with its parser process) before, at its highest, and after the abuse.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.load_test import requests

GOOD, ABUSER = "127.0.0.1", "127.0.0.2"
PAUSE: Final = 0.1
"""Seconds between two requests of the good client."""

START_SECONDS: Final = 5
REST_SECONDS: Final = 15
"""Between the end of the abuse and the second quiet phase; longer than the deadline of a header."""

SLOW_CLIENTS, BATCH_CLIENTS, GARBAGE_CLIENTS = 300, 8, 4


class Abuse:
    """The abusive clients, and what they were answered."""

    def __init__(self, port: int, address: str, until: float) -> None:
        self._port, self._address, self._until = port, address, until
        self.statuses: dict[str, int] = {}

    async def run(self) -> None:
        """Run all of them until the end of the abuse."""
        kinds = [(self._slow, SLOW_CLIENTS), (self._batch, BATCH_CLIENTS), (self._garbage, GARBAGE_CLIENTS)]
        await asyncio.gather(*(self._repeat(kind) for kind, count in kinds for _ in range(count)))

    async def _repeat(self, kind: Any) -> None:
        while time.monotonic() < self._until:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._address, 0))
                try:
                    await kind(reader, writer)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(random.uniform(0, 0.1))

    async def _slow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_body = random.random() < 0.5
        start = b"POST /classify HTTP/1.1\r\nHost: x\r\n"
        writer.write(start + b"Content-Length: 1000000\r\n\r\n" if in_body else start)
        while time.monotonic() < self._until and not reader.at_eof():
            writer.write(b"x" if in_body else b"X: y\r\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1000), random.uniform(0.5, 2))

    async def _batch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while time.monotonic() < self._until:
            writer.write(BATCH)
            await writer.drain()
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 120)
            status = head.split()[1].decode()
            self.statuses[status] = self.statuses.get(status, 0) + 1
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
            if random.random() < 0.1:  # leaves in the middle of the next request
                writer.write(BATCH[: len(BATCH) // 2])
                return

    async def _garbage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        noise = random.randbytes(random.choice((10, 1000, 60_000)))
        kinds = [
            noise,
            b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(noise) + noise,
            b"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60_000,
            b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n",
            b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
        ]
        writer.write(random.choice(kinds))
        await asyncio.wait_for(reader.read(1000), 2)


def batch() -> bytes:
    """Write a request of 4 MB with as many images as fit."""
    shape = [650, 3, 32, 32]
    values = np.random.default_rng(0).integers(0, 10, int(np.prod(shape))).tolist()
    text = json.dumps({"inputs": [{"name": "images", "shape": shape, "datatype": "UINT8", "data": values}]})
    body = text.replace(" ", "").encode()
    head = f"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


BATCH: Final = batch()


def run_abuse(port: int, address: str, seconds: float, answered: "multiprocessing.Queue[dict[str, int]]") -> None:
    """Run the abusive clients; in a process of their own, so that the good client measures only the service."""
    answered.put({})  # says that the abuse starts
    abuse = Abuse(port, address, time.monotonic() + seconds)
    asyncio.run(abuse.run())
    answered.put(abuse.statuses)


class Phase:
    """The latencies of the good client in one phase, and how many of its requests failed."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.errors = 0

    def figures(self) -> dict[str, Any]:
        """Return what is printed of the phase."""
        return {"p95_seconds": round(p95(self.seconds), 4), "requests": len(self.seconds), "errors": self.errors}


def p95(seconds: list[float]) -> float:
    """Return the 95th percentile."""
    return float(np.quantile(seconds, 0.95))


async def good_client(port: int, address: str, seconds: float) -> Phase:
    """Send an image ten times a second, each time over a new connection."""
    asks, phase, until = requests(100), Phase(), time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.monotonic()
        try:
            head = await asyncio.wait_for(_ask(port, address, random.choice(asks)), 30)
            phase.errors += not head.startswith(b"HTTP/1.1 200")
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            phase.errors += 1
        phase.seconds.append(time.monotonic() - started)
        await asyncio.sleep(PAUSE)
    return phase


async def _ask(port: int, address: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length[1]) if length else 0)
        return head
    finally:
        writer.close()


def memory(process: int) -> float:
    """Return the resident megabytes of a process and its children."""
    total = 0.0
    for one in (process, *_children(process)):
        with contextlib.suppress(OSError):
            found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{one}/status").read_text())
            total += int(found[1]) / 1024 if found else 0
    return round(total, 1)


def _children(process: int) -> list[str]:
    """Return the children that any thread of the process has started."""
    children = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # the thread may have ended
            children += (task / "children").read_text().split()
    return children


async def highest_memory(process: int, seconds: float) -> float:
    """Return the highest memory of the next seconds."""
    highest, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        highest = max(highest, memory(process))
        await asyncio.sleep(0.2)
    return highest


async def measure(port: int, process: int, seconds: float, quiet_seconds: float, one_address: bool) -> dict[str, Any]:
    """Measure the three phases."""
    bad = GOOD if one_address else ABUSER
    await _ask(port, GOOD, BATCH)  # starts the parser process
    await good_client(port, GOOD, 2)
    before, quiet = memory(process), await good_client(port, GOOD, quiet_seconds)
    context = multiprocessing.get_context("spawn")
    answered: multiprocessing.Queue[dict[str, int]] = context.Queue()
    abuse = context.Process(target=run_abuse, args=(port, bad, seconds + START_SECONDS, answered))
    abuse.start()
    await asyncio.to_thread(answered.get)
    await asyncio.sleep(START_SECONDS)
    abused, peak = await asyncio.gather(good_client(port, GOOD, seconds), highest_memory(process, seconds))
    statuses = await asyncio.to_thread(answered.get)
    abuse.join()
    await asyncio.sleep(REST_SECONDS)
    later = await good_client(port, GOOD, quiet_seconds)
    return {
        "quiet_before": quiet.figures(),
        "abused": abused.figures(),
        "quiet_after": later.figures(),
        "p95_ratio": round(p95(abused.seconds) / p95(quiet.seconds + later.seconds), 2),
        "megabytes_before_peak_after": [before, peak, memory(process)],
        "batches_by_status": statuses,
    }


def main() -> None:
    """Start a service, measure, and print."""
    parser = argparse.ArgumentParser(description="Abuse test of assay serve.")
    parser.add_argument("model", nargs="?", default="resnet20-natural")
    parser.add_argument("--seconds", type=float, default=600, help="of abuse")
    parser.add_argument("--quiet-seconds", type=float, default=60, help="of each quiet phase")
    parser.add_argument("--one-address", action="store_true", help="abusers have the good client's address")
    given = parser.parse_args()
    command = [sys.executable, "-m", "robustassay", "serve", given.model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        told = re.search(r":(\d+)/classify", service.stderr.readline())
        assert told, "the service did not start"
        port = int(told[1])
        figures = asyncio.run(measure(port, service.pid, given.seconds, given.quiet_seconds, given.one_address))
        service.terminate()
        complaints = service.stderr.read()
    load = [round(value, 2) for value in os.getloadavg()]
    print(json.dumps({**figures, "lines_on_stderr": len(complaints.splitlines()), "load_average": load}, indent=2))


if __name__ == "__main__":
    main()
