"""Mixed calls for a load test: each knows its right answer; some are malformed, some are cancelled."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import torch

import exactline as xl
from exactline.errors import LimitError
from exactline.rpc.client.sync import Client
from tests.rpc import raw, wire
from tests.rpc.old_networks import ALL, small
from tests.rpc.test_syrenn_refused import ASKED, EYE, LAYERS

Code = grpc.StatusCode
BROKEN, CANCELLED = 0.10, 0.05  # shares of all calls
METHODS = ("ListModels", "DescribeModel", "Stats", "Restrict", "Sweep", "Decide", "Attribute", "Plane")
REFUSED = (Code.INVALID_ARGUMENT, Code.NOT_FOUND)


@dataclass
class Calls:
    """What clients ask, and the library's answers."""

    folder: Path

    def __post_init__(self) -> None:
        rng = np.random.default_rng(7)
        self.small, self.acas = (xl.load(self.folder / f"{name}.nnet") for name in ("small", "acas"))
        self.points = rng.normal(size=(2, 6, 3))
        self.many = xl.restrict_many(self.small, *self.points)
        self.ends = rng.normal(size=(2, 5))
        self.one = xl.restrict(self.acas, *self.ends)
        self.decided = self.one.decisions()
        self.inputs = torch.from_numpy(rng.normal(size=(3, 3)))
        self.attributions = xl.attr.IntegratedGradients(self.small).attribute(self.inputs, target=1)
        self.corners = rng.normal(size=(3, 3))
        self.plane = xl.restrict_plane(self.small, self.corners)
        self.old = [self._old(make(rng), rng) for make in ALL]
        self.right: list[Callable[[Client], bool]] = [
            *(self._restrict, self._many, self._sweep, self._decide, self._attribute, self._plane, self._describe),
            self._ask_old,
            self._ask_old,
        ]

    def ask(self, client: Client, chance: random.Random) -> str:
        """One call; which kind it was, or what was wrong with its answer."""
        kind = chance.random()
        if kind < BROKEN:
            return self._broken(client, chance)
        if kind < BROKEN + CANCELLED:
            return self._cancelled(client, chance)
        call = chance.choice(self.right)
        return "right" if call(client) else f"wrong answer: {call.__name__}"

    def _restrict(self, client: Client) -> bool:
        found = client.restrict("acas", *self.ends)
        return _equal(
            (found.alphas, found.values, found.origin_table), (self.one.alphas, self.one.values, self.one.origin_table)
        )

    def _many(self, client: Client) -> bool:
        found = client.restrict_many("small", *self.points)
        return _equal(
            (found.alphas, found.values, found.offsets), (self.many.alphas, self.many.values, self.many.offsets)
        )

    def _sweep(self, client: Client) -> bool:
        count = 0
        for part in client.sweep("tent15", [0.0], [1.0], memory=1 << 22):
            number = torch.arange(count, count + len(part.alphas))
            if not torch.equal(part.alphas, number / 2**15):
                return False
            count += len(part)
        return count == 2**15

    def _decide(self, client: Client) -> bool:
        found = client.decide("acas", *self.ends)
        return found.labels == self.decided.labels and torch.equal(found.boundaries, self.decided.boundaries)

    def _attribute(self, client: Client) -> bool:
        return torch.equal(client.attribute("small", self.inputs, target=1), self.attributions)

    def _plane(self, client: Client) -> bool:
        found = client.plane("small", self.corners)
        mine = (self.plane.weights, self.plane.rings, self.plane.values)
        return _equal((found.weights, found.rings, found.values), mine)

    def _describe(self, client: Client) -> bool:
        return client.describe("acas").units == self.acas.units and len(client.models()) == 6

    def _old(self, net: object, rng: np.random.Generator) -> tuple[list[bytes], list[bytes]]:
        """A call of the old protocol and its answers, as the library makes them."""
        from exactline.rpc.legacy.transform import read_request, transform
        from exactline.rpc.limits import Limits

        asked = [wire.line(small(rng, net.size), small(rng, net.size)) for _ in range(2)]
        messages = [
            *map(wire.layer, net.layers),
            *asked,
            wire.plane(wire.polytope(small(rng, 3, net.size)), dims=net.size),
        ]
        return messages, [made.SerializeToString() for made in transform(map(read_request, messages), Limits())]

    def _ask_old(self, client: Client) -> bool:
        messages, truth = random.choice(self.old)
        with raw.opened(client.way.target, messages) as call:
            return list(call) == truth

    def _broken(self, client: Client, chance: random.Random) -> str:
        """Messages that cannot be right; they must be refused as such."""
        if chance.random() < 0.5:
            layer, message = chance.choice([*LAYERS.values()])[0], chance.choice([*ASKED.values()])[0]
            code, _ = raw.refusal(client.way.target, [wire.layer(EYE), wire.layer(layer), message])
        else:
            code = _garbage(client, chance)
        return "refused" if code in REFUSED else f"malformed, and answered {code}"

    def _cancelled(self, client: Client, chance: random.Random) -> str:
        """Long jobs that nobody waits for."""
        if chance.random() < 0.5:
            parts = client.sweep("tent30", [0.0], [1.0], memory=1 << 20)
            next(parts)
            parts.close()
        else:
            with Client(client.way.target, timeout=0.05, retries=0) as hasty:
                try:
                    hasty.restrict("tent30", [0.0], [1.0])
                except LimitError:
                    return "cancelled"
                return "a long job was done at once"
        return "cancelled"


def _garbage(client: Client, chance: random.Random) -> grpc.StatusCode:
    """Bytes that are no message, or a message about nothing."""
    data = chance.choice([b"\xff\xff\xff", chance.randbytes(200), b"\x0a\x04\x0a\x02\x0a\x00", b""])
    method = chance.choice([m for m in METHODS if data or m not in ("ListModels", "Stats")])
    with grpc.insecure_channel(client.way.target) as channel:
        call = channel.unary_stream(f"/exactline.v1.Exactline/{method}")(data, timeout=60)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        found = call.code()
    # what nobody knows is skipped in such messages, so that some of this is a right request after all
    return Code.INVALID_ARGUMENT if found == Code.OK and method in ("ListModels", "Stats") else found


def _equal(found: tuple[object, ...], truth: tuple[object, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, truth, strict=True))
