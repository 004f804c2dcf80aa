"""A process that has imported everything and does nothing but fork workers: a new one is there in milliseconds.

It is started before the server has threads, has none itself, and never runs a job, so that forking it is safe.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from importlib import import_module
from typing import Any

FORK = b"F"
PID = 8  # bytes
HEAVY = (
    *("torch.nn.functional", "torch.fx.experimental.symbolic_shapes"),  # the latter takes half a second
    *("exactline.api", "exactline.results.check", "exactline.decide.decisions", "exactline.attr"),
    *("exactline.api", "exactline.decide.regions", "numpy.random", "numpy.ma"),
)
USEFUL = ("onnx", "exactline.formats.onnx")  # where they are installed


def main() -> None:
    """Fork a worker for every socket that comes, until nobody is there to send one."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings: dict[str, Any] = json.loads(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the dead
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _imported()
    control.sendall(FORK)  # ready
    while True:
        asked, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not asked:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            control.close()
            _live(fds[0], settings)
        os.close(fds[0])
        control.sendall(pid.to_bytes(PID, "little"))


def _imported() -> None:
    """All that workers need, once."""
    import torch

    from . import worker

    torch.set_num_threads(1)  # threads that are there at a fork are not there after it
    for name in (*HEAVY, *sorted({place.partition(":")[0] for place in worker.WORK.values()})):
        import_module(name)
    for name in USEFUL:
        try:
            import_module(name)
        except ImportError:
            break
    gc.collect()
    gc.freeze()  # what is never collected stays shared with the workers


def _live(fd: int, settings: dict[str, Any]) -> None:
    """A worker's whole life."""
    from .worker import work

    try:
        work(fd, settings)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
