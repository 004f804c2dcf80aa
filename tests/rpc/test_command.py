"""``exactline serve``: a log in JSON, a shutdown that lets calls finish, refusals in three lines."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch

from exactline.errors import AccessError, LimitError
from exactline.rpc.client.sync import Client
from tests.rpc.nnet_files import random_layers, tent_layers, write_nnet

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
        with Client(first["address"], token=token, retries=0) as client:
            assert [entry.name for entry in client.models()] == ["small", "tent12"]
            with pytest.raises(AccessError, match="accepts no uploads"):
                client.upload(tmp_path / "small.nnet")
            with pytest.raises(LimitError, match="lines_per_call is 10"):
                client.restrict_many("small", torch.zeros(11, 3), torch.ones(11, 3))

            def ask() -> None:
                for part in client.sweep("tent12", [0.0], [1.0], memory=50_000):
                    found.append(len(part))
                    time.sleep(0.01)

            thread = threading.Thread(target=ask)
            thread.start()
            while not found:
                time.sleep(0.01)
            process.send_signal(number)
            thread.join(60)
        assert process.wait(60) == 0
        assert sum(found) == 2**12
        log = [json.loads(line) for line in process.stderr]
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
