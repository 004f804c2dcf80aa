"""Constructs that are piecewise linear are read; those that are not are refused with their own reason."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl
from tests.network.function_module import FunctionModule

START, END = torch.tensor([-1.0, 2.0, 0.5, -0.75]), torch.tensor([2.0, -1.5, 1.0, 1.25])
MASK = torch.tensor([True, False, True, True])
WEIGHT = torch.tensor([0.1, 0.2, 0.3, 0.7])


class Masked(nn.Module):
    """A constant mask between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", MASK)
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        kept = F.relu(x)[:, self.mask]
        return self.layer(kept).reshape(x.shape[0], -1) + kept.shape[1]


def clip_by_mask(x: Tensor) -> Tensor:
    z = 2 * x
    z[z < 0] = 0
    return z


def fill_in_parts(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], 8)
    out[:, :4] = x
    out[:, 4:] = F.relu(x)
    return out.flip(1)


def fill_half(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], 8)
    out[:, :4] = x
    return out


READABLE = {
    "masked assignment": clip_by_mask,
    "constant mask": lambda x: x[:, MASK],
    "constant mask before a layer": Masked(),
    "l1 loss": lambda x: F.l1_loss(x, torch.ones_like(x), reduction="none"),
    "empty and copy": lambda x: torch.empty_like(x).copy_(F.relu(x)),
    "empty in parts": fill_in_parts,
    "constant in 16 bits": lambda x: x * WEIGHT.half().float(),
}


@pytest.mark.parametrize("name", READABLE)
def test_a_piecewise_linear_construct_is_read(name):
    case = READABLE[name]
    model = (case if isinstance(case, nn.Module) else FunctionModule(case)).eval()
    line = xl.restrict(model, START, END)
    alphas = torch.linspace(0, 1, 17, dtype=torch.float64)
    points = torch.lerp(START.double(), END.double(), alphas[:, None])
    with torch.no_grad():
        assert torch.allclose(line.at(alphas).float(), model(points.float()), atol=1e-5)


def test_the_sum_of_points_in_a_loss_is_refused():
    with pytest.raises(xl.UnsupportedError, match="mixes the batch"):
        xl.restrict(FunctionModule(lambda x: F.l1_loss(x, torch.zeros_like(x)).expand(x.shape[0], 1)), START, END)


UNINITIALIZED = {
    "sum": lambda x: x + torch.empty(4),
    "one row for each point": lambda x: x + torch.empty(x.shape[0], 4),
    "output": fill_half,
    "like": lambda x: F.relu(torch.empty_like(x) + x),
    "read in an operator": lambda x: F.relu(fill_half(x)),
}


@pytest.mark.parametrize("name", UNINITIALIZED)
def test_reading_uninitialized_memory_is_refused(name):
    with pytest.raises(xl.UnsupportedError, match="uninitialized"):
        xl.restrict(FunctionModule(UNINITIALIZED[name]), START, END)


ROUNDED = {
    "half": lambda x: x.half(),
    "type_as": lambda x: x.type_as(WEIGHT.half()),
    "sum": lambda x: x.sum(1, dtype=torch.bfloat16),
    "mean": lambda x: x.mean(1, dtype=torch.float16),
    "cumsum": lambda x: x.cumsum(1, dtype=torch.float16),
    "softmax": lambda x: x.softmax(1, dtype=torch.float16),
    "integer": lambda x: x.sum(1, dtype=torch.int64),
    "autocast": lambda x: _linear_in_bfloat16(x),
}


def _linear_in_bfloat16(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.linear(x, torch.ones(2, 4))


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_inside_forward_is_refused(name):
    with pytest.raises(xl.UnsupportedError, match=r"rounds to (b?float16|int64) inside forward"):
        xl.restrict(FunctionModule(ROUNDED[name]), START, END)


def test_a_model_in_16_bits_may_compute_in_16_bits():
    model = nn.Sequential(nn.Linear(4, 3), FunctionModule(lambda x: F.relu(x).sum(1, dtype=torch.bfloat16))).bfloat16()
    line = xl.restrict(model.eval(), START, END)
    weight, bias = (p.detach().double() for p in model[0].parameters())
    assert torch.allclose(line.values[0], F.relu(weight @ START.double() + bias).sum(), rtol=1e-12)


def test_the_bits_of_a_value_may_not_be_read():
    with pytest.raises(xl.UnsupportedError, match="reads the bits"):
        xl.restrict(FunctionModule(lambda x: x.view(torch.int32)), START, END)


@pytest.mark.parametrize("condition", ["constant", "input"])
def test_control_flow_operators_are_refused(condition):
    def function(x: Tensor) -> Tensor:
        choose = torch.tensor(True) if condition == "constant" else x.amax(1).sum() > 0
        return torch.cond(choose, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(xl.UnsupportedError, match="cond is control flow"):
        xl.restrict(FunctionModule(function), START, END)


REPEATED = {
    "div": lambda x: x / (x + 9),
    "threshold": lambda x: F.threshold(x, 1, 0),
    "mul": lambda x: x * x.flip(1),
    "gelu": F.gelu,
    "to": lambda x: x.half().float(),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_operator_gets_the_same_reason_each_time(name):
    model = nn.Sequential(
        *(FunctionModule(REPEATED[name]) for _ in range(3)), nn.Linear(4, 4), nn.ReLU(), nn.GELU()
    ).eval()
    with pytest.raises(xl.UnsupportedError) as error:
        xl.restrict(model, START, END)
    lines = [node.split(": ", 1) for node in error.value.nodes]
    assert [path for path, _ in lines] == ["0", "1", "2", "5"]
    assert len({reason for path, reason in lines if path != "5"}) == 1


@pytest.mark.filterwarnings("ignore")  # torch deprecates TorchScript and its quantisation
def test_modules_that_cannot_be_traced_are_refused_with_a_way_out():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    with torch.inference_mode():
        frozen = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    refused = {
        "Python module": [torch.jit.script(model), nn.Sequential(torch.jit.trace(model, torch.zeros(2, 4)))],
        "deepcopy": [frozen],
    }
    if "fbgemm" in torch.backends.quantized.supported_engines:
        quantize = torch.ao.quantization.quantize_dynamic
        refused["floating-point model"] = [quantize(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)]
    for hint, models in refused.items():
        for bad in models:
            with pytest.raises(xl.CaptureError) as error:
                xl.restrict(bad, START, END)
            assert hint in error.value.hint
            assert error.value.where.startswith("submodule")
    assert len(xl.restrict(copy.deepcopy(frozen), START, END)) >= 1


def test_distributed_data_parallel_is_unwrapped():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped = nn.parallel.DistributedDataParallel(model)
        assert torch.equal(xl.restrict(wrapped, START, END).values, xl.restrict(model, START, END).values)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_a_number_of_the_whole_batch_mixes_its_points(name: str):
    model = torch.nn.Sequential(torch.nn.ReLU())
    model.forward = lambda x: getattr(x, name)()
    with pytest.raises(xl.UnsupportedError) as caught:
        xl.restrict(model, torch.zeros(3), torch.ones(3))
    assert caught.value.nodes == (f"{name} mixes the batch dimension",)


def test_a_path_is_no_model_but_load_reads_it():
    with pytest.raises(xl.ArgumentError) as caught:
        xl.restrict("net.onnx", torch.zeros(3), torch.ones(3))  # type: ignore[arg-type]
    assert "exactline.load(path)" in caught.value.hint


@pytest.mark.parametrize(
    "function",
    [lambda x: (x * 1j).abs(), lambda x: 1j - x, lambda x: x / 1j, lambda x: torch.add(x, x, alpha=1j)],
    ids=["mul", "rsub", "div", "alpha"],
)
def test_complex_numbers_are_refused(function):
    with pytest.raises(xl.UnsupportedError, match="computes with complex numbers"):
        xl.restrict(function, START, END)
