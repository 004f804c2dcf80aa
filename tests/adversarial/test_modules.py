"""Unusual modules: in training mode, with hooks, wrapped, in low precision. A call leaves every module unchanged."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import exactline as xl

from .truth import (
    Function,
    assert_matches_module,
    assert_refused,
    assert_same_line,
    mlp,
    relu_network,
    restrict_and_verify,
    vector,
)

START, END = vector(-2.0, 1.5, 0.5), vector(2.5, -1.0, -3.0)


def snapshot(model: nn.Module) -> dict[str, object]:
    """Everything of a module that a call must leave unchanged."""
    return {
        "training": [m.training for m in model.modules()],
        "state": {k: (v.clone(), v.dtype, v.device) for k, v in model.state_dict().items()},
        "grads": {
            k: (p.requires_grad, None if p.grad is None else p.grad.clone()) for k, p in model.named_parameters()
        },
        "ids": {k: id(p) for k, p in model.named_parameters()},
        "hooks": [
            (list(m._forward_hooks), list(m._forward_pre_hooks), list(m._backward_hooks)) for m in model.modules()
        ],
        "attributes": [sorted(vars(m)) for m in model.modules()],
    }


def snapshots_equal(one: dict[str, object], two: dict[str, object]) -> bool:
    for key in ("training", "ids", "hooks", "attributes"):
        if one[key] != two[key]:
            return False
    states = zip(one["state"].values(), two["state"].values(), strict=True)  # type: ignore[attr-defined]
    same = all(torch.equal(a[0], b[0]) and a[1:] == b[1:] for a, b in states)
    grads = zip(one["grads"].values(), two["grads"].values(), strict=True)  # type: ignore[attr-defined]
    return same and all(
        a[0] == b[0] and ((a[1] is None) == (b[1] is None)) and (a[1] is None or torch.equal(a[1], b[1]))
        for a, b in grads
    )


# -- training mode ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "path"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), "1"),
        (nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm1d(3))), "1.0"),
        (nn.Sequential(nn.Linear(3, 3), nn.AlphaDropout(0.1), nn.ReLU()), "1"),
        (nn.RReLU(), "model itself"),
    ],
    ids=["dropout", "norm", "alpha", "rrelu"],
)
def test_the_refusal_of_training_mode_names_the_submodule(module, path):
    before = snapshot(module.train())
    error = assert_refused(xl.TrainingModeError, xl.restrict, module, START, END)
    assert path in error.where
    assert snapshots_equal(before, snapshot(module))
    restrict_and_verify(module.eval(), START, END)


def test_one_submodule_in_training_mode_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.1)).eval()
    model[3].train()
    assert "3" in assert_refused(xl.TrainingModeError, xl.restrict, model, START, END).where


def test_training_mode_without_random_or_batch_dependent_modules_is_allowed():
    model = mlp(3, 4, 2).train()
    restrict_and_verify(model, START, END)
    assert model.training
    restrict_and_verify(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.ReLU()).train(), START, END)


def test_batch_norm_without_running_statistics_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval()
    assert_refused(xl.CaptureError, xl.restrict, model, START, END)


def test_batch_norm_of_zero_variance_is_folded():
    norm = nn.BatchNorm1d(3)
    norm.running_var.zero_()
    restrict_and_verify(nn.Sequential(norm, nn.ReLU()).eval(), START, END)


@pytest.mark.parametrize("variance", [0.0, -1.0])
def test_batch_norm_with_a_variance_of_zero_or_less_and_no_eps_raises_a_number_error(variance):
    norm = nn.BatchNorm1d(3, eps=0.0)
    norm.running_var.fill_(variance)
    assert_refused(xl.NumberError, xl.restrict, nn.Sequential(norm, nn.ReLU()).eval(), START, END)


def test_instance_and_group_norms_are_refused():
    for norm in (nn.InstanceNorm1d(3), nn.GroupNorm(1, 3), nn.LocalResponseNorm(2)):
        assert_refused(xl.UnsupportedError, xl.restrict, norm.eval(), torch.zeros(3, 4), torch.ones(3, 4))


# -- hooks, parametrisations, wrappers --------------------------------------------------------------------------


def model_with_hook(where: str, kind: str) -> nn.Module:
    model = mlp(3, 6, 2)
    target = model if where == "top" else model[0]
    if kind == "forward":
        target.register_forward_hook(lambda module, args, out: out * 2 + 1)
    elif kind == "pre":
        target.register_forward_pre_hook(lambda module, args: (args[0] - 0.5,))
    else:
        target.register_forward_hook(lambda module, args, out: None)
    return model


@pytest.mark.parametrize("where", ["top", "inner"])
@pytest.mark.parametrize("kind", ["forward", "pre", "silent"])
@pytest.mark.every(4)
def test_hooks_are_part_of_the_function_and_remain_registered(where, kind):
    model = model_with_hook(where, kind)
    before = snapshot(model)
    restrict_and_verify(model, START, END)
    assert snapshots_equal(before, snapshot(model))


def test_a_hook_added_after_a_first_call_is_noticed():
    model = mlp(3, 6, 2)
    restrict_and_verify(model, START, END)
    handle = model[0].register_forward_hook(lambda module, args, out: -out)
    restrict_and_verify(model, START, END)
    handle.remove()
    restrict_and_verify(model, START, END)


def test_weights_changed_after_a_first_call_are_noticed():
    model = mlp(3, 6, 2)
    restrict_and_verify(model, START, END)
    with torch.no_grad():
        model[0].weight.mul_(-1)
    restrict_and_verify(model, START, END)
    model[0].weight.data[0, 0] += 1.0
    restrict_and_verify(model, START, END)
    model.load_state_dict(mlp(3, 6, 2).state_dict())
    restrict_and_verify(model, START, END)
    model[1] = nn.LeakyReLU(0.3)
    restrict_and_verify(model, START, END)
    model[1].negative_slope = 0.7
    restrict_and_verify(model, START, END)


class ConstantsOutsideParameters(nn.Module):
    """A module with constants in plain attributes: a tensor, a list, a dict, a function."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.tensor([0.5, -0.5, 0.25])
        self.scales = [1.0, 2.0, 3.0]
        self.settings = {"low": -1.0}
        self.act = torch.relu

    def forward(self, x):
        return self.act(x * torch.tensor(self.scales, dtype=x.dtype) + self.shift).clamp(min=self.settings["low"])


@pytest.mark.parametrize("change", ["tensor", "tensor in place", "list", "dict", "function", "forward"])
@pytest.mark.every(8)
def test_constants_changed_after_a_first_call_are_noticed(change):
    model = ConstantsOutsideParameters().eval()
    restrict_and_verify(model, START, END)
    if change == "tensor":
        model.shift = torch.tensor([1.5, 1.5, -1.5])
    elif change == "tensor in place":
        model.shift.neg_()
    elif change == "list":
        model.scales[1] = -4.0
    elif change == "dict":
        model.settings["low"] = 0.75
    elif change == "function":
        model.act = torch.abs
    else:
        model.forward = lambda x: torch.abs(x)
    restrict_and_verify(model, START, END)


@pytest.mark.parametrize("attribute", ["stride", "padding", "kernel_size", "ceil_mode"])
@pytest.mark.every(3)
def test_tuple_settings_changed_after_a_first_call_are_noticed(attribute):
    model = nn.Sequential(nn.MaxPool2d((3, 3), (2, 2), (0, 0)))
    start, end = torch.randn(1, 6, 6), torch.randn(1, 6, 6)
    restrict_and_verify(model, start, end)
    setattr(
        model[0], attribute, {"stride": (1, 1), "padding": (1, 1), "kernel_size": (2, 2), "ceil_mode": True}[attribute]
    )
    restrict_and_verify(model, start, end)


def test_changing_the_weights_later_does_not_change_a_result():
    for dtype in (torch.float32, torch.float64):
        model = mlp(3, 8, 2, dtype=dtype)
        line = xl.restrict(model, START, END, values=False)
        A, b = line.piece(0).affine()
        at = line.at(0.3)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(-3.0)
        again = line.piece(0).affine()
        assert torch.equal(again[0], A)
        assert torch.equal(again[1], b)
        assert torch.equal(line.at(0.3), at)
        assert line.certify().covers_whole_line


def test_weight_norm_and_spectral_norm_of_both_styles():
    def layers():
        return nn.Linear(3, 5), nn.Linear(5, 2)

    models = []
    for wrap in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        first, last = layers()
        models.append(relu_network(wrap(first), last))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates these
        first, last = layers()
        models.append(relu_network(nn.utils.weight_norm(first), last))
        first, last = layers()
        models.append(relu_network(nn.utils.spectral_norm(first), last))
    for model in models:
        before = snapshot(model)
        line = xl.restrict(model, START, END)
        with torch.no_grad():
            expected = model(line.points.float())
        assert torch.allclose(line.values.float(), expected, rtol=1e-4, atol=1e-5)
        assert snapshots_equal(before, snapshot(model))


def test_a_pruned_layer_is_restricted_with_its_pruned_weights():
    model = mlp(3, 8, 2)
    from torch.nn.utils import prune

    prune.random_unstructured(model[0], "weight", amount=0.5)
    line = xl.restrict(model, START, END)
    with torch.no_grad():
        assert torch.allclose(line.values.float(), model(line.points.float()), atol=1e-5)


def test_a_lazy_module_is_refused_until_it_has_weights():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)).eval()
    assert_refused(xl.ExactlineError, xl.restrict, model, START, END)
    assert isinstance(model[0], nn.LazyLinear)  # the call did not materialise it
    model(torch.zeros(1, 3))
    restrict_and_verify(model, START, END)


def test_data_parallel_is_unwrapped():
    model = mlp(3, 6, 2)
    assert_same_line(xl.restrict(nn.DataParallel(model), START, END), restrict_and_verify(model, START, END))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, on its first use of inductor
def test_a_compiled_module_is_unwrapped():
    model = mlp(3, 6, 2)
    assert_same_line(xl.restrict(torch.compile(model), START, END), restrict_and_verify(model, START, END))


def test_a_script_module_is_exact_or_refused():
    model = mlp(3, 6, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates TorchScript
        scripted = torch.jit.script(model)
        traced = torch.jit.trace(model, torch.zeros(2, 3))
    for wrapped in (scripted, traced, nn.Sequential(scripted, nn.ReLU())):
        try:
            line = xl.restrict(wrapped, START, END)
        except xl.ExactlineError as error:
            assert error.where  # noqa: PT017
            assert error.hint  # noqa: PT017
        else:
            assert len(line) >= len(xl.restrict(model, START, END))


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_module_is_refused():
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("torch has no quantised engine on this machine")
    model = torch.ao.quantization.quantize_dynamic(mlp(3, 6, 2), {nn.Linear}, dtype=torch.qint8)
    assert_refused(xl.ExactlineError, xl.restrict, model, START, END)


def test_an_exported_program_and_a_network_are_models_too():
    model = mlp(3, 6, 2)
    program = torch.export.export(model, (torch.zeros(2, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    line = restrict_and_verify(model, START, END)
    assert_same_line(xl.restrict(program, START, END), line)
    assert_same_line(xl.restrict(line.network, START, END), line)
    fixed = torch.export.export(model, (torch.zeros(2, 3),))
    assert_refused(xl.CaptureError, xl.restrict, fixed, START, END)
    assert_refused(xl.LineError, xl.restrict, line.network, torch.zeros(4), torch.ones(4))
    assert_refused(xl.ArgumentError, xl.restrict, line.network, START, END, until="0")


def test_the_refusal_of_an_unknown_submodule_names_the_existing_ones():
    error = assert_refused(xl.ArgumentError, xl.restrict, mlp(3, 6, 2), START, END, until="nothing")
    assert "0" in error.hint


# -- precision of the weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.every(2)
def test_weights_of_every_precision_are_read_exactly(dtype):
    model = mlp(3, 8, 8, 2).to(dtype)
    before = snapshot(model)
    line = restrict_and_verify(model, START, END)
    assert snapshots_equal(before, snapshot(model))
    assert line.values.dtype == torch.float64


def test_float64_weights_with_a_float32_line_and_vice_versa():
    model = mlp(3, 8, 2, dtype=torch.float64)
    restrict_and_verify(model, START.float(), END.float())
    restrict_and_verify(mlp(3, 8, 2), START, END)


def test_layers_of_different_precision_are_exact_and_casts_that_round_are_refused():
    model = nn.Sequential(nn.Linear(3, 4).half(), Function(lambda x: x.float()), nn.ReLU(), nn.Linear(4, 2)).eval()
    restrict_and_verify(model, START, END, forward=False)  # the module's own cast does not work in float64
    narrow = nn.Sequential(nn.Linear(3, 4), Function(lambda x: x.half().float()), nn.ReLU()).eval()
    assert_refused(xl.CaptureError, xl.restrict, narrow, START, END)  # a cast that rounds is not piecewise linear


def test_meta_weights_are_refused():
    assert_refused(xl.ExactlineError, xl.restrict, nn.Linear(3, 2, device="meta"), START, END)
    mixed = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2, device="meta")).eval()
    assert_refused(xl.ExactlineError, xl.restrict, mixed, START, END)


def test_complex_and_sparse_weights_are_refused():
    assert_refused(xl.ExactlineError, xl.restrict, nn.Linear(3, 2, dtype=torch.complex64), START, END)
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(layer.weight.detach().to_sparse())
    assert_refused(xl.ExactlineError, xl.restrict, layer, START, END)


# -- modules are left unchanged ---------------------------------------------------------------------------------


def model_with_state() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(4, 2))
    model.train()
    model(torch.randn(8, 3)).sum().backward()
    model[0].weight.requires_grad_(False)
    model[1].register_forward_hook(lambda module, args, out: None)
    return model.eval()


def test_the_module_is_left_unchanged():
    model = model_with_state()
    before = snapshot(model)
    line = xl.restrict(model, START, END)
    line.check(samples=5)
    line.certify(pieces=2)
    line.piece(0).affine()
    line.minimal()
    assert snapshots_equal(before, snapshot(model))
    assert all(p.grad is None or p.grad.grad_fn is None for p in model.parameters())


@pytest.mark.parametrize("fault", ["operator", "shape", "number", "dict", "branch", "error", "training"])
@pytest.mark.every(6)
def test_the_module_is_left_unchanged_after_an_error(fault):
    def fail(x):
        raise RuntimeError("the module itself fails")

    last_modules = {
        "operator": nn.GELU(),
        "dict": Function(lambda x: {"a": x}),
        "branch": Function(lambda x: x if x.sum() > 0 else -x),
        "error": Function(fail),
    }
    model = nn.Sequential(model_with_state(), last_modules.get(fault, nn.Identity())).eval()
    if fault == "number":
        with torch.no_grad():
            model[0][0].weight[0, 0] = torch.inf
    if fault == "training":
        model[0][3].train()
    before = snapshot(model)
    with pytest.raises(xl.ExactlineError):
        xl.restrict(model, *((torch.zeros(5), torch.ones(5)) if fault == "shape" else (START, END)))
    after = snapshot(model)
    assert snapshots_equal(before, after)


def test_results_do_not_require_grad():
    model = mlp(3, 6, 2)
    line = xl.restrict(model, START.clone().requires_grad_(), END.clone().requires_grad_())
    A, b = line.piece(0).affine()
    for tensor in (line.values, line.alphas, line.points, line.at(0.5), A, b, line.minimal().values):
        assert not tensor.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_a_forward_that_stores_its_activations_does_not_store_those_of_the_capture():
    class StoresActivations(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last, self.calls = nn.Linear(3, 2), None, 0

        def forward(self, x):
            self.calls += 1
            self.last = self.layer(x)
            return torch.relu(self.last)

    model = StoresActivations().eval()
    try:
        line = xl.restrict(model, START, END)
    except xl.ExactlineError as error:
        assert error.hint  # noqa: PT017
    else:
        assert_matches_module(line, copy.deepcopy(model))
    assert model.last is None  # the tracer leaves no fake tensor in the user's module
    assert model.calls == 0


def test_a_result_still_works_after_its_module_is_deleted():
    import gc

    model = mlp(3, 6, 2)
    line = xl.restrict(model, START, END)
    del model
    gc.collect()
    assert "captured network" in line.check(samples=5).against
    assert line.certify().covers_whole_line


def test_the_cache_does_not_keep_modules_alive():
    import gc
    import weakref

    model = mlp(3, 6, 2)
    line = xl.restrict(model, START, END)
    reference = weakref.ref(model)
    del model, line
    gc.collect()
    assert reference() is None
