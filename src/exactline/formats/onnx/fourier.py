"""Read Fourier transforms: of a whole axis, and of short frames of a signal."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import limits
from .resize import multiply_along
from .shapes import get_shape
from .values import OnnxNode, Value, get_input, operator

AXIS_INPUT_OPSET = 20  # the first operator set in which DFT takes its axis as an input


@operator("DFT")
def fourier_transform(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = node.require_dependent(inputs[0]), get_shape(inputs[0])
    axis = int(node.get_number("axis", 1))
    if node.opset >= AXIS_INPUT_OPSET:
        axis = -2 if get_input(inputs, 2) is None else node.require_whole_numbers(inputs[2], "its axis")[0]
    (axis,) = node.resolve_axes([axis], len(shape))
    if len(shape) < 2 or shape[-1] not in (1, 2) or axis == len(shape) - 1:
        raise node.make_error(f"An input of shape {list(shape)} does not hold complex numbers along axis {axis}.")
    is_inverse, is_onesided = bool(node.get_attribute("inverse", 0)), bool(node.get_attribute("onesided", 0))
    length = 2 * (shape[axis] - 1) if is_inverse and is_onesided else shape[axis]
    if get_input(inputs, 1) is not None:
        length = node.require_whole_numbers(inputs[1], "its length")[0]
    if length < 1:
        raise node.make_error("Its length is less than 1.")
    limits.check_limit(4 * length * shape[axis], limits.MAX_VALUE_ELEMENTS, "weights", node.recorder.where)
    matrix = _make_fourier_matrix(shape[axis], length, shape[-1] == 2, is_inverse, is_onesided)
    parts, count = (1 if is_inverse and is_onesided else 2), len(matrix) // (1 if is_inverse and is_onesided else 2)
    # the axis and the real and imaginary parts become one dimension, at the end
    order = [d for d in range(len(shape) - 1) if d != axis]
    joined = node.rearrange([value], lambda x: x.permute(*order, axis, len(shape) - 1).flatten(-2))
    product = node.apply_along_axes(joined, [-1], lambda x, d: multiply_along(node, x, d[0], matrix))
    back = [order.index(d) if d in order else len(order) for d in range(len(shape) - 1)]
    return node.rearrange([product], lambda x: x.unflatten(-1, (count, parts)).permute(*back, len(shape) - 1))


@operator("STFT")
def short_time_fourier_transform(node: OnnxNode, inputs: list[Value]) -> Value:
    value, shape = node.require_dependent(inputs[0]), get_shape(inputs[0])
    (step,) = node.require_whole_numbers(get_input(inputs, 1), "its step")
    window, frame = get_input(inputs, 2), get_input(inputs, 3)
    parts = shape[2] if len(shape) == 3 else 1
    if len(shape) not in (2, 3) or parts not in (1, 2) or step < 1:
        raise node.make_error(f"An input of shape {list(shape)} is not a signal, or its step is less than 1.")
    length = shape[1] if window is None else get_shape(window)[0]
    length = length if frame is None else node.require_whole_numbers(frame, "its frame length")[0]
    weights = torch.ones(length, dtype=torch.float64)
    if window is not None:
        weights = node.require_constant(window, "its window").to(torch.float64)
    if not 1 <= length <= shape[1] or tuple(weights.shape) != (length,):
        raise node.make_error(f"Its frames of length {length} do not fit its window or its signal.")
    is_onesided = bool(node.get_attribute("onesided", 1))
    if is_onesided and parts == 2:
        raise node.make_error("The transform of a complex signal has two sides.")
    count = 1 + (shape[1] - length) // step
    node.check_result_size([shape[0], count, length, 2])
    limits.check_limit(4 * length * length, limits.MAX_VALUE_ELEMENTS, "weights", node.recorder.where)
    frames = torch.arange(count)[:, None] * step + torch.arange(length)  # (frames, length)
    joined = node.rearrange([value], lambda x: x.reshape(shape[0], shape[1], parts)[:, frames].flatten(-2))
    matrix = _make_fourier_matrix(length, length, parts == 2, False, is_onesided) * weights.repeat_interleave(parts)
    product = node.apply_along_axes(joined, [-1], lambda x, d: multiply_along(node, x, d[0], matrix))
    return node.rearrange([product], lambda x: x.unflatten(-1, (-1, 2)))


def _make_fourier_matrix(size: int, length: int, is_complex: bool, is_inverse: bool, is_onesided: bool) -> Tensor:
    """The transform of ``size`` numbers, cut or padded to ``length``, as a real matrix."""
    one_hot = torch.eye(size * (2 if is_complex else 1), dtype=torch.float64)
    x = torch.view_as_complex(one_hot.unflatten(1, (size, 2))) if is_complex else one_hot.to(torch.complex128)
    if is_inverse and is_onesided:
        return torch.fft.irfft(x, length).T.contiguous()
    y = torch.fft.ifft(x, length) if is_inverse else torch.fft.fft(x, length)
    y = y[:, : length // 2 + 1] if is_onesided else y
    return torch.view_as_real(y).flatten(1).T.contiguous()
