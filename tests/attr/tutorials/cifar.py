"""CIFAR: a small convolutional network; attributions of images, with noise, and pictures of them."""

import matplotlib.pyplot as plt
import numpy as np
import torch
from captum.attr import IntegratedGradients

from captum.attr import NoiseTunnel, visualization  # isort: skip
from torch import nn

torch.manual_seed(1)
images, labels = torch.rand(4, 3, 32, 32) * 2 - 1, torch.tensor([3, 8, 8, 0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.pool1 = nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2)
        self.conv2, self.pool2 = nn.Conv2d(6, 16, 5), nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 24), nn.Linear(24, 16), nn.Linear(16, 10)
        self.relu1, self.relu2, self.relu3, self.relu4 = nn.ReLU(), nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x):
        x = self.pool1(self.relu1(self.conv1(x)))
        x = self.pool2(self.relu2(self.conv2(x)))
        x = x.view(-1, 16 * 5 * 5)
        return self.fc3(self.relu4(self.fc2(self.relu3(self.fc1(x)))))


net = Net().eval()
index = 3
image = images[index].unsqueeze(0)
image.requires_grad = True


def attribute_image_features(algorithm, image, **kwargs):
    net.zero_grad()
    return algorithm.attribute(image, target=labels[index], **kwargs)


ig = IntegratedGradients(net)
attr_ig, delta = attribute_image_features(ig, image, baselines=image * 0, return_convergence_delta=True, n_steps=200)
torch.manual_seed(2)
attr_nt = attribute_image_features(
    NoiseTunnel(ig), image, baselines=image * 0, nt_type="smoothgrad_sq", nt_samples=2, stdevs=0.2, n_steps=100
)

pixels = np.transpose((images[index] / 2 + 0.5).numpy(), (1, 2, 0))
heat = np.transpose(attr_ig.squeeze().cpu().detach().numpy(), (1, 2, 0))
figure, _ = visualization.visualize_image_attr(
    heat, pixels, method="blended_heat_map", sign="all", show_colorbar=True, use_pyplot=False
)
plt.close(figure)
results = {"attributions": attr_ig, "with noise": attr_nt}
