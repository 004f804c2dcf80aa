"""IMDB: the sentiment of sentences of token ids; attributions to the embeddings of words."""

import torch
from captum.attr import LayerIntegratedGradients

from captum.attr import TokenReferenceBase, visualization  # isort: skip
from torch import nn

torch.manual_seed(1)
VOCABULARY = ["<pad>", "it", "was", "a", "fantastic", "terrible", "performance", "film", "not", "boring", "great", "!"]
PAD_INDEX, MIN_LENGTH = 0, 7


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), 10)
        self.convs = nn.ModuleList([nn.Conv2d(1, 6, (size, 10)) for size in (3, 4, 5)])
        self.fc, self.dropout = nn.Linear(18, 1), nn.Dropout(0.5)

    def forward(self, text):
        embedded = self.embedding(text).unsqueeze(1)
        conved = [nn.functional.relu(conv(embedded)).squeeze(3) for conv in self.convs]
        pooled = [nn.functional.max_pool1d(conv, conv.shape[2]).squeeze(2) for conv in conved]
        return self.fc(self.dropout(torch.cat(pooled, dim=1)))


model = CNN().eval()
token_reference = TokenReferenceBase(reference_token_idx=PAD_INDEX)
lig = LayerIntegratedGradients(model, model.embedding)
records, results = [], {}


def interpret_sentence(sentence):
    words = sentence.split()
    words += ["<pad>"] * (MIN_LENGTH - len(words))
    indices = torch.tensor([VOCABULARY.index(word) for word in words]).unsqueeze(0)
    model.zero_grad()
    score = torch.sigmoid(model(indices)).item()
    reference = token_reference.generate_reference(MIN_LENGTH, device=torch.device("cpu")).unsqueeze(0)
    attributions, delta = lig.attribute(indices, reference, n_steps=300, return_convergence_delta=True)
    summed = attributions.sum(dim=2).squeeze(0)
    normalized = (summed / torch.norm(summed)).cpu().detach().numpy()
    records.append(
        visualization.VisualizationDataRecord(
            normalized, score, round(score), "pos", "pos", normalized.sum(), words, delta
        )
    )
    results[sentence] = attributions


interpret_sentence("it was a fantastic performance !")
interpret_sentence("it was not a great film")
assert len(records) == 2
