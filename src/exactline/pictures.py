"""Pictures in one call: compute what is asked for, and draw it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .api import grid
from .arrays import Floats, Ints
from .errors import ArgumentError, PlaneError
from .network.sklearn_models import class_names, feature_names
from .plot.figure import save_picture
from .plot.region_map import DataPoints, plot_region_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .decide.regions import Regions
    from .results.plane import PlaneRestriction

MARGIN = 0.12  # around the data, as a share of its extent
THEMES = (None, "light", "dark")
DATA_HINT = "Give data=(X, y) with X of shape (n, 2), or data=X."


def plot_regions(
    model: Any,
    data: Any = None,
    bounds: Any = None,
    *,
    ax: Axes | None = None,
    features: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    title: str | None = None,
    theme: str | None = None,
    threshold: float | None = None,
    order: str = "max",
    path: str | Path | None = None,
) -> Axes:
    """Draw the linear regions and the decision boundary of a model with two inputs, and data over them.

    Every linear region is drawn, none is sampled: shades and thin lines tell neighbours apart, a thick line is the
    exact decision boundary. A model with one output and no threshold is a regressor: its values give the colours.

    Args:
        model: A module, a `Network` or a fitted perceptron of scikit-learn, with two input features.
        data: Points (n, 2), or (X, y) with their classes: numbers from 0, or names as in ``labels``. Columns of a data
            frame name the features.
        bounds: The ranges of the two features, ((low, high), (low, high)); by default those of the data and a margin.
        ax: The axes to draw into; None makes new ones.
        features: Names of the two features, with their units.
        labels: Names of the classes; by default those of the classifier, or numbers.
        colors: Colours of the classes, such as "#0072B2".
        title: Title of the picture; by default the number of regions, "" for none.
        theme: "light" or "dark"; None follows matplotlib's style.
        threshold: Between the two classes of a model with one output; 0.5 behind a sigmoid.
        order: "max" if the largest output decides, "min" for the smallest.
        path: Where to save the picture: .png, .svg or .pdf.

    >>> import torch, exactline as xl
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 2.0], [-1.0, 1.0]])
    >>> ax = xl.plot_regions(model, data=(points, [0, 1, 2]), features=["width (cm)", "height (cm)"])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('width (cm)', 'height (cm)')

    Raises ArgumentError for arguments that do not fit, PlaneError for bounds that span no rectangle, MissingError
    without matplotlib, and the errors of `restrict_plane`.
    """
    if theme not in THEMES:
        raise ArgumentError(f"There is no theme {theme!r}.", where="argument theme", hint="Give 'light' or 'dark'.")
    points, targets, columns = _read_data(data)
    plane = _restrict(model, _choose_bounds(points, bounds))
    regions = _decide(plane, order, threshold)
    names = labels if labels is not None else class_names(model) if regions is not None else None
    drawn = None if points is None else _make_data_points(points, targets, names, regions)
    drawn_ax = plot_region_map(
        plane,
        regions,
        drawn,
        ax,
        features=features if features is not None else feature_names(model) or columns,
        labels=names,
        colors=colors,
        title=title,
        theme=theme,
    )
    if path is not None:
        save_picture(drawn_ax, path)
    return drawn_ax


def _read_data(data: Any) -> tuple[Floats | None, Any, list[str] | None]:
    """The points (n, 2), their classes or values, and the names of their columns."""
    if data is None:
        return None, None, None
    pair: Any = data if isinstance(data, tuple) and len(data) == 2 else (data, None)  # pyright: ignore
    inputs, targets = pair
    columns = [str(name) for name in inputs.columns] if hasattr(inputs, "columns") else None
    try:
        points = np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise ArgumentError(f"The data are not numbers: {problem}.", where="argument data", hint=DATA_HINT) from problem
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        what = f"have shape {points.shape}" if points.shape[1:] != (2,) else "hold NaN or infinite numbers"
        raise ArgumentError(
            f"The data {what}.",
            where="argument data",
            hint=f"{DATA_HINT} To vary two of more features, use xl.grid(model, base, axes, box).plot().",
        )
    if targets is not None:
        targets = np.asarray(targets.detach().cpu() if hasattr(targets, "detach") else targets)
        if targets.shape != (len(points),):
            raise ArgumentError(
                f"There are {len(points)} points, and classes of shape {targets.shape}.",
                where="argument data",
                hint="Give one class for each point.",
            )
    return points, targets, columns


def _choose_bounds(points: Floats | None, bounds: Any) -> Any:
    if bounds is not None:
        return bounds
    if points is None or not len(points):
        raise ArgumentError(
            "There are neither data nor bounds.",
            where="argument bounds",
            hint="Give bounds=((low, high), (low, high)).",
        )
    low, high = points.min(0), points.max(0)
    pad = MARGIN * np.where(high > low, high - low, np.maximum(1.0, np.abs(low)))
    return tuple(zip((low - pad).tolist(), (high + pad).tolist(), strict=True))


def _restrict(model: Any, bounds: Any) -> PlaneRestriction:
    try:
        return grid(model, [0.0, 0.0], axes=(0, 1), box=bounds)
    except PlaneError as problem:
        if problem.where != "argument box":
            raise
        text = problem.problem.replace("box must", "bounds must")
        raise PlaneError(text, where="argument bounds", hint=problem.hint) from problem


def _decide(plane: PlaneRestriction, order: str, threshold: float | None) -> Regions | None:
    """The classes of a plane; None for a regressor."""
    network = plane.require_network("plot_regions")
    elements = 1
    for size in network.nodes[network.outputs[0]].shape:
        elements *= size
    tail = network.tails[0]
    if elements == 1 and threshold is None and (tail is None or tail.name != "sigmoid"):
        return None
    return plane.decisions(order, threshold=threshold)


def _make_data_points(points: Floats, targets: Any, names: Sequence[str] | None, regions: Regions | None) -> DataPoints:
    if targets is None:
        return DataPoints(points, None)
    if regions is None:
        return DataPoints(points, None, np.asarray(targets, dtype=np.float64))
    return DataPoints(points, _class_numbers(targets, names, regions.comparison.class_count))


def _class_numbers(targets: Any, names: Sequence[str] | None, count: int) -> Ints:
    """The classes of points as numbers from 0; names are looked up."""
    if names is not None and {str(t) for t in targets.tolist()} <= set(names):
        number = {name: i for i, name in enumerate(names)}
        return np.array([number[str(t)] for t in targets.tolist()], dtype=np.int64)
    if targets.dtype.kind in "iub" and (targets >= 0).all() and (targets < count).all():
        return targets.astype(np.int64)
    raise ArgumentError(
        f"The classes of the data are not those of the model, which has {count}.",
        where="argument data",
        hint=f"Give whole numbers from 0 to {count - 1}, or names as in labels.",
    )
