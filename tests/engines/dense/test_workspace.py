"""Reused buffers are never buffers that are still in use."""

import gc
import threading

import torch

import exactline as xl
from exactline.engines.dense.workspace import empty

LIKE = torch.zeros(1, dtype=torch.float64)
SHAPE = (1000, 50)


def test_a_buffer_is_reused_when_nothing_refers_to_it():
    tensor = empty(SHAPE, LIKE)
    address = tensor.data_ptr()
    assert address % 64 == 0
    del tensor
    assert empty(SHAPE, LIKE).data_ptr() == address


def test_a_view_or_an_array_keeps_its_buffer_in_use():
    holders = (
        lambda t: t,
        lambda t: t[3:5, 7],
        lambda t: t.numpy(),
        lambda t: t.numpy()[2:],
        lambda t: t.view(-1)[::2],
    )
    for hold in holders:
        tensor = empty(SHAPE, LIKE)
        address = tensor.data_ptr()
        held = hold(tensor)
        del tensor
        others = [empty(SHAPE, LIKE) for _ in range(8)]
        assert address not in [other.data_ptr() for other in others]
        assert len({other.data_ptr() for other in others}) == 8
        del held


def test_other_types_and_sizes_do_not_share_buffers():
    small, single, large = empty((2, 3), LIKE), empty(SHAPE, LIKE.float()), empty((3 << 20,), LIKE)
    assert small.dtype == large.dtype == torch.float64
    assert single.dtype == torch.float32
    for tensor in (small, single, large):
        tensor.fill_(7.0)
        assert bool((tensor == 7).all())
    assert empty((0, 5), LIKE).shape == (0, 5)


def test_threads_have_their_own_buffers():
    mine, theirs = empty(SHAPE, LIKE), list[int]()
    thread = threading.Thread(target=lambda: theirs.append(empty(SHAPE, LIKE).data_ptr()))
    thread.start()
    thread.join()
    assert theirs[0] != mine.data_ptr()


def test_results_that_are_kept_are_not_overwritten_by_later_ones():
    torch.manual_seed(0)
    # the last node breaks, so the values that are returned are in a buffer of the sweep
    model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU())
    ends = torch.randn(6, 2, 40, 4, dtype=torch.float64) * 4
    kept = [xl.restrict_many(model, *pair) for pair in ends]
    copies = [lines.values.clone() for lines in kept]
    for pair in ends:
        xl.restrict_many(model, *pair)
    gc.collect()
    assert all(torch.equal(lines.values, copy) for lines, copy in zip(kept, copies, strict=True))
    parts = list(xl.sweep(model, ends[0, 0, 0], ends[0, 1, 0], memory=1 << 18))
    whole = xl.restrict(model, ends[0, 0, 0], ends[0, 1, 0])
    joined = torch.cat([part.values[1 if number else 0 :] for number, part in enumerate(parts)])
    assert torch.allclose(joined, whole.values, rtol=0, atol=1e-13)
