"""How dense the breaks of three digits networks are along adversarial and random directions."""

import torch

import exactline as xl
from exactline.zoo import digits_set, robust_facts, robust_network

images, labels = digits_set("test")
x, label = images[0], int(labels[0])

for method, facts in robust_facts().items():
    model = robust_network(method)
    point = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(point[None])[0, (label + 1) % 10], point)
    random = torch.randint(0, 2, (8, 1, 8, 8), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    found = xl.density(model, x, torch.cat([gradient.sign()[None], random]), length=0.8)
    fgsm, others = found.densities[0], found.densities[1:]
    print(f"{method}: {facts['certified accuracy']:.0%} certified; {fgsm:.1f} breaks per unit of length along FGSM,")
    print(f"  {others.mean():.1f} along random directions; by layer {[int(n.sum()) for n in found.origins.values()]}")
    print(f"  pieces of half a line: {found.pieces_within(0.4).tolist()}")
