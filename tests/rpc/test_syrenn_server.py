"""The old protocol over a connection: a client made of field numbers against a server in a process of its own."""

from __future__ import annotations

import queue
import time

import grpc
import numpy as np
import psutil
import pytest

from exactline.rpc.legacy.transform import read_request, transform
from exactline.rpc.limits import Limits
from exactline.rpc.protos import syrenn_server_pb2
from tests.rpc import raw, wire
from tests.rpc.old_networks import ALL, small
from tests.rpc.running import Running, until
from tests.rpc.test_syrenn_refused import ASKED, EYE, FIT, LAYERS, LINE

Code = grpc.StatusCode


def test_answers_are_those_of_the_library_bit_for_bit_for_all_kinds_of_layers(server: Running):
    """Which the tests without a connection hold against the truth."""
    rng = np.random.default_rng(21)
    for make in ALL:
        net = make(rng)
        questions = [wire.line(small(rng, net.size), small(rng, net.size), post=post) for post in (True, False)]
        questions.append(wire.plane(wire.polytope(small(rng, 3, net.size)), dims=net.size))
        messages = [*map(wire.layer, net.layers), *questions]
        ours = [answer.SerializeToString() for answer in transform(map(read_request, messages), Limits())]
        with raw.opened(server.address, messages) as call:
            assert [syrenn_server_pb2.TransformResponse.FromString(data).SerializeToString() for data in call] == ours
        decided = [*map(wire.layer, [*net.layers, wire.argmax()]), *questions]
        ours = [answer.SerializeToString() for answer in transform(map(read_request, decided), Limits())]
        with raw.opened(server.address, decided) as call:
            assert list(call) == ours


def test_a_client_may_wait_for_each_answer_before_it_asks_on_and_pause_in_between(server: Running):
    """While it pauses it holds no worker: two such clients do not keep a third from the server's two workers."""
    boxes = [queue.SimpleQueue() for _ in range(2)]
    with grpc.insecure_channel(server.address) as channel:
        calls = [channel.stream_stream(wire.METHOD)(iter(box.get, None), timeout=60) for box in boxes]
        for box, call in zip(boxes, calls, strict=True):
            box.put(wire.layer(wire.dense([[2]], [0])))
            box.put(wire.layer(wire.relu()))
            box.put(wire.line([-1], [1]))
            assert wire.answer(next(call)).values[:, 0].tolist() == [0, 0, 2]
        began = time.monotonic()
        raw.asked(server.address, [wire.relu()], wire.line([-1], [1]))
        waited = time.monotonic() - began
        for box, call in zip(boxes, calls, strict=True):
            box.put(wire.line([-1], [3]))
            assert wire.answer(next(call)).values[:, 0].tolist() == [0, 0, 6]
            box.put(None)
            assert list(call) == []
            assert call.code() == Code.OK
    assert waited < 20


def test_what_cannot_be_right_ends_the_call_with_a_status_and_never_the_server(server: Running):
    before = server.process.pid, {worker.pid for worker in server.workers()}
    calls = {name: ([wire.layer(wire.relu()), wire.layer(layer)], told) for name, (layer, told) in LAYERS.items()}
    calls |= {name: ([*map(wire.layer, layers)], told) for name, (layers, told) in FIT.items()}
    calls |= {f"asked {name}": ([wire.layer(EYE), message], told) for name, (message, told) in ASKED.items()}
    calls["no message"] = ([b"\xff\xff"], "cannot be read")
    calls["a layer after a line"] = ([wire.layer(EYE), LINE, wire.layer(EYE)], "after a line")
    with grpc.insecure_channel(server.address) as channel:
        method = channel.stream_stream(wire.METHOD)
        for name, (messages, told) in calls.items():
            call = method(iter(messages), timeout=60)
            with pytest.raises(grpc.RpcError):
                list(call)
            assert call.code() == Code.INVALID_ARGUMENT, name
            assert any(part in call.details() for part in told.split("|")) or "layer" in call.details(), name
            assert "Traceback" not in call.details()
            assert ".py" not in call.details()
    assert (server.process.pid, {worker.pid for worker in server.workers()}) == before  # not even a worker was lost
    assert raw.asked(server.address, [wire.relu()], wire.line([-1], [1]))[0].ratios.tolist() == [0.0, 0.5, 1.0]


def test_no_message_at_all_is_no_error(server: Running):
    assert raw.asked(server.address, []) == []
    assert raw.asked(server.address, [wire.relu()]) == []


def test_an_unknown_method_is_unimplemented(server: Running):
    with grpc.insecure_channel(server.address) as channel:
        call = channel.stream_stream("/syrenn_server.SyReNNTransformer/Other")(iter([b""]), timeout=20)
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code() == Code.UNIMPLEMENTED


def test_messages_of_megabytes_go_through(server: Running):
    """More than gRPC's own 4 MiB in both directions: a large layer, and an answer of many values."""
    rng = np.random.default_rng(0)
    wide = small(rng, 8, 1024)
    layers = [wire.dense(wide, small(rng, 1024)), wire.relu(), wire.dense(np.eye(1024), np.zeros(1024))]
    assert len(layers[2]) > 4 << 20
    start, end = small(rng, 8), small(rng, 8)
    (found,) = raw.asked(server.address, layers, wire.line(start, end))
    assert found.values.size * 4 > 1 << 20
    (ours,) = transform(map(read_request, [*map(wire.layer, layers), wire.line(start, end)]), Limits())
    assert found.ratios.tolist() == [end.preimage_ratio for end in ours.transformed_line.endpoints]


def test_a_cancelled_call_frees_its_worker(server: Running):
    rng = np.random.default_rng(1)
    layers = [layer for _ in range(6) for layer in (wire.dense(small(rng, 256, 256), small(rng, 256)), wire.relu())]
    layers = [wire.dense(small(rng, 2, 256), small(rng, 256)), *layers]
    triangle = wire.plane(wire.polytope(100 * small(rng, 3, 2)), dims=2)
    with raw.opened(server.address, [*map(wire.layer, layers), triangle]) as call:
        until(lambda: max(busy(worker) for worker in server.workers()) > 0.2)
        call.cancel()
    until(lambda: len(server.workers()) == 2 and max(busy(worker) for worker in server.workers()) < 0.2, 20)
    assert raw.asked(server.address, [wire.relu()], wire.line([-1], [1]))[0].ratios.tolist() == [0.0, 0.5, 1.0]


def busy(process: psutil.Process) -> float:
    """Seconds of processor time that a worker spent in the last tenth of a second or so, times ten."""
    try:
        before = process.cpu_times().user
        time.sleep(0.1)
        return 10 * (process.cpu_times().user - before)
    except psutil.NoSuchProcess:
        return 0.0
