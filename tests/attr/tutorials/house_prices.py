"""House prices: a regression network; attributions to features and to the inputs of its first layer."""

import torch
from captum.attr import IntegratedGradients, LayerConductance

from captum.attr import NoiseTunnel  # isort: skip

torch.manual_seed(1)
features = torch.randn(200, 8)
prices = (features[:, :1] * 2 - features[:, 3:4].abs() + features[:, 5:6] * features[:, :1].relu()).detach()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.relu1 = torch.nn.Linear(8, 16), torch.nn.ReLU()
        self.lin2, self.relu2 = torch.nn.Linear(16, 8), torch.nn.ReLU()
        self.lin3 = torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.lin3(self.relu2(self.lin2(self.relu1(self.lin1(x)))))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(50):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(features[:160]), prices[:160]).backward()
    optimizer.step()
model.eval()
test = features[160:]

ig = IntegratedGradients(model)
ig_attr = ig.attribute(test, n_steps=200)
torch.manual_seed(2)
ig_nt_attr = NoiseTunnel(ig).attribute(test, nt_samples=3, stdevs=0.1, n_steps=200)
lc = LayerConductance(model, model.lin1)
lc_attr = lc.attribute(test, n_steps=200, attribute_to_layer_input=True)

total = ig_attr.detach().sum(0)
results = {
    "integrated gradients": ig_attr,
    "with noise": ig_nt_attr,
    "conductance": lc_attr,
    "normalized": total / total.norm(1),
}
