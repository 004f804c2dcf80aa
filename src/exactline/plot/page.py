"""Web pages: one self-contained file each, which fetches nothing and shows user-supplied names as plain text."""

from __future__ import annotations

import html
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..files import write_atomically
from .palette import interpolate_palette

# Colours of layers from the first to the last, on light and on dark pages.
LIGHT_PAGE_PALETTE = ("#440154", "#3B528B", "#21918C", "#5DC863")
DARK_PAGE_PALETTE = ("#FDE725", "#90D743", "#35B779", "#3FA7D6")


def write_page(path: str | Path, data: dict[str, Any], title: str, scripts: Sequence[str]) -> Path:
    """Write a page, whole or not at all.

    Args:
        path: the file.
        data: what the scripts show; JSON can hold it.
        title: of the page.
        scripts: names of assets in order, without endings; the first also names the HTML body and the CSS.
    """
    write_atomically(Path(path), _build_page(data, title, scripts))
    return Path(path)


def encode_array(values: NDArray[Any]) -> dict[str, str]:
    """A flattened array without loss of bits: integers as int32, others as float64.

    The bits of neighbours are subtracted, bytes of equal significance are stored together, and all is deflated.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "f":
        kind, bits = "f8", flat.astype("<f8").view("<u8")
    else:
        kind, bits = "i4", flat.astype("<i4").view("<u4")
    steps = np.diff(bits, prepend=bits.dtype.type(0))  # unsigned: differences wrap around, and sums wrap back
    planes = steps.view(np.uint8).reshape(len(steps), bits.dtype.itemsize).T
    return {"kind": kind, "data": b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def list_nodes(origins: Ints, names: Sequence[str]) -> list[dict[str, Any]]:  # origins is (n,) node or -1
    """The nodes that caused breaks or edges, in order: how many each, and its colours on light and dark pages."""
    nodes, counts = np.unique(origins, return_counts=True)
    rows = [(node, count) for node, count in zip(nodes.tolist(), counts.tolist(), strict=True) if node >= 0]
    last = max(len(rows) - 1, 1)
    return [
        {
            "node": node,
            "name": names[node],
            "count": count,
            "light": interpolate_palette(LIGHT_PAGE_PALETTE, i / last),
            "dark": interpolate_palette(DARK_PAGE_PALETTE, i / last),
        }
        for i, (node, count) in enumerate(rows)
    ]


def _build_page(data: dict[str, Any], title: str, scripts: Sequence[str]) -> bytes:
    sources = [read_asset(f"{name}.js") for name in ("page", *scripts)]
    script = "\n".join(["(async () => {", '"use strict";', *sources, "})();"])
    style = "\n".join(read_asset(f"{name}.css") for name in ("page", scripts[0]))
    parts = {
        "SCRIPT_HASH": _hash(script),
        "STYLE_HASH": _hash(style),
        "TITLE": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "STYLE": style,
        "BODY": read_asset(f"{scripts[0]}.html"),
        "DATA": _escape_json(data),
        "SCRIPT": script,
    }
    # one pass over the template, so that no user-supplied name is taken for a placeholder
    return re.sub(r"%([A-Z_]+)%", lambda match: parts[match[1]], read_asset("page.html")).encode("ascii")


def _escape_json(data: dict[str, Any]) -> str:
    """JSON in ASCII that cannot end the HTML element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def read_asset(name: str) -> str:
    """The text of a file in the folder `assets`."""
    return resources.files("exactline.plot").joinpath("assets", name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    """The hash by which the content security policy allows a script or a style."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
