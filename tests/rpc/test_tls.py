"""Access: certificates of other authorities, missing and wrong tokens, and what the log reveals."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import grpc
import pytest

import exactline as xl
from exactline.errors import AccessError, ArgumentError, ServiceError
from exactline.rpc.client.sync import Client
from exactline.rpc.server.server import Settings
from tests.rpc import legacy_wire as wire
from tests.rpc.certificates import Authority, create_authority
from tests.rpc.nnet_files import tent_layers, write_nnet
from tests.rpc.server_process import ServerProcess, start_server

TOKEN, SECOND = "a-token-of-32-characters-exactly", "another-token-of-some-characters"
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Authority:
    return create_authority(tmp_path_factory.mktemp("known"), "known")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> Authority:
    return create_authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def guarded(known: Authority, tmp_path_factory):
    """A server with TLS, two tokens and a log."""
    folder = tmp_path_factory.mktemp("guarded")
    write_nnet(folder / "tent4.nnet", tent_layers(4))
    certificate, key = known.sign("server")
    with start_server(
        models=folder,
        workers=1,
        tls_cert=certificate,
        tls_key=key,
        tokens=[TOKEN, SECOND],
        reflection=True,
        log=folder / "log",
    ) as server:
        yield server, folder / "log"


def localhost_address(server: ServerProcess) -> str:
    return f"localhost:{server.address.rpartition(':')[2]}"


def test_a_trusted_certificate_and_a_valid_token_are_accepted(guarded, known: Authority):
    server, _ = guarded
    for token in (TOKEN, SECOND):
        with Client(localhost_address(server), token=token, tls=known.certificate) as client:
            assert len(client.restrict("tent4", [0.0], [1.0])) == 16
            assert client.health()
    with grpc.secure_channel(localhost_address(server), _credentials(known)) as channel:
        messages = [wire.layer(wire.relu()), wire.line([-1], [1])]
        call = channel.stream_stream(wire.METHOD)(iter(messages), metadata=_bearer(TOKEN), timeout=20)
        assert wire.decode_response(next(call)).ratios.tolist() == [0.0, 0.5, 1.0]


def test_reflection_lists_the_methods_for_clients_with_a_token(guarded, known: Authority):
    from google.protobuf import descriptor_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    server, _ = guarded
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="exactline.v1.Exactline"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="syrenn_server.SyReNNTransformer"),
    ]
    with grpc.secure_channel(localhost_address(server), _credentials(known)) as channel:
        method = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        call = method(iter([m.SerializeToString() for m in requests]), metadata=_bearer(TOKEN), timeout=20)
        names, *files = [reflection_pb2.ServerReflectionResponse.FromString(data) for data in call]
    services = {service.name for service in names.list_services_response.service}
    assert {"exactline.v1.Exactline", "syrenn_server.SyReNNTransformer", "grpc.health.v1.Health"} <= services
    for found, package in zip(files, ("exactline.v1", "syrenn_server"), strict=True):
        (data,) = found.file_descriptor_response.file_descriptor_proto
        assert descriptor_pb2.FileDescriptorProto.FromString(data).package == package


WRONG = {
    "none": None,
    "another": "a-token-of-32-characters-exactlz",
    "the beginning": TOKEN[:-1],
    "more": TOKEN + "x",
    "none of its characters": " ",
    "both": f"{TOKEN} {SECOND}",
    "upper case": TOKEN.upper(),
    "very long": "x" * 7000,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_missing_or_wrong_token_is_unauthenticated_for_every_method(guarded, known: Authority, name: str):
    server, log = guarded
    refused = len(log.read_text().splitlines())
    with grpc.secure_channel(localhost_address(server), _credentials(known)) as channel:
        for method in (
            *(f"/exactline.v1.Exactline/{m}" for m in ("ListModels", "Stats", "Restrict", "UploadModel", "None")),
            wire.METHOD,
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "/no.such.Service/Method",
        ):
            metadata = () if WRONG[name] is None else _bearer(WRONG[name])
            call = channel.stream_stream(method)(iter([b""]), metadata=metadata, timeout=20)
            with pytest.raises(grpc.RpcError):
                list(call)
            assert call.code() == Code.UNAUTHENTICATED
            assert call.details() == "The token is missing or wrong."
    with Client(localhost_address(server), token=TOKEN, tls=known.certificate) as client:
        assert client.stats().refused_tokens >= 9
    assert len(log.read_text().splitlines()) > refused


def test_a_token_must_be_a_bearer_token(guarded, known: Authority):
    server, _ = guarded
    with grpc.secure_channel(localhost_address(server), _credentials(known)) as channel:
        for metadata in ((("authorization", TOKEN),), (("authorization", f"Basic {TOKEN}"),), (("token", TOKEN),)):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary("/exactline.v1.Exactline/Stats")(b"", metadata=metadata, timeout=20)
            assert caught.value.code() == Code.UNAUTHENTICATED


def test_the_client_raises_access_error(guarded, known: Authority):
    server, _ = guarded
    with Client(localhost_address(server), token="x" * 32, tls=known.certificate) as client:
        with pytest.raises(AccessError, match="token is missing or wrong"):
            client.models()
        assert not client.health()


def test_the_handshake_fails_with_another_authority(guarded, stranger: Authority):
    server, _ = guarded
    with Client(localhost_address(server), token=TOKEN, tls=stranger.certificate, retries=0, timeout=20) as client:
        with pytest.raises(ServiceError, match="UNAVAILABLE"):
            client.models()
        assert not client.health()


def test_a_client_without_tls_is_refused(guarded):
    server, _ = guarded
    with Client(server.address, token=TOKEN, retries=0, timeout=20) as client, pytest.raises(ServiceError):
        client.models()
    host, port = server.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = plain.recv(100)
        assert b"HTTP" not in answer


def test_old_versions_of_tls_are_refused(guarded, known: Authority):
    server, _ = guarded
    host, port = server.address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=str(known.certificate))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection((host, int(port)), 10) as plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")


def test_the_log_holds_no_tokens_data_or_paths(guarded, known: Authority):
    server, log = guarded
    with Client(localhost_address(server), token=TOKEN, tls=known.certificate) as client:
        client.restrict("tent4", [0.123456], [1.0])
        with pytest.raises(xl.ExactlineError):
            client.restrict("no-such-model-of-mine", [0.0], [1.0])
    text = log.read_text()
    for line in text.splitlines():
        assert json.loads(line)["event"] in ("started", "call", "refused", "root")
    for secret in (TOKEN, SECOND, "Bearer", "0.123456", "no-such-model", str(log.parent), "Traceback"):
        assert secret not in text


@pytest.mark.slow
def test_clients_need_a_certificate_of_the_right_authority(known: Authority, stranger: Authority, tmp_path: Path):
    """Mutual TLS: clients and server have different authorities."""
    certificate, key = known.sign("both")
    write_nnet(tmp_path / "tent4.nnet", tent_layers(4))
    with start_server(
        models=tmp_path, workers=1, tls_cert=certificate, tls_key=key, client_ca=stranger.certificate
    ) as server:
        right, wrong = stranger.sign("friend"), known.sign("foe")
        with Client(localhost_address(server), tls=known.certificate, certificate=right) as client:
            assert len(client.restrict("tent4", [0.0], [1.0])) == 16
        for pair in (None, wrong):
            other = Client(localhost_address(server), tls=known.certificate, certificate=pair, retries=0, timeout=20)
            with other as client, pytest.raises(ServiceError):
                client.models()


def test_listening_to_other_machines_needs_tls_and_a_token(known: Authority):
    certificate, key = known.sign("settings")
    pair = {"tls_cert": certificate, "tls_key": key}
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        for given in ({}, pair, {"tokens": (TOKEN.encode(),)}):
            with pytest.raises(ArgumentError, match="Other machines can reach"):
                Settings(host=host, **given)
        Settings(host=host, **pair, tokens=(TOKEN.encode(),))
        Settings(host=host, **pair, client_ca=certificate)
        Settings(host=host, insecure=True)
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        Settings(host=host)


def _credentials(known: Authority) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(known.certificate.read_bytes())


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)
