"""Mixed calls for a load test: some are compared with the library's answers, some malformed, some cancelled."""

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
from tests.adversarial.test_legacy_messages import EYE, LAYERS, QUERIES
from tests.rpc import legacy_client
from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_networks import NETWORK_MAKERS, float32_normal
from tests.rpc.same import is_same_response

Code = grpc.StatusCode
BROKEN_SHARE, CANCELLED_SHARE = 0.10, 0.05  # shares of all calls
METHODS = ("ListModels", "DescribeModel", "Stats", "Restrict", "Sweep", "Decide", "Attribute", "Plane")
REFUSAL_CODES = (Code.INVALID_ARGUMENT, Code.NOT_FOUND)


@dataclass
class MixedCalls:
    """Calls and the library's answers to them."""

    folder: Path

    def __post_init__(self) -> None:
        rng = np.random.default_rng(7)
        self.small, self.acas = (xl.load(self.folder / f"{name}.nnet") for name in ("small", "acas"))
        self.points = rng.normal(size=(2, 6, 3))
        self.many = xl.restrict_many(self.small, *self.points)
        self.ends = rng.normal(size=(2, 5))
        self.one = xl.restrict(self.acas, *self.ends)
        self.decisions = self.one.decisions()
        self.inputs = torch.from_numpy(rng.normal(size=(3, 3)))
        self.attributions = xl.attr.IntegratedGradients(self.small).attribute(self.inputs, target=1)
        self.corners = rng.normal(size=(3, 3))
        self.plane = xl.restrict_plane(self.small, self.corners)
        self.legacy_calls = [self._make_legacy_call(make(rng), rng) for make in NETWORK_MAKERS]
        self.checks: list[Callable[[Client, random.Random], bool]] = [
            self._check_restrict,
            self._check_restrict_many,
            self._check_sweep,
            self._check_decide,
            self._check_attribute,
            self._check_plane,
            self._check_describe,
            self._check_legacy,
            self._check_legacy,
        ]

    def run_one(self, client: Client, chance: random.Random) -> str:
        """Make a random call; returns its kind, or what was wrong with its answer."""
        kind = chance.random()
        if kind < BROKEN_SHARE:
            return self._send_broken(client, chance)
        if kind < BROKEN_SHARE + CANCELLED_SHARE:
            return self._cancel_long_job(client, chance)
        call = chance.choice(self.checks)
        return "right" if call(client, chance) else f"wrong answer: {call.__name__}"

    def _check_restrict(self, client: Client, _: random.Random) -> bool:
        found = client.restrict("acas", *self.ends)
        return _equal(
            (found.alphas, found.values, found.origin_table), (self.one.alphas, self.one.values, self.one.origin_table)
        )

    def _check_restrict_many(self, client: Client, _: random.Random) -> bool:
        found = client.restrict_many("small", *self.points)
        return _equal(
            (found.alphas, found.values, found.offsets), (self.many.alphas, self.many.values, self.many.offsets)
        )

    def _check_sweep(self, client: Client, _: random.Random) -> bool:
        count = 0
        for part in client.sweep("tent15", [0.0], [1.0], memory=1 << 22):
            number = torch.arange(count, count + len(part.alphas))
            if not torch.equal(part.alphas, number / 2**15):
                return False
            count += len(part)
        return count == 2**15

    def _check_decide(self, client: Client, _: random.Random) -> bool:
        found = client.decide("acas", *self.ends)
        return found.labels == self.decisions.labels and torch.equal(found.boundaries, self.decisions.boundaries)

    def _check_attribute(self, client: Client, _: random.Random) -> bool:
        return torch.equal(client.attribute("small", self.inputs, target=1), self.attributions)

    def _check_plane(self, client: Client, _: random.Random) -> bool:
        found = client.plane("small", self.corners)
        mine = (self.plane.weights, self.plane.rings, self.plane.values)
        return _equal((found.weights, found.rings, found.values), mine)

    def _check_describe(self, client: Client, _: random.Random) -> bool:
        return client.describe("acas").units == self.acas.units and len(client.models()) == 6

    def _make_legacy_call(self, net: object, rng: np.random.Generator) -> tuple[list[bytes], list[bytes]]:
        """Return the messages of a legacy call, and the library's responses."""
        from exactline.rpc.legacy.transform import transform
        from exactline.rpc.limits import Limits

        queries = [wire.line(float32_normal(rng, net.size), float32_normal(rng, net.size)) for _ in range(2)]
        messages = [
            *map(wire.layer, net.layers),
            *queries,
            wire.plane(wire.polytope(float32_normal(rng, 3, net.size)), dims=net.size),
        ]
        return messages, [*transform(messages, Limits())]

    def _check_legacy(self, client: Client, chance: random.Random) -> bool:
        messages, truth = chance.choice(self.legacy_calls)
        with legacy_client.open_call(client.connection.target, messages) as call:
            found = list(call)
        return len(found) == len(truth) and all(map(is_same_response, found, truth))

    def _send_broken(self, client: Client, chance: random.Random) -> str:
        """Send malformed messages, which must be refused."""
        if chance.random() < 0.5:
            layer, message = chance.choice([*LAYERS.values()])[0], chance.choice([*QUERIES.values()])[0]
            code, _ = legacy_client.failure(client.connection.target, [wire.layer(EYE), wire.layer(layer), message])
        else:
            code = _send_garbage(client, chance)
        return "refused" if code in REFUSAL_CODES else f"malformed, and answered {code}"

    def _cancel_long_job(self, client: Client, chance: random.Random) -> str:
        """Start a long job and cancel it."""
        if chance.random() < 0.5:
            parts = client.sweep("tent30", [0.0], [1.0], memory=1 << 20)
            next(parts)
            parts.close()
        else:
            with Client(client.connection.target, timeout=0.05, retries=0) as hasty:
                try:
                    hasty.restrict("tent30", [0.0], [1.0])
                except LimitError:
                    return "cancelled"
                return "a long job was done at once"
        return "cancelled"


def _send_garbage(client: Client, chance: random.Random) -> grpc.StatusCode:
    """Send bytes that are no message, or an empty message."""
    data = chance.choice([b"\xff\xff\xff", chance.randbytes(200), b"\x0a\x04\x0a\x02\x0a\x00", b""])
    method = chance.choice([m for m in METHODS if data or m not in ("ListModels", "Stats")])
    with grpc.insecure_channel(client.connection.target) as channel:
        call = channel.unary_stream(f"/exactline.v1.Exactline/{method}")(data, timeout=60)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        found = call.code()
    # unknown fields are skipped, so some of these bytes are valid requests for these methods
    return Code.INVALID_ARGUMENT if found == Code.OK and method in ("ListModels", "Stats") else found


def _equal(found: tuple[object, ...], truth: tuple[object, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, truth, strict=True))
