"""The operators of the corpus in two number systems: torch in float64, and NumPy with 64-bit mantissas as the truth.

Extended precision rounds 2,000 times finer than float64. Its functions also take complex numbers, so that a derivative
is the imaginary part at a point with a tiny imaginary step, without any difference of nearly equal numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

HAS_EXTENDED_PRECISION = np.finfo(np.longdouble).nmant >= 63
PI = np.longdouble("3.14159265358979323846264338327950288")
SERIES_TERMS = 260  # of erf, enough for arguments up to MAX_SERIES
MAX_SERIES = 9.0  # beyond it erf is 1 to 37 digits


class TorchNumbers:
    """Operators on float64 or float32 tensors."""

    gelu, silu, tanh, sigmoid, relu = functional.gelu, functional.silu, torch.tanh, torch.sigmoid, torch.relu

    @staticmethod
    def softplus(x):
        return functional.softplus(x, threshold=40.0)

    @staticmethod
    def softmax(x):
        return torch.softmax(x, -1)

    @staticmethod
    def layer_norm(x, weight, bias, eps):
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)

    @staticmethod
    def convolution(x, weight, bias):  # (n, channels, h, w), 3x3 with padding 1
        return functional.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def transpose(x):
        return x.transpose(-1, -2)

    @staticmethod
    def swap_heads(x):
        return x.transpose(1, 2)

    @staticmethod
    def concatenate(xs, dim=-1):
        return torch.cat(xs, dim)


class ExtendedNumbers:
    """Operators on arrays of long doubles, real or complex."""

    @staticmethod
    def erf(x):
        inside = np.abs(x.real) < MAX_SERIES
        small = np.where(inside, x, 0)
        term = total = small
        for k in range(1, SERIES_TERMS):
            term = term * (2 * small * small) / (2 * k + 1)
            total = total + term
            if np.abs(term).max() <= 1e-22 * np.abs(total).max(initial=0):
                break
        series = total * np.exp(-small * small) * (2 / np.sqrt(PI))
        return np.where(inside, series, np.sign(x.real))

    @classmethod
    def gelu(cls, x):
        return x * (1 + cls.erf(x / np.sqrt(np.longdouble(2)))) / 2

    @staticmethod
    def sigmoid(x):
        decay = np.exp(np.where(x.real > 0, -x, x))
        return np.where(x.real > 0, 1 / (1 + decay), decay / (1 + decay))

    @classmethod
    def silu(cls, x):
        return x * cls.sigmoid(x)

    @staticmethod
    def tanh(x):
        decay = np.exp(np.where(x.real > 0, -2 * x, 2 * x))
        value = (1 - decay) / (1 + decay)
        return np.where(x.real > 0, value, -value)

    @staticmethod
    def relu(x):
        return np.where(x.real > 0, x, 0)

    @staticmethod
    def softplus(x):
        positive = x.real > 0
        return np.where(positive, x, 0) + np.log(1 + np.exp(np.where(positive, -x, x)))

    @staticmethod
    def softmax(x):
        shifted = np.exp(x - x.real.max(-1, keepdims=True))
        return shifted / shifted.sum(-1, keepdims=True)

    @staticmethod
    def layer_norm(x, weight, bias, eps):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.longdouble(eps)) * weight + bias

    @staticmethod
    def convolution(x, weight, bias):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        h, w = x.shape[2:]
        windows = [padded[:, :, i : i + h, j : j + w] for i in range(3) for j in range(3)]
        columns = np.stack(windows, 2).reshape(len(x), -1, h * w)
        return (weight.reshape(len(weight), -1) @ columns).reshape(len(x), -1, h, w) + bias[:, None, None]

    @staticmethod
    def transpose(x):
        return np.swapaxes(x, -1, -2)

    @staticmethod
    def swap_heads(x):
        return np.swapaxes(x, 1, 2)

    @staticmethod
    def concatenate(xs, dim=-1):
        return np.concatenate(xs, dim)
