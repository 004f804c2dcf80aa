"""Networks from every source become one that takes feet: clipped, normalized on request, five inputs, five costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network import as_network
from exactline.paper.acas.advisor import INPUT_MAXIMA, INPUT_MEANS, INPUT_MINIMA, INPUT_RANGES, load_advisor
from exactline.paper.compose import compose_networks
from tests.paper.acas.solved_by_hand import Rings

BARE = """1,5,5,5,
5,5,
0,
0,-3,-3,100,0,
1000,3,3,1200,1200,
500,0,0,600,600,7,
1000,6,6,1200,1200,2,
1,0,0,0,0,
0,1,0,0,0,
0,0,1,0,0,
0,0,0,1,0,
0,0,0,0,1,
0,
0,
0,
0,
0,
"""
WIDE = torch.tensor([[-5.0, -4.0, 0.5, 50.0, 9999.0], [70000.0, 1.0, 4.0, 300.0, 10.0]], dtype=torch.float64)


class Shaped(nn.Module):
    """The identity with unusual input and output shapes."""

    def forward(self, x: Tensor) -> Tensor:  # (n, 1, 5, 1) -> (n, 5, 1)
        return x.flatten(1)[:, :, None] * 1.0


def clip(x: Tensor) -> Tensor:
    return x.clamp(torch.tensor(INPUT_MINIMA, dtype=x.dtype), torch.tensor(INPUT_MAXIMA, dtype=x.dtype))


def normalize(x: Tensor) -> Tensor:
    return (clip(x) - torch.tensor(INPUT_MEANS, dtype=x.dtype)) / torch.tensor(INPUT_RANGES, dtype=x.dtype)


def test_modules_take_feet_by_default():
    network = as_network(Shaped(), [torch.zeros(1, 5, 1)])
    torch.testing.assert_close(load_advisor(network).network(WIDE), clip(WIDE), rtol=1e-15, atol=0)
    torch.testing.assert_close(load_advisor(network, normalize=True).network(WIDE), normalize(WIDE), rtol=1e-14, atol=0)


def test_the_bundled_network_is_its_module_and_loads_without_torchs_compiler():
    points = torch.tensor([[3000.0, 0.3, -3.1, 150.0, 150.0], [9000.0, 3.1, 3.1, 400.0, 150.0]], dtype=torch.float64)
    traced = as_network(xl.zoo.encounter_network(), [torch.zeros(5)])
    torch.testing.assert_close(load_advisor().network(points), traced(points), rtol=1e-13, atol=1e-14)
    code = (
        "import sys; from exactline.paper.acas.advisor import load_advisor as load; load();"
        " sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=100).returncode == 0


def test_onnx_files_are_normalized_by_default(tmp_path: Path):
    pytest.importorskip("onnx")
    path = tmp_path / "shaped.onnx"
    as_network(Shaped(), [torch.zeros(1, 5, 1)]).save(path)
    assert xl.load(path).input_shape == (1, 5, 1)
    torch.testing.assert_close(load_advisor(path).network(WIDE), normalize(WIDE), rtol=1e-14, atol=0)
    torch.testing.assert_close(load_advisor(str(path), normalize=False).network(WIDE), clip(WIDE), rtol=1e-15, atol=0)


def test_a_nnet_file_contains_its_ranges_and_normalization(tmp_path: Path):
    path = tmp_path / "bare.nnet"
    path.write_text(BARE)
    advisor = load_advisor(path)
    assert (advisor.input_minima, advisor.input_maxima) == ((0, -3, -3, 100, 0), (1000, 3, 3, 1200, 1200))
    inside = torch.tensor([[0, -3, 0.5, 100, 1200], [1000, 1, 3, 300, 10]], dtype=torch.float64)
    means, ranges = torch.tensor([500.0, 0, 0, 600, 600]), torch.tensor([1000.0, 6, 6, 1200, 1200])
    torch.testing.assert_close(advisor.network(WIDE), (inside - means) / ranges * 2 + 7, rtol=1e-14, atol=0)
    torch.testing.assert_close(load_advisor(path, normalize=False).network(WIDE), inside, rtol=1e-15, atol=0)
    path.write_text(BARE.replace("0,-3,-3,100,0", "0,4,-3,100,0"))
    with pytest.raises(xl.ArgumentError, match="above its maximum"):
        load_advisor(path)


def test_composed_networks_compute_the_composition():
    torch.manual_seed(1)
    first, second = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double().eval() for _ in range(2))
    both = compose_networks(as_network(first, [torch.zeros(4)]), as_network(second, [torch.zeros(4)]))
    x = torch.randn(50, 4, dtype=torch.float64)
    torch.testing.assert_close(both(x), second(first(x)).detach(), rtol=1e-14, atol=1e-15)
    assert len({node.name for node in both.nodes}) == len(both.nodes)
    line = xl.restrict(both, x[0], x[1])
    assert torch.allclose(line.alphas, xl.restrict(nn.Sequential(first, second), x[0], x[1]).alphas, atol=1e-12)


def test_advice_is_the_cheapest():
    rho = torch.zeros(4, 5, dtype=torch.float64)
    rho[:, 0] = torch.tensor([0.0, 3000.0, 4000.0, 5001.0])
    assert load_advisor(Rings().eval()).advise(rho).tolist() == [1, 3, 1, 0]


@pytest.mark.parametrize(
    "model", [nn.Linear(5, 4), as_network(nn.Linear(4, 5).eval(), [torch.zeros(4)]), nn.Linear(5, 6)], ids=str
)
def test_networks_of_another_shape_are_refused(model):
    model = model.eval() if isinstance(model, nn.Module) else model
    with pytest.raises(xl.ArgumentError, match="5 inputs and 5 outputs"):
        load_advisor(model)


def test_a_network_that_ends_in_probabilities_is_refused():
    with pytest.raises(xl.UnsupportedError, match="not costs"):
        load_advisor(nn.Sequential(nn.Linear(5, 5), nn.Softmax(1)).eval())


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    with pytest.raises(xl.FileError):
        load_advisor(tmp_path / "absent.nnet")
    with pytest.raises(xl.FileError, match="format"):
        load_advisor(tmp_path / "network.txt")
