"""The time that limits of the doctor count: on a CPU the processor's own, so that other processes change nothing."""

import time

import torch


def seconds_now(device: torch.device) -> float:
    """Return a time in seconds; differences are the time that this process works, or waits for its device."""
    if device.type != "cpu":
        return time.perf_counter()
    return time.process_time() / torch.get_num_threads()
