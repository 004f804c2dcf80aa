"""The bundled collision-avoidance network follows the policy that its training script states."""

import math
import sys
from pathlib import Path

import pytest
import torch

from exactline.zoo import encounter_facts, encounter_network
from exactline.zoo.encounter import ADVISORIES, INPUT_HIGH, INPUT_LOW, WEIGHTS

ROOT = Path(__file__).parents[2]
MIRROR = [0, 2, 1, 4, 3]  # advisories with left and right exchanged


@pytest.fixture(scope="module")
def training():
    """The training script as a module."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import train_encounter
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return train_encounter


@pytest.fixture(scope="module")
def encounters(training):
    """Encounters that training never saw."""
    return training.draw_encounters(20_000, torch.Generator().manual_seed(99))


def test_the_network_agrees_with_the_policy_as_often_as_its_file_says(training, encounters):
    facts, found = (
        encounter_facts(),
        training.evaluate(encounter_network(), encounters, training.costs_in_chunks(encounters)),
    )
    assert facts.keys() == found.keys()
    assert facts["agreement"] > 0.97
    assert facts["agreement within 12,000 ft"] > 0.95
    # a share of 20,000 against the same share of 100,000: four standard deviations
    for name, share in (("agreement", 1.0), ("agreement within 12,000 ft", 0.5)):
        spread = 4 * math.sqrt(facts[name] * (1 - facts[name]) / (20_000 * share))
        assert found[name] == pytest.approx(facts[name], abs=spread + 1e-5)


def test_encounters_fill_their_ranges(encounters):
    low, high = torch.tensor(INPUT_LOW, dtype=torch.float64), torch.tensor(INPUT_HIGH, dtype=torch.float64)
    assert ((encounters >= low) & (encounters <= high)).all()
    assert (encounters.amax(0) > low + 0.99 * (high - low)).all()
    assert (encounters.amin(0) < low + 0.01 * (high - low)).all()


def test_aircraft_that_turn_fly_circles(training):
    moments = torch.tensor([0.0, 30.0, 60.0, 120.0], dtype=torch.float64)
    x, y = training.fly(torch.tensor([100.0]).double(), torch.tensor([0.0]).double(), 3.0, moments)
    radius = 100 / math.radians(3)  # a quarter in 30 s, all of it in two minutes; left is up
    assert x[0].tolist() == pytest.approx([0, radius, 0, 0], abs=1e-9)
    assert y[0].tolist() == pytest.approx([0, radius, 2 * radius, 0], abs=1e-9)


def test_aircraft_that_do_not_turn_fly_straight(training):
    x, y = training.fly(torch.tensor([100.0]).double(), torch.tensor([math.pi / 6]).double(), 0.0, torch.arange(3.0))
    assert x[0].tolist() == pytest.approx([0, 100 * math.sqrt(0.75), 200 * math.sqrt(0.75)])
    assert y[0].tolist() == pytest.approx([0, 50, 100])


def test_a_slight_turn_is_almost_straight(training):
    speed, heading, moments = torch.tensor([500.0]).double(), torch.tensor([1.0]).double(), torch.arange(20.0).double()
    bent, straight = (training.fly(speed, heading, turn, moments) for turn in (1e-6, 0.0))
    for a, b in zip(bent, straight, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-2)


def test_the_policy_is_symmetric_in_left_and_right(training, encounters):
    mirrored = encounters[:2000] * torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    costs = training.costs(encounters[:2000])
    torch.testing.assert_close(training.costs(mirrored), costs[:, MIRROR], rtol=0, atol=1e-9)


def test_the_policy_turns_away_and_leaves_distant_aircraft_alone(training):
    head_on = [3000.0, 0.3, -math.pi, 150.0, 150.0]  # ahead, a little to the left
    behind = [9000.0, math.pi, 0.0, 150.0, 150.0]
    far = [60000.0, 0.0, -math.pi, 150.0, 150.0]
    chosen = training.costs(torch.tensor([head_on, behind, far], dtype=torch.float64)).argmin(1)
    assert [ADVISORIES[i] for i in chosen] == ["strong right", "clear of conflict", "clear of conflict"]


def test_the_file_is_small_and_loading_it_draws_no_random_numbers():
    assert (ROOT / "src/exactline/zoo" / WEIGHTS).stat().st_size < 60_000
    before = torch.get_rng_state()
    assert not encounter_network().training
    assert torch.equal(torch.get_rng_state(), before)


def test_training_writes_the_same_file_every_time(training, tmp_path, monkeypatch, capsys):
    """Two short runs end to end; the long one is the script itself."""
    for name, value in (("TRAINING_ENCOUNTERS", 500), ("TEST_ENCOUNTERS", 200), ("UPDATES", 3)):
        monkeypatch.setattr(training, name, value)
    written = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        monkeypatch.setattr(sys, "argv", ["train_encounter.py", str(folder)])
        try:
            training.main()
        finally:
            torch.use_deterministic_algorithms(False)
        assert "agreement within 12,000 ft" in capsys.readouterr().out
        assert [p.name for p in folder.iterdir()] == [WEIGHTS]
        written.append((folder / WEIGHTS).read_bytes())
    assert written[0] == written[1]
