"""Measures the images per second of `assay serve` under load, compared with the model alone.

    python -m benchmarks.load_test resnet20-natural --clients 200 --seconds 20

In turn, a few times: measures the batched forward rate of the model by itself, then starts the service and lets many
clients ask over loopback, each as soon as its last answer came. Prints the medians of both rates, the errors and the
latencies as JSON. Clients speak HTTP by hand over asyncio and share one process, so that they take little of the
machine they share with the service.
"""

import argparse
import asyncio
import io
import json
import os
import re
import subprocess
import sys
import time
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image

from robustassay import data, models
from robustassay.target import LocalModel

BATCH = 64


def forward_rate(model: str, seconds: float) -> float:
    """Return the images per second of the model alone, in the batches of a busy service."""
    network = LocalModel(models.load(model), 10, torch.device("cpu"), BATCH)
    x = data.load("cifar10-1k").images(slice(0, BATCH))
    network.logits(x)
    started, passes = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        network.logits(x)
        passes += 1
    return passes * BATCH / (time.perf_counter() - started)


def requests(count: int) -> list[bytes]:
    """Write HTTP requests with the first images of the embedded sample."""
    found = []
    for image in data.load("cifar10-1k").images(slice(0, count)):
        buffer = io.BytesIO()
        Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(buffer, "PNG")
        body = buffer.getvalue()
        head = f"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        found.append(head.encode() + body)
    return found


async def client(port: int, ask: list[bytes], first: int, until: float, seen: dict[str, Any]) -> None:
    """Send requests over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = first
    while time.perf_counter() < until:
        started = time.perf_counter()
        writer.write(ask[turn % len(ask)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = await reader.readexactly(int(length[1]) if length else 0)
        seen["seconds"].append(time.perf_counter() - started)
        if not head.startswith(b"HTTP/1.1 200") or b"predictions" not in body:
            seen["errors"] += 1
        turn += 1
    writer.close()


async def load(port: int, clients: int, seconds: float) -> dict[str, Any]:
    """Run all clients at once."""
    seen: dict[str, Any] = {"seconds": [], "errors": 0}
    ask, started = requests(100), time.perf_counter()
    await asyncio.gather(*(client(port, ask, number, started + seconds, seen) for number in range(clients)))
    return {**seen, "wall": time.perf_counter() - started}


def serve_and_load(model: str, clients: int, seconds: float) -> dict[str, Any]:
    """Start a service, run all clients, and stop the service."""
    request = [sys.executable, "-m", "robustassay", "serve", model, "--port", "0", "--max-batch", str(BATCH)]
    with subprocess.Popen(request, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        told = re.search(r":(\d+)/classify", service.stderr.readline())
        assert told, "the service did not start"
        found = asyncio.run(load(int(told[1]), clients, seconds))
        service.terminate()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Load test of assay serve.")
    parser.add_argument("model", nargs="?", default="resnet20-natural")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    alone, served, errors, latencies = [], [], 0, []
    for _ in range(given.rounds):
        alone.append(forward_rate(given.model, given.seconds / 2))
        found = serve_and_load(given.model, given.clients, given.seconds)
        served.append(len(found["seconds"]) / found["wall"])
        errors += found["errors"]
        latencies += found["seconds"]
    slow = np.quantile(latencies, [0.5, 0.99]).tolist()
    figures = {
        "model": given.model,
        "clients": given.clients,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "rounds": given.rounds,
        "requests": len(latencies),
        "errors": errors,
        "images_a_second": [round(rate, 1) for rate in served],
        "model_alone_images_a_second": [round(rate, 1) for rate in alone],
        "part_of_model_alone": round(median(served) / median(alone), 3),
        "seconds_median_and_p99": [round(value, 3) for value in slow],
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
