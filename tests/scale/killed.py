"""A run that is killed again and again: started by tests as a program of its own, which forks and kills its children.

Usage: python -m tests.scale.killed FOLDER KILLS SEED LINES
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import exactline as xl
from tests.scale.same import small_network, some_lines


def run(folder: str, lines: int) -> None:
    xl.scale.run(small_network(), zip(*some_lines(lines), strict=True), out=folder)


def main(folder: str, kills: int, seed: int, lines: int) -> None:
    torch.set_num_threads(1)
    rng = random.Random(seed)
    began = time.perf_counter()
    xl.restrict(small_network(), *(side[0] for side in some_lines(1)))
    span, hits = 0.5, 0
    for _ in range(20 * kills):
        if hits == kills:
            break
        child = os.fork()
        if not child:
            run(folder, lines)
            os._exit(0)
        time.sleep(rng.uniform(0.0, span))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        hits += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            span /= 2  # it was done already: kill sooner, and begin anew
            Path(folder).rename(f"{folder}.{hits}-{span}")
    run(folder, lines)
    print(hits, time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
