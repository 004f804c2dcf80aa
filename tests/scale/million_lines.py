"""A million lines, and how much memory the driver takes for them: tests start it as a program.

Usage: python -m tests.scale.million_lines FOLDER LINES local|ray
"""

import resource
import sys

import numpy as np
import torch

import exactline as xl

RAY = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 << 20, "log_to_driver": False}


def lines(count: int):
    rng = np.random.default_rng(0)
    for _ in range(0, count, 1000):
        yield from rng.standard_normal((1000, 2, 5))


def peak_kibibytes() -> int:
    """The most memory that this process has held, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(folder: str, count: int, backend: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    if backend == "ray":
        import ray

        ray.init(**RAY, logging_level="ERROR")
    xl.restrict(model, torch.zeros(5), torch.ones(5))
    before = peak_kibibytes()
    options = {"backend": "ray", "workers": 2} if backend == "ray" else {}
    store = xl.scale.run(model, lines(count), out=folder, values=False, **options)
    last = store[count - 1]
    print((peak_kibibytes() - before) / 1024, store.done, len(store.errors), store.breaks, len(last))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
