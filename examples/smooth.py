"""The class probabilities of a small transformer between two digits, and where its decision changes."""

import torch
from torch import Tensor, nn

import exactline as xl
from exactline.plot import save_picture
from exactline.zoo import digits_images


class DigitTransformer(nn.Module):
    """A transformer encoder over the eight rows of a digit."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu", dropout=0.0)
        self.embed, self.head = nn.Linear(8, 16), nn.Linear(16, 10)
        self.positions = nn.Parameter(torch.randn(8, 16) / 4)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.encoder(self.embed(x.reshape(x.shape[0], 8, 8)) + self.positions)
        return torch.softmax(self.head(tokens.mean(1)), 1)


# Fit the few bundled digits: enough for a picture, not for a benchmark.
torch.manual_seed(0)
images, labels = digits_images()
images, model = images.reshape(len(images), 64).float(), DigitTransformer()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(120):
    optimizer.zero_grad()
    nn.functional.nll_loss(model(images).log(), labels).backward()
    optimizer.step()
model.eval()

curve = xl.approximate(model, images[0], images[4], tol=1e-9)
print(curve)
decided = curve.decisions()
print(decided)
print("boundaries within", max(interval.stop_error for interval in decided))
print(f"largest probability of class {int(labels[0])}:", curve.extrema(int(labels[0])).maximum)
save_picture(decided.plot(), "transformer.svg")
