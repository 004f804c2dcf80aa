"""The rule in rational arithmetic for each breaking operator."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..network.graph import Node, Shape
from ..ops.maximum import Maximum
from ..ops.order import Order
from ..ops.pointwise import Pointwise
from .maximum import MaximumRule
from .order import OrderRule
from .pointwise import PointwiseRule


def make_rule(node: Node, shape: Shape) -> PointwiseRule | MaximumRule | OrderRule:
    """The rule of a breaking node, for an input of this shape; raises UnsupportedError where there is none."""
    match node.op:
        case Pointwise() as op:
            return PointwiseRule(op, shape)
        case Maximum() as op:
            return MaximumRule(op)
        case Order() as op:
            return OrderRule(op)
        case op:
            raise UnsupportedError(
                f"There is no rule in rational arithmetic for {op.title}.",
                nodes=(node.name,),
                where=repr(node),
                hint="Add one in exact/.",
            )
