"""Batches: their size, their padding, and what happens when memory runs out."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from robustassay.errors import ModelFailed
from robustassay.target import LocalModel
from robustassay.target.batching import (
    DEFAULT_BATCH,
    GPU_LANES,
    LANES,
    LARGE_IMAGE,
    LEAST_POINTWISE,
    Batching,
)
from robustassay.target.product_rows import rows_with_equal_bits
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin
from tests.support.toys import CPU


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Compute with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def sizes(batching: Batching, rows: int, limit: int | None = None, draws: int = 1) -> list[int]:
    """Run over all rows with memory for `limit` images; return the size of each call, failed ones as negatives."""
    calls: list[int] = []
    seen: list[int] = []

    def call(part: slice) -> None:
        size = part.stop - part.start
        if limit is not None and size * draws > limit:
            calls.append(-size)
            raise torch.OutOfMemoryError("out of memory")
        calls.append(size)
        seen.extend(range(part.start, part.stop))

    batching.run(torch.zeros(rows, 3), call, draws)
    assert seen == list(range(rows)), "every row once, in order"
    return calls


def test_calls_hold_the_batch_size_and_the_last_one_the_rest() -> None:
    assert sizes(Batching(CPU, 16), 40) == [16, 16, 8]
    assert sizes(Batching(CPU, 16), 0) == []
    assert sizes(Batching(CPU), DEFAULT_BATCH["cpu"] + 1) == [DEFAULT_BATCH["cpu"], 1]


def test_draws_share_the_images_of_a_call() -> None:
    assert sizes(Batching(CPU, 64), 40, draws=4) == [16, 16, 8]
    assert sizes(Batching(CPU, 8), 20, draws=4) == [8, 8, 4], "never less than the lanes"


def test_batches_are_halved_where_memory_runs_out_and_stay_small() -> None:
    batching = Batching(CPU, 64)
    assert sizes(batching, 40, limit=16) == [-40, -32, 16, 16, 8]
    assert batching.batch_size == 16
    assert sizes(batching, 32, limit=16) == [16, 16], "the smaller size is remembered"


def test_no_memory_for_the_smallest_batch_is_an_error() -> None:
    batching = Batching(CPU, 4 * LANES)
    with pytest.raises(ModelFailed, match="no memory left") as raised:
        sizes(batching, 40, limit=LANES - 1)
    assert isinstance(raised.value.__cause__, torch.OutOfMemoryError)
    assert batching.batch_size == LANES


def test_with_draws_calls_shrink_to_one_image_where_memory_runs_out() -> None:
    batching = Batching(torch.device("cuda"), 16)
    assert sizes(batching, 5, limit=21, draws=20) == [-5, -5, -4, -2, 1, 1, 1, 1, 1]
    assert len(batching.pad(torch.zeros(1, 2))) == 1, "padding would take the memory of more images"
    assert sizes(batching, 3, limit=21, draws=20) == [1, 1, 1], "the smaller size is remembered"
    assert sizes(batching, 16, limit=LANES) == [8, 8], "calls without draws keep theirs"
    with pytest.raises(ModelFailed, match="no memory left for one image"):
        sizes(batching, 3, limit=19, draws=20)


def test_other_errors_pass_through() -> None:
    def call(rows: slice) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        Batching(CPU).run(torch.zeros(3, 2), call)


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
@pytest.mark.parametrize("n", [1, LANES - 1, LANES, LANES + 1, 2 * LANES + 1])
@pytest.mark.parametrize("kernel", [1, 3])
def test_padding_repeats_the_last_image(n: int, threads: int, kernel: int) -> None:
    x = torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 2)
    padded, lanes = Batching(CPU, module=nn.Conv2d(3, 4, kernel)).pad(x), rows_with_equal_bits(LANES, threads)
    assert len(padded) == max(-(-n // lanes) * lanes, LEAST_POINTWISE if threads == kernel == 1 else 0)
    assert torch.equal(padded[:n], x)
    assert (padded[n:] == n - 1).all()


def test_a_gpu_pads_to_wider_lanes_until_memory_runs_out() -> None:
    batching = Batching(torch.device("cuda"), 64)
    assert len(batching.pad(torch.zeros(3, 2))) == GPU_LANES
    sizes(batching, 40, limit=LANES)
    assert len(batching.pad(torch.zeros(3, 2))) == LANES


def test_large_images_get_small_batches_on_a_cpu_only() -> None:
    large = torch.zeros(1, LARGE_IMAGE + 1)
    assert Batching(CPU).images_per_call(large) == LANES
    assert Batching(CPU, 64).images_per_call(large) == 64, "a given batch size holds"
    assert Batching(torch.device("cuda")).images_per_call(large) == DEFAULT_BATCH["cuda"]


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_large_images_are_padded_to_the_fast_kernel_where_calls_are_long_enough_for_it(threads: int) -> None:
    large, pointwise = torch.zeros(3, LARGE_IMAGE + 1), nn.Conv2d(3, 4, 1)
    lanes = rows_with_equal_bits(LANES, threads)
    assert len(Batching(CPU, module=pointwise).pad(large)) == lanes
    wanted = LEAST_POINTWISE if threads == 1 else lanes
    assert len(Batching(CPU, LEAST_POINTWISE, module=pointwise).pad(large)) == wanted


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_pointwise_convolutions_give_the_same_bits_in_small_and_large_calls(threads: int) -> None:
    """torch computes them by another kernel for fewer than 16 images, with one thread."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 256, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 5)
        network, x = nn.Sequential(*layers).eval(), torch.rand(40, 3, 6, 6)
    labels = torch.zeros(40, dtype=torch.long)

    def seen(size: int) -> tuple[Tensor, Tensor]:
        return LocalModel(network, 5, CPU, size).gradient(x, logit_margin, Untargeted(labels))

    for size in (1, LANES, 24):
        assert all(map(torch.equal, seen(size), seen(40)))


PRODUCTS = """
import sys

import torch

if sys.argv[1] == "late":
    torch.nn.functional.linear(torch.rand(64, 512), torch.rand(10, 512), torch.rand(10))

from robustassay.target import LocalModel
from robustassay.target.product_rows import MOST, rows_with_equal_bits
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin

if sys.argv[1] == "late" and rows_with_equal_bits(8, torch.get_num_threads()) == MOST:
    raise SystemExit(print("no number of rows"))  # docs/promises.md names this limit
torch.manual_seed(0)
layers = torch.nn.Flatten(), torch.nn.Linear(768, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10)
network, x, labels = torch.nn.Sequential(*layers).eval(), torch.rand(40, 3, 16, 16), torch.zeros(40, dtype=torch.long)
cpu = torch.device("cpu")
found = [LocalModel(network, 10, cpu, size).gradient(x, logit_margin, Untargeted(labels)) for size in (1, 8, 24, 40)]
print(all(torch.equal(*pair) for one in found for pair in zip(one, found[-1])))
"""


@pytest.mark.parametrize("kernels", ["", "AVX2"])
@pytest.mark.parametrize("imported", ["first", "late"])
def test_products_of_matrices_have_the_same_bits_in_small_and_large_calls(imported: str, kernels: str) -> None:
    """Also where torch has chosen its kernels before our import, and on a processor with other kernels."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("MKL_")}
    environment = known | ({"MKL_ENABLE_INSTRUCTIONS": kernels} if kernels else {})
    request = [sys.executable, "-c", PRODUCTS, imported]
    printed = subprocess.run(request, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == "True\n" or (imported == "late" and printed == "no number of rows\n")
