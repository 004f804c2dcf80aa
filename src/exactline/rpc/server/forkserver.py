"""The fork server: a process that imports everything once and forks workers, each within milliseconds.

The server starts it before it has threads itself. The fork server has no threads and runs no job, so that forking it
is safe.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import tempfile
from importlib import import_module
from typing import Any

FORK_COMMAND = b"F"
PID_BYTES = 8
PRELOADED_MODULES = (
    *("torch.nn.functional", "torch.fx.experimental.symbolic_shapes"),  # the second takes half a second to import
    *("exactline.api", "exactline.results.check", "exactline.attr", "numpy.random", "numpy.ma"),
    *("exactline.decide.decisions", "exactline.decide.regions"),
)
WARM_UP_LINES, WARM_UP_UNITS = 512, 64
OPTIONAL_MODULES = ("onnx", "exactline.formats.onnx")  # preloaded if installed


def main() -> None:
    """Fork a worker for every socket that the server sends, until the server closes the control socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings: dict[str, Any] = json.loads(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload()
    control.sendall(FORK_COMMAND)  # tells the server that it is ready
    while True:
        command, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not command:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            control.close()
            _run_child(fds[0], settings)
        os.close(fds[0])
        control.sendall(pid.to_bytes(PID_BYTES, "little"))


def _preload() -> None:
    """Import what workers need."""
    import torch

    from . import worker

    torch.set_num_threads(1)  # a fork would not copy the threads
    _choose_temporary_folder()
    for name in (*PRELOADED_MODULES, *sorted({handler.partition(":")[0] for handler in worker.JOB_HANDLERS.values()})):
        import_module(name)
    for name in OPTIONAL_MODULES:
        try:
            import_module(name)
        except ImportError:
            break
    _load_compiled_loops()
    gc.collect()
    gc.freeze()  # pages that no collection touches stay shared with the workers


def _choose_temporary_folder() -> None:
    """Choose the folder for temporary files, which Python finds by writing a file; workers may not write any.

    Parts of torch ask for its name when they are imported, and on a read-only file system there is none to be found.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = "/tmp"  # nothing is written to it


def _load_compiled_loops() -> None:
    """Load the loops that numba compiles, if it is installed, and sweep some lines with them: workers start with them.

    A process without them loads them only for a large sweep, and takes twice as long for small ones until then.
    """
    import torch

    from ...api import restrict_many
    from ...engines.dense.fused_relu import RELU_LOOPS
    from ...network import as_network

    RELU_LOOPS.load()
    layer = torch.nn.Linear(1, WARM_UP_UNITS, dtype=torch.float64)
    network = as_network(torch.nn.Sequential(layer, torch.nn.ReLU()).eval(), [torch.zeros(1, dtype=torch.float64)])
    starts = torch.linspace(-2, -1, WARM_UP_LINES, dtype=torch.float64)[:, None]
    restrict_many(network, starts, -starts)


def _run_child(fd: int, settings: dict[str, Any]) -> None:
    """Run a worker in the forked process, until its server closes the socket."""
    from .worker import run_worker

    try:
        run_worker(fd, settings)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
