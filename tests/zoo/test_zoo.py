"""The bundled networks have the values and accuracies that their docstrings state."""

import sys
from pathlib import Path

import pytest
import torch

from exactline.errors import ArgumentError
from exactline.zoo import digits_images, digits_network, loan_line, loan_network, tent_network

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def training():
    """The training script as a module."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import train_digits
    finally:
        sys.path.remove(str(SCRIPTS))
    return train_digits


def test_the_loan_network_has_the_values_of_the_paper():
    start, end = loan_line()
    points = torch.stack([start, torch.lerp(start, end, 1 / 3), torch.lerp(start, end, 2 / 3), end])
    expected = torch.tensor([[0, 4], [0, 2], [1, 0], [2, 0]], dtype=torch.float64)
    torch.testing.assert_close(loan_network()(points).detach(), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("depth", [1, 2, 3, 10])
def test_a_tent_network_is_exact_at_every_break_and_between(depth):
    alphas = torch.arange(2 ** (depth + 2) + 1, dtype=torch.float64) / 2 ** (depth + 2)  # four steps for each piece
    values = tent_network(depth)(alphas[:, None]).flatten()
    one_tent = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25], dtype=torch.float64)
    expected = torch.cat([one_tent.repeat(2 ** (depth - 1)), torch.zeros(1, dtype=torch.float64)])
    assert torch.equal(values, expected)


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_tent_units_change_sign_only_where_a_break_belongs(depth):
    """The first unit of a layer never turns negative on [0, 1], the second does so at odd k / 2**layer alone."""
    network = tent_network(depth)
    alphas = torch.arange(2**depth + 1, dtype=torch.float64)[:, None] / 2**depth
    for layer in range(depth):
        before = network[: 2 * layer + 1](alphas)
        assert (before[:, 0] >= 0).all()
        zeros = (before[:, 1] == 0).nonzero().flatten()
        assert zeros.tolist() == list(range(2 ** (depth - layer - 1), 2**depth, 2 ** (depth - layer)))


def test_a_tent_network_needs_a_depth():
    with pytest.raises(ArgumentError, match="depth 0"):
        tent_network(0)


def test_making_networks_draws_no_random_numbers():
    before = torch.get_rng_state()
    for network in (digits_network(), loan_network(), tent_network(3)):
        assert not network.training
    assert torch.equal(torch.get_rng_state(), before)


def test_the_digits_network_classifies_its_test_set(training):
    _, images, _, labels = training.split_digits()
    accuracy = training.accuracy(digits_network(), images, labels)
    print(f"test accuracy {accuracy:.2%}")
    assert accuracy >= 0.97


def test_the_bundled_digits_are_from_the_test_set(training):
    images, labels = digits_images()
    train_images, test_images, _, test_labels = training.split_digits()
    assert labels.tolist() == [digit for digit in range(10) for _ in range(2)]
    for image, label in zip(images, labels, strict=True):
        same = (test_images == image).flatten(1).all(1)
        assert same.any()
        assert (test_labels[same] == label).all()
        assert not (train_images == image).flatten(1).all(1).any()


@pytest.mark.slow
def test_training_again_gives_a_network_as_good(training, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_digits.py", str(tmp_path)])
    threads = torch.get_num_threads()
    try:
        training.main()
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["digits.safetensors", "digits_images.safetensors"]
    shown = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("test accuracy"))
    assert float(shown.split()[2].rstrip("%")) >= 97
