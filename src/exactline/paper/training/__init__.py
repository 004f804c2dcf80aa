"""The digits network, trained normally, against attacks (PGD) or on interval bounds (as DiffAI does)."""

from .digits import TrainingResult as TrainingResult
from .digits import train as train
