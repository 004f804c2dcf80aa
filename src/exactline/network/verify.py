"""A captured network against torch's own graph, node by node, before anyone trusts it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Interpreter

from ..ops.base import Input
from .builder import Data, Value
from .graph import Network

POINTS = 3
SCALES = (1.0, 2.0**-64, 2.0**-400, 2.0**-400)
TOLERANCE = 1e-7  # generous: a wrong rule is off by far more, rounding by far less


def first_difference(program: ExportedProgram, network: Network, values: dict[str, Value]) -> str | None:
    """The first node whose values are not ours, in words; None where all agree."""
    generator = torch.Generator().manual_seed(0)
    places = [i for i, node in enumerate(network.nodes) if isinstance(node.op, Input)]
    batch = [
        torch.randn(POINTS, *network.nodes[i].shape, generator=generator, dtype=torch.float64, device="cpu")
        for i in places
    ]
    for scale in SCALES:  # weights may be so large that only tiny points stay finite
        batch = [x * scale for x in batch]
        theirs = _Double(program).evaluated(batch)
        if all(bool(torch.isfinite(t).all()) for t in theirs.values() if t.is_floating_point()):
            break
    else:
        return None
    names = {name: v.place for name, v in values.items() if isinstance(v, Data) and name in theirs}
    ours = network.evaluate(batch, sorted(set(names.values())))
    for name, place in names.items():
        here, there = ours[place], theirs[name]
        scale = float(there.abs().max()) if there.numel() else 0.0
        if here.shape != there.shape or not torch.allclose(here, there, rtol=TOLERANCE, atol=TOLERANCE * scale):
            node = network.nodes[place]
            where = f"{node.path}: " if node.path else ""
            return f"{where}{name} mixes the batch dimension, or does not do what we read in it"
    return None


class _Double(Interpreter):
    """Runs an exported graph in float64, whatever precision it was traced in."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program.graph_module, garbage_collect_values=False)
        self.program = program
        self.kept: dict[str, Tensor] = {}

    def evaluated(self, inputs: list[Tensor]) -> dict[str, Tensor]:
        given = iter(inputs)
        signature = self.program.graph_signature
        arguments: list[Any] = []
        for spec in signature.input_specs:
            if spec.arg.name in signature.user_inputs:
                arguments.append(next(given))
                continue
            value = self.program.state_dict.get(spec.target or "", self.program.constants.get(spec.target or ""))
            arguments.append(_double(value))
        with torch.no_grad():
            self.run(*arguments)
        return self.kept

    def run_node(self, n: torch.fx.Node) -> Any:
        if "_assert_tensor_metadata" in str(n.target):
            return None
        result = _double(super().run_node(n))
        if isinstance(result, Tensor) and n.op != "placeholder":
            self.kept[n.name] = result
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        if options.get("dtype") in (torch.float16, torch.bfloat16, torch.float32):
            options["dtype"] = torch.float64
        return super().call_function(target, args, options)


def _double(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_double(v) for v in value)
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to("cpu", torch.float64)
    return value.detach().cpu() if isinstance(value, Tensor) else value
