"""Titanic with ReLUs: survival from twelve features; attributions to features, to a layer, and through one unit."""

import torch
from captum.attr import IntegratedGradients, LayerConductance, NeuronConductance

torch.manual_seed(1)
passengers = torch.rand(30, 12, requires_grad=True)


class TitanicNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1, self.relu1 = torch.nn.Linear(12, 12), torch.nn.ReLU()
        self.linear2, self.relu2 = torch.nn.Linear(12, 8), torch.nn.ReLU()
        self.linear3, self.softmax = torch.nn.Linear(8, 2), torch.nn.Softmax(dim=1)

    def forward(self, x):
        hidden = self.relu2(self.linear2(self.relu1(self.linear1(x))))
        return self.softmax(self.linear3(hidden))


net = TitanicNet().eval()
ig = IntegratedGradients(net)
attr, delta = ig.attribute(passengers, target=1, return_convergence_delta=True, n_steps=200)
attr = attr.detach().numpy()
importances = attr.mean(axis=0)

cond = LayerConductance(net, net.relu1)
cond_vals = cond.attribute(passengers, target=1, n_steps=200)
neuron_cond = NeuronConductance(net, net.relu1)
neuron_cond_vals = neuron_cond.attribute(passengers, neuron_selector=10, target=1, n_steps=200)

results = {
    "features": torch.from_numpy(attr),
    "importances": torch.from_numpy(importances),
    "conductance": cond_vals,
    "through one unit": neuron_cond_vals,
}
assert delta.shape == (30,)
