"""Options that depend on a device."""

import pytest
import torch

from exactline import options


def test_the_memory_of_a_gpu_counts_what_torch_keeps_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of what the driver calls free, and of what torch has reserved and no tensor uses."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 9000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 200)
    gpu = torch.device("cuda", 0)
    assert options.free_device_bytes(gpu) == 1300
    assert options.free_memory(gpu) == 1300 // options.GPU_MEMORY_DIVISOR


def test_a_gpu_without_a_number_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    selected, empty = list[torch.device](), torch.empty
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch, "empty", lambda n, device: (selected.append(device), empty(n))[1])
    assert options.select_device(None, "cuda") == torch.device("cuda", 3)
    assert selected == [torch.device("cuda", 3)]
