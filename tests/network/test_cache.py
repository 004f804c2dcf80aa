"""A module is captured once, and again exactly when what it computes may have changed."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import exactline as xl
from exactline import network as networks
from exactline.network.fingerprint import _checksum

Q, R = torch.tensor([-1.0, 2.0, 0.5]), torch.tensor([2.0, -1.0, 1.0])


def fresh() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2)
    return nn.Sequential(*layers).eval()


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The modules that were captured, in order."""
    seen: list[nn.Module] = []
    real = networks.capture

    def counted(module, points, until=None):
        seen.append(module)
        return real(module, points, until)

    monkeypatch.setattr(networks, "capture", counted)
    return seen


def test_later_calls_do_not_capture(captures):
    model = fresh()
    for _ in range(3):
        xl.restrict(model, Q, R)
        xl.restrict_many(model, Q[None], R[None])
        model(Q[None])
    assert len(captures) == 1


def scale(model):
    model[0].weight.data.mul_(1.5)


def swap(model):
    with torch.no_grad():
        model[0].bias[:2] = model[0].bias[:2].flip(0)


def load(model):
    torch.manual_seed(1)
    model.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in model.state_dict().items()})


def grow(model):
    model.append(nn.ReLU())


def replace(model):
    model[2] = nn.LeakyReLU(0.1)


def buffer(model):
    model[1].running_mean.add_(0.25)


def setting(model):
    model[1].eps = 0.5


def hook(model):
    model[0].register_forward_hook(lambda module, args, out: out * 2)


def step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def moved(model):
    model[0].weight = nn.Parameter(model[0].weight.detach().clone() * 2)


CHANGES = (scale, swap, load, grow, replace, buffer, setting, hook, step, moved)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_noticed(change, captures):
    model = fresh()
    before = xl.restrict(model, Q, R)
    change(model)
    after = xl.restrict(model, Q, R)
    assert len(captures) == 2
    grid = torch.linspace(0, 1, 9, dtype=torch.float64)
    assert not torch.equal(before.at(grid), after.at(grid))
    with torch.no_grad():
        assert torch.allclose(after.values[-1].float(), model(R[None])[0], atol=1e-5)
    assert torch.equal(after.alphas, xl.restrict(copy.deepcopy(model), Q, R).alphas)


def test_a_change_of_mode_is_noticed():
    model = fresh()
    xl.restrict(model, Q, R)
    model[3].train()
    with pytest.raises(xl.TrainingModeError):
        xl.restrict(model, Q, R)
    model[3].eval()
    xl.restrict(model, Q, R)


def test_modules_that_are_gone_are_not_kept():
    model = fresh()
    xl.restrict(model, Q, R)
    seen = weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_weights_that_are_parts_of_a_larger_tensor(dtype, first):
    """On a device eight bytes are read at once, wherever the part begins."""
    flat = torch.arange(32, dtype=dtype)
    part = flat[first : first + 9].view(torch.uint8)
    before = int(_checksum(part))
    assert int(_checksum(part.clone())) == before
    flat[first + 8] += 1
    assert int(_checksum(part)) != before
