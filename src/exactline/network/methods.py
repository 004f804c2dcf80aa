"""Methods of `Network` that call the layers above, or modules that need `Network` itself; imported on first use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Network


def save_network(network: Network, path: str | os.PathLike[str]) -> None:
    """`Network.save`."""
    from ..formats import save

    save(network, path)


def network_html(network: Network) -> str:
    """`Network._repr_html_`."""
    from ..plot.tables import network_html as html

    return html(network)


def select_output(network: Network, which: str | int) -> Network:
    """`Network.output`."""
    from .outputs import select_output as select

    return select(network, which)
