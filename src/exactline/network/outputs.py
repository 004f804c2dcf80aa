"""Select one of the outputs of a network, by name or by index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import ArgumentError
from ..humanize import count_noun
from .graph import Network
from .simplify import remove_dead_nodes

MAX_SHOWN_OUTPUTS = 12  # outputs that an error message names


def select_output(network: Network, which: Any) -> Network:
    """`Network.output`.

    The result is kept with the network, because plans of sweeps and copies on other devices are kept with the result.
    """
    index = find_output(network, which)
    if not network.several_outputs:
        return network
    key = ("output", index)
    if key not in network.device_copies:
        network.device_copies[key] = remove_dead_nodes(
            replace(
                network,
                outputs=(network.outputs[index],),
                tails=(network.tails[index],),
                several_outputs=False,
                output_names=network.list_output_names()[index : index + 1],
                device_copies={},
            )
        )
    return network.device_copies[key]


def find_output(network: Network, which: Any) -> int:
    """The index of an output that is given by its name or its index; raises ArgumentError where there is none."""
    names, count = network.list_output_names(), len(network.outputs)
    if isinstance(which, str):
        found = [i for i, name in enumerate(names) if name == which]
        if len(found) == 1:
            return found[0]
        problem = f"{len(found)} outputs are called {which!r}" if found else f"There is no output {which!r}"
    elif isinstance(which, int) and not isinstance(which, bool) and 0 <= which < count:
        return which
    else:
        problem = f"There is no output {which!r}"
    raise ArgumentError(
        f"{problem}: the network has {describe_outputs(names)}.",
        where="argument output",
        hint=f"Give its name, or a number from 0 to {count - 1}.",
    )


def describe_outputs(names: tuple[str, ...]) -> str:
    """The outputs in words, such as 2 outputs: 0 (scores), 1 (boxes)."""
    shown = ", ".join(f"{i} ({name})" for i, name in enumerate(names[:MAX_SHOWN_OUTPUTS]))
    rest = f" and {len(names) - MAX_SHOWN_OUTPUTS:,} more" if len(names) > MAX_SHOWN_OUTPUTS else ""
    return f"{count_noun(len(names), 'output')}: {shown}{rest}"
