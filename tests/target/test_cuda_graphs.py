"""When a call may be recorded: a GPU's memory, and the part of it that one process may take."""

import pytest
import torch

from robustassay.target import cuda_graphs

CUDA = torch.device("cuda")
TOTAL = 800


@pytest.mark.parametrize(
    ("free", "part", "reserved", "room"),
    [
        (400, 1.0, 300, True),
        (100, 1.0, 300, False),  # other processes hold the rest
        (700, 0.1, 20, True),
        (700, 0.1, 72, False),  # this process holds nearly all that it may take
    ],
)
def test_a_call_is_recorded_while_memory_is_left_to_the_process(monkeypatch, free, part, reserved, room):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, TOTAL))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: part, raising=False)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
    monkeypatch.setattr(cuda_graphs, "LIMITS_ARE_KNOWN", True)
    assert cuda_graphs._has_room(CUDA) is room


def test_releases_of_torch_that_do_not_tell_the_part_count_the_whole_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, TOTAL))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 72)
    monkeypatch.setattr(cuda_graphs, "LIMITS_ARE_KNOWN", False)
    assert cuda_graphs._has_room(CUDA)
