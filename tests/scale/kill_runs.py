"""A run that is killed again and again: tests start it as a program, which forks children and kills them.

Usage: python -m tests.scale.kill_runs FOLDER KILLS SEED LINES
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import exactline as xl
from tests.scale.examples import random_lines, small_network


def run(folder: str, lines: int) -> None:
    xl.scale.run(small_network(), zip(*random_lines(lines), strict=True), out=folder)


def main(folder: str, kills: int, seed: int, lines: int) -> None:
    torch.set_num_threads(1)
    rng = random.Random(seed)
    began = time.perf_counter()
    xl.restrict(small_network(), *(side[0] for side in random_lines(1)))
    max_delay, hits = 0.5, 0
    for _ in range(20 * kills):
        if hits == kills:
            break
        child = os.fork()
        if not child:
            run(folder, lines)
            os._exit(0)
        time.sleep(rng.uniform(0.0, max_delay))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        hits += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            max_delay /= 2  # the run was finished already: start over, and kill sooner
            Path(folder).rename(f"{folder}.{hits}-{max_delay}")
    run(folder, lines)
    print(hits, time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
