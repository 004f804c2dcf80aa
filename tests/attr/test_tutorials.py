"""Scripts written for captum, of which only the import is edited, give the limit of captum's numbers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("captum")

FOLDER = Path(__file__).parent / "tutorials"
OUR_CLASSES = "(IntegratedGradients|Layer(Conductance|IntegratedGradients)|NeuronConductance)"


def read_script(name: str, package: str) -> str:
    """The script with its only edit: the first import of attribution classes comes from ``package``."""
    text = (FOLDER / f"{name}.py").read_text()
    edited, count = re.subn(
        rf"^from captum\.attr import (?={OUR_CLASSES})", f"from {package} import ", text, flags=re.M
    )
    assert count == 1
    return edited


def run_script(name: str, package: str) -> dict[str, torch.Tensor]:
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(read_script(name, package), f"{name}.py", "exec"), namespace)
    return namespace["results"]


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], share: float) -> None:
    assert found.keys() == expected.keys()
    for key, theirs in expected.items():
        ours = found[key]
        assert ours.shape == theirs.shape, key
        assert ours.dtype == theirs.dtype, key
        gap = (ours - theirs).detach().abs().sum() / theirs.detach().abs().sum()
        assert float(gap) < share, (key, float(gap))


# captum's error is about the jumps of the gradient times the width of a step, and falls with the number of steps
@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("titanic", 0.02),
        ("imdb", 0.02),
        pytest.param("house_prices", 0.01, marks=pytest.mark.slow),
        pytest.param("cifar", 0.05, marks=pytest.mark.slow),
        pytest.param("segmentation", 0.01, marks=pytest.mark.slow),
    ],
)
def test_a_tutorial_gives_the_same_numbers_with_another_import(name: str, share: float):
    assert_close(run_script(name, "exactline.attr"), run_script(name, "captum.attr"), share)


@pytest.mark.slow
def test_processes_share_the_examples(tmp_path: Path):
    found: dict[str, Any] = {}
    for package in ("captum.attr", "exactline.attr"):
        script, result = tmp_path / f"{package}.py", tmp_path / f"{package}.pt"
        script.write_text(read_script("distributed", package))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        workers = [
            subprocess.Popen([sys.executable, str(script), str(result)], env={**environment, "RANK": str(rank)})
            for rank in range(2)
        ]
        assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
        found[package] = torch.load(result)
    assert_close(found["exactline.attr"], found["captum.attr"], 0.01)
