"""The manifest of a run: its specification, and the software and hardware that produced it."""

import dataclasses
import datetime
import platform
from typing import Any

import numpy as np
import torch

import robustassay as ra
from robustassay.evaluation.spec import RunSpec


def write_manifest(spec: RunSpec, title: str, device: torch.device) -> dict[str, Any]:
    """Describe a run: specification and key, software, hardware and start."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "key": spec.key,
        "title": title,
        "spec": dataclasses.asdict(spec),
        "software": {
            "robustassay": ra.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "hardware": {
            "device": gpu or device.type,
            "machine": platform.machine(),
            "system": platform.platform(),
            "threads": torch.get_num_threads(),
        },
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
