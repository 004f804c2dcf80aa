"""Errors since the last breaking node are a lower bound of the full estimate, and cheaper."""

import torch
from torch import nn

from exactline.network import as_network
from exactline.numerics.plan import sweep_plan
from exactline.numerics.point_errors import PointErrors, RecentErrors


class Residual(nn.Module):
    """Two layers around which the input is added."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 16), nn.Linear(16, 4), nn.Linear(4, 8)

    def forward(self, x):
        return torch.relu(self.third(torch.relu(self.second(torch.relu(self.first(x)))) + x))


def test_errors_since_a_node_never_exceed_the_full_estimate():
    torch.manual_seed(0)
    network = as_network(Residual().double().eval(), [torch.zeros(4, dtype=torch.float64)])
    points = torch.randn(50, 4, dtype=torch.float64)
    full = PointErrors(network, [points], [points.abs() * 1e-16])
    recent = RecentErrors(network, max(network.inputs), dict(full.values))
    for node in network.breaking_nodes:
        source = network.nodes[node].inputs[0]
        lower, bound = recent.advance_to(source), full.advance_to(source)
        assert bool((lower > 0).any())
        assert bool((lower <= bound * (1 + 1e-6)).all())  # sums of squares may be in single precision
        if node in sweep_plan(network).last_use:
            full.advance_to(node)
            recent = RecentErrors(network, node, dict(full.values))
