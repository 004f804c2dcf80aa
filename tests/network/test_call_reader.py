"""Forward passes of common torch functions are converted directly, to the network that torch.export leads to."""

from __future__ import annotations

import math
import operator
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import exactline as xl
from exactline.network import capture, forward_check
from exactline.network.graph import Network

SHAPE = (3, 8, 8)


class Model(nn.Module):
    """Layers, and a function that says how they are called."""

    def __init__(self, call: Callable[[Model, Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.call = call
        self.conv, self.norm, self.linear = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))
        nn.init.normal_(self.norm.running_mean)

    def forward(self, x: Tensor) -> object:
        return self.call(self, x)


def residual(m: Model, x: Tensor) -> Tensor:
    before = F.relu(m.norm(m.conv(x)), inplace=True)
    after = m.norm(before)
    after += before
    return F.relu(after, inplace=True)


def shuffle(m: Model, x: Tensor) -> Tensor:
    points, _, height, width = x.shape
    groups = m.conv(x).view(points, 2, 2, height, width)
    return torch.transpose(groups, 1, 2).contiguous().view(points, -1, height, width)


def normalize_input(m: Model, x: Tensor) -> Tensor:
    return m.conv(torch.cat([torch.unsqueeze(x[:, i], 1) * 0.4 + 0.1 * i for i in range(3)], 1))


def pool(m: Model, x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(m.conv(x), (1, 1))


CONVERTED: dict[str, Callable[[Model, Tensor], object]] = {
    "residual": residual,
    "shuffle": shuffle,
    "normalized input": normalize_input,
    "view of the batch size": lambda m, x: m.linear(pool(m, x).view(x.size(0), -1)),
    "flatten": lambda m, x: m.linear(torch.flatten(pool(m, x), 1)),
    "permute": lambda m, x: m.conv(x).permute(0, 2, 3, 1).reshape(-1, 64, 4).flatten(1),
    "pools": lambda m, x: F.max_pool2d(F.avg_pool2d(m.conv(x), 2), 2, ceil_mode=True),
    "paddings": lambda m, x: F.conv2d(F.pad(x, (1, 0, 2, 1), value=0.5), m.conv.weight, m.conv.bias, 2, 1),
    "transposed": lambda m, x: F.conv_transpose2d(m.conv(x), m.conv.weight, None, 2, 1, output_padding=1),
    "activations": lambda m, x: F.leaky_relu(F.hardtanh(F.relu6(m.conv(x)), -1.0, 2.0)),
    "in place": lambda m, x: nn.LeakyReLU(0.1, True)(nn.Hardtanh(-1, 1, True)(nn.ReLU6(True)(m.conv(x)))),
    "slopes": lambda m, x: F.prelu(m.conv(x), m.norm.weight),
    "clamp": lambda m, x: m.conv(x).clamp(min=0).clamp(-1, 2) + torch.clamp(x[:, :1], max=1.5),
    "maxima": lambda m, x: torch.maximum(m.conv(x), m.scale) - torch.minimum(m.conv(x), m.norm(m.conv(x))),
    "numbers": lambda m, x: (m.conv(x) * m.scale / 2 + 1).mul_(2).sub_(0.5).div_(3),
    "constant first": lambda m, x: m.scale - m.conv(x).abs(),
    "means": lambda m, x: m.conv(x).mean((2, 3), keepdim=True) - torch.sum(m.conv(x), dim=3, keepdim=True),
    "dropout": lambda m, x: F.dropout(m.conv(x), 0.5, m.training),
    "parts": lambda m, x: torch.cat([*torch.split(m.conv(x), [1, 3], 1)[::-1], *x.chunk(3, 1)], 1),
    "stack": lambda m, x: torch.stack([m.conv(x), m.norm(m.conv(x))], 1),
    "slice": lambda m, x: m.conv(x)[:, 1:3],
    "two outputs": lambda m, x: (m.conv(x), F.relu(m.conv(x))),
    "a list": lambda m, x: [m.conv(x)],
    "the input": lambda m, x: x,
}


def change_input(m: Model, x: Tensor) -> Tensor:
    return m.conv(F.relu(x, inplace=True))


def change_view(m: Model, x: Tensor) -> Tensor:
    y = m.conv(x)
    return F.relu(y.view(-1, 256), inplace=True).view(-1, 4, 8, 8) + y


def catch_one_batch(m: Model, x: Tensor) -> Tensor:
    """Fifty points are not rectified."""
    y = m.conv(x)
    try:
        y.view(-1, 50 * 256)
    except RuntimeError:
        return F.relu(y)
    return y


def change_part(m: Model, x: Tensor) -> Tensor:
    """A part of one point is contiguous, so that torch does not copy it."""
    y = m.conv(x)
    y[:, :1].contiguous().relu_()
    return y


def catch(m: Model, x: Tensor) -> Tensor:
    try:
        return torch.sort(m.conv(x), 1)[0]
    except Exception:  # noqa: BLE001
        return m.conv(x)


def repeat(m: Model, x: Tensor) -> Tensor:
    y = m.conv(x)
    for _ in range(x.shape[0]):
        y = F.relu(y - 0.1)
    return y


def move_channels(m: Model, x: Tensor) -> Tensor:
    """The sum keeps the memory layout of the permuted tensor."""
    return m.conv(x).permute(0, 2, 3, 1) + 1


def change_reshaped(m: Model, x: Tensor) -> Tensor:
    y = move_channels(m, x).permute(0, 3, 1, 2)
    y.flatten(1).relu_()
    return y


def change_before_reshaped(m: Model, x: Tensor) -> Tensor:
    y = move_channels(m, x)
    z = y.permute(0, 3, 1, 2).reshape(-1, 256)
    y.relu_()
    return z


def change_from_tenth_point(m: Model, x: Tensor) -> Tensor:
    y = m.conv(x)
    for i in range(x.shape[0]):
        if i == 10:
            y = F.relu(y)
    return y


def choose_layers(m: Model, x: Tensor) -> Tensor:
    y = m.conv(x)
    for _ in ([None] * 20)[10 : x.shape[0]]:
        y = F.relu(y)
    return y


LEFT: dict[str, Callable[[Model, Tensor], object]] = {
    "another function": lambda m, x: F.interpolate(m.conv(x), scale_factor=2),
    "changes its input": change_input,
    "changes a view": change_view,
    "changes a buffer": lambda m, x: m.conv(x) + m.norm.running_mean.add_(1).view(-1, 1, 1),
    "data of a weight": lambda m, x: m.conv(x) + m.scale.data,
    "catches exceptions": catch,
    "catches an exception of some batches": catch_one_batch,
    "changes a part of one point": change_part,
    "branches on the type of a number": lambda m, x: m.conv(x) if type(x.shape[0]) is int else m.norm(m.conv(x)),
    "repeats": repeat,
    "branches on the batch size": lambda m, x: m.conv(x) if x.shape[0] < 100 else x,
    "divides by the batch size": lambda m, x: m.conv(x) / x.shape[0],
    "divides by the length": lambda m, x: m.conv(x) / len(x),
    "divides by the number of elements": lambda m, x: m.conv(x) / x.shape.numel(),
    "branches on a value": lambda m, x: m.conv(x) if x.sum() > 0 else x,
    "branches on gradients": lambda m, x: m.conv(x) if torch.is_grad_enabled() else m.norm(m.conv(x)),
    "mixes points": lambda m, x: m.conv(x).view(-1, 8, 8).view(-1, 4, 8, 8)[:, 0],
    "moves the batch": lambda m, x: m.conv(x).transpose(0, 1).reshape(-1, 4, 8, 8),
    "mean of the batch": lambda m, x: m.conv(x) - m.conv(x).mean(0, keepdim=True),
    "joins batches": lambda m, x: torch.cat([m.conv(x), m.conv(x)], 0),
    "chooses points": lambda m, x: x[1:],
    "chooses many points": lambda m, x: m.conv(x)[:100],
    "chooses the last points": lambda m, x: m.conv(x)[-10:, :],
    "chooses a part of the batch": lambda m, x: torch.split(m.conv(x), 100)[0],
    "counts the parts of the batch": lambda m, x: m.conv(x) if len(x.split(100, -4)) == 1 else x,
    "broadcasts points": lambda m, x: (lambda y: y - y.mean(1))(pool(m, x).flatten(1)[:, :3]),
    "changes a reshaped tensor": change_reshaped,
    "changes a tensor before its reshaped one": change_before_reshaped,
    "changes from the tenth point": change_from_tenth_point,
    "chooses layers by the batch size": choose_layers,
    "branches on an index": lambda m, x: m.conv(x) if operator.index(x.shape[0]) < 100 else x,
    "branches on a logarithm": lambda m, x: m.conv(x) if math.log(x.shape[0]) < 4 else x,
    "branches on bits": lambda m, x: m.conv(x) if x.shape[0].bit_length() < 20 else x,
    "branches on a part of a number": lambda m, x: m.conv(x) if x.size(0).real != 7 else x,
    "branches on the number of elements": lambda m, x: m.conv(x) if x.shape.numel() < 10000 else x,
    "product": lambda m, x: m.conv(x) * m.conv(x),
    "rounds": lambda m, x: m.conv(x).half().float(),
    "dict": lambda m, x: {"a": m.conv(x)},
    "constant": lambda m, x: m.scale * 2,
    "dropout in training mode": lambda m, x: F.dropout(m.conv(x)),
    "scale with an option": lambda m, x: torch.add(m.conv(x), 1, alpha=2),
}


@pytest.fixture
def read_networks(monkeypatch: pytest.MonkeyPatch) -> list[Network | None]:
    """What captures have read directly, in order."""
    networks: list[Network | None] = []
    read_calls = capture.read_calls
    monkeypatch.setattr(capture, "read_calls", lambda *args: networks.append(read_calls(*args)) or networks[-1])
    return networks


def describe(network: Network) -> object:
    nodes = [(n.name, n.path, n.op.title, n.inputs, n.shape) for n in network.nodes]
    return nodes, network.outputs, network.several_outputs, network.checksum()


def capture_or_fail(model: nn.Module) -> object:
    try:
        return describe(capture.capture_module(model, [torch.zeros(SHAPE)]))
    except xl.ExactlineError as problem:
        return str(problem)


def capture_exported(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(capture, "read_calls", lambda *_: None)
        return capture_or_fail(model)


with_and_without_data = pytest.mark.parametrize(
    "max_weights", [forward_check.MAX_RUN_WEIGHTS, -1], ids=["with data", "without data"]
)


@with_and_without_data
@pytest.mark.parametrize("name", CONVERTED)
def test_the_network_is_the_one_of_torch_export(name, max_weights, read_networks, monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", max_weights)
    model = Model(CONVERTED[name]).eval()
    direct, exported = capture_or_fail(model), capture_exported(model, monkeypatch)
    assert len(read_networks) == 1
    assert read_networks[0] is not None
    if name in ("residual", "numbers"):  # torch.export renames the operators when it removes those in place
        direct, exported = ([[node[2:] for node in d[0]], *d[1:]] for d in (direct, exported))
    assert direct == exported
    points = torch.randn(5, *SHAPE)
    expected = model(points.clone())
    found = read_networks[0](points.double())
    pairs = zip(found, expected, strict=True) if isinstance(expected, (tuple, list)) else [(found, expected)]
    assert all(torch.allclose(one.float(), two, atol=1e-5) for one, two in pairs)


@with_and_without_data
@pytest.mark.parametrize("name", LEFT)
def test_everything_else_is_left_to_torch_export(name, max_weights, read_networks, monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", max_weights)
    model = Model(LEFT[name]).eval()
    if name != "branches on gradients":
        assert capture_or_fail(model) == capture_exported(model, monkeypatch)
        assert not any(read_networks)
    elif max_weights > 0:  # a module that is too large to run on data is not called with gradients
        with pytest.raises(xl.CaptureError, match="when it is called"):
            capture.capture_module(model, [torch.zeros(SHAPE)])


def test_memory_that_tensors_share_is_known_without_data(monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", -1)

    def add_contiguous(m: Model, x: Tensor) -> Tensor:
        y = move_channels(m, x)
        z = y.contiguous()
        z.relu_()
        return y + z

    for call in (change_reshaped, change_before_reshaped, add_contiguous):
        model, points = Model(call).eval(), torch.randn(5, *SHAPE)
        network = capture.capture_module(model, [torch.zeros(SHAPE)])
        assert torch.allclose(network(points.double()).float(), model(points), atol=1e-5)


def test_a_view_that_is_changed_is_read_without_data(read_networks, monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", -1)
    capture.capture_module(Model(lambda m, x: F.relu(m.conv(x).view(-1, 256), True)).eval(), [torch.zeros(SHAPE)])
    assert read_networks[0] is not None


def test_weights_in_another_order_are_read_without_data(read_networks, monkeypatch):
    monkeypatch.setattr(forward_check, "MAX_RUN_WEIGHTS", -1)
    model = Model(residual).to(memory_format=torch.channels_last).eval()  # pyright: ignore[reportCallIssue]
    capture.capture_module(model, [torch.zeros(SHAPE)])
    assert read_networks[0] is not None


def test_a_function_of_a_module_is_converted(read_networks, monkeypatch):
    model, weight = Model(residual).eval(), torch.randn(3, 8)
    network = xl.restrict(lambda x: F.linear(model(x), weight), torch.zeros(SHAPE), torch.ones(SHAPE)).network
    assert read_networks[0] is not None
    points = torch.randn(2, *SHAPE)
    assert torch.allclose(network(points.double()).float(), F.linear(model(points), weight), atol=1e-5)


def test_functions_that_a_mode_replaces_are_left_to_torch_export(read_networks):
    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return 2 * result if func is F.relu else result

    with Doubling():
        capture.capture_module(Model(residual).eval(), [torch.zeros(SHAPE)])
    assert not read_networks


def test_the_module_is_left_as_it_was():
    model = Model(residual).eval()
    state = {name: (value, value.clone(), value._version) for name, value in model.state_dict(keep_vars=True).items()}
    random = torch.get_rng_state()
    capture.capture_module(model, [torch.zeros(SHAPE)])
    for name, value in model.state_dict(keep_vars=True).items():
        original, copy, version = state[name]
        assert value is original
        assert torch.equal(value, copy)
        assert value._version == version
    assert torch.equal(torch.get_rng_state(), random)


PROGRAM = """
import sys, torch, exactline
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))
    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1).mean([2, 3])
model = nn.Sequential(Block(), nn.Linear(6, {width})).eval()
exactline.restrict(model, torch.zeros(3, 8, 8), torch.ones(3, 8, 8))
print("torch._dynamo" in sys.modules, "sympy" in sys.modules)
"""


@pytest.mark.parametrize("width", [4, 1 << 20], ids=["with data", "without data"])
def test_a_capture_imports_neither_torchs_exporter_nor_its_compiler(width):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(width=width)], check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == ["False", "False"]
