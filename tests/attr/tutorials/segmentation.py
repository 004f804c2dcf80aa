"""Segmentation: a network that returns a dict of maps; a wrapper sums the pixels that were predicted for each class."""

import torch
from captum.attr import IntegratedGradients, LayerConductance, LayerIntegratedGradients
from torch import nn

torch.manual_seed(1)


class FCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU()
        )
        self.classifier, self.aux_classifier = nn.Conv2d(6, 5, 1), nn.Conv2d(6, 5, 1)

    def forward(self, x):
        features = self.backbone(x)
        return {"out": self.classifier(features), "aux": self.aux_classifier(features)}


fcn = FCN().eval()
image = torch.rand(1, 3, 8, 8)
predicted = torch.argmax(fcn(image)["out"], dim=1, keepdim=True)


def aggregate(inputs):
    output = fcn(inputs)["out"]
    selected = torch.zeros_like(output[0:1]).scatter_(1, predicted, 1)
    return (output * selected).sum(dim=(2, 3))


target = int(predicted.flatten().mode().values)
ig_attr = IntegratedGradients(aggregate).attribute(image, target=target, n_steps=500)
lc_attr = LayerConductance(aggregate, fcn.backbone[2]).attribute(image, target=target, n_steps=500)
lig = LayerIntegratedGradients(aggregate, fcn.backbone[0])
lig_attr, delta = lig.attribute(image, target=target, n_steps=500, return_convergence_delta=True)
upsampled = LayerConductance.interpolate(lc_attr, (16, 16))
results = {"pixels": ig_attr, "conductance": lc_attr, "layer": lig_attr, "upsampled": upsampled}
