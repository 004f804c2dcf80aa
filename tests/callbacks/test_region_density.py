"""RegionDensity: its numbers against single lines, that it leaves training alone, its files, and what it refuses."""

import csv
import random
import sys

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.callbacks import region_density
from exactline.measures.local_complexity import local_complexity, make_axes
from exactline.network import as_network


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(3, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2)
    )


def train(steps, monitor=None, seed=0):
    """A plain loop on random data; returns the model, its last loss, and what the generators give next."""
    model = make_model(seed).train()
    random.seed(0)
    np.random.seed(0)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.zeros(())
    for step in range(steps):
        x, y = torch.randn(16, 3), torch.randint(2, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        if monitor is not None:
            monitor.step(model, step)  # between backward and step: gradients must survive
        optimiser.step()
    return model, loss.item(), (torch.rand(1).item(), random.random(), np.random.random())


def test_training_is_the_same_to_the_last_bit_with_and_without_it():
    points = torch.zeros(2, 3)
    alone = train(8)
    watched = train(8, monitor := xl.callbacks.RegionDensity(points, every=3, radius=1.0, max_overhead=None))
    assert [r.step for r in monitor.history] == [0, 3, 6]
    assert alone[1:] == watched[1:]
    for a, b in zip(alone[0].state_dict().values(), watched[0].state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_mode_gradients_and_weights_are_untouched():
    model = make_model().train()
    model[0].eval()  # a frozen part stays as it is
    model(torch.randn(8, 3)).sum().backward()
    before = [(p.detach().clone(), p.grad.clone(), p.requires_grad) for p in model.parameters()]
    modes, state = [m.training for m in model.modules()], torch.get_rng_state()
    xl.callbacks.RegionDensity(torch.zeros(1, 3)).measure(model, 0)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for p, (value, grad, requires) in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, value)
        assert torch.equal(p.grad, grad)
        assert p.requires_grad == requires


def test_numbers_are_those_of_single_lines_of_the_network_in_eval_mode():
    points, radius = torch.randn(2, 3, generator=torch.Generator().manual_seed(5)), 1.5
    monitor = xl.callbacks.RegionDensity(points, radius=radius, axes=3, seed=1)
    model = make_model().train()
    for _ in range(3):  # statistics of the batch norm move
        model(torch.randn(32, 3))
    record = monitor.measure(model, 7)
    frozen = make_model()
    frozen.load_state_dict(model.state_dict())
    frozen.eval().double()
    axes = make_axes(points[0], 3, torch.Generator().manual_seed(1))
    pieces = crossings = 0
    for point in points.double():
        for axis in axes:
            line = xl.restrict(frozen, point - radius * axis, point + radius * axis)
            pieces += len(line)
            crossings += int(line.origin_table[1:-1, 2].sum())
    assert record.region_density == pytest.approx(pieces / 2 / (2 * radius * 3), rel=1e-12)
    assert record.crossings == crossings / 2
    assert record.step == 7


def test_local_complexity_counts_units_once_and_sees_what_corners_miss():
    """abs(x) - 1 crosses zero at -1 and 1; at both corners x = -2 and 2 it is positive."""

    def forward(x):
        return torch.relu(x.abs() - 1)

    network = as_network(forward, [torch.zeros(1)])
    found = local_complexity(network, torch.zeros(1, 1), torch.ones(1, 1), 2.0)
    assert (found.pieces.tolist(), found.crossings.tolist()) == ([4], [3])
    assert found.units.tolist() == [2]  # abs and relu
    assert found.vertex_units.tolist() == [1]  # abs alone
    assert found.region_density.tolist() == [1.0]


def test_axes_are_orthonormal_and_as_many_as_fit():
    axes = make_axes(torch.zeros(2, 2), 9, torch.Generator().manual_seed(0))
    assert axes.shape == (4, 2, 2)
    assert torch.allclose(axes.flatten(1) @ axes.flatten(1).T, torch.eye(4).double(), atol=1e-14)


def test_vertices_count_units_over_all_corners():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU()).double().eval()
    point, axes = torch.zeros(3).double(), make_axes(torch.zeros(3), 2, torch.Generator().manual_seed(3))
    corners = torch.cat([point + 0.5 * axes, point - 0.5 * axes])
    with torch.no_grad():
        signs = [model[:1](corners) > 0, model[:3](corners) > 0]
    expected = sum(int((s != s[:1]).any(0).sum()) for s in signs)
    found = local_complexity(model, point[None], axes, 0.5)
    assert found.vertex_units.tolist() == [expected]
    assert found.units.item() >= 0


def test_the_file_has_one_row_for_each_measurement(tmp_path):
    path = tmp_path / "regions.csv"
    monitor = xl.callbacks.RegionDensity(torch.zeros(1, 3), every=2, radius=1.0, max_overhead=None, csv=path)
    train(5, monitor)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [0, 2, 4]
    assert [float(row["crossings"]) for row in rows] == [r.crossings for r in monitor.history]


def test_scalars_go_to_a_writer():
    class Writer:
        scalars: list

        def __init__(self):
            self.scalars = []

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

        def flush(self):
            pass

    writer = Writer()
    xl.callbacks.RegionDensity(torch.zeros(1, 3), tensorboard=writer).measure(make_model(), 3)
    assert {name for name, _, _ in writer.scalars} == {
        f"regions/{n}" for n in ("region_density", "crossings", "local_complexity", "vertex_complexity", "seconds")
    }
    assert {step for _, _, step in writer.scalars} == {3}


def test_a_folder_for_tensorboard_is_written(tmp_path):
    pytest.importorskip("tensorboard")
    xl.callbacks.RegionDensity(torch.zeros(1, 3), tensorboard=tmp_path).measure(make_model(), 0)
    assert list(tmp_path.iterdir())


def test_the_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(xl.MissingError, match="tensorboard"):
        xl.callbacks.RegionDensity(torch.zeros(1, 3), tensorboard=tmp_path)


class Clock:
    """What the monitor takes for the time: a step takes 1 ms, a measurement 10 ms, however busy the machine is."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def measure(self, *args, **options):
        self.now += 0.010
        return local_complexity(*args, **options)


def test_measurements_wait_while_they_would_cost_too_much(monkeypatch):
    """After the first one, the share of the measurements stays below the limit and comes close to it."""
    clock, model = Clock(), make_model()
    monkeypatch.setattr(region_density, "time", clock)
    monkeypatch.setattr(region_density, "local_complexity", clock.measure)
    monitor = xl.callbacks.RegionDensity(torch.zeros(4, 3), every=1, radius=2.0, axes=3, max_overhead=0.2)
    for step in range(1000):
        clock.now += 0.001
        monitor.step(model, step)
        if len(monitor.history) > 1:
            assert monitor.seconds <= 0.2 * (step + 1) * 0.001 + 1e-9
    assert len(monitor.history) == pytest.approx(20, abs=1)


class Trainer:
    """What the callback reads of Lightning's trainer."""

    is_global_zero = True
    global_step = 0


def test_it_has_the_hooks_of_a_lightning_callback():
    monitor = xl.callbacks.RegionDensity(torch.zeros(1, 3), every=2, max_overhead=None)
    model, trainer = make_model(), Trainer()
    for hook in ("setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_sanity_check_start"):
        assert getattr(monitor, hook)(trainer, model) is None
    for trainer.global_step in range(1, 5):
        monitor.on_train_batch_end(trainer, model, None, None, 0)
    assert [r.step for r in monitor.history] == [1, 3]
    copy = xl.callbacks.RegionDensity(torch.zeros(1, 3), every=2, max_overhead=None)
    copy.load_state_dict(monitor.state_dict())
    assert copy.history == monitor.history
    trainer.is_global_zero, trainer.global_step = False, 9
    monitor.on_train_batch_end(trainer, model, None, None, 0)
    assert len(monitor.history) == 2  # other processes measure nothing
    with pytest.raises(AttributeError):
        _ = monitor.does_not_exist


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of Lightning's own use of torch
def test_lightning_trains_the_same_network_with_it():
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_model()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(callbacks):
        torch.manual_seed(0)
        module = Module()
        data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randint(2, (64,)))
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            max_epochs=2, callbacks=callbacks, accelerator="cpu", enable_model_summary=False, **quiet
        )
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
        return module

    monitor = xl.callbacks.RegionDensity(torch.zeros(1, 3), every=4, max_overhead=None, network="net")
    alone, watched = fit([]), fit([monitor])
    assert len(monitor.history) == 4
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), watched.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"radius": 0.0}, "radius"),
        ({"radius": float("nan")}, "radius"),
        ({"every": 0}, "every"),
        ({"axes": 0.5}, "axes"),
        ({"max_overhead": -1}, "max_overhead"),
        ({"points": torch.zeros(3)}, "points"),
        ({"points": torch.zeros(0, 3)}, "points"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(xl.ArgumentError, match=word):
        xl.callbacks.RegionDensity(**({"points": torch.zeros(1, 3)} | options))


def test_a_radius_lost_in_rounding_and_other_models_are_refused(tmp_path):
    with pytest.raises(xl.LineError, match="rounding"):
        xl.callbacks.RegionDensity(torch.full((1, 3), 1e20), radius=1e-3).measure(make_model(), 0)
    monitor = xl.callbacks.RegionDensity(torch.zeros(1, 3))
    monitor.measure(make_model(), 0)
    with pytest.raises(xl.ArgumentError, match="other weights"):
        monitor.measure(nn.Sequential(nn.Linear(3, 2)), 1)
    with pytest.raises(xl.ArgumentError, match="submodule"):
        xl.callbacks.RegionDensity(torch.zeros(1, 3), network="nowhere").measure(make_model(), 0)
    with pytest.raises(xl.FileError):
        xl.callbacks.RegionDensity(torch.zeros(1, 3), csv=tmp_path / "no" / "a.csv")
    with pytest.raises(xl.UnsupportedError):
        xl.callbacks.RegionDensity(torch.zeros(1, 3)).measure(
            nn.Sequential(nn.Linear(3, 2), nn.GELU(), nn.Linear(2, 2)), 0
        )
