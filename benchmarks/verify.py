"""Complete verification of VNN-COMP's boxes with one and two inputs: learned indexes and two-level lattices.

    EXACTLINE_DATA=... python benchmarks/verify.py [--instances lindex,tll_N=8] [--no-check]

The properties are in the folder lowdim beside EXACTLINE_DATA. Every instance runs in a process of its own: its seconds
count reading both files and every import but that of torch. The last columns are those of writing the proof and of
checking it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

COUNTS = (1, 200, 1000, 10000)
LATTICES = ("8_0", "8_1", "8_2", "8_3", "16_0", "16_1", "16_2", "16_3", "24_0", "24_1", "32_0", "32_1")
LIMITS = {"lindex": 1.0, "tll_N=8": 5.0, "tll_N=16": 5.0, "tll_N=24": 60.0, "tll_N=32": 60.0}  # seconds, our own


def list_instances(data: Path) -> dict[str, tuple[Path, Path]]:
    """The network and the property of each instance whose files are there."""
    folder = data.parent / "lowdim"
    networks = {"lindex": data / "vnncomp/2026r_nn4sys/lindex.onnx", "lindex_deep": folder / "lindex_deep.onnx"}
    found = {
        f"{name} {count}": (file, folder / f"lindex_{count}.vnnlib.gz")
        for name, file in networks.items()
        for count in COUNTS
    }
    found |= {f"tll_N={n}": (folder / f"tll_N={n}.onnx.gz", folder / f"tll_N={n}.vnnlib") for n in LATTICES}
    return {name: files for name, files in found.items() if all(file.exists() for file in files)}


def measure(network: str, prop: str, check: bool) -> dict[str, Any]:
    """Verify one instance in this process, write its proof and check it."""
    import torch  # its import is not counted

    torch.set_num_threads(1)
    start, processor = perf_counter(), process_time()
    import exactline as xl

    found = xl.verify(network, prop, seconds=600)
    row = {"result": found.result, "seconds": perf_counter() - start, "processor": process_time() - processor}
    row |= {"pieces": found.pieces, "cells": found.cells}
    if found.proof is not None:
        with tempfile.TemporaryDirectory() as folder:
            path, start = Path(folder) / "proof.json.gz", perf_counter()
            found.proof.save(path)
            row |= {"writing": perf_counter() - start, "bytes": path.stat().st_size}
            if check:
                start = perf_counter()
                answer = xl.check_proof(network, prop, path)
                row |= {"checking": perf_counter() - start, "accepted": answer.accepted}
    return row


def run_apart(network: Path, prop: Path, check: bool) -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--one", str(network), str(prop), *([] if check else ["--no-check"])]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    """Run all instances and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", default="lindex,tll", help="what their names begin with")
    parser.add_argument("--no-check", action="store_true", help="do not check the proofs")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one, check=not options.no_check)))
        return
    data = os.environ.get("EXACTLINE_DATA")
    instances = list_instances(Path(data)) if data else {}
    if not instances:
        print("EXACTLINE_DATA is not set, or has no folder lowdim beside it: no boxes to verify")
        return
    table = Table(title="Complete verification, seconds beyond import torch", title_justify="left")
    for name in ("instance", "result", "pieces", "cells", "seconds", "processor", "at most", "proof, bytes", "check"):
        table.add_column(name, justify="left" if name in ("instance", "result") else "right")
    prefixes = tuple(options.instances.split(","))
    for name, files in instances.items():
        if name.startswith(prefixes):
            row = run_apart(*files, check=not options.no_check)
            limit = next(seconds for prefix, seconds in LIMITS.items() if name.startswith(prefix))
            table.add_row(
                *(name, row["result"], f"{row['pieces']:,}", f"{row['cells']:,}"),
                *(f"{row['seconds'] + row.get('writing', 0.0):.2f}", f"{row['processor']:.2f}", f"{limit:g}"),
                f"{row['bytes']:,}" if "bytes" in row else "",
                f"{row['checking']:.1f} {'accepted' if row['accepted'] else 'REJECTED'}" if "checking" in row else "",
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
