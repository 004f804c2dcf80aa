"""The class probabilities of a small transformer between two digits, and where its decision changes."""

import torch
from torch import Tensor, nn

import exactline as xl
from exactline.plot import save_picture
from exactline.zoo import digits_images


class DigitTransformer(nn.Module):
    """A transformer encoder over the eight rows of a digit; its weights are random."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu", dropout=0.0)
        self.embed, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.encoder(self.embed(x.reshape(x.shape[0], 8, 8)))
        return torch.softmax(4 * self.head(tokens.mean(1)), 1)


torch.manual_seed(1)
model = DigitTransformer().eval()
start, end = digits_images()[0][[0, 4]].reshape(2, 64)

curve = xl.approximate(model, start, end, tol=1e-9)
print(curve)
print(curve.decisions())
print("largest probability of class 0:", curve.extrema(0).maximum)
save_picture(curve.decisions().plot(labels=["one", "two", "three"]), "transformer.svg")
