"""Clients that send little and cost much, send nothing, read nothing or cancel: nobody stops the service alone."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from exactline.errors import LimitError
from exactline.rpc.client.sync import Client
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.rpc.server.log import MAX_QUEUED_LINES, LibraryLog, Log
from tests.rpc import legacy_client
from tests.rpc import legacy_wire as wire
from tests.rpc.http2 import HalfSender, flood, floods
from tests.rpc.legacy_wire import Window
from tests.rpc.nnet_files import tent_layers, write_nnet
from tests.rpc.server_process import ServerProcess, start_server, wait_until
from tests.rpc.test_stream import PeakMemory

MIB = 1 << 20
CONNECTIONS = 60
LIMITS = {
    "connections": CONNECTIONS,
    "front_bytes": 32 * MIB,
    "concurrent_calls": 6,
    "queue_length": 16,
    "waiting_calls": 150,
    "fields_per_message": 20_000,
    "first_message_seconds": 4.0,
    "idle_seconds": 20.0,
    "upload_seconds": 2.0,
    "write_seconds": 1.0,
}
QUICK_SECONDS = 20.0  # for a call that should not have to wait at all, on a loaded machine
SERVICE = "/exactline.v1.Exactline"
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def log_file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("log") / "log"


@pytest.fixture(scope="module")
def server(tmp_path_factory, log_file):
    folder = tmp_path_factory.mktemp("attacked")
    write_nnet(folder / "tent4.nnet", tent_layers(4))
    write_nnet(folder / "tent30.nnet", tent_layers(30))
    (folder / "two.nnet").write_text((folder / "tent4.nnet").read_text())
    with start_server(models=folder, limits=LIMITS, allow_upload=True, log=log_file) as found:
        yield found


def assert_serves(server: ServerProcess) -> None:
    """Check that another client is answered soon, and that the server says so."""
    began = time.monotonic()
    with Client(server.address, timeout=QUICK_SECONDS, retries=0) as client:
        assert client.health()
        assert len(client.restrict("tent4", [0.0], [1.0])) == 16
    assert time.monotonic() - began < QUICK_SECONDS


def ask(server: ServerProcess, method: str, data: bytes, **options: object) -> tuple[Code, str]:
    """Make a call and read its answer; returns its status."""
    with grpc.insecure_channel(server.address, legacy_client.OPTIONS) as channel:
        call = channel.unary_stream(f"{SERVICE}/{method}")(data, timeout=60, **options)
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        return call.code(), call.details()


@contextlib.contextmanager
def open_calls(
    server: ServerProcess, path: str, count: int, first: bytes | None = None, per_channel: int = 50
) -> Iterator[list[grpc.Call]]:
    """Open calls that send one message, or nothing but their headers, and then wait."""
    end = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(end.set)
        calls, channel = [], None
        for number in range(count):
            if number % per_channel == 0:
                alone = ("grpc.use_local_subchannel_pool", 1), ("number", number)
                channel = stack.enter_context(grpc.insecure_channel(server.address, alone))
            nothing = itertools.takewhile(lambda _: not end.wait(60), [b""])
            messages = itertools.chain([] if first is None else [first], nothing)
            calls.append(channel.stream_stream(path)(messages, timeout=60))
            stack.callback(calls[-1].cancel)
        time.sleep(0.5)  # for all of them to arrive
        yield calls


def final_status(call: grpc.Call) -> tuple[Code, str]:
    with contextlib.suppress(grpc.RpcError):
        for _ in call:
            pass
    return call.code(), call.details()


EMPTY_ARRAYS = pb.RestrictRequest(
    options=pb.Options(model=pb.ModelRef(name="tent4"))
).SerializeToString() + wire.encode_message(2, b"\x0a\x00" * 10_000_000)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=str)
def test_millions_of_empty_arrays_cost_neither_memory_nor_time(server: ServerProcess, compression):
    assert_serves(server)
    with PeakMemory(server.process) as front, PeakMemory(*server.workers()) as workers:
        began = time.monotonic()
        code, details = ask(server, "Restrict", EMPTY_ARRAYS, compression=compression)
        seconds = time.monotonic() - began
    if compression is grpc.Compression.NoCompression:
        assert (code, "The limit fields_per_message is 20,000" in details) == (Code.RESOURCE_EXHAUSTED, True), details
    else:
        assert code == Code.UNIMPLEMENTED  # nothing is decompressed in the front
    assert seconds < QUICK_SECONDS
    assert front.increase < 96 * MIB
    assert workers.increase < 96 * MIB
    assert_serves(server)


def test_repeated_numbers_are_counted_before_they_become_objects(server: ServerProcess):
    many = bytes(100_000)  # packed varints
    model = pb.Options(model=pb.ModelRef(name="tent4")).SerializeToString()
    options = wire.encode_message(1, model)
    cases = {
        "Attribute": options + wire.encode_message(4, wire.encode_message(1, many)),
        "Restrict": options + wire.encode_message(2, wire.encode_message(1, wire.encode_message(2, many))),
        "Plane": options + wire.encode_message(3, wire.encode_message(2, wire.encode_message(1, many))),
        "Decide": options + wire.encode_message(2, wire.encode_message(1, b"") * 100_000),
    }
    for method, data in cases.items():
        code, details = ask(server, method, data)
        assert (code, "fields_per_message" in details) == (Code.RESOURCE_EXHAUSTED, True), (method, details)
    polytopes = wire.encode_message(3, wire.encode_message(1, b"") * 100_000)
    code, details = legacy_client.failure(server.address, [wire.layer(wire.relu()), polytopes])
    assert (code, "fields_per_message" in details) == (Code.RESOURCE_EXHAUSTED, True), details


@pytest.mark.parametrize(
    "path",
    [
        f"{SERVICE}/Restrict",
        pytest.param(f"{SERVICE}/UploadModel", marks=pytest.mark.slow),
        pytest.param(wire.METHOD, marks=pytest.mark.slow),
    ],
)
def test_calls_that_send_only_headers_hold_nothing(server: ServerProcess, path: str):
    """A hundred calls without a message."""
    with open_calls(server, path, 100) as calls:
        assert_serves(server)
        code, details = final_status(calls[0])
        assert (code, "first_message_seconds is 4" in details) == (Code.RESOURCE_EXHAUSTED, True), details
    assert_serves(server)


@pytest.mark.slow
def test_idle_uploads_and_idle_streams_hold_nothing(server: ServerProcess):
    piece = pb.UploadModelRequest(data=b"//", suffix=".nnet").SerializeToString()
    for path, first in ((f"{SERVICE}/UploadModel", piece), (wire.METHOD, wire.layer(wire.relu()))):
        with open_calls(server, path, 64, first) as calls:
            wait_until(lambda: _accepts_calls(server))
            assert_serves(server)
            code, details = final_status(calls[-1])
            assert code == Code.RESOURCE_EXHAUSTED
            assert any(name in details for name in ("idle_seconds", "upload_seconds", "concurrent_calls")), details


def _accepts_calls(server: ServerProcess) -> bool:
    with Client(server.address, retries=0, timeout=20) as client, contextlib.suppress(LimitError):
        client.stats()
        return True
    return False


@pytest.mark.slow
def test_a_slow_upload_is_ended(server: ServerProcess):
    piece = pb.UploadModelRequest(data=b"//", suffix=".nnet").SerializeToString()
    with grpc.insecure_channel(server.address) as channel:
        call = channel.stream_stream(f"{SERVICE}/UploadModel")(_repeat_slowly(piece, 0.3), timeout=60)
        began = time.monotonic()
        code, details = final_status(call)
        assert (code, "upload_seconds is 2" in details) == (Code.RESOURCE_EXHAUSTED, True), details
        assert time.monotonic() - began < 2 + QUICK_SECONDS


def _repeat_slowly(message: bytes, seconds: float) -> Iterator[bytes]:
    for _ in range(100):
        yield message
        time.sleep(seconds)


def test_clients_that_do_not_read_lose_their_calls(server: ServerProcess):
    """Both workers work for clients that read one message and no more; a third client gets one of them soon."""
    request = pb.RestrictRequest(
        options=pb.Options(model=pb.ModelRef(name="tent30"), memory=4 * MIB),
        starts=_array([1, 1], np.zeros(1).tobytes()),
        ends=_array([1, 1], np.ones(1).tobytes()),
    )
    small_window = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]
    with (
        grpc.insecure_channel(server.address, small_window) as channel,
        Client(server.address, retries=0, timeout=40) as client,
    ):
        calls = [channel.unary_stream(f"{SERVICE}/Sweep")(request.SerializeToString()) for _ in range(2)]
        for call in calls:
            next(call)
        assert len(client.restrict("tent4", [0.0], [1.0])) == 16
        wait_until(lambda: client.stats().busy == 0)
        assert client.stats().calls.get("Sweep RESOURCE_EXHAUSTED", 0) >= 2
        for call in calls:
            call.cancel()


def test_a_pipe_that_nobody_reads_does_not_delay_the_log():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        log = Log(stream)
        began = time.monotonic()
        for number in range(2 * MAX_QUEUED_LINES):
            log("call", number=number, padding="x" * 100)
        assert time.monotonic() - began < QUICK_SECONDS
        assert log.dropped > 0
        with os.fdopen(reading) as lines:
            first = json.loads(lines.readline())
            assert first["number"] == 0
            received = {json.loads(lines.readline())["number"] for _ in range(MAX_QUEUED_LINES // 2)}
            log("later")
            while (entry := json.loads(lines.readline()))["event"] == "call":
                received.add(entry["number"])
            assert (entry["event"], entry["level"]) == ("log", "warning")
            assert entry["dropped"] == 2 * MAX_QUEUED_LINES - len(received) - 1
            assert json.loads(lines.readline())["event"] == "later"


def test_a_full_disk_does_not_delay_the_log():
    """Every write to /dev/full fails."""
    with open("/dev/full", "w") as stream:  # noqa: PTH123
        log = Log(stream)
        for number in range(1000):
            log("call", number=number)
        log.close()
        assert log._thread is None
        with contextlib.suppress(OSError):
            stream.close()


def test_libraries_write_into_the_log():
    stream = io.StringIO()
    log = Log(stream)
    logger = logging.Logger("grpc")
    logger.addHandler(LibraryLog(log))
    for _ in range(100):
        logger.error("Unexpected problem with %s\nand more", "a secret")
    logger.info("nothing")
    log.close()
    (entry,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (entry["event"], entry["level"]) == ("library grpc", "error")
    assert entry["problem"] == "Unexpected problem with %s"


@pytest.mark.slow
def test_a_server_whose_log_nobody_reads_answers(tmp_path: Path):
    """Standard error is a pipe that is full."""
    import subprocess
    import sys

    write_nnet(tmp_path / "tent4.nnet", tent_layers(4))
    command = [sys.executable, "-m", "exactline", "serve", "--port", "0", "--workers", "1", "--models", str(tmp_path)]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            address = json.loads(process.stdout.readline())["address"]
            with grpc.insecure_channel(address) as channel:
                stats = channel.unary_unary(f"{SERVICE}/Stats")
                for _ in range(1000):  # of about 200 bytes each in the log; a pipe holds 65,536
                    stats(b"", timeout=20)
        finally:
            process.terminate()
            process.communicate(timeout=20)


def test_a_cancelled_call_is_logged_as_cancelled(server: ServerProcess, log_file: Path):
    with Client(server.address) as client:
        parts = client.sweep("tent30", [0.0], [1.0], memory=MIB)
        next(parts)
        parts.close()

        def is_cancelled() -> bool:
            return "Transform CANCELLED" in client.stats().calls

        for _ in range(3):  # on a busy machine the server may see the end of the requests first
            with grpc.insecure_channel(server.address) as channel:
                box = queue.SimpleQueue()
                call = channel.stream_stream(wire.METHOD)(iter(box.get, None), timeout=60)
                box.put(wire.layer(wire.relu()))
                box.put(wire.line([-1], [1]))
                next(call)
                call.cancel()
                box.put(None)
            with contextlib.suppress(AssertionError):
                wait_until(is_cancelled, 10)
                break
        assert is_cancelled()
        wait_until(lambda: client.stats().calls.get("Sweep CANCELLED"))
    wait_until(lambda: {"Sweep CANCELLED", "Transform CANCELLED"} <= _logged(log_file))
    assert not any(entry.endswith(("INTERNAL", "UNAVAILABLE")) for entry in _logged(log_file))


def _logged(log_file: Path) -> set[str]:
    entries = [json.loads(line) for line in log_file.read_text().splitlines()]
    return {f"{entry['method']} {entry['code']}" for entry in entries if entry["event"] == "call"}


def _array(shape: list[int], data: bytes = b"") -> pb.Point:
    return pb.Point(inputs=[pb.Array(dtype=pb.FLOAT64, shape=shape, data=data)])


def test_odd_requests_are_invalid_and_not_internal_errors(server: ServerProcess):
    options = pb.Options(model=pb.ModelRef(name="tent4"))
    eight = np.zeros(1).tobytes()
    requests = [("Attribute", pb.AttributeRequest(options=options, inputs=_array([0, 1])))]
    for shape in ([0, 2**63], [0, 2**62], [2**63, 0], [0, 2**31, 2**31, 2**31], [2**64 - 1], []):
        requests.append(("Restrict", pb.RestrictRequest(options=options, starts=_array(shape), ends=_array(shape))))
        requests.append(("Decide", pb.DecideRequest(options=options, starts=_array(shape), ends=_array(shape))))
        requests.append(("Attribute", pb.AttributeRequest(options=options, inputs=_array(shape))))
        requests.append(("Plane", pb.PlaneRequest(options=options, vertices=_array(shape))))
    requests.append(("Restrict", pb.RestrictRequest(options=options, starts=_array([1, 1], eight))))
    for method, request in requests:
        code, details = ask(server, method, request.SerializeToString())
        assert code == Code.INVALID_ARGUMENT, (method, request, details)
    for stride in ((2**31, 1), (1, 2**31), (2**32 - 1, 2**32 - 1)):
        for layer in (wire.max_pool, wire.average_pool):
            window = layer(Window(2, 2, 1, (1, 1), stride=stride))
            (found,) = legacy_client.query(server.address, [window], wire.line([-1] * 4, [1] * 4))
            assert found.ratios.tolist() == [0.0, 1.0]


def test_floods_of_frames_cost_little(server: ServerProcess):
    """Resets, pings, settings, headers and data without end: at worst the connection is closed."""
    for name, frames in floods(f"{SERVICE}/Restrict").items():
        with PeakMemory(server.process) as front:
            flood(server.address, frames)
            assert_serves(server)
        assert front.increase < 64 * MIB, name
    with Client(server.address, retries=0, timeout=QUICK_SECONDS) as client:
        assert not [entry for entry in client.stats().calls if entry.endswith(" INTERNAL")]


@pytest.mark.slow
def test_connections_that_send_nothing_are_closed(server: ServerProcess):
    """More than the server accepts; other clients can connect after first_message_seconds."""
    host, port = server.address.rsplit(":", 1)
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        connections = [socket.create_connection((host, int(port)), 30) for _ in range(CONNECTIONS + 10)]
        for connection in connections:
            stack.enter_context(connection)
            with contextlib.suppress(ConnectionError):
                while connection.recv(1 << 16):  # until the server closes it
                    pass
        assert time.monotonic() - began < LIMITS["first_message_seconds"] + QUICK_SECONDS
        wait_until(lambda: _is_healthy(server))
        assert_serves(server)


@pytest.mark.slow
def test_connections_without_calls_make_room_for_others(server: ServerProcess):
    """Connections that speak HTTP/2 and make no call are closed while there are too many, and others are not."""
    with contextlib.ExitStack() as stack, Client(server.address, retries=0, timeout=60) as client:
        parts = client.sweep("tent30", [0.0], [1.0], memory=4 * MIB)
        next(parts)
        idle = [stack.enter_context(HalfSender(server.address)) for _ in range(CONNECTIONS + 10)]
        time.sleep(1.5)  # a new client is given a second for its first call
        for other in idle[:10]:
            with contextlib.suppress(OSError):
                other.begin(f"{SERVICE}/Restrict", 100, 10)  # has a call that waits
        wait_until(lambda: _is_healthy(server))
        assert_serves(server)
        next(parts)
        parts.close()


def _is_healthy(server: ServerProcess) -> bool:
    with Client(server.address, retries=0, timeout=2.0) as client:
        return client.health()


def test_calls_without_a_message_are_invalid(server: ServerProcess):
    for method in ("Restrict", "Stats", "UploadModel"):
        assert _status_without_message(server, f"{SERVICE}/{method}") == Code.INVALID_ARGUMENT
    assert _status_without_message(server, wire.METHOD) == Code.OK  # has nothing to answer


def _status_without_message(server: ServerProcess, path: str) -> Code:
    with grpc.insecure_channel(server.address) as channel:
        return final_status(channel.stream_stream(path)(iter(()), timeout=60))[0]


@pytest.mark.parametrize(
    "name",
    [b"\xff\xfe", b"\xed\xa0\x80", b"../tent4", b"/etc/hostname", b"./tent4", b"a\0b", b"", b"x" * 20_000, b"sha256:0"],
    ids=lambda name: repr(name[:20]),
)
def test_names_are_never_paths(server: ServerProcess, name: bytes):
    model = wire.encode_message(1, name)
    for method, data in (("DescribeModel", model), ("Restrict", wire.encode_message(1, model))):
        code, details = ask(server, method, wire.encode_message(1, data))
        assert code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT), details
        assert "tent4.nnet" not in details


def test_bytes_that_are_no_message_are_invalid(server: ServerProcess):
    """Huge numbers, lengths beyond the end, groups, fields without a number, thousands of nested messages."""
    nested = b""
    for _ in range(3000):
        nested = wire.encode_message(1, nested)
    cases = [b"\xff" * 11, b"\x0a" + b"\xff" * 9 + b"\x01", b"\x0a\x80", b"\x0b" * 1000, b"\x02\x00", nested]
    for data in cases:
        for method in ("Restrict", "Plane", "Attribute", "Decide", "Approximate", "Sweep", "DescribeModel"):
            assert ask(server, method, data)[0] == Code.INVALID_ARGUMENT, (method, data[:20])
        code, _ = legacy_client.failure(server.address, [data])
        assert code == Code.INVALID_ARGUMENT, data[:20]


def test_metadata_have_a_largest_size(server: ServerProcess):
    assert ask(server, "Stats", b"", metadata=(("x-data", "a" * 4000),))[0] == Code.OK
    assert ask(server, "Stats", b"", metadata=(("x-request-id", "a" * 4000),))[0] == Code.OK
    assert ask(server, "Stats", b"", metadata=(("x-data", "a" * 100_000),))[0] == Code.RESOURCE_EXHAUSTED
    assert_serves(server)


def test_health_depends_on_a_usable_worker(server: ServerProcess):
    """No worker, and a fork server that does not answer: not serving, until there are workers again."""
    (fork_server,) = server.process.children()
    with Client(server.address, retries=0, timeout=30) as client:
        assert client.health()
        fork_server.suspend()
        try:
            for worker in server.workers():
                worker.kill()
            wait_until(lambda: not client.health())
        finally:
            fork_server.resume()
        wait_until(client.health)
    assert_serves(server)


def test_without_file_descriptors_calls_are_still_answered(server: ServerProcess):
    import resource

    with Client(server.address, retries=0, timeout=30) as client:
        wait_until(lambda: client.stats().workers == 2)
        before = server.process.rlimit(resource.RLIMIT_NOFILE)
        server.process.rlimit(resource.RLIMIT_NOFILE, (server.process.num_fds(), before[1]))
        try:
            assert client.stats().workers == 2
            assert client.health()
            assert len(client.restrict("tent4", [0.0], [1.0])) == 16
        finally:
            server.process.rlimit(resource.RLIMIT_NOFILE, before)


def test_concurrent_calls(server: ServerProcess):
    """Six calls run or wait; one more is refused with the name of the limit."""
    answers: list[int] = []

    def run() -> None:
        with Client(server.address, retries=0, timeout=60) as client:
            answers.append(len(client.restrict("tent4", [0.0], [1.0])))

    with Client(server.address, retries=0, timeout=20) as client:
        wait_until(lambda: client.stats().workers == 2 and client.stats().in_flight == 1)
        workers = server.workers()
        threads = [threading.Thread(target=run) for _ in range(LIMITS["concurrent_calls"])]
        for worker in workers:
            worker.suspend()
        try:
            for number, thread in enumerate(threads[:-1], 1):
                thread.start()
                wait_until(lambda: client.stats().in_flight == number + 1)  # noqa: B023
            threads[-1].start()
            wait_until(lambda: _refusal(client) == "limit concurrent_calls")
            assert client.health()  # has its own way in
        finally:
            for worker in workers:
                worker.resume()
        for thread in threads:
            thread.join(30)
    assert answers == [16] * LIMITS["concurrent_calls"]


def _refusal(client: Client) -> str:
    try:
        client.stats()
    except LimitError as error:
        return error.where
    return ""


def test_more_waiting_calls_end_the_oldest_ones(server: ServerProcess):
    """Many calls that have sent nothing arrive within the time that each may take for its first message."""

    async def open_many() -> list[str]:
        async with contextlib.AsyncExitStack() as stack:
            calls = []
            for number in range(2):
                alone = ("grpc.use_local_subchannel_pool", 1), ("number", number)
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address, alone))
                method = channel.stream_stream(f"{SERVICE}/Restrict")
                calls += [method(timeout=60) for _ in range(LIMITS["waiting_calls"] // 2 + 10)]
            ended = await asyncio.gather(*(call.details() for call in calls))
            return list(map(str, ended))

    details = asyncio.run(open_many())
    assert sum("waiting_calls is 150" in text for text in details) >= 1, details[0]
    assert all("waiting_calls" in text or "first_message_seconds" in text for text in details)
    assert_serves(server)


def test_layers_that_are_held_for_many_calls_are_limited(server: ServerProcess):
    """Each call holds 12 MiB of layers and pauses: the third one ends the first, which has waited for longest."""
    big = wire.layer(wire.dense(np.zeros((1024, 3072)), np.zeros(3072)))
    boxes = [queue.SimpleQueue() for _ in range(3)]
    with (
        Client(server.address) as client,
        grpc.insecure_channel(server.address, legacy_client.OPTIONS) as channel,
        PeakMemory(server.process) as front,
    ):
        calls = []
        for box in boxes:
            box.put(big)
            box.put(wire.line(np.zeros(1024), np.ones(1024), post=False))
            calls.append(channel.stream_stream(wire.METHOD)(iter(box.get, None), timeout=60))
            next(calls[-1])  # the layer has arrived
            wait_until(lambda: client.stats().in_flight == 1)  # without work the call gives its worker back
        code, details = final_status(calls[0])
        assert (code, "front_bytes" in details) == (Code.RESOURCE_EXHAUSTED, True), details
        boxes[-1].put(None)
        assert final_status(calls[-1])[0] == Code.OK
        for box in boxes:
            box.put(None)
    assert front.increase < 3 * LIMITS["front_bytes"]
    code, details = legacy_client.failure(server.address, [big, big, big])
    assert (code, "front_bytes is 33,554,432" in details) == (Code.RESOURCE_EXHAUSTED, True), details


def test_halves_of_messages_do_not_fill_the_memory(server: ServerProcess):
    """Forty calls announce messages of 60 MiB and send 8 MiB of each, which gRPC keeps out of sight of the front."""
    with PeakMemory(server.process) as front, contextlib.ExitStack() as stack:
        for _ in range(4):
            sender = stack.enter_context(HalfSender(server.address))
            with contextlib.suppress(OSError):
                for _ in range(10):
                    sender.begin(f"{SERVICE}/Restrict", 60 * MIB, 8 * MIB)
                sender.send_all()
        assert_serves(server)
    assert front.increase < 8 * LIMITS["front_bytes"] < 40 * 8 * MIB  # of what was sent
    assert_serves(server)


def test_the_health_service_names_services_and_has_no_memory_of_its_own(server: ServerProcess):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(server.address, legacy_client.OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "exactline.v1.Exactline", "syrenn_server.SyReNNTransformer"):
            assert stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20).status == 1
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=20)
        assert caught.value.code() == Code.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
        assert next(watch).status == 1
        watch.cancel()
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/grpc.health.v1.Health/Check")(bytes(40 * MIB), timeout=20)
        assert "The limit front_bytes is 33,554,432" in caught.value.details()
