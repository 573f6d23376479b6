"""What all tests share: the same examples every time, one thread a process, and an interrupt that interrupts."""

import signal

import torch
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")

# Where cores are shared, threads that wait for each other make small networks fifty times slower.
torch.set_num_threads(1)

# Shells have jobs in the background ignore it, and so would every process that a test starts and means to interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
