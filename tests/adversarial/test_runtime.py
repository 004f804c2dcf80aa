"""The environment must not change a result: precision switches, defaults, threads, interrupts, memory, other lines."""

from __future__ import annotations

import copy
import functools
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from tests.oracle.compare import mismatch
from tests.oracle.families import FAMILIES, seeded, small_integers

from .truth import (
    Function,
    assert_matches_module,
    assert_refused,
    assert_same_line,
    breaks,
    global_settings,
    linear_layer,
    mlp,
    relu_network,
    restrict_and_verify,
    tent,
    vector,
)

START, END = vector(-2.0, 1.5, 0.5), vector(2.5, -1.0, -3.0)


def tied_network(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network with small-integer weights and a line between integer points: full of ties."""
    g = torch.Generator().manual_seed(seed)
    name = ["mlp", "conv", "residual", "concat"][seed % 4]
    model, shape = FAMILIES[name](g)
    ends = (torch.randint(-3, 4, shape, generator=g).double() for _ in range(2))
    return (small_integers(g, model), *ends)


def generic_network(seed: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    name = ["mlp", "conv", "residual", "concat", "mixed", "normed", "ordered"][seed % 7]
    model, shape = FAMILIES[name](g)
    ends = (torch.randn(shape, generator=g, dtype=torch.float64) * 3 for _ in range(2))
    return (seeded(model, g), *ends)


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_tf32_is_off_during_a_sweep_and_restored_after_it():
    during = []

    def record(share, count):
        during.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))

    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.allow_tf32 = True
        xl.restrict(mlp(3, 8, 2), START, END, progress=record)
        assert during
        assert set(during) == {("highest", False)}
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("medium", True)
        with pytest.raises(xl.NumberError):
            xl.restrict(relu_network(linear_layer([[1e200]]), linear_layer([[1e200]])), [1.0], [2.0])
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("medium", True)
        list(xl.sweep(mlp(3, 8, 2), START, END, memory=1))
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("medium", True)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has only the old switches")
def test_the_new_switches_for_tf32_work_and_are_restored():
    # torch refuses to read its old switches once a new one was set; torch.export works with both of these settings
    code = """
import torch, exactline as xl
torch.manual_seed(0)
places = [torch.backends.cuda.matmul, torch.backends.cudnn.conv]
for chosen in (torch.backends, torch.backends.cuda.matmul):
    chosen.fp32_precision = "tf32"
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).eval()
    torch.export.export(model, (torch.zeros(3, 2),), strict=False)
    before = [p.fp32_precision for p in places]
    during = []
    record = lambda *_: during.append([p.fp32_precision for p in places])
    xl.restrict(model, [-3.0, 1.0], [3.0, 2.0], progress=record)
    assert during and all("tf32" not in precision for precision in during), during
    assert [p.fp32_precision for p in places] == before, before
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr


def test_settings_are_restored_between_the_parts_of_a_stream():
    before = global_settings()
    for _ in xl.sweep(tent(6), [0.0], [1.0], memory=1):
        assert global_settings() == before
    stream = xl.sweep(tent(6), [0.0], [1.0], memory=1)
    next(stream)
    stream.close()  # before its end
    assert global_settings() == before


def test_autocast_around_the_call_does_not_change_the_result():
    model, image = mlp(3, 16, 16, 2), nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()).eval()
    plain = restrict_and_verify(model, START, END)
    pixels = torch.randn(1, 6, 6), torch.randn(1, 6, 6)
    flat = restrict_and_verify(image, *pixels)
    cases = ((copy.deepcopy(model), (START, END), plain), (copy.deepcopy(image), pixels, flat))
    for fresh, ends, truth in cases:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            line = xl.restrict(fresh, *ends)
            assert line.values.dtype == torch.float64
            assert torch.is_autocast_enabled("cpu")
            A, _b = line.piece(0).affine()
            assert A.dtype == torch.float64
            check = line.check(samples=10)
        assert_same_line(line, truth)
        assert check.worst <= 1e-12 * max(1.0, check.scale)


def test_a_result_from_inference_mode_works_outside_of_it():
    model = mlp(3, 8, 8, 2)
    truth = xl.restrict(copy.deepcopy(model), START, END)
    with torch.inference_mode():
        line = xl.restrict(model, START, END)
    assert_same_line(line, truth)
    A, b = line.piece(0).affine()
    assert torch.allclose(A @ START + b, line.values[0], atol=1e-12)
    again = xl.restrict(model, START, END)  # from the cache that was filled in inference mode
    again.piece(1).affine()
    assert line.certify().covers_whole_line


def test_grad_mode_anomaly_detection_and_determinism_do_not_change_the_result():
    model = mlp(3, 8, 8, 2)
    truth = restrict_and_verify(model, START, END)
    with torch.autograd.set_detect_anomaly(True, check_nan=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same_line(xl.restrict(copy.deepcopy(model), START, END), truth)
    torch.use_deterministic_algorithms(True)
    try:
        assert_same_line(xl.restrict(copy.deepcopy(model), START, END), truth)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.every(3)
def test_another_default_dtype_does_not_change_the_result(dtype):
    models = [
        mlp(3, 12, 12, 2),
        nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()).eval(),
        nn.ReLU(),
    ]
    shapes = [(3,), (1, 6), (5,)]
    ends = [(torch.randn(s, dtype=torch.float64) * 3, torch.randn(s, dtype=torch.float64) * 3) for s in shapes]
    truths = [restrict_and_verify(copy.deepcopy(m), *e) for m, e in zip(models, ends, strict=True)]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for model, e, truth in zip(models, ends, truths, strict=True):
            line = xl.restrict(model, *e)
            assert_same_line(line, truth)
            assert line.alphas.dtype == line.values.dtype == torch.float64
            line.check(samples=20)
            A, b = line.piece(0).affine()
            assert A.dtype == b.dtype == torch.float64
            assert line.certify().covers_whole_line
            assert len(line.minimal()) <= len(line)
        assert torch.get_default_dtype() == dtype
        assert breaks(xl.restrict(models[2], [-0.1] * 5, [0.3] * 5)) == [0.0, 0.25, 1.0]  # lists are float64 too
    finally:
        torch.set_default_dtype(before)


def test_many_lines_and_many_pieces_with_a_float16_default_are_complete():
    # indices above 2,048 are not exact in float16, and those above 65,504 overflow
    torch.set_default_dtype(torch.float16)
    try:
        lines = xl.restrict_many(nn.ReLU(), -torch.ones(70_000, 1), torch.ones(70_000, 1), values=False)
        assert len(lines) == 70_000
        assert set(lines.pieces.tolist()) == {2}
        line = xl.restrict(tent(12), [0.0], [1.0])
        assert len(line) == 2**12
        assert line.check(samples=100).worst == 0.0
        assert line.error >= 0.0
        assert str(line).startswith("4,096 pieces")
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.every(2)
def test_another_default_device_does_not_change_the_result(device):
    model, image = mlp(3, 12, 12, 2), nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()).eval()
    pixels = torch.randn(1, 5, 5), torch.randn(1, 5, 5)
    cases = [(model, (START, END)), (image, pixels), (nn.ReLU(), (START, END))]
    truths = [restrict_and_verify(copy.deepcopy(m), *ends) for m, ends in cases]
    torch.set_default_device(device)
    try:
        for (m, ends), truth in zip(cases, truths, strict=True):
            line = xl.restrict(m, *ends)
            assert_same_line(line, truth)
            line.check(samples=10)
            line.piece(0).affine()
            line.minimal()
            assert line.certify().covers_whole_line
    finally:
        torch.set_default_device(None)


# -- threads and interrupts --------------------------------------------------------------------------------------


def test_the_number_of_threads_does_not_change_the_result():
    model = mlp(20, 128, 128, 128, 5)
    start, end = torch.randn(20) * 2, torch.randn(20) * 2
    bias_free, x = mlp(50, 100, 100, 5, bias=False), torch.randn(50)
    before = torch.get_num_threads()
    results = {}
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results[threads] = xl.restrict(model, start, end), xl.restrict(bias_free, -x, 2 * x)
    finally:
        torch.set_num_threads(before)
    assert_same_line(results[1][0], results[2][0])
    assert_same_line(results[1][1], results[2][1])
    assert len(results[1][1]) == 2


def run_concurrently(calls):
    """Run calls at the same time, each in a thread of its own; returns their results in order."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


def test_four_threads_may_use_one_captured_module_at_once():
    model = mlp(3, 24, 24, 2)
    ends = [(torch.randn(3) * 3, torch.randn(3) * 3) for _ in range(4)]
    truths = [restrict_and_verify(model, *e) for e in ends]
    before = global_settings()
    for _ in range(3):
        lines = run_concurrently([lambda e=e: xl.restrict(model, *e) for e in ends])
        for line, truth in zip(lines, truths, strict=True):
            assert_same_line(line, truth)
    assert global_settings() == before


def test_four_threads_may_capture_one_fresh_module_at_once():
    ends = [(torch.randn(3) * 3, torch.randn(3) * 3) for _ in range(4)]
    models = [mlp(3, 24, 24, 2) for _ in range(2)]
    before, out, err = global_settings(), sys.stdout, sys.stderr
    try:
        for model in models:
            lines = run_concurrently([lambda e=e, m=model: xl.restrict(m, *e) for e in ends])
            for line, e in zip(lines, ends, strict=True):
                assert mismatch(line.alphas, xl.exact.restrict(model, *e)) is None
        assert sys.stdout is out
        assert sys.stderr is err
        assert global_settings() == before
    finally:
        sys.stdout, sys.stderr = out, err


def test_four_threads_may_capture_four_modules_at_once():
    models = [mlp(3, 10 + i, 10, 2) for i in range(4)]
    before, out, err = global_settings(), sys.stdout, sys.stderr
    try:
        lines = run_concurrently([lambda m=m: xl.restrict(m, START, END) for m in models])
        for line, model in zip(lines, models, strict=True):
            assert mismatch(line.alphas, xl.exact.restrict(model, START, END)) is None
        assert sys.stdout is out
        assert sys.stderr is err
        assert global_settings() == before
    finally:
        sys.stdout, sys.stderr = out, err


@pytest.mark.filterwarnings("ignore")
def test_concurrent_calls_restore_the_precision_of_the_caller():
    # a call that ends while another one runs must not turn TF32 on for it
    model = tent(7)
    xl.restrict(model, [0.0], [1.0])
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        for _ in range(2):
            run_concurrently(
                [lambda m=m: xl.restrict(model, [0.0], [1.0], memory=m) for m in (1 << 10, 1 << 12, 1 << 14, 1 << 20)]
            )
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.filterwarnings("ignore")
def test_an_interrupt_from_a_progress_callback_restores_settings():
    model, calls = tent(10), []
    xl.restrict(model, [0.0], [1.0])  # what is imported on first use may add a filter for warnings

    def interrupt(share, count):
        calls.append((share, count))
        if len(calls) == 3:
            raise KeyboardInterrupt

    before = global_settings()
    torch.set_float32_matmul_precision("medium")
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            xl.restrict(model, [0.0], [1.0], memory=1 << 12, progress=interrupt)
        assert torch.get_float32_matmul_precision() == "medium"
        assert float(torch.tensor([1e-310], dtype=torch.float64) * 1.0) == 0.0
    finally:
        torch.set_flush_denormal(False)
        torch.set_float32_matmul_precision("highest")
    assert global_settings() == before
    assert len(xl.restrict(model, [0.0], [1.0])) == 2**10


def test_an_interrupt_inside_a_forward_or_a_capture_is_not_turned_into_a_typed_error():
    def interrupt(x):
        raise KeyboardInterrupt

    xl.restrict(Function(torch.relu), START, END)  # what is imported on first use may add a filter for warnings
    before = global_settings()
    with pytest.raises(KeyboardInterrupt):
        xl.restrict(Function(interrupt), START, END)
    assert global_settings() == before
    restrict_and_verify(mlp(3, 4, 2), START, END)


def test_progress_reports_increasing_shares_and_counts_up_to_the_total():
    reports = []
    line = xl.restrict(
        tent(9), [0.0], [1.0], memory=1 << 12, progress=lambda share, count: reports.append((share, count))
    )
    assert reports == sorted(reports)
    assert reports[-1] == (1.0, len(line) + 1)
    reports = []
    starts = torch.rand(20, 1, dtype=torch.float64)
    lines = xl.restrict_many(tent(5), starts, 1 - starts, memory=1 << 12, progress=lambda s, c: reports.append((s, c)))
    assert reports == sorted(reports)
    assert reports[-1] == (1.0, len(lines.alphas))


def test_a_progress_bar_is_shown_on_standard_error_only(capsys):
    line = xl.restrict(tent(8), [0.0], [1.0], memory=1 << 12, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err
    assert len(line) == 2**8
    assert_refused(xl.ArgumentError, xl.restrict, tent(2), [0.0], [1.0], progress="yes")


def test_random_states_and_warning_filters_do_not_change():
    before = global_settings()
    state = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    line = xl.restrict(fixed_mlp(), START, END)
    line.check(samples=5)
    line.certify(pieces=2)
    assert torch.equal(torch.random.get_rng_state(), state[0])
    assert (np.random.get_state()[1] == state[1]).all()
    assert global_settings() == before


def fixed_mlp() -> nn.Module:
    w = torch.arange(12, dtype=torch.float64).view(4, 3).sub(5.5) / 4
    return relu_network(linear_layer(w, [0.5, -0.5, 0.25, 1.0]), linear_layer(torch.ones(2, 4)))


# -- memory and other lines --------------------------------------------------------------------------------------

BUDGETS = [1, 1 << 10, 1 << 14, 1 << 30]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(4)
def test_the_answer_does_not_depend_on_memory_for_tied_networks(seed):
    model, start, end = tied_network(seed)
    truth = restrict_and_verify(model, start, end)
    for memory in BUDGETS:
        line = xl.restrict(model, start, end, memory=memory)
        assert_same_line(line, truth)
        assert [b and (b.node, b.unit) for b in line.origins] == [b and (b.node, b.unit) for b in truth.origins]
        assert line.ambiguous_per_piece.tolist() == truth.ambiguous_per_piece.tolist()


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.every(7)
def test_the_answer_does_not_depend_on_memory_for_generic_networks(seed):
    model, start, end = generic_network(seed)
    truth = restrict_and_verify(model, start, end)
    for memory in BUDGETS:
        assert_same_line(xl.restrict(model, start, end, memory=memory), truth)


@pytest.mark.parametrize("memory", BUDGETS[:3])
def test_the_answer_does_not_depend_on_memory_for_bias_free_nets(memory):
    x = torch.randn(12, dtype=torch.float64)
    line = xl.restrict(mlp(12, 40, 40, 40, 3, bias=False), -x, 2 * x, memory=memory)
    assert len(line.alphas) == 3


@pytest.mark.parametrize("make_network", [tied_network, generic_network], ids=["tied", "generic"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(8)
def test_the_answer_does_not_depend_on_ninety_nine_other_lines(make_network, seed):
    model, start, end = make_network(seed)
    g = torch.Generator().manual_seed(seed)
    others = torch.randn(2, 99, *start.shape, generator=g, dtype=torch.float64) * 3
    if make_network is tied_network:
        others = others.round()
    others[:, ::7] *= 100.0  # some are much larger
    others[1, 20:] = others[0, 20:] + (others[1, 20:] - others[0, 20:]) / 8  # and most are short
    starts, ends = torch.cat([others[0], start[None]]), torch.cat([others[1], end[None]])
    alone = restrict_and_verify(model, start, end)
    many = xl.restrict_many(model, starts, ends)
    assert len(many) == 100
    assert_same_line(many[99], alone)
    for i in (0, 7, 13, 50):
        assert_same_line(many[i], xl.restrict(model, starts[i], ends[i]))
    tight = xl.restrict_many(model, starts, ends, memory=40 * bytes_per_point(many))  # parts of about forty points
    assert tight.offsets.tolist() == many.offsets.tolist()
    assert (tight.alphas - many.alphas).abs().max() <= 1e-12


def bytes_per_point(lines) -> int:
    """Approximate memory of one point in all layers together."""
    return 8 * sum(torch.Size(node.shape).numel() for node in lines.network.nodes)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.every(3)
def test_lines_swept_a_few_points_at_a_time_are_the_same(seed):
    model, start, end = tied_network(4 * seed)
    starts, ends = torch.stack([start, end, start]), torch.stack([end, start, start])
    many = xl.restrict_many(model, starts, ends)
    for memory in (1, 3 * bytes_per_point(many), 5 * bytes_per_point(many), 9 * bytes_per_point(many)):
        tight = xl.restrict_many(model, starts, ends, memory=memory)
        assert tight.offsets.tolist() == many.offsets.tolist()
        assert (tight.alphas - many.alphas).abs().max() <= 1e-12
        assert torch.equal(tight.breaks.origins, many.breaks.origins)


def test_a_line_alone_and_in_a_batch_of_1024_has_the_same_breaks():
    model = mlp(6, 64, 64, 3)
    start, end = torch.randn(6), torch.randn(6) * 2
    alone = restrict_and_verify(model, start, end)
    many = xl.restrict_many(model, start.expand(1024, 6), end.expand(1024, 6), values=False)
    assert set(many.pieces.tolist()) == {len(alone)}
    for i in (0, 511, 1023):
        assert (many[i].alphas - alone.alphas).abs().max() <= 1e-12


def test_without_values_the_breaks_and_origins_are_the_same():
    model = mlp(3, 16, 16, 2)
    full, bare = restrict_and_verify(model, START, END), xl.restrict(model, START, END, values=False)
    assert breaks(full) == breaks(bare)
    assert list(full.origins) == list(bare.origins)
    error = assert_refused(xl.MissingError, lambda: bare.values)
    assert "values=True" in error.hint
    somewhere = torch.rand(50, dtype=torch.float64)
    assert torch.allclose(bare.at(somewhere), full.at(somewhere), atol=1e-12)
    assert len(bare.minimal()) == len(full.minimal())
    assert bare.check(samples=20).worst <= 1e-12


@pytest.mark.parametrize("memory", [1, 1 << 10, 1 << 14, None])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.every(12)
def test_parts_of_a_stream_come_in_order_and_join_to_the_whole(seed, memory):
    model, start, end = tied_network(seed) if seed else (tent(7), vector(0.0), vector(1.0))
    whole = xl.restrict(model, start, end)
    parts = list(xl.sweep(model, start, end, memory=memory))
    alphas, values = [0.0], [whole.values[:1]]
    for part in parts:
        assert part.alphas[0] == alphas[-1]
        assert (part.alphas[1:] > part.alphas[:-1]).all()
        assert len(part.values) == len(part.alphas)
        assert torch.equal(
            part.points, whole.lines.at(torch.zeros(len(part.alphas), dtype=torch.int64), part.alphas)[0][0]
        )
        alphas += part.alphas[1:].tolist()
        values.append(part.values[1:])
    assert alphas[-1] == 1.0
    assert alphas == breaks(whole) or np.allclose(alphas, breaks(whole), rtol=0, atol=1e-12)
    assert len(alphas) == len(whole.alphas)
    assert torch.allclose(torch.cat(values), whole.values, atol=1e-12)
    if memory == 1:
        assert len(parts) == len(whole)


def test_one_part_of_a_stream_covers_its_segment():
    model = mlp(3, 16, 16, 2)
    whole = restrict_and_verify(model, START, END)
    for part in xl.sweep(model, START, END, memory=1):
        middle = (part.alphas[0] + part.alphas[-1]) / 2
        assert torch.allclose(part.at(middle), whole.at(middle), atol=1e-12)
        A, b = part.piece(0).affine()
        x = START + middle * (END - START)
        assert torch.allclose(A @ x + b, whole.at(middle), atol=1e-12)
        outside = 1.0 if part.alphas[-1] < 1 else 0.0
        assert_refused(xl.ArgumentError, part.at, outside)


def test_a_float32_sweep_finds_the_unambiguous_breaks():
    model = mlp(3, 16, 2)
    line, truth = xl.restrict(model, START, END, dtype=torch.float32), restrict_and_verify(model, START, END)
    assert line.alphas.dtype == torch.float64
    assert len(line) == len(truth)
    assert (line.alphas - truth.alphas).abs().max() <= 1e-4
    assert_refused(xl.ArgumentError, xl.restrict, model, START, END, dtype=torch.float16)


# -- Ctrl-C -------------------------------------------------------------------------------------------------------


def interrupt_after(seconds: float, call: Callable[[], object], clock: int | None = None) -> float:
    """Send SIGINT to this process once a call has run for some time; returns the seconds until KeyboardInterrupt.

    Without a clock, all are seconds of this thread on a processor: they do not depend on how busy the machine is.
    The signal is sent again after a while: Python ignores one that it handles inside the callback of a weak reference.
    """
    clock = time.pthread_getcpuclockid(threading.get_ident()) if clock is None else clock
    start, sent, finished = time.clock_gettime(clock), list[float](), threading.Event()

    def send() -> None:
        for again in range(3):
            while time.clock_gettime(clock) < start + seconds + 0.2 * again:
                if finished.wait(0.005):
                    return
            sent.append(time.clock_gettime(clock))
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs without it
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        finished.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
    return time.clock_gettime(clock) - sent[0]


def large_convnet() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network whose sweep takes many times half a second, and a line."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 1024, 10)).eval()
    return model, torch.randn(3, 32, 32), torch.randn(3, 32, 32)


# an interrupt that arrives in the callback of a weak reference is dropped by Python, with a warning, and sent again
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_an_interrupt_ends_a_sweep_within_half_a_second(engine):
    model, start, end = large_convnet()
    xl.restrict(model, start, end, engine=engine, max_breaks=1)  # Python cannot repeat an import that is interrupted
    assert interrupt_after(0.3, lambda: xl.restrict(model, start, end, engine=engine)) < 0.5
    assert len(xl.restrict(tent(3), [0.0], [1.0], engine=engine)) == 2**3  # no lock or setting is left behind


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_an_interrupt_ends_a_sweep_within_half_a_second_of_wall_time(engine):
    model, start, end = large_convnet()
    xl.restrict(model, start, end, engine=engine, max_breaks=1)
    for seconds in (0.2, 0.5, 1.0):
        call = functools.partial(xl.restrict, model, start, end, engine=engine)
        assert interrupt_after(seconds, call, time.CLOCK_MONOTONIC) < 0.5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("last", "layers"), [(nn.ReLU, 400), (nn.Hardsigmoid, 60)], ids=["read", "exported"])
def test_an_interrupt_ends_a_capture_and_leaves_the_module_unchanged(last, layers):
    class Storing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(3, 3), nn.ReLU())), last())
            self.last = None

        def forward(self, x):
            self.last = self.layers(x)
            return self.last

    model = Storing().eval()
    xl.restrict(Function(nn.Hardsigmoid()), START, END)  # Python cannot repeat an import that is interrupted
    weights = [id(p) for p in model.parameters()]
    assert interrupt_after(0.1, lambda: xl.restrict(model, START, END)) < 0.5
    assert model.last is None
    assert [id(p) for p in model.parameters()] == weights
    assert_matches_module(xl.restrict(model, START, END), model)
