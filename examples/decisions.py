"""Which advice a small collision-avoidance network gives on every point of a line, and by how much it leads."""

import torch
from torch import nn

import exactline as xl

# Three costs of one number: going straight on is dear near 0, turning is dear far from it.
model = nn.Sequential(nn.Linear(1, 3, dtype=torch.float64), nn.ReLU(), nn.Linear(3, 3, dtype=torch.float64)).eval()
model[0].weight.data = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
model[0].bias.data = torch.tensor([0.0, 0.0, -0.5], dtype=torch.float64)
model[2].weight.data = torch.tensor([[-1.0, -1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
model[2].bias.data = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
names = ["straight on", "left", "right"]

line = xl.restrict(model, torch.tensor([-2.0]), torch.tensor([2.0]))
decided = line.decisions(order="min")  # costs: the smallest decides
for interval in decided:
    tied = f" (tied: {', '.join(names[i] for i in interval.tied)})" if interval.tied else ""
    print(f"{interval.start:.4f} to {interval.stop:.4f}: {names[interval.best]}{tied}, leads by {interval.margin:.3f}")
print("boundaries within", max(interval.stop_error for interval in decided))

# The second best too, and questions about any linear functional of the outputs.
print([interval.label for interval in line.decisions(order="min", top=2)])
print(line.extrema([1.0, -1.0, 0.0]))  # cost of going straight on, less that of turning left
print("equal at", line.level([1.0, -1.0, 0.0], 0.0).alphas.tolist())
