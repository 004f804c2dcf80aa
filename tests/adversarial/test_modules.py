"""Modules that break such code: in training, hooked, wrapped, of odd precision; and all are left as they were found."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import exactline as xl

from .truth import Function, follows_the_module, mlp, points, refused, relus, right, same_line

Q3, R3 = points(-2.0, 1.5, 0.5), points(2.5, -1.0, -3.0)


def snapshot(model: nn.Module) -> dict[str, object]:
    """All that a call must leave as it was."""
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


def same_snapshot(one: dict[str, object], two: dict[str, object]) -> bool:
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
def test_training_mode_is_refused_naming_the_submodule(module, path):
    before = snapshot(module.train())
    error = refused(xl.TrainingModeError, xl.restrict, module, Q3, R3)
    assert path in error.where
    assert same_snapshot(before, snapshot(module))
    right(module.eval(), Q3, R3)


def test_one_submodule_left_in_training_mode_is_enough():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.1)).eval()
    model[3].train()
    assert "3" in refused(xl.TrainingModeError, xl.restrict, model, Q3, R3).where


def test_training_mode_without_random_or_batch_parts_is_fine():
    model = mlp(3, 4, 2).train()
    right(model, Q3, R3)
    assert model.training
    right(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.ReLU()).train(), Q3, R3)


def test_batch_norm_without_running_statistics_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval()
    refused(xl.CaptureError, xl.restrict, model, Q3, R3)


def test_batch_norm_of_zero_variance_is_folded():
    norm = nn.BatchNorm1d(3)
    norm.running_var.zero_()
    right(nn.Sequential(norm, nn.ReLU()).eval(), Q3, R3)


@pytest.mark.parametrize("variance", [0.0, -1.0])
def test_batch_norm_that_divides_by_zero_or_takes_a_root_of_less_is_refused_as_a_number(variance):
    norm = nn.BatchNorm1d(3, eps=0.0)
    norm.running_var.fill_(variance)
    refused(xl.NumberError, xl.restrict, nn.Sequential(norm, nn.ReLU()).eval(), Q3, R3)


def test_instance_and_group_norms_are_refused():
    for norm in (nn.InstanceNorm1d(3), nn.GroupNorm(1, 3), nn.LocalResponseNorm(2)):
        refused(xl.UnsupportedError, xl.restrict, norm.eval(), torch.zeros(3, 4), torch.ones(3, 4))


# -- hooks, parametrisations, wrappers --------------------------------------------------------------------------


def hooked(where: str, kind: str) -> nn.Module:
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
def test_hooks_are_part_of_the_function_and_stay(where, kind):
    model = hooked(where, kind)
    before = snapshot(model)
    right(model, Q3, R3)
    assert same_snapshot(before, snapshot(model))


def test_a_hook_added_after_a_first_call_is_noticed():
    model = mlp(3, 6, 2)
    right(model, Q3, R3)
    handle = model[0].register_forward_hook(lambda module, args, out: -out)
    right(model, Q3, R3)
    handle.remove()
    right(model, Q3, R3)


def test_weights_changed_after_a_first_call_are_noticed():
    model = mlp(3, 6, 2)
    right(model, Q3, R3)
    with torch.no_grad():
        model[0].weight.mul_(-1)
    right(model, Q3, R3)
    model[0].weight.data[0, 0] += 1.0
    right(model, Q3, R3)
    model.load_state_dict(mlp(3, 6, 2).state_dict())
    right(model, Q3, R3)
    model[1] = nn.LeakyReLU(0.3)
    right(model, Q3, R3)
    model[1].negative_slope = 0.7
    right(model, Q3, R3)


class Plain(nn.Module):
    """Constants kept outside parameters and buffers, in all the ways users do."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.tensor([0.5, -0.5, 0.25])
        self.scales = [1.0, 2.0, 3.0]
        self.settings = {"low": -1.0}
        self.act = torch.relu

    def forward(self, x):
        return self.act(x * torch.tensor(self.scales, dtype=x.dtype) + self.shift).clamp(min=self.settings["low"])


@pytest.mark.parametrize("change", ["tensor", "tensor in place", "list", "dict", "function", "forward"])
def test_constants_changed_after_a_first_call_are_noticed(change):
    model = Plain().eval()
    right(model, Q3, R3)
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
    right(model, Q3, R3)


@pytest.mark.parametrize("attribute", ["stride", "padding", "kernel_size", "ceil_mode"])
def test_tuple_settings_changed_after_a_first_call_are_noticed(attribute):
    model = nn.Sequential(nn.MaxPool2d((3, 3), (2, 2), (0, 0)))
    Q, R = torch.randn(1, 6, 6), torch.randn(1, 6, 6)
    right(model, Q, R)
    setattr(
        model[0], attribute, {"stride": (1, 1), "padding": (1, 1), "kernel_size": (2, 2), "ceil_mode": True}[attribute]
    )
    right(model, Q, R)


def test_an_answer_given_keeps_the_weights_it_was_made_with():
    for dtype in (torch.float32, torch.float64):
        model = mlp(3, 8, 2, dtype=dtype)
        line = xl.restrict(model, Q3, R3, values=False)
        A, b = line.piece(0).affine()
        at = line.at(0.3)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(-3.0)
        again = line.piece(0).affine()
        assert torch.equal(again[0], A)
        assert torch.equal(again[1], b)
        assert torch.equal(line.at(0.3), at)
        assert line.certify().whole


def test_weight_norm_and_spectral_norm_of_both_styles():
    def layers():
        return nn.Linear(3, 5), nn.Linear(5, 2)

    made = []
    for wrap in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        first, last = layers()
        made.append(relus(wrap(first), last))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls these old
        first, last = layers()
        made.append(relus(nn.utils.weight_norm(first), last))
        first, last = layers()
        made.append(relus(nn.utils.spectral_norm(first), last))
    for model in made:
        before = snapshot(model)
        line = xl.restrict(model, Q3, R3)
        with torch.no_grad():
            theirs = model(line.points.float())
        assert torch.allclose(line.values.float(), theirs, rtol=1e-4, atol=1e-5)
        assert same_snapshot(before, snapshot(model))


def test_a_pruned_layer_is_restricted_as_it_computes():
    model = mlp(3, 8, 2)
    from torch.nn.utils import prune

    prune.random_unstructured(model[0], "weight", amount=0.5)
    line = xl.restrict(model, Q3, R3)
    with torch.no_grad():
        assert torch.allclose(line.values.float(), model(line.points.float()), atol=1e-5)


def test_a_lazy_module_is_refused_until_it_has_weights():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)).eval()
    refused(xl.ExactlineError, xl.restrict, model, Q3, R3)
    assert isinstance(model[0], nn.LazyLinear)  # not materialised behind the caller's back
    model(torch.zeros(1, 3))
    right(model, Q3, R3)


def test_data_parallel_is_taken_out_of_its_wrapper():
    model = mlp(3, 6, 2)
    same_line(xl.restrict(nn.DataParallel(model), Q3, R3), right(model, Q3, R3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, on its first use of inductor
def test_a_compiled_module_is_taken_out_of_its_wrapper():
    model = mlp(3, 6, 2)
    same_line(xl.restrict(torch.compile(model), Q3, R3), right(model, Q3, R3))


def test_a_script_module_is_right_or_refused():
    model = mlp(3, 6, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls TorchScript old
        scripted = torch.jit.script(model)
        traced = torch.jit.trace(model, torch.zeros(2, 3))
    for wrapped in (scripted, traced, nn.Sequential(scripted, nn.ReLU())):
        try:
            line = xl.restrict(wrapped, Q3, R3)
        except xl.ExactlineError as error:
            assert error.where  # noqa: PT017
            assert error.hint  # noqa: PT017
        else:
            assert len(line) >= len(xl.restrict(model, Q3, R3))


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_module_is_refused():
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("no quantised engine here")
    model = torch.ao.quantization.quantize_dynamic(mlp(3, 6, 2), {nn.Linear}, dtype=torch.qint8)
    refused(xl.ExactlineError, xl.restrict, model, Q3, R3)


def test_an_exported_program_and_a_network_are_models_too():
    model = mlp(3, 6, 2)
    program = torch.export.export(model, (torch.zeros(2, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    line = right(model, Q3, R3)
    same_line(xl.restrict(program, Q3, R3), line)
    same_line(xl.restrict(line.network, Q3, R3), line)
    fixed = torch.export.export(model, (torch.zeros(2, 3),))
    refused(xl.CaptureError, xl.restrict, fixed, Q3, R3)
    refused(xl.LineError, xl.restrict, line.network, torch.zeros(4), torch.ones(4))
    refused(xl.ArgumentError, xl.restrict, line.network, Q3, R3, until="0")


def test_until_an_unknown_submodule_is_refused_naming_those_there_are():
    error = refused(xl.ArgumentError, xl.restrict, mlp(3, 6, 2), Q3, R3, until="nothing")
    assert "0" in error.hint


# -- precision of the weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_weights_of_every_precision_are_read_as_the_numbers_they_are(dtype):
    model = mlp(3, 8, 8, 2).to(dtype)
    before = snapshot(model)
    line = right(model, Q3, R3)
    assert same_snapshot(before, snapshot(model))
    assert line.values.dtype == torch.float64


def test_float64_weights_with_a_float32_line_and_the_other_way_round():
    model = mlp(3, 8, 2, dtype=torch.float64)
    right(model, Q3.float(), R3.float())
    right(mlp(3, 8, 2), Q3, R3)


def test_layers_of_different_precision_are_right_or_refused():
    model = nn.Sequential(nn.Linear(3, 4).half(), Function(lambda x: x.float()), nn.ReLU(), nn.Linear(4, 2)).eval()
    right(model, Q3, R3, forward=False)  # in float64 the cast inside would not fit
    narrow = nn.Sequential(nn.Linear(3, 4), Function(lambda x: x.half().float()), nn.ReLU()).eval()
    refused(xl.CaptureError, xl.restrict, narrow, Q3, R3)  # rounding inside forward is no straight line


def test_meta_weights_are_refused():
    refused(xl.ExactlineError, xl.restrict, nn.Linear(3, 2, device="meta"), Q3, R3)
    mixed = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2, device="meta")).eval()
    refused(xl.ExactlineError, xl.restrict, mixed, Q3, R3)


def test_complex_and_sparse_weights_are_refused():
    refused(xl.ExactlineError, xl.restrict, nn.Linear(3, 2, dtype=torch.complex64), Q3, R3)
    layer = nn.Linear(3, 2)
    layer.weight = nn.Parameter(layer.weight.detach().to_sparse())
    refused(xl.ExactlineError, xl.restrict, layer, Q3, R3)


# -- left as found ----------------------------------------------------------------------------------------------


def prepared() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(4, 2))
    model.train()
    model(torch.randn(8, 3)).sum().backward()
    model[0].weight.requires_grad_(False)
    model[1].register_forward_hook(lambda module, args, out: None)
    return model.eval()


def test_the_module_is_left_as_found():
    model = prepared()
    before = snapshot(model)
    line = xl.restrict(model, Q3, R3)
    line.check(samples=5)
    line.certify(pieces=2)
    line.piece(0).affine()
    line.minimal()
    assert same_snapshot(before, snapshot(model))
    assert all(p.grad is None or p.grad.grad_fn is None for p in model.parameters())


@pytest.mark.parametrize("spoiler", ["operator", "shape", "number", "dict", "branch", "error", "training"])
def test_the_module_is_left_as_found_after_an_error_too(spoiler):
    def fail(x):
        raise RuntimeError("the module itself fails")

    ends = {
        "operator": nn.GELU(),
        "dict": Function(lambda x: {"a": x}),
        "branch": Function(lambda x: x if x.sum() > 0 else -x),
        "error": Function(fail),
    }
    model = nn.Sequential(prepared(), ends.get(spoiler, nn.Identity())).eval()
    if spoiler == "number":
        with torch.no_grad():
            model[0][0].weight[0, 0] = torch.inf
    if spoiler == "training":
        model[0][3].train()
    before = snapshot(model)
    with pytest.raises(xl.ExactlineError):
        xl.restrict(model, *((torch.zeros(5), torch.ones(5)) if spoiler == "shape" else (Q3, R3)))
    after = snapshot(model)
    assert same_snapshot(before, after)


def test_nothing_that_comes_back_needs_grad():
    model = mlp(3, 6, 2)
    line = xl.restrict(model, Q3.clone().requires_grad_(), R3.clone().requires_grad_())
    A, b = line.piece(0).affine()
    for tensor in (line.values, line.alphas, line.points, line.at(0.5), A, b, line.minimal().values):
        assert not tensor.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_a_forward_that_remembers_its_activations_does_not_keep_ours():
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last, self.calls = nn.Linear(3, 2), None, 0

        def forward(self, x):
            self.calls += 1
            self.last = self.layer(x)
            return torch.relu(self.last)

    model = Remembers().eval()
    try:
        line = xl.restrict(model, Q3, R3)
    except xl.ExactlineError as error:
        assert error.hint  # noqa: PT017
    else:
        follows_the_module(line, copy.deepcopy(model))
    assert model.last is None  # no fake tensor of the tracer is left in the user's module
    assert model.calls == 0


def test_a_deleted_module_leaves_an_answer_that_still_works():
    import gc

    model = mlp(3, 6, 2)
    line = xl.restrict(model, Q3, R3)
    del model
    gc.collect()
    assert "captured network" in line.check(samples=5).against
    assert line.certify().whole


def test_the_cache_does_not_keep_modules_alive():
    import gc
    import weakref

    model = mlp(3, 6, 2)
    line = xl.restrict(model, Q3, R3)
    seen = weakref.ref(model)
    del model, line
    gc.collect()
    assert seen() is None
