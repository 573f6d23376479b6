"""What all tests share: a home of their own, the same examples every time, one thread a process, and an interrupt that
interrupts."""

import contextlib
import importlib
import os
import shutil
import signal
import site
import tempfile
from typing import Final

import torch
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")

# Where cores are shared, threads that wait for each other make small networks fifty times slower.
torch.set_num_threads(1)

# Shells have jobs in the background ignore it, and so would every process that a test starts and means to interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Libraries write into the home folder, ART as soon as it is imported, and a worker fails when it reads what another
# has half written. So every process of a run has an empty home of its own. The first one holds those of the workers.
HOMES: Final = "ASSAY_TEST_HOMES"
FIRST: Final = HOMES not in os.environ
HOME: Final = tempfile.mkdtemp(prefix="assay-home-", dir=os.environ.get(HOMES))
os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())  # packages that were installed for the user stay in reach
os.environ["HOME"] = HOME
os.environ.pop("COLUMNS", None)  # xdist sets it in workers, and tables would have other columns there
for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE", "TORCH_HOME"):
    os.environ.pop(name, None)
if FIRST:
    os.environ[HOMES] = HOME
    os.environ["MPLCONFIGDIR"] = os.path.join(HOME, "matplotlib")


def pytest_configure():
    """List the fonts once, before workers start: it takes long where there are many, and is then said on stderr."""
    if FIRST:
        with contextlib.suppress(ImportError):
            importlib.import_module("matplotlib.font_manager")


def pytest_unconfigure():
    shutil.rmtree(HOME, ignore_errors=True)


def pytest_sessionstart():
    """Make the evaluations of most tests cheap: no self-test, and an inspection of few samples.

    Either would cost more than the attacks here. A test about one of them asks for it, and commands that a test starts
    as processes of their own make both as for a user.
    """
    evaluation = "robustassay.evaluation"
    vars(importlib.import_module(f"{evaluation}.options"))["SELF_TEST_SAMPLES"] = 0
    vars(importlib.import_module(f"{evaluation}.flags"))["SAMPLES"] = 8
