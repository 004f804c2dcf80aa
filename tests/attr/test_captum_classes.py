"""Our classes among captum's: isinstance without importing it, NoiseTunnel, TCAV, metrics, and what else reads them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exactline as xl

captum = pytest.importorskip("captum.attr")

NAMES = (
    "IntegratedGradients",
    "LayerConductance",
    "LayerIntegratedGradients",
    "InternalInfluence",
    "NeuronConductance",
    "NeuronIntegratedGradients",
)
X = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(4, 3)


def make_model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double().eval()


MODEL = make_model()


def make(name: str) -> Any:
    kind = getattr(xl.attr, name)
    return kind(MODEL) if name == "IntegratedGradients" else kind(MODEL, MODEL[1])


@pytest.mark.parametrize("name", NAMES)
def test_the_classes_are_captums_subclasses(name: str):
    method = make(name)
    theirs = getattr(captum, name)
    for base in (theirs, *theirs.__mro__[1:-1]):
        if base.__module__.startswith("captum"):
            assert isinstance(method, base)
            assert issubclass(type(method), base)
    assert isinstance(pickle.loads(pickle.dumps(method)), captum.GradientAttribution)
    assert isinstance(copy.deepcopy(method), captum.GradientAttribution)
    assert method.get_name() == theirs.get_name()
    assert callable(method.attribute.__wrapped__)
    assert hasattr(method, "interpolate") == hasattr(theirs, "interpolate")
    assert method.has_convergence_delta() == theirs.has_convergence_delta(method)


SCRIPT = """
import pickle, sys, torch
{first}
from exactline.attr import IntegratedGradients, LayerConductance
model = torch.nn.Sequential(torch.nn.ReLU())
before = IntegratedGradients(model)
value = before.attribute(torch.ones(1, 2), target=0)
assert {imported} == any(name.partition(".")[0] == "captum" for name in sys.modules)
data = pickle.dumps(before)
import captum.attr
assert isinstance(before, captum.attr.GradientAttribution)
assert isinstance(pickle.loads(data), captum.attr.IntegratedGradients)
assert issubclass(LayerConductance, captum.attr.LayerAttribution)
assert captum.attr.__spec__.loader is captum.attr.__loader__
assert not type(captum.attr.__loader__).__module__.startswith("exactline")
assert not isinstance(captum.attr.IntegratedGradients(model), IntegratedGradients)
assert torch.equal(before.attribute(torch.ones(1, 2), target=0), value)
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "import captum.attr", "import captum"])
def test_captum_may_be_imported_before_and_after(first: str, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(first=first, imported=bool(first)))
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


@pytest.mark.slow
def test_without_captum_the_classes_stand_alone(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\nsys.modules['captum'] = sys.modules['captum.attr'] = None\n"
        "from exactline.attr import IntegratedGradients\n"
        "ig = IntegratedGradients(torch.nn.ReLU())\n"
        "assert ig.attribute(torch.tensor([[3.0]]), target=0).tolist() == [[3.0]]\n"
        "assert ig.get_name() == 'Integrated Gradients'\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)


@pytest.mark.parametrize(
    "kind", ["smoothgrad", *(pytest.param(k, marks=pytest.mark.slow) for k in ("smoothgrad_sq", "vargrad"))]
)
def test_noise_tunnels_average_exact_attributions(kind: str):
    call: dict[str, Any] = {"target": [0, 1, 1, 0], "nt_type": kind, "nt_samples": 3, "stdevs": 0.3}
    found = []
    for method in (xl.attr.IntegratedGradients(MODEL), captum.IntegratedGradients(MODEL)):
        steps = {} if isinstance(method, xl.attr.IntegratedGradients) else {"n_steps": 200}
        with torch.random.fork_rng():
            torch.manual_seed(3)
            found.append(captum.NoiseTunnel(method).attribute(X, baselines=X.flip(0), **call, **steps))
    assert torch.allclose(found[0], found[1].detach(), atol=2e-2)


def test_noise_tunnels_return_deltas():
    tunnel = captum.NoiseTunnel(xl.attr.IntegratedGradients(MODEL))
    _, delta = tunnel.attribute(X, target=1, nt_samples=3, return_convergence_delta=True)
    assert delta.shape == (12,)
    assert float(delta.abs().max()) < 1e-12


def test_metrics_take_the_attributions():
    metrics = pytest.importorskip("captum.metrics")
    ig = xl.attr.IntegratedGradients(MODEL)

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.full_like(inputs, 0.01)
        return noise, inputs - noise

    attributions = ig.attribute(X, target=1)
    infidelity = metrics.infidelity(MODEL, perturb, X, attributions, target=1)
    assert infidelity.shape == (4,)
    sensitivity = metrics.sensitivity_max(ig.attribute, X, target=1, n_perturb_samples=2, perturb_radius=1e-3)
    assert sensitivity.shape == (4,)
    assert bool((sensitivity < 1).all())


@pytest.mark.slow
def test_tcav_sets_the_layer_of_an_attribution(tmp_path: Path):
    concept_module = pytest.importorskip("captum.concept")

    class MeanDifference(concept_module.Classifier):
        """The direction from the mean of one concept to that of the other."""

        def __init__(self) -> None:
            self.direction = torch.zeros(0)

        def train_and_eval(self, dataloader: Any, **_: Any) -> dict[str, float]:
            inputs, labels = map(torch.cat, zip(*dataloader, strict=True))
            means = torch.stack([inputs[labels == k].mean(0) for k in (0, 1)])
            self.direction = torch.stack([means[0] - means[1], means[1] - means[0]])
            return {"accs": 1.0}

        def weights(self) -> Tensor:
            return self.direction

        def classes(self) -> list[int]:
            return [0, 1]

    model = copy.deepcopy(MODEL).float()
    concepts = [concept_module.Concept(k, f"concept{k}", [X[k::2].float()]) for k in (0, 1)]
    scores = []
    for method in (
        xl.attr.LayerIntegratedGradients(model, None, multiply_by_inputs=False),
        captum.LayerIntegratedGradients(model, None, multiply_by_inputs=False),
    ):
        tcav = concept_module.TCAV(
            model, ["1"], classifier=MeanDifference(), layer_attr_method=method, save_path=str(tmp_path)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tcav.interpret(X.float(), [concepts], target=0)
        scores.append(found["0-1"]["1"]["magnitude"])
    assert torch.allclose(scores[0], scores[1].detach(), atol=1e-2)
    assert bool((scores[0] != 0).all())


def test_helpers_of_the_base_classes():
    method = xl.attr.LayerConductance(MODEL, MODEL[1])
    maps = torch.arange(4.0).reshape(1, 1, 2, 2)
    assert torch.equal(method.interpolate(maps, (4, 4)), captum.LayerAttribution.interpolate(maps, (4, 4)))
    future = method.attribute_future(X, target=0)
    assert torch.equal(future.wait(), method.attribute(X, target=0))
    with pytest.raises(xl.UnsupportedError, match="gradient_func"):
        method.gradient_func = lambda *_: None


WRONG: dict[str, dict[str, Any]] = {
    "target": {"target": [0, 1]},
    "no target": {},
    "target of too many dims": {"target": (0, 1, 2)},
    "method": {"target": 0, "method": "simpson"},
    "n_steps": {"target": 0, "n_steps": -1},
    "one step": {"target": 0, "n_steps": 1, "method": "riemann_trapezoid"},
    "baselines": {"target": 0, "baselines": X[:2]},
    "number of baselines": {"target": 0, "baselines": (X, X)},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_captum_asserts_raises_assertion_errors_here(name: str):
    with pytest.raises(AssertionError):
        captum.IntegratedGradients(MODEL).attribute(X, **WRONG[name])
    with pytest.raises(AssertionError) as error:
        xl.attr.IntegratedGradients(MODEL).attribute(X, **WRONG[name])
    assert isinstance(error.value, (xl.ArgumentError, xl.LineError))
