"""The paper's running example: how a loan score changes over ten years, exactly."""

import torch
from torch import nn

import exactline as xl

model = nn.Sequential(nn.Linear(2, 2, dtype=torch.float64), nn.ReLU()).eval()
model[0].weight.data = torch.tensor([[-1.7, 1.0], [2.0, -1.3]], dtype=torch.float64)
model[0].bias.data = torch.tensor([3.0, 3.0], dtype=torch.float64)

line = xl.restrict(model, torch.tensor([20.0, 30.0]), torch.tensor([30.0, 50.0]))  # (age, income), now and then
print(line)
for i in range(len(line)):
    print(f"\nalpha {line.alphas[i]:.4f} to {line.alphas[i + 1]:.4f}: A, b =", *line.piece(i).affine(), sep="\n")
