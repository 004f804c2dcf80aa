"""The weights of a convolution as the patch engine multiplies them: by group, with channels last."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Taps:
    """The weights of all taps of a kernel.

    In a convolution with groups, a group of output channels reads one group of input channels; in a depthwise one every
    group has a single channel.
    """

    weight: Tensor  # (groups, rows, columns, in, out), channels of one group

    @staticmethod
    def of(weight: Tensor, groups: int) -> Taps:
        """The taps of a convolution's weight (out, in / groups, rows, columns)."""
        by_group = weight.view(groups, -1, *weight.shape[1:])
        return Taps(by_group.permute(0, 3, 4, 2, 1).contiguous())

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.weight)

    @property
    def inputs(self) -> int:
        """Number of input channels of all groups."""
        return self.groups * self.weight.shape[3]

    @property
    def outputs(self) -> int:
        """Number of output channels of all groups."""
        return self.groups * self.weight.shape[4]

    @cached_property
    def is_depthwise(self) -> bool:
        """Whether every output channel reads one input channel, its own."""
        return self.groups > 1 and self.weight.shape[3:] == (1, 1)

    @cached_property
    def channel_weight(self) -> Tensor:
        """(rows, columns, channels) of a depthwise convolution."""
        return self.weight[..., 0, 0].permute(1, 2, 0).contiguous()

    @cached_property
    def reversed(self) -> Taps:
        """The taps from outputs to inputs, last tap first: those of the transposed convolution for stride 1."""
        return Taps(self.weight.flip(1, 2).transpose(3, 4).contiguous())

    def multiply(self, windows: Tensor, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
        """Multiply windows (m, rows, columns, in) by the taps of some rows and columns; (m, out)."""
        out = windows.new_empty(len(windows), self.outputs)
        if self.is_depthwise:
            return torch.sum(windows * self.channel_weight[rows, columns], (1, 2), out=out)
        weight = self.weight[:, rows, columns]
        if self.groups == 1:
            return torch.matmul(windows.reshape(len(windows), -1), weight.reshape(-1, self.outputs), out=out)
        _multiply_groups(windows, weight, out)
        return out

    def correlate(self, windows: Tensor, out: Tensor) -> None:
        """Multiply overlapping windows (n, rows, columns, kernel rows, kernel columns, in) by all taps.

        Args:
            windows: A view of padded patches, which is copied only if that is needed.
            out: (n, rows, columns, out) is written.
        """
        if self.is_depthwise:
            torch.mul(windows[:, :, :, 0, 0], self.channel_weight[0, 0], out=out)
            for y in range(self.weight.shape[1]):
                for x in range(self.weight.shape[2]):
                    if y or x:
                        out.addcmul_(windows[:, :, :, y, x], self.channel_weight[y, x])
        elif self.groups == 1:
            weight = self.weight.view(-1, self.outputs)
            torch.matmul(windows.reshape(-1, len(weight)), weight, out=out.view(-1, self.outputs))
        else:
            _multiply_groups(windows.flatten(0, 2), self.weight, out.view(-1, self.outputs))

    def transpose(self, x: Tensor) -> Tensor:
        """What outputs (m, out) contribute to the inputs of their windows, (m, rows, columns, in)."""
        _, rows, columns, inputs, outputs = self.weight.shape
        if self.is_depthwise:
            return x[:, None, None] * self.channel_weight
        if self.groups == 1:
            return (x @ self.weight.view(-1, outputs).T).view(len(x), rows, columns, inputs)
        by_group = x.view(len(x), self.groups, outputs).transpose(0, 1)
        product = torch.bmm(by_group, self.weight.view(self.groups, -1, outputs).transpose(1, 2))
        product = product.view(self.groups, len(x), rows, columns, inputs)
        return product.permute(1, 2, 3, 0, 4).reshape(len(x), rows, columns, -1)

    @cached_property
    def _channel_table(self) -> Tensor:
        """(in * (rows * columns + 1), out / groups), with a row of zeros after the taps of each input channel."""
        flat = self.weight.permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)
        return torch.cat([flat, flat.new_zeros(len(flat), 1, flat.shape[2])], 1).flatten(0, 1)

    def of_channels(self, channel: Tensor, tap: Tensor) -> tuple[Tensor, Tensor | None]:
        """The weights with which some outputs read single inputs.

        Args:
            channel: (n,) input channels.
            tap: (n, k) for each of them, the taps of k outputs; the number of taps stands for none.

        Returns:
            The weights (n, k, out / groups), and the group (n,) of output channels; None if there is one group.
        """
        row = torch.add(tap, channel[:, None], alpha=self.weight.shape[1] * self.weight.shape[2] + 1)
        weights = self._channel_table.index_select(0, row.view(-1)).view(*tap.shape, -1)
        return weights, None if self.groups == 1 else channel // self.weight.shape[3]


def _multiply_groups(windows: Tensor, weight: Tensor, out: Tensor) -> None:
    """Multiply windows (m, rows, columns, in) by weights (groups, rows, columns, in, out), into ``out`` (m, out)."""
    groups, rows, columns, inputs, outputs = weight.shape
    by_group = (
        windows.view(-1, rows, columns, groups, inputs)
        if windows.is_contiguous()
        else windows.unflatten(3, (groups, inputs))
    )
    flat = by_group.permute(3, 0, 1, 2, 4).reshape(groups, len(windows), -1)
    product = torch.bmm(flat, weight.reshape(groups, -1, outputs))
    out.view(-1, groups, outputs).copy_(product.transpose(0, 1))


def place_in_group(numbers: Tensor, group: Tensor | None, groups: int) -> Tensor:
    """Numbers (n, k, out) of one group of channels as numbers of all groups, (n, k, groups * out), zero elsewhere.

    Args:
        numbers: The numbers.
        group: (n,) the group of each row; None if there is only one.
        groups: Number of groups.
    """
    if group is None:
        return numbers
    n, k, outputs = numbers.shape
    placed = numbers.new_zeros(n, k, groups, outputs)
    placed.scatter_(2, group.view(n, 1, 1, 1).expand(n, k, 1, outputs), numbers[:, :, None])
    return placed.flatten(2)


def read_group(numbers: Tensor, group: Tensor | None, groups: int) -> Tensor:
    """The numbers (n, k, out) of one group of channels among those of all groups, (n, k, groups * out)."""
    if group is None:
        return numbers
    n, k = numbers.shape[:2]
    by_group = numbers.view(n, k, groups, -1)
    index = group.view(n, 1, 1, 1).expand(n, k, 1, by_group.shape[3])
    return by_group.gather(2, index)[:, :, 0]
