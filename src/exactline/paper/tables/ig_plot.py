"""Pictures of the integrated gradients study: errors by number of samples, and a digit faded in from black."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Floats
from ...plot.attribution import heat_colormap
from ...plot.images import as_image
from ...plot.style import COLOURS, STYLE
from ..drawing import limit_ticks, new_figure
from .ig import ERROR_TOLERANCE, PAPER_RULES, RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .figures import FadeIn
    from .ig import SampleStudy

STRIP_IMAGES = 9  # images from black to the digit
MAX_PIXELS = 24  # pixels whose gradients are drawn on every piece


def draw_error_curves(study: SampleStudy) -> Figure:
    """Draw the mean error of every rule by number of samples, one panel per network."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        networks = study.suite.networks
        figure = new_figure(9.6, 3.6)
        axes: Any = figure.subplots(1, len(networks), squeeze=False, sharey=True)[0]
        for ax, named in zip(axes, networks, strict=True):
            for rule, colour in zip(RULES, COLOURS, strict=False):
                errors = study.mean_errors(named.name, rule)
                dash = "-" if rule in PAPER_RULES else "--"
                ax.plot(range(1, len(errors) + 1), errors, dash, color=colour, label=rule, linewidth=1.1)
            ax.axhline(ERROR_TOLERANCE, color="0.6", linewidth=0.8)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("samples")
            ax.set_title(f"{named.name}, {len(study.complete_rows(named.name))} images", fontsize="medium")
        axes[0].set_ylabel("mean relative error")
        axes[0].legend(fontsize="small")
    return figure


def draw_fade_in(fade: FadeIn) -> Figure:
    """Draw figure 3: images from black to a digit, every break as a tick, and the gradients of the pieces."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = new_figure(9.6, 6.2)
        parts: Any = figure.subfigures(3, 1, height_ratios=(1.25, 1.45, 3.1))
        alphas = np.linspace(0, 1, STRIP_IMAGES)
        _draw_images(parts[0], fade, alphas)
        _draw_piece_gradients(parts[1], fade, alphas)
        _draw_breaks(parts[2].subplots(2, 1, sharex=True, height_ratios=(1, 7)), fade, alphas)
        figure.suptitle(
            f"{fade.images}, image {fade.image}, class {fade.label}, {fade.network} network:"
            f" {len(fade.line):,} pieces from black to the image",
            fontsize="medium",
        )
    return figure


def _draw_images(part: Any, fade: FadeIn, alphas: Floats) -> None:
    """Draw the images at some alphas."""
    for ax, alpha in zip(part.subplots(1, STRIP_IMAGES), alphas, strict=True):
        pixels = as_image(alpha * fade.point.numpy())
        if pixels is not None:
            ax.imshow(pixels if pixels.shape[2] == 3 else pixels[:, :, 0], cmap="gray", vmin=0, vmax=1)
        ax.set_title(f"alpha {alpha:.3g}", fontsize="x-small")
        ax.set_axis_off()


def _draw_piece_gradients(part: Any, fade: FadeIn, alphas: Floats) -> None:
    """Draw the gradients on the pieces at some alphas."""
    inner = fade.line.alphas[1:-1].numpy()
    pieces = np.searchsorted(inner, alphas, side="right")
    gradients = fade.gradients[pieces.tolist()].sum(1).numpy()
    end = float(np.abs(gradients).max()) or 1.0
    for ax, piece, gradient in zip(part.subplots(1, STRIP_IMAGES), pieces.tolist(), gradients, strict=True):
        ax.imshow(gradient, cmap=heat_colormap(), vmin=-end, vmax=end, interpolation="nearest")
        ax.set_title(f"piece {piece:,}", fontsize="x-small")
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set(visible=True, linewidth=0.5, edgecolor="#999999")


def _draw_breaks(axes: Any, fade: FadeIn, alphas: Floats) -> None:
    """Draw every break as a tick, and below them the gradients on all pieces for the pixels of largest attribution."""
    above, below = axes
    breaks = fade.line.alphas.numpy()
    above.vlines(limit_ticks(breaks), 0, 1, color="#222222", linewidth=0.4)
    above.plot(alphas, np.full(STRIP_IMAGES, 1.25), "v", color=COLOURS[1], markersize=4, clip_on=False)
    above.set_ylim(0, 1.1)
    above.set_axis_off()
    order = fade.attribution.abs().flatten().argsort(descending=True, stable=True)[:MAX_PIXELS]
    rows = fade.gradients.flatten(1)[:, order].T.numpy()  # (pixels, pieces)
    end = float(np.abs(rows).max()) or 1.0
    mesh = below.pcolormesh(
        breaks, np.arange(len(rows) + 1), rows, cmap=heat_colormap(), vmin=-end, vmax=end, rasterized=True
    )
    below.set_xlim(0, 1)
    below.invert_yaxis()
    below.set_xlabel("alpha, from black to the image; triangles mark the images above")
    below.set_ylabel(f"the {len(rows)} pixels of\nlargest attribution")
    below.set_yticks([])
    bar = below.get_figure().colorbar(mesh, ax=[above, below], fraction=0.02, pad=0.01)
    bar.set_label("gradient on the piece", fontsize="small")
