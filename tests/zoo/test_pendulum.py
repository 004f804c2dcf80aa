"""The bundled pendulum controller keeps the pendulum upright, as its training script measures it."""

import sys
from pathlib import Path

import pytest
import torch

from exactline.zoo import pendulum_controller, pendulum_facts
from exactline.zoo.pendulum import MAX_TORQUE, WEIGHTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def training():
    """The training script as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import train_pendulum
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return train_pendulum


def test_every_start_ends_upright(training):
    starts = training.draw_starts(2000, torch.Generator().manual_seed(99))
    found, facts = training.evaluate(pendulum_controller(), starts), pendulum_facts()
    assert found.keys() == facts.keys()
    assert found["upright"] == facts["upright"] == 1.0
    assert found["largest angle on the way"] <= facts["largest angle on the way"] + 0.01


def test_without_a_controller_the_pendulum_falls(training):
    still = torch.nn.Sequential(torch.nn.Linear(2, 1))
    torch.nn.init.zeros_(still[0].weight)
    torch.nn.init.zeros_(still[0].bias)
    assert training.evaluate(still, torch.tensor([[0.1, 0.0]]))["upright"] == 0.0


def test_torques_stay_within_the_limits_of_the_motor():
    states = 10 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float(pendulum_controller()(states).abs().max()) <= MAX_TORQUE


def test_loading_draws_no_random_numbers_and_the_file_is_small():
    before = torch.get_rng_state()
    assert not pendulum_controller().training
    assert torch.equal(torch.get_rng_state(), before)
    assert (ROOT / "src/exactline/zoo" / WEIGHTS).stat().st_size < 4000


def test_training_writes_the_same_file_every_time(training, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "UPDATES", 2)
    written = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        monkeypatch.setattr(sys, "argv", ["train_pendulum.py", str(folder)])
        try:
            training.main()
        finally:
            torch.use_deterministic_algorithms(False)
        assert "upright" in capsys.readouterr().out
        written.append((folder / WEIGHTS).read_bytes())
    assert written[0] == written[1]
