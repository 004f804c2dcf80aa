"""Call a server with the blocking client, with the asyncio client, and with the legacy protocol of SyReNN.

    python examples/client.py [HOST:PORT]

Without an address the example starts a server with two bundled networks, and stops it again.
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
from exactline.rpc.client import AsyncClient, Client
from exactline.rpc.protos import syrenn_server_pb2 as legacy
from exactline.rpc.server.server import Server, Settings
from exactline.zoo import digits_images, digits_network, loan_network


@contextmanager
def start_server() -> Generator[str]:
    """Start a server with two small networks; yields its address."""
    with TemporaryDirectory() as folder:
        as_network(loan_network(), [torch.zeros(2)]).save(Path(folder) / "loan.onnx")
        as_network(digits_network(), [digits_images()[0][0]]).save(Path(folder) / "digits.onnx")
        with Server(Settings(port=0, models=Path(folder), workers=1)) as server:
            yield server.address


def call_server(address: str) -> None:
    """Make calls one after another."""
    with Client(address) as client:
        print(client.restrict("loan", [20.0, 30.0], [30.0, 50.0]))
        images, _ = digits_images()
        print(client.decide("digits", images[0], images[1]))
        print(client.plane("loan", [[20.0, 30.0], [40.0, 30.0], [30.0, 60.0]]))


async def call_concurrently(address: str) -> None:
    """Make several calls at the same time."""
    async with AsyncClient(address) as client:
        ends = [[30.0, 50.0], [30.0, 60.0], [30.0, 70.0]]
        for line in await asyncio.gather(*(client.restrict("loan", [20.0, 30.0], end) for end in ends)):
            print(line.alphas.tolist())


def call_legacy_protocol(address: str) -> None:
    """Send a network layer by layer, then a line, as clients of SyReNN do."""
    dense = legacy.FullyConnectedLayerData(weights=[-1.7, 2.0, 1.0, -1.3], biases=[3.0, 3.0])
    ends = [
        legacy.SegmentEndpoint(coordinates=[20.0, 30.0], preimage_ratio=0.0),
        legacy.SegmentEndpoint(coordinates=[30.0, 50.0], preimage_ratio=1.0),
    ]
    messages = [
        legacy.TransformRequest(layer=legacy.Layer(fullyconnected_data=dense)),
        legacy.TransformRequest(layer=legacy.Layer(relu_data=legacy.ReluLayerData())),
        legacy.TransformRequest(line=legacy.SegmentedLine(endpoints=ends), include_post=True),
    ]
    with grpc.insecure_channel(address) as channel:
        method = channel.stream_stream("/syrenn_server.SyReNNTransformer/Transform")
        for data in method(iter([message.SerializeToString() for message in messages])):
            for end in legacy.TransformResponse.FromString(data).transformed_line.endpoints:
                print(f"{end.preimage_ratio:.6f}", list(end.coordinates))


def main(address: str) -> None:
    """Make all calls."""
    call_server(address)
    asyncio.run(call_concurrently(address))
    call_legacy_protocol(address)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with start_server() as address:
            main(address)
