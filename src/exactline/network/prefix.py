"""The piecewise-linear part of a graph: everything before its first smooth operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from ..errors import UnsupportedError
from ..ops.base import Breaking, Input
from .builder import MIXES_BATCH, MOVES_BATCH, READS_BATCH_SIZE, NodeOutput, SmoothOutput, UnusableValue
from .graph import Network, Node
from .graph_check import DIFFERS
from .reader import ProgramReader
from .simplify import simplify_network
from .traced_node import is_overload, operator_name

# Operators of endings after a piecewise-linear body: smooth functions of one number, softmax, losses of each example,
# and moves of elements.
ENDING_OPERATORS = {
    *("sigmoid", "tanh", "softmax", "_softmax", "log_softmax", "_log_softmax", "log", "log_sigmoid", "softplus", "exp"),
    *("squeeze", "unsqueeze", "select", "slice", "view", "reshape", "flatten", "index", "gather", "alias", "clone"),
    *("logsumexp", "log1p", "pow", "square", "sqrt", "rsqrt", "reciprocal", "linalg_vector_norm", "clamp", "clamp_min"),
    *(
        "cross_entropy_loss",
        "nll_loss",
        "nll_loss_nd",
        "nll_loss_forward",
        "nll_loss2d_forward",
        "binary_cross_entropy",
    ),
    *("binary_cross_entropy_with_logits", "l1_loss", "smooth_l1_loss", "huber_loss", "abs", "relu", "max", "amax"),
    *("binary_cross_entropy", "maximum", "minimum"),
    *("mul", "div", "add", "sub", "rsub", "neg", "_to_copy", "sum", "mean", "getitem", "expand", "permute"),
}
BATCH_REASONS = (MIXES_BATCH, MOVES_BATCH, READS_BATCH_SIZE, DIFFERS)  # why an operator is not one of each point


@dataclass(frozen=True)
class Prefix:
    """The part of a model that is restricted exactly, and whether it is the whole model."""

    network: Network | None  # None if no unit of that part can break
    is_whole: bool  # whether the model is piecewise linear and has no smooth tail
    has_tail: bool = False  # whether all but a smooth last operator is piecewise linear
    has_known_ending: bool = False  # whether all but the `ENDING_OPERATORS` at its end is piecewise linear


def read_prefix(program: ExportedProgram) -> Prefix:
    """Read the piecewise-linear part of an exported program.

    Args:
        program: exported with a dynamic batch dimension, and decomposed to torch's own operators.

    Raises CaptureError for a program without a dynamic batch dimension or one that changes its buffers.
    """
    reader = ProgramReader(program, None)
    try:
        network = reader.read_network()
    except UnsupportedError:
        inputs = len(program.graph_signature.user_inputs)
        prefix = select_prefix(reader.graph.nodes, inputs)
        own = find_own_nodes(reader.graph.nodes, inputs)
        ending = [node for node in program.graph.nodes if _is_outside(reader, node, own)]
        known = all(operator_name(node.target) in ENDING_OPERATORS for node in ending)
        mixes = any(line.endswith(BATCH_REASONS) for line in reader.rejections)
        return Prefix(prefix, is_whole=False, has_known_ending=known and bool(ending) and not mixes)
    has_tail = any(network.tails)
    return Prefix(simplify_network(network), is_whole=not has_tail, has_tail=has_tail)


def select_prefix(nodes: Sequence[Node], inputs: int) -> Network | None:
    """A network of the nodes that depend on the first inputs alone; None if none of them can break.

    Args:
        nodes: of the graph, in which every unsupported operator is replaced by a further input.
        inputs: the number of inputs of the model itself.
    """
    own = find_own_nodes(nodes, inputs)
    breaking = {i for i in own if isinstance(nodes[i].op, Breaking)}
    # breaks of a node that a later breaking node depends on are found on the way to that node
    covered: set[int] = set()
    for i in reversed(range(len(nodes))):
        if i in own and (i in breaking or i in covered):
            covered.update(nodes[i].inputs)
    last = sorted(breaking - covered)
    if not last:
        return None
    kept = tuple(node for i, node in enumerate(nodes) if i in own)
    index = {old: new for new, old in enumerate(sorted(own))}
    network = Network(
        tuple(Node(n.name, n.op, tuple(index[j] for j in n.inputs), n.shape, n.path) for n in kept),
        tuple(index[i] for i in last),
        (None,) * len(last),
        several_inputs=inputs > 1,
        several_outputs=len(last) > 1,
    )
    return simplify_network(network)


def find_own_nodes(nodes: Sequence[Node], inputs: int) -> set[int]:
    """The indices of the nodes that depend on the first inputs alone."""
    own = set([i for i, node in enumerate(nodes) if isinstance(node.op, Input)][:inputs])
    for i, node in enumerate(nodes):
        if not isinstance(node.op, Input) and all(j in own for j in node.inputs):
            own.add(i)
    return own


def _is_outside(reader: ProgramReader, node: Any, own: set[int]) -> bool:
    """Whether a node of the program depends on the input and does not belong to the piecewise-linear part."""
    value = reader.values.get(node.name)
    if node.op != "call_function" or not is_overload(node.target):
        return False
    if isinstance(value, NodeOutput):
        return value.index not in own
    return isinstance(value, (SmoothOutput, UnusableValue)) and getattr(value, "depends_on_input", True)
