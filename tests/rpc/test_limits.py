"""Every limit of the service, below, at and above it: what exceeds a limit is refused with its name."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

import exactline as xl
from exactline.errors import LimitError, MissingError
from exactline.rpc.client.sync import Client
from exactline.rpc.limits import Limits
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.rpc.server.cache import NetworkCache, read_network
from exactline.rpc.server.ipc import ModelKey
from tests.rpc import legacy_client
from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_wire import Window
from tests.rpc.nnet_files import tent_layers, write_nnet
from tests.rpc.server_process import ServerProcess, start_server, wait_until

LIMITS = {
    "message_bytes": 20_000,
    "legacy_message_bytes": 4096,
    "legacy_call_bytes": 10_000,
    "answer_bytes": 1000,
    "queue_length": 2,
    "lines_per_call": 5,
    "breaks_per_line": 160,
    "polygons_per_plane": 7,
    "corners_per_plane": 20,
    "legacy_layers": 6,
    "call_seconds": 15.0,
    "upload_bytes": 3000,
    "stored_upload_bytes": 6001,
    "model_bytes": 20_000,
    "worker_bytes": 512 << 20,
}
OTHER_LIMITS = {"cache_bytes", "calls_per_connection", "drain_seconds", "connection_seconds"}  # tested at the end
TESTED_ELSEWHERE = {  # in test_attacks.py and test_operation.py
    *("front_bytes", "concurrent_calls", "waiting_calls", "connections", "connection_idle_seconds"),
    *("keepalive_seconds", "fields_per_message", "first_message_seconds", "idle_seconds", "upload_seconds"),
    *("write_seconds", "client_calls", "client_workers", "client_bytes", "client_upload_bytes"),
}
Code = grpc.StatusCode


def kinks(dims: int, count: int = 170) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the layers of a network that breaks where its first input is 1, 2, 3 and so on."""
    weight = np.zeros((count, dims))
    weight[:, 0] = 1.0
    return [(weight, -np.arange(1.0, count + 1)), (np.ones((1, count)), np.zeros(1))]


def rivals() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the layers of `kinks` with a second output, which is always smaller."""
    first, (weight, bias) = kinks(1)
    return [first, (np.vstack([weight, 0 * weight]), np.append(bias, -1.0))]


def write_padded(path: Path, size: int) -> None:
    """Write a model's file of so many bytes."""
    write_nnet(path, kinks(1, 3))
    text = path.read_bytes()
    path.write_bytes(b"//" + b"." * (size - len(text) - 3) + b"\n" + text)
    assert path.stat().st_size == size


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    write_nnet(folder / "kinks.nnet", kinks(1))
    write_nnet(folder / "rivals.nnet", rivals())
    write_nnet(folder / "strips.nnet", kinks(2, 20))
    write_nnet(folder / "tent30.nnet", tent_layers(30))
    for name, size in (("under", 19_999), ("at", 20_000), ("over", 20_001)):
        write_padded(folder / f"{name}.nnet", size)
    with start_server(models=folder, limits=LIMITS, allow_upload=True) as found:
        yield found


@pytest.fixture
def client(tight: ServerProcess) -> Iterator[Client]:
    with Client(tight.address) as found:
        yield found
        wait_until(lambda: found.stats().busy == 0)


def test_every_limit_has_a_test():
    assert {field.name for field in fields(Limits)} == {*LIMITS, *OTHER_LIMITS, *TESTED_ELSEWHERE}


def check_limit(name: str, ask: Callable[[int], object], limit: int) -> None:
    """Ask for one less than the limit, for the limit, and for one more, which must be refused."""
    ask(limit - 1)
    ask(limit)
    with pytest.raises(LimitError, match=f"The limit {name} is {limit:,}") as caught:
        ask(limit + 1)
    assert caught.value.where == f"limit {name}"


CALLS = {
    "restrict": lambda client, starts, ends: client.restrict_many("kinks", starts, ends),
    "decide": lambda client, starts, ends: client.decide_many("rivals", starts, ends),
    "attribute": lambda client, starts, ends: client.attribute("kinks", ends, starts),
}


@pytest.mark.parametrize("call_name", CALLS)
@pytest.mark.slow
def test_lines_per_call(client: Client, call_name: str):
    check_limit(
        "lines_per_call",
        lambda n: CALLS[call_name](client, np.zeros((n, 1)), np.full((n, 1), 0.5)),
        LIMITS["lines_per_call"],
    )


@pytest.mark.parametrize("call_name", ["restrict", "decide", "sweep", "attribute"])
@pytest.mark.every(2)
def test_breaks_per_line(client: Client, call_name: str):
    def ask(breaks: int) -> None:
        end = [breaks - 1.5]
        if call_name == "attribute":
            client.attribute("kinks", [end])
            return
        if call_name == "sweep":
            assert sum(len(part) for part in client.sweep("kinks", [0.0], end)) == breaks - 1
        elif call_name == "decide":
            client.decide("rivals", [0.0], end)
        else:
            assert len(client.restrict("kinks", [0.0], end).alphas) == breaks

    check_limit("breaks_per_line", ask, LIMITS["breaks_per_line"])


@pytest.mark.slow
def test_polygons_per_plane(client: Client):
    def ask(polygons: int) -> None:
        right = polygons - 0.5
        assert len(client.plane("strips", [[0, 0], [right, 0], [right, 1], [0, 1]])) == polygons

    check_limit("polygons_per_plane", ask, LIMITS["polygons_per_plane"])


def test_corners_per_plane(client: Client):
    def ask(corners: int) -> None:
        angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        client.plane("strips", np.stack([0.4 * np.cos(angles), 0.4 * np.sin(angles)], 1))

    check_limit("corners_per_plane", ask, LIMITS["corners_per_plane"])


def test_message_bytes(tight: ServerProcess):
    def ask(size: int) -> grpc.StatusCode:
        data = wire.encode_message(1000, b"." * (size - 5))  # an unknown field
        assert len(data) == size
        with grpc.insecure_channel(tight.address) as channel:
            call = channel.unary_unary("/exactline.v1.Exactline/ListModels")
            _, known = call.with_call(data, timeout=20)
            return known.code()

    limit = LIMITS["message_bytes"]
    assert [ask(limit - 1), ask(limit)] == [Code.OK, Code.OK]
    with pytest.raises(grpc.RpcError) as caught:
        ask(limit + 1)
    assert caught.value.code() == Code.RESOURCE_EXHAUSTED
    assert "The limit message_bytes is 20,000" in caught.value.details()


def test_a_message_beyond_all_limits_is_refused_before_it_is_read(tight: ServerProcess):
    with grpc.insecure_channel(tight.address, options=legacy_client.OPTIONS) as channel:
        call = channel.unary_unary("/exactline.v1.Exactline/ListModels")
        with pytest.raises(grpc.RpcError) as caught:
            call(bytes(2 << 20), timeout=20)
    assert caught.value.code() == Code.RESOURCE_EXHAUSTED


def check_legacy_limit(tight: ServerProcess, name: str, limit: int, messages: Callable[[int], list[bytes]]) -> None:
    """Send messages of one less than the limit, of the limit, and of one more, which must be refused."""
    for size in (limit - 1, limit):
        assert legacy_client.failure(tight.address, messages(size))[0] == Code.OK, size
    code, details = legacy_client.failure(tight.address, messages(limit + 1))
    assert code == Code.RESOURCE_EXHAUSTED
    assert f"The limit {name} is {limit:,}" in details


def pad_message(layer: bytes, size: int) -> bytes:
    """Return a message of so many bytes with a layer, padded by an unknown field."""
    bare = wire.layer(layer)
    whole = next(
        m for n in range(size) if len(m := bare + wire.encode_message(1000, b"." * (size - len(bare) - n))) == size
    )
    assert len(whole) == size
    return whole


def test_legacy_message_bytes_of_a_request(tight: ServerProcess):
    def messages(size: int) -> list[bytes]:
        return [pad_message(wire.relu(), size), wire.line([-1], [1])]

    check_legacy_limit(tight, "legacy_message_bytes", LIMITS["legacy_message_bytes"], messages)


def test_legacy_message_bytes_of_an_answer(tight: ServerProcess):
    """An endpoint of one value counts 28 bytes, so an answer has at most 146 of them."""

    def messages(breaks: int) -> list[bytes]:
        (first, bias), (second, none) = kinks(1, breaks - 2)
        layers = [wire.dense(first.T, bias), wire.relu(), wire.dense(second.T, none)]
        return [*map(wire.layer, layers), wire.line([0], [breaks - 1.5])]

    most = LIMITS["legacy_message_bytes"] // 28
    for breaks in (most - 1, most):
        with legacy_client.open_call(tight.address, messages(breaks)) as call:
            (data,) = call
        assert len(wire.decode_response(data).ratios) == breaks
        assert len(data) <= LIMITS["legacy_message_bytes"]
    code, details = legacy_client.failure(tight.address, messages(most + 1))
    assert code == Code.RESOURCE_EXHAUSTED
    assert "The limit legacy_message_bytes is 4,096" in details


def test_legacy_call_bytes(tight: ServerProcess):
    def messages(size: int) -> list[bytes]:
        made = [pad_message(wire.relu(), n) for n in (4000, 4000, size - 8000)]
        assert sum(map(len, made)) == size
        return [*made, wire.line([-1], [1])]

    check_legacy_limit(tight, "legacy_call_bytes", LIMITS["legacy_call_bytes"], messages)


def test_legacy_layers(tight: ServerProcess):
    check_legacy_limit(
        tight,
        "legacy_layers",
        LIMITS["legacy_layers"],
        lambda n: [wire.layer(wire.relu())] * n + [wire.line([-1], [1])],
    )


def test_legacy_lines_per_call(tight: ServerProcess):
    layer = wire.layer(wire.relu())
    check_legacy_limit(
        tight, "lines_per_call", LIMITS["lines_per_call"], lambda n: [layer] + [wire.line([-1], [1])] * n
    )


@pytest.mark.slow
def test_legacy_lines_per_call_with_pauses(tight: ServerProcess):
    """A worker that takes over after a pause starts counting at 0, but the server does not."""

    def slowly(n: int) -> Iterator[bytes]:
        yield wire.layer(wire.relu())
        for i in range(n):
            yield wire.line([-1], [1])
            time.sleep(0.7 * (i == 2))

    check_legacy_limit(tight, "lines_per_call", LIMITS["lines_per_call"], slowly)

    def wrong() -> Iterator[bytes]:
        yield from slowly(3)
        yield wire.layer(wire.relu())

    code, details = legacy_client.failure(tight.address, wrong())
    assert (code, "after a line" in details) == (Code.INVALID_ARGUMENT, True)


def test_legacy_breaks_per_line(tight: ServerProcess):
    def messages(breaks: int) -> list[bytes]:
        (first, bias), _ = kinks(1, breaks - 2)
        return [
            wire.layer(wire.dense(first.T, bias)),
            wire.layer(wire.relu()),
            wire.line([0], [breaks - 1.5], post=False),
        ]

    check_legacy_limit(tight, "breaks_per_line", LIMITS["breaks_per_line"], messages)


def test_legacy_polygons_per_plane(tight: ServerProcess):
    (first, bias), _ = kinks(2, 10)

    def messages(polygons: int) -> list[bytes]:
        right = polygons - 0.5
        square = wire.polytope([[0, 0], [right, 0], [right, 1], [0, 1]])
        return [wire.layer(wire.dense(first.T, bias)), wire.layer(wire.relu()), wire.plane(square, dims=2)]

    check_legacy_limit(tight, "polygons_per_plane", LIMITS["polygons_per_plane"], messages)


def test_answer_bytes(tight: ServerProcess):
    """No answer message has more bytes of arrays, and a full one has as many as fit."""
    request = pb.RestrictRequest(
        options=pb.Options(model=pb.ModelRef(name="kinks")),
        **{name: _points(at) for name, at in (("starts", 0.0), ("ends", 150.5))},
    )
    with grpc.insecure_channel(tight.address) as channel:
        call = channel.unary_stream("/exactline.v1.Exactline/Restrict")(request.SerializeToString(), timeout=20)
        answers = [pb.Answer.FromString(data) for data in call]
    sizes = [sum(len(piece.data) for piece in answer.rows.pieces) for answer in answers if answer.HasField("rows")]
    row = 8 + 24 + 8 + 8 + 8  # alpha, origin, ambiguous units, error, value
    assert sum(sizes) == 152 * row
    assert max(sizes) == LIMITS["answer_bytes"] // row * row


def _points(value: float) -> pb.Point:
    return pb.Point(inputs=[pb.Array(dtype=pb.FLOAT64, shape=[1, 1], data=np.array([value]).tobytes())])


@contextlib.contextmanager
def suspend_workers(tight: ServerProcess) -> Iterator[list[psutil.Process]]:
    """Suspend the workers during a block: a job takes forever, and no processor time."""
    wait_until(lambda: len(tight.workers()) == 2)
    workers = tight.workers()
    for worker in workers:
        worker.suspend()
    try:
        yield workers
    finally:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.resume()


@contextlib.contextmanager
def open_idle_calls(tight: ServerProcess, count: int, channel: grpc.Channel | None = None) -> Iterator[None]:
    """Open legacy calls that send nothing, on a channel or each on its own connection."""
    with contextlib.ExitStack() as stack:
        end = threading.Event()
        stack.callback(end.set)
        for number in range(count):
            alone = ("grpc.use_local_subchannel_pool", 1), ("number", number)
            own = channel or stack.enter_context(grpc.insecure_channel(tight.address, alone))
            call = own.stream_stream(wire.METHOD)(itertools.takewhile(lambda _: not end.wait(30), [b""]), timeout=30)
            stack.callback(call.cancel)
        yield


def client_without_retries(tight: ServerProcess, timeout: float | None = 60.0) -> Client:
    return Client(tight.address, timeout=timeout, retries=0)


def test_queue_length(tight: ServerProcess):
    """Two calls run and two wait; one more is refused at once, and the waiting ones are answered."""
    answers: list[int] = []

    def ask() -> None:
        with client_without_retries(tight) as client:
            answers.append(len(client.restrict("kinks", [0.0], [7.5])))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    with client_without_retries(tight) as client:
        with suspend_workers(tight):
            for number, thread in enumerate(threads, 1):
                thread.start()
                expected = min(2, number), max(0, number - 2)
                wait_until(lambda: (client.stats().busy, client.stats().queued) == expected)  # noqa: B023
            with pytest.raises(LimitError, match="The limit queue_length is 2"):
                client.restrict("kinks", [0.0], [7.5])
            assert not answers
        for thread in threads:
            thread.join()
        assert answers == [8, 8, 8, 8]
        wait_until(lambda: client.stats().busy == 0)


@pytest.mark.slow
def test_call_seconds(tight: ServerProcess):
    """The server ends a call whose worker hangs, and one whose client sends nothing more, and names the limit."""
    found: dict[str, tuple[float, object]] = {}

    def hang() -> None:
        began = time.monotonic()
        with client_without_retries(tight, None) as client:
            try:
                client.restrict("kinks", [0.0], [7.5])
            except LimitError as error:
                found["hangs"] = time.monotonic() - began, str(error)

    def silence() -> None:
        began = time.monotonic()
        with grpc.insecure_channel(tight.address) as channel:
            layers = itertools.chain([wire.layer(wire.relu())], iter(threading.Event().wait, None))
            call = channel.stream_stream(wire.METHOD)(layers)
            with contextlib.suppress(grpc.RpcError):
                next(call)
            found["silent"] = time.monotonic() - began, f"{call.code()} {call.details()}"

    with client_without_retries(tight) as client:
        assert len(client.restrict("kinks", [0.0], [7.5])) == 8
        threads = [threading.Thread(target=one, daemon=True) for one in (hang, silence)]
        with suspend_workers(tight):
            for thread in threads:
                thread.start()
            threads[0].join(60)
            threads[1].join(60)
        for seconds, message in found.values():
            assert "The limit call_seconds is 15" in str(message)
            assert LIMITS["call_seconds"] <= seconds < LIMITS["call_seconds"] + 10
        assert len(found) == 2
        wait_until(lambda: client.stats().workers == 2 and client.stats().busy == 0)


def test_upload_bytes_and_stored_upload_bytes(client: Client, tmp_path: Path):
    """Files up to the limit are stored; the least recently used are dropped, and only when they must be."""

    def upload(size: int, name: str) -> str:
        write_padded(tmp_path / f"{name}.nnet", size)
        (tmp_path / f"{name}.nnet").write_bytes(
            (tmp_path / f"{name}.nnet").read_bytes().replace(b"..", name.encode() * 2, 1)
        )
        return f"sha256:{client.upload(tmp_path / f'{name}.nnet').sha256}"

    limit = LIMITS["upload_bytes"]
    check_limit("upload_bytes", lambda size: upload(size, "a"), limit)  # 2,999 and 3,000 are kept
    first, second = (str(entry) for entry in client.models() if entry.uploaded)
    assert client.stats().upload_bytes == LIMITS["stored_upload_bytes"] - 2
    assert len(client.restrict(first, [0.0], [2.5])) == 3  # used later than the second
    third = upload(limit, "b")  # 2,999 + 3,000 fit, all three do not
    assert len(client.restrict(third, [0.0], [2.5])) == 3
    with pytest.raises(MissingError, match="has no model"):
        client.describe(second)
    fourth = upload(limit, "c")
    assert {str(entry) for entry in client.models() if entry.uploaded} == {third, fourth}  # 6,000 of 6,001
    assert client.stats().upload_bytes == 6000


def test_model_bytes(client: Client):
    assert len(client.restrict("under", [0.0], [2.5])) == len(client.restrict("at", [0.0], [2.5])) == 3
    with pytest.raises(LimitError, match="The limit model_bytes is 20,000"):
        client.restrict("over", [0.0], [2.5])
    assert {"under", "at", "kinks"} <= {
        entry.name for entry in client.models()
    }  # a file that is too large does not hide others


def test_worker_bytes(tight: ServerProcess, client: Client):
    """A job that needs more memory than allowed is refused with the limit's name, and its worker is replaced."""
    before = set(client.stats().pids)
    large = wire.average_pool(Window(1, 1, 1, (1, 1), pad=(1900, 1900)))  # 14 million outputs of one input
    code, details = legacy_client.failure(tight.address, [wire.layer(large), wire.line([0], [1])])
    assert (code, "limit worker_bytes allows" in details) == (Code.RESOURCE_EXHAUSTED, True), details
    wait_until(lambda: client.stats().workers == 2)
    assert set(client.stats().pids) != before
    assert len(client.restrict("kinks", [0.0], [7.5])) == 8


def test_cache_bytes(tmp_path: Path):
    """Two models are cached if both fit exactly; with one byte less, the older one is dropped."""
    sizes: list[int] = []
    models = []
    for name, count in (("a", 3), ("b", 5)):
        write_nnet(tmp_path / f"{name}.nnet", kinks(1, count))
        models.append((ModelKey(name * 64, ".nnet"), (tmp_path / f"{name}.nnet").read_bytes()))
        alone = NetworkCache(1 << 20)
        alone.network(models[-1][0], lambda: models[-1][1])
        sizes.append(alone.bytes)
    for extra, kept in ((-1, 1), (0, 2), (1, 2)):
        cache = NetworkCache(sum(sizes) + extra)
        for model, data in models:
            network = cache.network(model, lambda data=data: data)
            assert len(xl.restrict(network, [0.0], [2.5])) == len(xl.restrict(read_network(model, data), [0.0], [2.5]))
        assert (len(cache.entries), cache.misses) == (kept, 2)
        assert cache.bytes <= cache.max_bytes
        assert models[1][0] in cache.entries


@pytest.mark.slow
def test_calls_per_connection_and_drain_seconds(tmp_path: Path):
    """Connections have at most three calls, and a shutdown cuts calls off after half a second."""
    write_nnet(tmp_path / "kinks.nnet", kinks(1))
    with start_server(models=tmp_path, workers=1, limits={"drain_seconds": 0.5, "calls_per_connection": 3}) as server:
        _check_calls_per_connection(server)
        assert _drain(server, resume=False) == ["cut off"]


def _check_calls_per_connection(server: ServerProcess) -> None:
    """A call beyond the limit waits at its client; one on another connection does not."""
    for count in (1, 2, 3):  # each on a new connection: gRPC allows fewer calls after cancelled ones
        with (
            client_without_retries(server) as client,
            grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel,
            open_idle_calls(server, count, channel),
        ):
            ask = channel.unary_unary("/exactline.v1.Exactline/Stats")
            if count < 3:
                ask(b"", timeout=60)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                ask(b"", timeout=0.5)
            assert caught.value.code() == Code.DEADLINE_EXCEEDED
            assert client.stats().workers == 1


@pytest.mark.slow
def test_connection_seconds_and_drain_seconds(tmp_path: Path):
    """Connections are renewed while a client makes calls, and no call is cut off."""
    write_nnet(tmp_path / "kinks.nnet", kinks(1))
    with start_server(models=tmp_path, workers=1, limits={"drain_seconds": 30.0, "connection_seconds": 0.5}) as server:
        ports: set[int] = set()
        with Client(server.address) as client:
            for _ in range(8):
                assert len(client.restrict("kinks", [0.0], [7.5])) == 8
                ports |= _ports(server)
                time.sleep(0.2)
        assert len(ports) > 1
        assert _drain(server, resume=True) == ["answered"]


def _ports(server: ServerProcess) -> set[int]:
    """Return the ports of this process that are connected to a server."""
    port = int(server.address.rpartition(":")[2])
    return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.raddr and c.raddr.port == port}


def _drain(server: ServerProcess, *, resume: bool) -> list[str]:
    """Send SIGTERM during a call; returns how the call ends. New calls are refused, and no process is left over."""
    found: list[str] = []

    def ask() -> None:
        with client_without_retries(server, 30) as client:
            try:
                found.append("answered" if len(client.restrict("kinks", [0.0], [7.5])) == 8 else "wrong")
            except xl.ExactlineError:
                found.append("cut off")

    (worker,) = server.workers()
    worker.suspend()
    thread = threading.Thread(target=ask)
    with Client(server.address) as client:
        thread.start()
        wait_until(lambda: client.stats().busy == 1)
        children = server.children()
        os.kill(server.process.pid, signal.SIGTERM)
        if resume:
            wait_until(lambda: not client.health())
            with client_without_retries(server, 2) as late, pytest.raises(xl.errors.ServiceError):
                late.restrict("kinks", [0.0], [7.5])
            worker.resume()
    thread.join(60)
    wait_until(lambda: not server.process.is_running() or server.process.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: not any(child.is_running() for child in children))
    return found
