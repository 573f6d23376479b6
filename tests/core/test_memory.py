"""Memory that is freed stays with a command."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import resource
import torch
from robustassay.malloc_settings import MMAP_THRESHOLD, TRIM_THRESHOLD, keep_freed_memory

def faults(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def work():
    for _ in range(20):
        parts = [torch.ones(2 << 20) for _ in range(4)]  # 8 MiB each

for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
    ctypes.CDLL(None).mallopt(option, 128 << 10)  # as a process begins, but for good
work()
usual = faults(work)
keep_freed_memory()
work()
print(usual, faults(work))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of glibc")
def test_freed_memory_is_used_again():
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    usual, kept = map(int, told.split())
    assert usual > 20 * 4 * 100, "or nothing is given back here anyway"
    assert kept < 0.1 * usual
