"""The legacy protocol over a connection to a server in a separate process."""

from __future__ import annotations

import queue
import time

import grpc
import numpy as np
import pytest

from exactline.rpc.client.sync import Client
from exactline.rpc.legacy.transform import transform
from exactline.rpc.limits import Limits
from exactline.rpc.protos import syrenn_server_pb2
from tests.adversarial.test_legacy_messages import EYE, FIT, LAYERS, LINE, QUERIES
from tests.rpc import legacy_client
from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_networks import NETWORK_MAKERS, float32_normal
from tests.rpc.server_process import ServerProcess, wait_until

Code = grpc.StatusCode


def test_responses_are_those_of_the_library_for_all_kinds_of_layers(server: ServerProcess):
    """Bit for bit, because no two lines are of one kind; tests without a connection compare with the exact oracle."""
    rng = np.random.default_rng(21)
    for make in NETWORK_MAKERS:
        net = make(rng)
        queries = [
            wire.line(float32_normal(rng, net.size), float32_normal(rng, net.size), post=post) for post in (True, False)
        ]
        queries.append(wire.plane(wire.polytope(float32_normal(rng, 3, net.size)), dims=net.size))
        messages = [*map(wire.layer, net.layers), *queries]
        ours = [*transform(messages, Limits())]
        with legacy_client.open_call(server.address, messages) as call:
            assert [syrenn_server_pb2.TransformResponse.FromString(data).SerializeToString() for data in call] == ours
        decided = [*map(wire.layer, [*net.layers, wire.argmax()]), *queries]
        ours = [*transform(decided, Limits())]
        with legacy_client.open_call(server.address, decided) as call:
            assert list(call) == ours


def test_a_client_that_pauses_between_queries_occupies_no_worker(server: ServerProcess):
    """Two clients that pause do not keep a third one from the server's two workers."""
    boxes = [queue.SimpleQueue() for _ in range(2)]
    with grpc.insecure_channel(server.address) as channel:
        calls = [channel.stream_stream(wire.METHOD)(iter(box.get, None), timeout=60) for box in boxes]
        for box, call in zip(boxes, calls, strict=True):
            box.put(wire.layer(wire.dense([[2]], [0])))
            box.put(wire.layer(wire.relu()))
            box.put(wire.line([-1], [1]))
            assert wire.decode_response(next(call)).values[:, 0].tolist() == [0, 0, 2]
        began = time.monotonic()
        legacy_client.query(server.address, [wire.relu()], wire.line([-1], [1]))
        waited = time.monotonic() - began
        for box, call in zip(boxes, calls, strict=True):
            box.put(wire.line([-1], [3]))
            assert wire.decode_response(next(call)).values[:, 0].tolist() == [0, 0, 6]
            box.put(None)
            assert list(call) == []
            assert call.code() == Code.OK
    assert waited < 20


def test_an_invalid_message_ends_the_call_with_a_status_and_no_process(server: ServerProcess):
    before = server.process.pid, {worker.pid for worker in server.workers()}
    calls = {
        name: ([wire.layer(wire.relu()), wire.layer(layer)], expected) for name, (layer, expected) in LAYERS.items()
    }
    calls |= {name: ([*map(wire.layer, layers)], expected) for name, (layers, expected) in FIT.items()}
    calls |= {f"query {name}": ([wire.layer(EYE), message], expected) for name, (message, expected) in QUERIES.items()}
    calls["no message"] = ([b"\xff\xff"], "cannot be decoded")
    calls["a layer after a line"] = ([wire.layer(EYE), LINE, wire.layer(EYE)], "after a line")
    with grpc.insecure_channel(server.address) as channel:
        method = channel.stream_stream(wire.METHOD)
        for name, (messages, expected) in calls.items():
            call = method(iter(messages), timeout=60)
            with pytest.raises(grpc.RpcError):
                list(call)
            assert call.code() == Code.INVALID_ARGUMENT, name
            assert any(part in call.details() for part in expected.split("|")) or "layer" in call.details(), name
            assert "Traceback" not in call.details()
            assert ".py" not in call.details()
    assert (server.process.pid, {worker.pid for worker in server.workers()}) == before  # no worker was lost
    assert legacy_client.query(server.address, [wire.relu()], wire.line([-1], [1]))[0].ratios.tolist() == [
        0.0,
        0.5,
        1.0,
    ]


def test_a_call_without_messages_is_no_error(server: ServerProcess):
    assert legacy_client.query(server.address, []) == []
    assert legacy_client.query(server.address, [wire.relu()]) == []


def test_an_unknown_method_is_unimplemented(server: ServerProcess):
    with grpc.insecure_channel(server.address) as channel:
        call = channel.stream_stream("/syrenn_server.SyReNNTransformer/Other")(iter([b""]), timeout=20)
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code() == Code.UNIMPLEMENTED


def test_messages_of_megabytes_are_accepted(server: ServerProcess):
    """Beyond gRPC's default limit of 4 MiB: a large layer, and a response with many values."""
    rng = np.random.default_rng(0)
    wide = float32_normal(rng, 8, 1024)
    layers = [wire.dense(wide, float32_normal(rng, 1024)), wire.relu(), wire.dense(np.eye(1024), np.zeros(1024))]
    assert len(layers[2]) > 4 << 20
    start, end = float32_normal(rng, 8), float32_normal(rng, 8)
    (found,) = legacy_client.query(server.address, layers, wire.line(start, end))
    assert found.values.size * 4 > 1 << 20
    (ours,) = transform([*map(wire.layer, layers), wire.line(start, end)], Limits())
    assert found.ratios.tolist() == wire.decode_response(ours).ratios.tolist()


def test_a_cancelled_call_frees_its_worker(server: ServerProcess):
    rng = np.random.default_rng(1)
    layers = [
        layer
        for _ in range(6)
        for layer in (wire.dense(float32_normal(rng, 256, 256), float32_normal(rng, 256)), wire.relu())
    ]
    layers = [wire.dense(float32_normal(rng, 2, 256), float32_normal(rng, 256)), *layers]
    triangle = wire.plane(wire.polytope(100 * float32_normal(rng, 3, 2)), dims=2)
    with Client(server.address) as watcher:
        wait_until(lambda: watcher.stats().workers == 2 and watcher.stats().busy == 0)
        before = set(watcher.stats().pids)
        with legacy_client.open_call(server.address, [*map(wire.layer, layers), triangle]) as call:
            wait_until(lambda: watcher.stats().busy == 1)
            call.cancel()
        wait_until(lambda: watcher.stats().busy == 0 and watcher.stats().workers == 2)
        assert len(set(watcher.stats().pids) - before) == 1  # the worker was killed and replaced
    assert legacy_client.query(server.address, [wire.relu()], wire.line([-1], [1]))[0].ratios.tolist() == [
        0.0,
        0.5,
        1.0,
    ]
