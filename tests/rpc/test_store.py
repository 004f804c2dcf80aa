"""Models by name and by digest, tokens, and settings."""

from __future__ import annotations

import gzip
import hashlib
import os
import time

import pytest

from exactline.errors import ArgumentError, FileError, LimitError
from exactline.rpc.limits import Limits
from exactline.rpc.server.access import read_tokens
from exactline.rpc.server.server import Settings
from exactline.rpc.server.store import ModelStore
from exactline.rpc.status import UnknownModelError


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"one")
    (tmp_path / "b.onnx").write_bytes(b"two")
    (tmp_path / "b.nnet").write_bytes(b"three")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.pyt.gz").write_bytes(gzip.compress(b"four"))
    (tmp_path / "notes.txt").write_bytes(b"nothing")
    (tmp_path / "weights.pt").write_bytes(b"nothing")
    return tmp_path


def test_names_leave_the_suffix_out_unless_two_would_be_the_same(folder):
    store = ModelStore(folder, Limits())
    assert [(e.name, e.sha256) for e in store.list_models()] == [
        ("a", digest(b"one")),
        ("b.nnet", digest(b"three")),
        ("b.onnx", digest(b"two")),
        ("sub/c", digest(b"four")),
    ]
    for name, data, suffix in (("a", b"one", ".onnx"), ("b.nnet", b"three", ".nnet"), ("sub/c", b"four", ".eran")):
        model = store.resolve(name)
        assert (model.sha256, model.suffix, model.normalize, model.shape) == (digest(data), suffix, True, None)
        assert store.read(model) == data
        assert store.resolve(f"sha256:{digest(data)}", normalize=False, shape=(2, 3)).shape == (2, 3)
    assert store.resolve("sub/c.pyt.gz").sha256 == digest(b"four")


@pytest.mark.parametrize(
    "name", ["", "b", "notes", "notes.txt", "weights.pt", "../a", "/etc/passwd", "a\0", "sub", ".", "x" * 10_000]
)
def test_nothing_but_models_is_found(folder, name):
    with pytest.raises(UnknownModelError) as caught:
        ModelStore(folder, Limits()).resolve(name)
    assert len(str(caught.value)) < 1000
    assert str(folder) not in str(caught.value)


def test_a_file_that_changes_is_another_model(folder):
    store = ModelStore(folder, Limits())
    before = store.resolve("a")
    (folder / "a.onnx").write_bytes(b"changed")
    os.utime(folder / "a.onnx", ns=(1, 1))
    after = store.resolve("a")
    assert after.sha256 == digest(b"changed")
    with pytest.raises(UnknownModelError):
        store.read(before)
    (folder / "a.onnx").unlink()
    with pytest.raises(UnknownModelError):
        store.resolve("a")
    (folder / "new.onnx").write_bytes(b"five")
    assert store.read(store.resolve("new")) == b"five"


def test_the_error_for_a_file_that_cannot_be_read_does_not_reveal_its_path(folder):
    (folder / "sub" / "c.pyt.gz").write_bytes(b"not gzip at all")
    with pytest.raises(FileError) as caught:
        ModelStore(folder, Limits()).resolve("sub/c")
    assert str(folder) not in str(caught.value)


@pytest.mark.parametrize(("size", "refused"), [(9, False), (10, False), (11, True)])
def test_the_size_of_files_is_limited(folder, size, refused):
    (folder / "a.onnx").write_bytes(b"x" * size)
    store = ModelStore(folder, Limits(model_bytes=10))
    if refused:
        with pytest.raises(LimitError, match="model_bytes is 10"):
            store.resolve("a")
    else:
        assert store.resolve("a").sha256 == digest(b"x" * size)


def test_the_least_recently_used_uploads_are_dropped_first():
    store = ModelStore(None, Limits(stored_upload_bytes=10))
    names = {}
    for letter in "abc":
        data = letter.encode() * 4
        names[letter] = f"sha256:{digest(data)}"
        store.add_upload(data, ".onnx", digest(data))
        if letter == "b":
            store.resolve(names["a"])  # used again
    assert store.uploads == (2, 8)
    assert store.read(store.resolve(names["a"])) == b"aaaa"
    with pytest.raises(UnknownModelError):
        store.resolve(names["b"])
    store.add_upload(b"aaaa", ".onnx", digest(b"aaaa"))
    assert store.uploads == (2, 8)


def test_tokens_are_read_line_by_line(tmp_path):
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text("# the first\n0123456789abcdef\n\n  fedcba9876543210  \n")
    assert read_tokens(path) == (b"0123456789abcdef", b"fedcba9876543210")
    for text in ("", "# nothing\n", "short\n", "0123456789abcdéf\n"):
        path.write_text(text)
        with pytest.raises(ArgumentError, match="token"):
            read_tokens(path)
    with pytest.raises(FileError):
        read_tokens(tmp_path / "nowhere")
    path.write_text("0123456789abcdef")
    for mode in (0o604, 0o602, 0o620, 0o644):
        path.chmod(mode)
        with pytest.raises(ArgumentError, match=f"mode is {mode:o}"):
            read_tokens(path)
    path.chmod(0o640)
    assert read_tokens(path) == (b"0123456789abcdef",)


def test_links_that_lead_out_of_the_folder_are_not_followed(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.onnx").write_bytes(b"secret")
    (folder / "link.onnx").symlink_to(outside / "secret.onnx")
    (folder / "inside.onnx").symlink_to(folder / "a.onnx")
    (folder / "out").symlink_to(outside)
    store = ModelStore(folder, Limits())
    assert store.resolve("inside").sha256 == digest(b"one")
    for name in ("link", "link.onnx", "out/secret", f"sha256:{digest(b'secret')}"):
        with pytest.raises(UnknownModelError):
            store.resolve(name)
    assert digest(b"secret") not in {model.sha256 for model in store.list_models()}


def test_a_link_that_replaces_a_file_is_not_followed(folder, tmp_path_factory):
    """The folder was listed before; a link that stays inside is followed."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.onnx").write_bytes(b"secret")
    store = ModelStore(folder, Limits())
    model = store.resolve("a")
    assert store.read(model) == b"one"
    (folder / "a.onnx").unlink()
    (folder / "a.onnx").symlink_to(outside / "secret.onnx")
    assert store.find_unchanged("a", normalize=True, shape=()) is None
    for ask in (lambda: store.resolve("a"), lambda: store.read(model)):
        with pytest.raises(UnknownModelError) as caught:
            ask()
        assert str(outside) not in str(caught.value)
    (folder / "a.onnx").unlink()
    (folder / "a.onnx").symlink_to(folder / "b.onnx")
    assert store.read(store.resolve("a")) == b"two"


def test_the_limit_of_a_model_counts_unpacked_bytes(tmp_path):
    (tmp_path / "large.nnet.gz").write_bytes(gzip.compress(bytes(100_001)))
    with pytest.raises(LimitError, match="model_bytes is 100,000"):
        ModelStore(tmp_path, Limits(model_bytes=100_000)).resolve("large")


def test_an_unknown_name_is_cheap_among_many_files(tmp_path):
    """The work grows with the number of files, not with its square: 4 times the files take less than 10 times."""
    seconds = []
    for count in (500, 2000):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.onnx").touch()
        store = ModelStore(folder, Limits())
        times = []
        for _ in range(3):
            began = time.process_time()
            with pytest.raises(UnknownModelError):
                store.resolve("unknown")
            times.append(time.process_time() - began)
        seconds.append(min(times))
    assert seconds[1] < 10 * seconds[0]


def test_uploads_of_one_client_do_not_drop_those_of_another():
    store = ModelStore(None, Limits(stored_upload_bytes=20, client_upload_bytes=10))
    for owner, letters in (("one", "a"), ("two", "bcdef")):
        for letter in letters:
            store.add_upload(letter.encode() * 4, ".onnx", digest(letter.encode() * 4), owner)
    assert store.uploads == (3, 12)
    for letter in "aef":
        assert store.read(store.resolve(f"sha256:{digest(letter.encode() * 4)}")) == letter.encode() * 4


def test_unsafe_settings_are_refused(tmp_path):
    key, cert = tmp_path / "key", tmp_path / "cert"
    tokens = (b"0123456789abcdef",)
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        for unsafe in ({}, {"tokens": tokens}, {"tls_cert": cert, "tls_key": key}):
            with pytest.raises(ArgumentError, match="Other machines can reach"):
                Settings(host=host, **unsafe)
        Settings(host=host, insecure=True)
        Settings(host=host, tokens=tokens, tls_cert=cert, tls_key=key)
        Settings(host=host, tls_cert=cert, tls_key=key, client_ca=cert)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        Settings(host=host)
    for wrong in ({"tls_cert": cert}, {"client_ca": cert}, {"port": 70_000}, {"workers": -1}):
        with pytest.raises(ArgumentError):
            Settings(**wrong)
    with pytest.raises(FileError):
        Settings(models=tmp_path / "nowhere")
    assert "0123456789abcdef" not in repr(Settings(tokens=tokens))


def test_limits_must_be_finite_and_above_0():
    for wrong in (
        {"lines_per_call": 0},
        {"call_seconds": float("inf")},
        {"call_seconds": float("nan")},
        {"worker_bytes": 1024},
        {"client_workers": -1},
    ):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            Limits(**wrong)
    Limits(client_workers=0)
