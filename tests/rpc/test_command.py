"""``exactline serve``: a log in JSON, a shutdown that lets calls finish, refusals in three lines."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import psutil
import pytest
import torch

from exactline.errors import AccessError, LimitError, ServiceError
from exactline.rpc.client.sync import Client
from tests.rpc.nnet_files import random_layers, tent_layers, write_nnet
from tests.rpc.server_process import wait_until

COMMAND = [sys.executable, "-m", "exactline", "serve", "--port", "0", "--workers", "1"]


def run_serve(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=lambda n: n.name
)
def test_a_signal_ends_the_server_after_the_calls_in_flight(tmp_path, number):
    write_nnet(tmp_path / "small.nnet", random_layers(1, 3, 16, 16, 4))
    write_nnet(tmp_path / "tent12.nnet", tent_layers(12))
    token = "a-token-that-nobody-must-see"
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text(token)
    given = ["--models", str(tmp_path), "--token-file", str(tmp_path / "tokens"), "--max-lines", "10", "--json"]
    with subprocess.Popen([*COMMAND, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first = json.loads(process.stderr.readline())
        output = json.loads(process.stdout.readline())
        assert output == {"address": first["address"], "port": output["port"], "workers": 1, "tls": False}
        assert first["address"].endswith(f":{output['port']}")
        assert (first["event"], first["workers"], first["tls"]) == ("started", 1, False)
        found: list[int] = []
        log: list[dict[str, object]] = []
        signalled = threading.Event()
        with Client(first["address"], token=token, retries=0) as client:
            assert [entry.name for entry in client.models()] == ["small", "tent12"]
            with pytest.raises(AccessError, match="accepts no uploads"):
                client.upload(tmp_path / "small.nnet")
            with pytest.raises(LimitError, match="lines_per_call is 10"):
                client.restrict_many("small", torch.zeros(11, 3), torch.ones(11, 3))

            def ask() -> None:
                for part in client.sweep("tent12", [0.0], [1.0], memory=50_000):
                    found.append(len(part))
                    signalled.wait(60)  # what is not read does not fit the buffers, so the call is in flight

            thread = threading.Thread(target=ask)
            thread.start()
            while not found:
                time.sleep(0.01)
            process.send_signal(number)
            while json.loads(line := process.stderr.readline())["event"] != "draining":
                log.append(json.loads(line))
            log.append(json.loads(line))
            signalled.set()
            thread.join(60)
        assert process.wait(60) == 0
        assert sum(found) == 2**12
        log += [json.loads(line) for line in process.stderr]
    assert [entry["event"] for entry in log][-3:] == ["draining", "call", "stopped"]
    (last,) = [entry for entry in log if entry.get("method") == "Sweep"]
    assert (last["code"], last["lines"]) == ("OK", 1)
    assert last["breaks"] >= 2**12 + 1
    fields = {"time", "level", "event", "method", "code", "seconds", "queued", "peer", "client", "request"}
    assert set(last) == fields | {"lines", "breaks"}
    text = json.dumps([first, *log])
    assert token not in text
    assert str(tmp_path) not in text


def test_unsafe_or_invalid_options_are_refused_in_three_lines(tmp_path):
    (tmp_path / "short").touch(0o600)
    (tmp_path / "short").write_text("secret")
    cases = [
        (["--host", "0.0.0.0"], 2, "Other machines"),
        (["--token-file", str(tmp_path / "short")], 2, "token"),
        (["--max-lines", "0"], 2, "lines_per_call"),
        (["--max-seconds", "inf"], 2, "call_seconds"),
        (["--memory", "1K"], 2, "worker_bytes"),
    ]
    for options, status, word in cases:
        done = run_serve(*options)
        assert done.returncode == status, done.stderr
        assert word in done.stderr
        assert len(done.stderr.splitlines()) == 3
        assert "secret" not in done.stderr


@pytest.mark.slow
def test_few_file_descriptors_bound_the_connections(tmp_path):
    """Connections that send nothing leave descriptors for the metrics, and only JSON is logged."""
    import resource

    write_nnet(tmp_path / "tent4.nnet", tent_layers(4))
    given = ["--models", str(tmp_path), "--metrics-port", "0", "--limit", "first_message_seconds=2"]
    with subprocess.Popen(
        [*COMMAND, *given],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)),
    ) as process:
        limited, first = (json.loads(process.stderr.readline()) for _ in range(2))
        assert (limited["event"], limited["level"], limited["limit"]) == ("connections", "warning", 512)
        assert 1 < limited["possible"] < 128
        host, port = first["address"].rsplit(":", 1)
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                stack.enter_context(socket.create_connection((host, int(port)), 10))
            url = f"http://127.0.0.1:{first['metrics_port']}/metrics"
            with urllib.request.urlopen(url, timeout=30) as response:
                assert b"exactline_workers 1.0" in response.read()
            with Client(first["address"], retries=30, timeout=30) as client:  # as soon as the others are closed
                assert len(client.restrict("tent4", [0.0], [1.0])) == 16
        process.terminate()
        assert process.wait(60) == 0
        assert {json.loads(line)["event"] for line in process.stderr} <= {"root", "call", "draining", "stopped"}


@pytest.mark.slow
def test_a_client_that_does_not_read_does_not_delay_the_end(tmp_path):
    write_nnet(tmp_path / "tent30.nnet", tent_layers(30))
    given = ["--models", str(tmp_path), "--drain", "1"]
    with subprocess.Popen([*COMMAND, *given], stderr=subprocess.PIPE, text=True) as process:
        address = json.loads(process.stderr.readline())["address"]
        with Client(address, retries=0) as client:
            parts = client.sweep("tent30", [0.0], [1.0], memory=4 << 20)
            next(parts)
            children = psutil.Process(process.pid).children(recursive=True)
            began = time.monotonic()
            process.terminate()
            assert process.wait(60) == 0
            assert time.monotonic() - began < 30  # the sweep would take minutes
            with pytest.raises(ServiceError):
                list(parts)
        wait_until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))


@pytest.mark.slow
def test_a_port_in_use_and_a_device_that_does_not_exist(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run_serve("--port", str(taken.getsockname()[1]))
        assert done.returncode == 7
        assert "cannot listen" in done.stderr.splitlines()[0]
    done = run_serve("--device", "meta")
    assert done.returncode == 2
    assert "device meta cannot be used" in done.stderr
