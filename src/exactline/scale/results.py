"""What a store gives back for one line where no class of the library says it already."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class LineAttribution:
    """How much each input speaks for an output on the way from Q, the baseline, to R.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = xl.scale.run(torch.nn.ReLU(), [([-1.0], [3.0])], "attribute", out=folder, target=0)
    ...     store[0].attributions, store[0].delta
    (tensor([3.], dtype=torch.float64), 0.0)
    """

    attributions: Tensor | tuple[Tensor, ...]  # (*in); a tuple where the network takes several inputs
    target: int  # flat position in the output
    at_start: float  # the output there, after its smooth tail if it has one
    at_end: float
    hanging: float  # how much of it hangs on units whose gradient is a convention

    @property
    def delta(self) -> float:
        """How far the sum of the attributions is from the change of the output."""
        parts = self.attributions if isinstance(self.attributions, tuple) else (self.attributions,)
        return float(sum(part.sum() for part in parts)) - (self.at_end - self.at_start)


@dataclass(frozen=True)
class LineDensity:
    """How many breaks a line has for each unit of its length.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = xl.scale.run(torch.nn.ReLU(), [([-1.0], [3.0])], "density", out=folder)
    ...     store[0].count, store[0].density
    (3, 0.75)
    """

    count: int  # breaks, both ends counted
    length: float  # Euclidean
    births: dict[str, int]  # breaks inside the line, by the node that bore them

    @property
    def density(self) -> float:
        """Breaks for each unit of length; infinite for a line of no length."""
        return self.count / self.length if self.length else float("inf")
