"""A server and three kinds of callers: our client, one that does not wait, and one that speaks the older protocol.

    python examples/client.py [HOST:PORT]

Without an address a server is started, with the networks that ship with exactline, and ended again.
"""

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import torch

from exactline.network import as_network
from exactline.rpc.client.aio import AsyncClient
from exactline.rpc.client.sync import Client
from exactline.rpc.protos import syrenn_server_pb2 as old
from exactline.rpc.server.server import Server, Settings
from exactline.zoo import digits_images, digits_network, loan_network


@contextmanager
def served() -> Generator[str]:
    """The address of a server with two small networks."""
    with TemporaryDirectory() as folder:
        as_network(loan_network(), [torch.zeros(2)]).save(Path(folder) / "loan.onnx")
        as_network(digits_network(), [digits_images()[0][0]]).save(Path(folder) / "digits.onnx")
        with Server(Settings(port=0, models=Path(folder), workers=1)) as server:
            yield server.address


def wait(address: str) -> None:
    """Ask, and wait for the answers."""
    with Client(address) as client:
        print(client.restrict("loan", [20.0, 30.0], [30.0, 50.0]))
        images, _ = digits_images()
        print(client.decide("digits", images[0], images[1]))
        print(client.plane("loan", [[20.0, 30.0], [40.0, 30.0], [30.0, 60.0]]))


async def do_not_wait(address: str) -> None:
    """Ask for several lines at the same time."""
    async with AsyncClient(address) as client:
        ends = [[30.0, 50.0], [30.0, 60.0], [30.0, 70.0]]
        for line in await asyncio.gather(*(client.restrict("loan", [20.0, 30.0], end) for end in ends)):
            print(line.alphas.tolist())


def older(address: str) -> None:
    """Send a network layer by layer, then a line, as clients of the paper's tool do."""
    dense = old.FullyConnectedLayerData(weights=[-1.7, 2.0, 1.0, -1.3], biases=[3.0, 3.0])
    ends = [
        old.SegmentEndpoint(coordinates=[20.0, 30.0], preimage_ratio=0.0),
        old.SegmentEndpoint(coordinates=[30.0, 50.0], preimage_ratio=1.0),
    ]
    messages = [
        old.TransformRequest(layer=old.Layer(fullyconnected_data=dense)),
        old.TransformRequest(layer=old.Layer(relu_data=old.ReluLayerData())),
        old.TransformRequest(line=old.SegmentedLine(endpoints=ends), include_post=True),
    ]
    with grpc.insecure_channel(address) as channel:
        method = channel.stream_stream("/syrenn_server.SyReNNTransformer/Transform")
        for data in method(iter([message.SerializeToString() for message in messages])):
            for end in old.TransformResponse.FromString(data).transformed_line.endpoints:
                print(f"{end.preimage_ratio:.6f}", list(end.coordinates))


def everyone(address: str) -> None:
    """All three."""
    wait(address)
    asyncio.run(do_not_wait(address))
    older(address)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        everyone(sys.argv[1])
    else:
        with served() as address:
            everyone(address)
