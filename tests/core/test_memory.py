"""Memory that is freed stays with a command, and with an evaluation until it ends."""

import subprocess
import sys

import pytest

PAGES = 4 * 8 * 256  # of 4 KiB, in four tensors of 8 MiB
PROGRAM = """
import ctypes
import resource
import torch
from robustassay.malloc_settings import MMAP_THRESHOLD, TRIM_THRESHOLD, keep_freed_memory, kept_freed_memory

def faults(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

def work():
    for _ in range(20):
        parts = [torch.ones(2 << 20) for _ in range(4)]  # 8 MiB each

for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
    ctypes.CDLL(None).mallopt(option, 128 << 10)  # as a process begins, but for good
work()
usual = faults(work)
with kept_freed_memory():
    with kept_freed_memory():
        work()
    inside, held = faults(work), resident()
returned = held - resident()
keep_freed_memory()
with kept_freed_memory():
    work()
print(usual, inside, returned, faults(work))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of glibc")
def test_freed_memory_is_used_again():
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    usual, inside, returned, kept = map(int, told.split())
    assert usual > 20 * PAGES, "or nothing is given back here anyway"
    assert inside < 0.1 * usual
    assert returned > 0.9 * PAGES, "the end of an evaluation returns its memory"
    assert kept < 0.1 * usual
