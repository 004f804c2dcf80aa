"""All errors that the package raises: each says what the problem is, where it is, and what to try."""

from __future__ import annotations


class ExactlineError(Exception):
    """The base class of all errors of the package. It prints as three lines: problem, where, try.

    Args:
        problem: What is wrong, as a sentence.
        where: The argument, file, line or node that is wrong.
        hint: What to try instead.

    Every subclass has a stable ``code`` for programs and an ``exit_status`` for the command line.

    >>> print(LineError("start holds NaN.", where="argument start", hint="Give finite points."))
    start holds NaN.
      where: argument start
      try:   Give finite points.
    """

    code = "exactline"
    exit_status = 1

    def __init__(self, problem: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.problem]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  try:   {self.hint}")
        return "\n".join(lines)


class LineError(ExactlineError):
    """The end points of a line cannot be used.

    >>> import torch, exactline as xl
    >>> xl.restrict(torch.nn.ReLU(), [0.0], [1.0, 2.0])
    Traceback (most recent call last):
    exactline.errors.LineError: start has shape (1,) and end has shape (2,).
      where: arguments start, end
      try:   Both ends of a line need the same shape.
    """

    code = "line"
    exit_status = 2


class PlaneError(ExactlineError):
    """The corners of a polygon cannot be used.

    >>> import torch, exactline as xl
    >>> xl.restrict_plane(torch.nn.ReLU(), [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    Traceback (most recent call last):
    exactline.errors.PlaneError: The corners lie on one line.
      where: argument vertices
      try:   Use xl.restrict for a line.
    """

    code = "plane"
    exit_status = 2


class ArgumentError(ExactlineError):
    """An option or an argument has an invalid value.

    >>> import torch, exactline as xl
    >>> xl.restrict(torch.nn.ReLU(), [0.0], [1.0], engine="fast")
    Traceback (most recent call last):
    exactline.errors.ArgumentError: There is no engine 'fast'.
      where: argument engine
      try:   Give one of 'auto', 'dense', 'patches', or leave it out.
    """

    code = "argument"
    exit_status = 2


class CaptureError(ExactlineError):
    """The model cannot be captured as a graph.

    >>> import torch, exactline as xl
    >>> def forward(x):
    ...     return x if x.sum() > 0 else -x
    >>> try:
    ...     xl.restrict(forward, [0.0], [1.0])
    ... except xl.CaptureError as error:
    ...     print(error.where)
    forward, called with inputs of shape (3, 1)
    """

    code = "capture"
    exit_status = 3


class TrainingModeError(CaptureError):
    """A submodule is in training mode, so the model is not a fixed function.

    >>> import torch, exactline as xl
    >>> xl.restrict(torch.nn.Sequential(torch.nn.Dropout()), [0.0], [1.0])
    Traceback (most recent call last):
    exactline.errors.TrainingModeError: Dropout is in training mode.
      where: submodule 0
      try:   Call model.eval() first.
    """

    code = "training-mode"


class UnsupportedError(CaptureError):
    """The graph contains operators that are not piecewise linear or not known.

    Args:
        problem: What is wrong, as a sentence.
        nodes: A line for each such operator, with its module path.
        where: The lines of nodes as text.
        hint: What to try instead.

    >>> import torch, exactline as xl
    >>> xl.restrict(torch.nn.GELU(), [0.0], [1.0])
    Traceback (most recent call last):
    exactline.errors.UnsupportedError: 1 operator is not piecewise linear in each point by itself.
      where: gelu is smooth, not piecewise linear
      try:   Use exactline.approximate, or restrict only to a submodule before them with until='name'.
    """

    code = "unsupported"

    def __init__(self, problem: str, *, nodes: tuple[str, ...] = (), where: str = "", hint: str = "") -> None:
        super().__init__(problem, where=where, hint=hint)
        self.nodes = nodes


class NumberError(ExactlineError):
    """A weight or a value is NaN or infinite, or overflows.

    >>> import torch, exactline as xl
    >>> model = torch.nn.Linear(1, 1)
    >>> _ = torch.nn.init.constant_(model.weight, float("inf"))
    >>> xl.restrict(model, [0.0], [1.0])
    Traceback (most recent call last):
    exactline.errors.NumberError: weight holds NaN or infinite numbers.
      where: weight
      try:   Repair the weights.
    """

    code = "number"
    exit_status = 4


class MissingError(ExactlineError):
    """Values or the network are missing from a result, or an optional package is not installed.

    >>> import torch, exactline as xl
    >>> xl.restrict(torch.nn.ReLU(), [-1.0], [1.0], values=False).values
    Traceback (most recent call last):
    exactline.errors.MissingError: The values were not kept.
      where: line.values
      try:   Call restrict with values=True, or use line.at(alpha).
    """

    code = "missing"
    exit_status = 5


class FileError(ExactlineError):
    """A file cannot be read or written.

    >>> import exactline as xl
    >>> xl.load("weights.pt")
    Traceback (most recent call last):
    exactline.errors.FileError: .pt files are not opened: reading one can run code that is hidden in it.
      where: weights.pt
      try:   Load it yourself if you trust it, and pass the module or the ExportedProgram; or export it to ONNX.
    """

    code = "file"
    exit_status = 6


class ServiceError(ExactlineError):
    """A server cannot be reached, or cannot answer at the moment."""

    code = "service"
    exit_status = 7


class AccessError(ServiceError):
    """A server rejects the caller: the token is missing or wrong."""

    code = "access"


class LimitError(ServiceError):
    """A call exceeds a limit of the server, or a plane one of its options; the message names the limit.

    ``reached`` is the number of polygons that a plane had when it was stopped, which its answer has at least; None for
    limits of a server.

    >>> import torch, exactline as xl
    >>> xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]], max_polygons=3)
    Traceback (most recent call last):
    exactline.errors.LimitError: The plane has more than 3 polygons: 4 or more.
      where: argument max_polygons
      try:   Allow more polygons, or take a smaller part of the plane.
    """

    code = "limit"

    def __init__(self, problem: str, *, where: str = "", hint: str = "", reached: int | None = None) -> None:
        super().__init__(problem, where=where, hint=hint)
        self.reached = reached


ERRORS: tuple[type[ExactlineError], ...] = (
    ExactlineError,
    LineError,
    PlaneError,
    ArgumentError,
    CaptureError,
    TrainingModeError,
    UnsupportedError,
    NumberError,
    MissingError,
    FileError,
    ServiceError,
    AccessError,
    LimitError,
)
