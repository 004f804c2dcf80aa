"""Training in three ways: valid bounds, attacks that stay in their box, equal weights for equal seeds."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from exactline.errors import ArgumentError, LineError, UnsupportedError
from exactline.paper.training import attack
from exactline.paper.training import digits as training
from exactline.paper.training.bounds import compute_margin_bounds, propagate_intervals
from exactline.zoo import digits_images, digits_set, robust_facts, robust_network
from exactline.zoo.digits import PIXEL_LEVELS
from exactline.zoo.robust import METHODS, WEIGHTS, RobustNetwork

ROOT = Path(__file__).parents[3]


@pytest.fixture
def network():
    return RobustNetwork().double().eval()


@pytest.fixture
def weak_attack(monkeypatch):
    """A weaker attack, for tests that do not depend on its strength."""
    monkeypatch.setattr(attack, "ATTACK_STEPS", 2)
    monkeypatch.setattr(attack, "ATTACK_RESTARTS", 1)


@pytest.fixture
def boxes():
    low, high = torch.rand(2, 5, 1, 8, 8, dtype=torch.float64).sort(0).values
    return low, high


def test_the_bounds_of_every_layer_hold_on_the_whole_box(network, boxes):
    low, high = boxes
    corners = torch.where(torch.rand(50, *low.shape) < 0.5, low, high)
    inside = low + torch.rand(50, *low.shape, dtype=torch.float64) * (high - low)
    points, layers = torch.cat([corners, inside]), list(network)
    with torch.no_grad():
        for depth in range(1, len(network) + 1):
            below, above = propagate_intervals(layers[:depth], low, high)
            values = nn.Sequential(*layers[:depth])(points.flatten(0, 1)).unflatten(0, points.shape[:2])
            slack = 1e-12 * (1 + above.abs())  # rounding of sums of some hundred numbers of size 1
            assert (values >= below - slack).all()
            assert (values <= above + slack).all()


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(1, 2, 2, stride=1, padding=1)], ids=["linear", "conv"])
def test_bounds_of_one_affine_layer_are_attained_at_corners(layer):
    layer = layer.double()
    shape = (4,) if isinstance(layer, nn.Linear) else (1, 2, 2)
    low, high = torch.rand(2, *shape, dtype=torch.float64).sort(0).values
    corners = torch.tensor(np.stack(np.meshgrid(*[[0.0, 1.0]] * 4), -1).reshape(-1, 4)).view(-1, *shape)
    with torch.no_grad():
        below, above = propagate_intervals([layer], low[None], high[None])
        values = layer(low + corners * (high - low))
    torch.testing.assert_close(values.amin(0), below[0], rtol=0, atol=1e-14)
    torch.testing.assert_close(values.amax(0), above[0], rtol=0, atol=1e-14)


def test_bounds_solved_by_hand():
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    net[0].weight.data, net[0].bias.data = torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([0.0, 0.5]).double()
    net[2].weight.data, net[2].bias.data = torch.eye(2).double(), torch.tensor([0.0, 0.25]).double()
    low, high = torch.tensor([[0.0]]).double(), torch.tensor([[1.0]]).double()
    with torch.no_grad():
        below, above = propagate_intervals(net, low, high)  # units: 0..1 and relu(-0.5..0.5) = 0..0.5
        margins = compute_margin_bounds(net, low, high, torch.tensor([1]))
    assert (below.tolist(), above.tolist()) == ([[0.0, 0.25]], [[1.0, 0.75]])
    assert margins.tolist() == [[0.75, 0.0]]  # at most 1 - 0 - 0.25; the label never exceeds itself


def test_bounds_of_a_single_point_are_the_network_itself(network):
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    labels = torch.tensor([0, 4, 9])
    with torch.no_grad():
        scores = network(x)
        margins = compute_margin_bounds(network, x, x, labels)
    torch.testing.assert_close(margins, scores - scores.gather(1, labels[:, None]), rtol=0, atol=1e-13)


def test_unsupported_layers_are_refused():
    x = torch.zeros(1, 4)
    with pytest.raises(UnsupportedError, match="Tanh"):
        propagate_intervals([nn.Linear(4, 4), nn.Tanh()], x, x)
    with pytest.raises(UnsupportedError, match="does not end in a linear layer"):
        compute_margin_bounds(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), x, x, torch.tensor([0]))
    with pytest.raises(LineError, match="must not exceed"):
        propagate_intervals([nn.ReLU()], x + 1, x)


def test_an_attack_stays_in_its_box_and_finds_the_worst_corner_of_a_linear_classifier():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).double()
    x = torch.tensor([[0.5, 0.05, 0.95, 0.5]], dtype=torch.float64).view(1, 1, 2, 2)
    label = torch.tensor([0])
    found = attack.run_pgd(
        net, x, label, 0.1, steps=40, step=0.01, generator=torch.Generator().manual_seed(0), margin=True
    )
    low, high = attack.compute_box(x, 0.1)
    worst = torch.where((net[1].weight[1] - net[1].weight[0] > 0).view_as(x), high, low)
    assert (found >= low).all()
    assert (found <= high).all()
    torch.testing.assert_close(found, worst, rtol=0, atol=1e-15)


@pytest.mark.slow
def test_accuracies_are_ordered_and_radius_0_is_no_attack():
    images, labels = digits_set("test")
    found = attack.measure_robustness(robust_network("diffai"), images[:60], labels[:60], 0.08)
    assert 0 < found["certified accuracy"] <= found["pgd accuracy"] <= found["clean accuracy"] <= 1
    found = attack.measure_robustness(robust_network("diffai"), images[:60], labels[:60], 0.0)
    assert found["certified accuracy"] == found["pgd accuracy"] == found["clean accuracy"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.every(4)
def test_equal_seeds_give_equal_weights_whatever_the_settings_of_torch(method, weak_attack):
    one = training.train(method, epochs=1, seed=3)
    torch.manual_seed(77)
    torch.set_num_threads(2)
    before = torch.get_rng_state()
    try:
        two = training.train(method, epochs=1, seed=3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.are_deterministic_algorithms_enabled()
    assert one.facts == two.facts
    assert one.losses == two.losses
    for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_another_seed_gives_other_weights_and_each_epoch_is_reported(weak_attack):
    epochs_seen, shares = [], []
    one = training.train(
        epochs=2,
        on_epoch=lambda epoch, net: epochs_seen.append((epoch, net.training, net[0].bias.sum().item())),
        progress=lambda share, what: shares.append((share, what)),
    )
    assert [(epoch, mode) for epoch, mode, _ in epochs_seen] == [(0, False), (1, False), (2, False)]
    assert len({bias for _, _, bias in epochs_seen}) == 3
    assert not one.network.training
    assert [what.split(",")[0] for _, what in shares] == ["epoch 1 of 2", "epoch 2 of 2", "measuring"]
    assert len(one.losses) == 2
    assert one.losses[1] < one.losses[0]
    other = training.train(epochs=2, seed=1)
    assert not torch.equal(one.network[0].weight, other.network[0].weight)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"method": "magic"}, {"epochs": 0}, {"epochs": 1.5}, {"seed": -1}, {"seed": True}),
        *({"radius": -0.1}, {"radius": float("nan")}, {"radius": "wide"}, {"radius": 2.0}),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(wrong):
    with pytest.raises(ArgumentError):
        training.train(**wrong)


def test_the_bundled_digits_are_complete_and_split():
    (train, train_labels), (test, test_labels) = digits_set("train"), digits_set("test")
    assert (len(train), len(test)) == (1347, 450)
    assert torch.bincount(torch.cat([train_labels, test_labels])).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # as the page of the data set says  # fmt: skip
    levels = torch.cat([train, test]) * PIXEL_LEVELS
    assert torch.equal(levels, levels.round())
    assert (levels.min(), levels.max()) == (0, PIXEL_LEVELS)
    seen = {image.numpy().tobytes() for image in train}
    few, _ = digits_images()
    held = {image.numpy().tobytes() for image in test}
    assert all(image.numpy().tobytes() in held - seen for image in few)


def test_the_bundled_digits_are_those_of_scikit_learn():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import train_digits
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    train, test, train_labels, test_labels = train_digits.split_digits()
    for part, images, labels in (("train", train, train_labels), ("test", test, test_labels)):
        own, own_labels = digits_set(part)
        pairs = sorted((i.numpy().tobytes(), int(c)) for i, c in zip(images, labels, strict=True))
        assert pairs == sorted((i.numpy().tobytes(), int(c)) for i, c in zip(own, own_labels, strict=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.slow
def test_stored_facts_agree_with_the_stored_weights(method):
    facts = robust_facts()[method]
    found = training.measure_network(robust_network(method), method, facts["seed"], facts["epochs"], facts["radius"])
    # processors round differently: an attack may miss or find an image or two more
    assert found.pop("pgd accuracy") == pytest.approx(facts.pop("pgd accuracy"), abs=2.5 / 450)
    assert found == facts


def test_the_bundled_networks_are_as_robust_as_their_training_suggests():
    facts = robust_facts()
    assert facts["normal"]["clean accuracy"] >= 0.97
    assert facts["normal"]["pgd accuracy"] < 0.6
    assert facts["pgd"]["pgd accuracy"] > 0.75
    assert facts["diffai"]["certified accuracy"] > 0.7
    assert {own["radius"] for own in facts.values()} == {0.1}


def test_the_file_is_small_and_loading_it_draws_no_random_numbers():
    assert (ROOT / "src/exactline/zoo" / WEIGHTS).stat().st_size < 150_000
    before = torch.get_rng_state()
    assert not robust_network("diffai").training
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ArgumentError, match="no training method"):
        robust_network("magic")
    with pytest.raises(ArgumentError, match="no part"):
        digits_set("all")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_training_again_gives_the_bundled_network(method):
    found = training.train(method)
    facts = robust_facts()[method]
    assert found.facts["clean accuracy"] >= (0.97 if method == "normal" else 0.93)
    for name in ("clean accuracy", "pgd accuracy", "certified accuracy"):
        # processors round differently, so training drifts, but the accuracies stay close
        assert found.facts[name] == pytest.approx(facts[name], abs=0.04)
