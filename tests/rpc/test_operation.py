"""What operators use: quotas of tokens, metrics, request ids, reloading, configuration, a Unix socket."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from exactline import Restriction
from exactline.errors import AccessError, ArgumentError, LimitError, ServiceError
from exactline.rpc.client.sync import Client
from exactline.rpc.limits import Limits
from exactline.rpc.server.ipc import ModelKey
from exactline.rpc.server.log import Log
from exactline.rpc.server.server import Server, Settings
from tests.rpc import legacy_wire as wire
from tests.rpc.certificates import create_authority
from tests.rpc.nnet_files import tent_layers, write_nnet
from tests.rpc.server_process import wait_until

FIRST, SECOND, THIRD = "the-first-token-of-the-file", "the-second-token-of-the-file", "a-token-that-comes-later"
QUOTAS = {"client_calls": 3, "client_bytes": 100_000, "client_upload_bytes": 5_000}
METHOD = "/exactline.v1.Exactline/"
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("operated")
    write_nnet(path / "tent4.nnet", tent_layers(4))
    write_nnet(path / "tent30.nnet", tent_layers(30))
    write_tokens(path, FIRST, SECOND)
    return path


def write_tokens(folder: Path, *tokens: str) -> None:
    (folder / "tokens").touch(0o600)
    (folder / "tokens").write_text("\n".join(tokens))


@pytest.fixture(scope="module")
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(scope="module")
def server(folder: Path, log: io.StringIO):
    settings = Settings(
        port=0,
        models=folder,
        workers=2,
        threads=1,
        token_file=folder / "tokens",
        allow_upload=True,
        metrics_port=0,
        limits=Limits(**QUOTAS),
    )
    with Server(settings, Log(log)) as found:
        yield found


def open_client(server: Server, token: str = FIRST) -> Client:
    return Client(server.address, token=token, retries=0, timeout=30)


def test_one_token_does_not_starve_another(server: Server):
    """Three calls that would run for minutes have one of the two workers; the other token is answered."""
    with open_client(server) as greedy, open_client(server, SECOND) as other:
        sweeps = [greedy.sweep("tent30", [0.0], [1.0], memory=1 << 20) for _ in range(3)]
        threads = [threading.Thread(target=_take_part, args=(parts,), daemon=True) for parts in sweeps]
        for thread in threads:
            thread.start()
        wait_until(lambda: other.stats().in_flight == 4)
        stats = other.stats()
        assert (stats.busy, stats.queued) == (1, 2)
        assert len(other.restrict("tent4", [0.0], [1.0])) == 16
        with pytest.raises(LimitError, match="The limit client_calls is 3"):
            greedy.models()
        greedy.close()
        wait_until(lambda: other.stats().in_flight == 1)
        for thread in threads:
            thread.join(10)


def _take_part(parts: Iterator[Restriction]) -> None:
    with contextlib.suppress(ServiceError):  # the client is closed
        next(parts)


def test_the_bytes_of_a_token_are_limited(server: Server):
    large = wire.encode_message(1000, bytes(QUOTAS["client_bytes"]))
    with grpc.insecure_channel(server.address) as channel:
        ask = channel.unary_unary(f"{METHOD}ListModels")
        with pytest.raises(grpc.RpcError) as caught:
            ask(large, metadata=(("authorization", f"Bearer {FIRST}"),), timeout=20)
        assert "The limit client_bytes is 100,000" in caught.value.details()
    with open_client(server) as client:
        assert client.models()


def test_the_uploads_of_a_token_are_limited(server: Server, folder: Path):
    data = (folder / "tent4.nnet").read_bytes()
    with open_client(server) as client, open_client(server, SECOND) as other:
        first = other.upload(data, ".nnet")
        for number in range(6):  # of about 1,100 bytes each: the first token keeps four
            client.upload(b"//%d\n" % number + data, ".nnet")
        assert other.stats().upload_bytes <= QUOTAS["client_upload_bytes"] + len(data)
        assert len(other.restrict(f"sha256:{first.sha256}", [0.0], [1.0])) == 16
        with pytest.raises(LimitError, match="The limit client_upload_bytes is 5,000"):
            client.upload(b"//" + b"." * 5000 + b"\n" + data, ".nnet")


def test_a_call_has_an_id_in_its_trailers_and_in_the_log(server: Server, log: io.StringIO):
    with grpc.insecure_channel(server.address) as channel:
        ask = channel.unary_unary(f"{METHOD}Stats")
        token = ("authorization", f"Bearer {FIRST}")
        for given in ("", "my-own-id"):
            metadata = (token, ("x-request-id", given)) if given else (token,)
            _, call = ask.with_call(b"", metadata=metadata, timeout=20)
            found = dict(call.trailing_metadata())["x-request-id"]
            assert found == given or not given
            wait_until(lambda: found in {entry.get("request") for entry in _entries(log)})  # noqa: B023
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"{METHOD}DescribeModel")(b"\x0a\x03\x0a\x01x", metadata=(token,), timeout=20)
        assert len(dict(caught.value.trailing_metadata())["x-request-id"]) == 16


def _entries(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def scrape(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics.port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_metrics_count_calls_workers_and_memory(server: Server):
    with open_client(server) as client:
        client.restrict("tent4", [0.0], [1.0])
        counted = client.stats().calls["Restrict OK"]
    wait_until(
        lambda: f'exactline_calls_total{{code="OK",method="Restrict"}} {counted}.0' in scrape(server, "/metrics")[1]
    )
    wait_until(lambda: "exactline_workers 2.0" in scrape(server, "/metrics")[1])  # one may still be starting
    lines = dict(line.rsplit(" ", 1) for line in scrape(server, "/metrics")[1].splitlines() if line[0] != "#")
    assert float(lines["exactline_front_resident_bytes"]) > 1 << 20
    assert float(lines["exactline_model_cache_hits"]) > 0
    assert float(lines['exactline_call_seconds_count{method="Restrict"}']) >= counted
    assert float(lines['exactline_queue_seconds_sum{method="Restrict"}']) >= 0
    assert scrape(server, "/healthz") == scrape(server, "/readyz") == (200, "ready\n")
    assert scrape(server, "/other")[0] == 404


def test_tokens_are_read_again_on_request(server: Server, folder: Path):
    with open_client(server, THIRD) as late, open_client(server, SECOND) as old:
        with pytest.raises(AccessError):
            late.models()
        write_tokens(folder, FIRST, THIRD)
        server.reload()
        wait_until(lambda: _is_accepted(late))
        with pytest.raises(AccessError):
            old.models()
        write_tokens(folder, "short")
        server.reload()  # is refused; the old ones stay
        assert _is_accepted(late)
    write_tokens(folder, FIRST, SECOND)
    server.reload()


def test_the_share_of_workers_follows_the_tokens(server: Server, folder: Path):
    """With one token it may have all workers, with several each leaves one to the others."""
    for tokens, share in (((FIRST,), 2), ((FIRST, SECOND), 1)):
        write_tokens(folder, *tokens)
        server.reload()
        wait_until(lambda: (server.access.token_count, server.pool.client_workers) == (len(tokens), share))  # noqa: B023


def test_a_model_that_is_replaced_during_a_call_is_looked_up_again(server: Server, folder: Path, monkeypatch):
    original = server.store.read
    swapped, other = folder / "swapped.nnet", (folder / "tent4.nnet").read_bytes()
    swapped.write_bytes(b"//swapped\n" + other)
    changes = iter(range(3))

    def read(model: ModelKey) -> bytes:
        if (change := next(changes, None)) is not None:
            (folder / "new").write_bytes(b"//change %d\n" % change + other)
            (folder / "new").replace(swapped)
        return original(model)

    monkeypatch.setattr(server.store, "read", read)
    with open_client(server) as client:
        before = client.stats()
        with pytest.raises(ServiceError, match="file changes"):
            client.restrict("swapped", [0.0], [1.0])
        changes = iter(range(3, 4))
        assert len(client.restrict("swapped", [0.0], [1.0])) == 16
        assert client.stats().workers_killed == before.workers_killed  # none of them was the worker's fault


def _is_accepted(client: Client) -> bool:
    try:
        return bool(client.models())
    except AccessError:
        return False


@pytest.mark.slow
def test_a_certificate_is_replaced_while_the_server_runs(folder: Path, tmp_path: Path):
    old, new = create_authority(tmp_path, "old"), create_authority(tmp_path, "new")
    certificate, key = old.sign("server")
    settings = Settings(port=0, models=folder, workers=1, tls_cert=certificate, tls_key=key)
    with Server(settings, Log(io.StringIO())) as server:
        address = f"localhost:{server.port}"
        with Client(address, tls=old.certificate, retries=0, timeout=20) as client:
            assert client.models()
        for path, replacement in zip((certificate, key), new.sign("next"), strict=True):
            path.write_bytes(replacement.read_bytes())
        server.reload()
        with Client(address, tls=new.certificate, retries=0, timeout=20) as client:
            assert client.models()
        with Client(address, tls=old.certificate, retries=0, timeout=20) as client:
            assert not client.health()


def test_a_file_and_the_environment_stand_for_options(folder: Path, tmp_path: Path):
    """The command line comes first, then the environment, then the file. The server listens on a Unix socket."""
    config = tmp_path / "serve.toml"
    config.write_text(
        f'models = "{folder}"\nworkers = 3\nmax-lines = 4\nlog-level = "warning"\n[limits]\nqueue_length = 9\n'
        'message_bytes = "3K"\n'
    )
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "exactline", "serve", "--config", str(config), "--max-lines", "5", "--json"]
    environment = os.environ | {"EXACTLINE_SERVE_WORKERS": "1", "EXACTLINE_SERVE_SOCKET": str(path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            output = json.loads(process.stdout.readline())
            assert (output["address"], output["workers"]) == (f"unix:{path}", 1)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with Client(output["address"], retries=0, timeout=20) as client:
                assert len(client.restrict("tent4", [0.0], [1.0])) == 16
                with pytest.raises(LimitError, match="lines_per_call is 5"):
                    client.restrict_many("tent4", [[0.0]] * 6, [[1.0]] * 6)
                with pytest.raises(LimitError, match="message_bytes is 3,072"):
                    client.restrict_many("tent4", [[0.0]] * 500, [[1.0]] * 500)
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=30)
    assert not path.exists()
    assert {json.loads(line)["level"] for line in errors.splitlines()} <= {"warning"}


def test_wrong_options_in_a_file_are_refused(tmp_path: Path):
    from typer.testing import CliRunner

    from exactline.cli import app

    for text, word in (("prot = 1\n", "prot"), ("[limits]\nlines = 3\n", "lines"), ("port =", "cannot be read")):
        (tmp_path / "wrong.toml").write_text(text)
        result = CliRunner().invoke(app, ["serve", "--config", str(tmp_path / "wrong.toml")])
        assert word in str(result.exception)


def test_log_levels():
    stream = io.StringIO()
    log = Log(stream, "warning")
    for level in ("debug", "info", "warning", "error"):
        log("event", level)
    log.close()
    assert [entry["level"] for entry in _entries(stream)] == ["warning", "error"]
    with pytest.raises(ArgumentError, match="no level 'loud'"):
        Log(level="loud")


@pytest.mark.slow
def test_connections_are_limited_and_idle_ones_are_closed(folder: Path):
    limits = Limits(connections=3, connection_idle_seconds=1.0, keepalive_seconds=1.0)
    settings = Settings(port=0, models=folder, workers=1, limits=limits)
    with Server(settings, Log(io.StringIO())) as server:
        clients = [Client(server.address, retries=0, timeout=5) for _ in range(4)]
        channels = [
            grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1), ("number", n)])
            for n in range(4)
        ]
        answered, refused = 0, []
        for channel in channels:
            try:
                channel.unary_unary(f"{METHOD}Stats")(b"", timeout=2)
                answered += 1
            except grpc.RpcError as error:
                refused.append(error.code())
        assert answered == 3
        assert set(refused) <= {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
        for client in clients:
            client.close()
        time.sleep(2.5)  # the connections were idle for longer than a second
        channels[-1].unary_unary(f"{METHOD}Stats")(b"", timeout=20, wait_for_ready=True)
        for channel in channels:
            channel.close()
