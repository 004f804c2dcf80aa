"""A module is captured once, and again exactly when its function may have changed."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import exactline as xl
from exactline import network as networks
from exactline.network.state_walk import checksum_words

START, END = torch.tensor([-1.0, 2.0, 0.5]), torch.tensor([2.0, -1.0, 1.0])


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2)
    return nn.Sequential(*layers).eval()


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The modules that are captured during a test, in order."""
    modules: list[nn.Module] = []
    capture_module = networks.capture_module

    def record_capture(module, points, until=None):
        modules.append(module)
        return capture_module(module, points, until)

    monkeypatch.setattr(networks, "capture_module", record_capture)
    return modules


def test_later_calls_do_not_capture(captures):
    model = make_model()
    for _ in range(3):
        xl.restrict(model, START, END)
        xl.restrict_many(model, START[None], END[None])
        model(START[None])
    assert len(captures) == 1


def scale_weights(model):
    model[0].weight.data.mul_(1.5)


def swap_biases(model):
    with torch.no_grad():
        model[0].bias[:2] = model[0].bias[:2].flip(0)


def load_weights(model):
    torch.manual_seed(1)
    model.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in model.state_dict().items()})


def append_layer(model):
    model.append(nn.ReLU())


def replace_layer(model):
    model[2] = nn.LeakyReLU(0.1)


def change_buffer(model):
    model[1].running_mean.add_(0.25)


def change_setting(model):
    model[1].eps = 0.5


def add_hook(model):
    model[0].register_forward_hook(lambda module, args, out: out * 2)


def take_optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def replace_parameter(model):
    model[0].weight = nn.Parameter(model[0].weight.detach().clone() * 2)


CHANGES = (
    *(scale_weights, swap_biases, load_weights, append_layer, replace_layer),
    *(change_buffer, change_setting, add_hook, take_optimizer_step, replace_parameter),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.every(10)
def test_a_change_is_noticed(change, captures):
    model = make_model()
    before = xl.restrict(model, START, END)
    change(model)
    after = xl.restrict(model, START, END)
    assert len(captures) == 2
    grid = torch.linspace(0, 1, 9, dtype=torch.float64)
    assert not torch.equal(before.at(grid), after.at(grid))
    with torch.no_grad():
        assert torch.allclose(after.values[-1].float(), model(END[None])[0], atol=1e-5)
    assert torch.equal(after.alphas, xl.restrict(copy.deepcopy(model), START, END).alphas)


def test_a_change_of_mode_is_noticed():
    model = make_model()
    xl.restrict(model, START, END)
    model[3].train()
    with pytest.raises(xl.TrainingModeError):
        xl.restrict(model, START, END)
    model[3].eval()
    xl.restrict(model, START, END)


def test_the_cache_keeps_no_module_alive():
    model = make_model()
    xl.restrict(model, START, END)
    weight = weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert weight() is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_the_checksum_of_a_view_into_a_larger_tensor(dtype, first):
    """On a device the checksum reads eight bytes at a time, also from a view that is not aligned to them."""
    flat = torch.arange(32, dtype=dtype)
    view = flat[first : first + 9].view(torch.uint8)
    before = int(checksum_words(view))
    assert int(checksum_words(view.clone())) == before
    flat[first + 8] += 1
    assert int(checksum_words(view)) != before
