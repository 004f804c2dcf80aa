"""Models by name and by digest, and what may be asked of a folder."""

from __future__ import annotations

import gzip
import hashlib
import os

import pytest

from exactline.errors import ArgumentError, FileError, LimitError
from exactline.rpc.limits import Limits
from exactline.rpc.server.access import read_tokens
from exactline.rpc.server.server import Settings
from exactline.rpc.server.store import Store
from exactline.rpc.status import UnknownModel


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


def test_names_leave_endings_out_unless_two_would_be_the_same(folder):
    store = Store(folder, Limits())
    assert [(e.name, e.sha256) for e in store.entries()] == [
        ("a", digest(b"one")),
        ("b.nnet", digest(b"three")),
        ("b.onnx", digest(b"two")),
        ("sub/c", digest(b"four")),
    ]
    for name, data, ending in (("a", b"one", ".onnx"), ("b.nnet", b"three", ".nnet"), ("sub/c", b"four", ".eran")):
        model = store.model(name, False, ())
        assert (model.sha256, model.ending, model.normalize, model.shape) == (digest(data), ending, True, None)
        assert store.data(model) == data
        assert store.model(f"sha256:{digest(data)}", True, (2, 3)).shape == (2, 3)
    assert store.model("sub/c.pyt.gz", False, ()).sha256 == digest(b"four")


@pytest.mark.parametrize(
    "name", ["", "b", "notes", "notes.txt", "weights.pt", "../a", "/etc/passwd", "a\0", "sub", ".", "x" * 10_000]
)
def test_nothing_but_models_is_found(folder, name):
    with pytest.raises(UnknownModel) as caught:
        Store(folder, Limits()).model(name, False, ())
    assert len(str(caught.value)) < 1000
    assert str(folder) not in str(caught.value)


def test_a_file_that_changes_is_another_model(folder):
    store = Store(folder, Limits())
    before = store.model("a", False, ())
    (folder / "a.onnx").write_bytes(b"changed")
    os.utime(folder / "a.onnx", ns=(1, 1))
    after = store.model("a", False, ())
    assert after.sha256 == digest(b"changed")
    with pytest.raises(UnknownModel):
        store.data(before)
    (folder / "a.onnx").unlink()
    with pytest.raises(UnknownModel):
        store.model("a", False, ())
    (folder / "new.onnx").write_bytes(b"five")
    assert store.data(store.model("new", False, ())) == b"five"


def test_a_file_that_cannot_be_read_does_not_say_where_it_lies(folder):
    (folder / "sub" / "c.pyt.gz").write_bytes(b"not gzip at all")
    with pytest.raises(FileError) as caught:
        Store(folder, Limits()).model("sub/c", False, ())
    assert str(folder) not in str(caught.value)


@pytest.mark.parametrize(("size", "refused"), [(9, False), (10, False), (11, True)])
def test_files_have_a_limit(folder, size, refused):
    (folder / "a.onnx").write_bytes(b"x" * size)
    store = Store(folder, Limits(model_bytes=10))
    if refused:
        with pytest.raises(LimitError, match="model_bytes is 10"):
            store.model("a", False, ())
    else:
        assert store.model("a", False, ()).sha256 == digest(b"x" * size)


def test_uploads_that_were_not_used_for_longest_go_first():
    store = Store(None, Limits(uploads_bytes=10))
    names = {}
    for letter in "abc":
        data = letter.encode() * 4
        names[letter] = f"sha256:{digest(data)}"
        store.add(data, ".onnx", digest(data))
        if letter == "b":
            store.model(names["a"], False, ())  # used again
    assert store.uploads == (2, 8)
    assert store.data(store.model(names["a"], False, ())) == b"aaaa"
    with pytest.raises(UnknownModel):
        store.model(names["b"], False, ())
    store.add(b"aaaa", ".onnx", digest(b"aaaa"))
    assert store.uploads == (2, 8)


def test_tokens_are_read_line_by_line(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("# the first\n0123456789abcdef\n\n  fedcba9876543210  \n")
    assert read_tokens(path) == (b"0123456789abcdef", b"fedcba9876543210")
    for text in ("", "# nothing\n", "short\n", "0123456789abcdéf\n"):
        path.write_text(text)
        with pytest.raises(ArgumentError, match="token"):
            read_tokens(path)
    with pytest.raises(FileError):
        read_tokens(tmp_path / "nowhere")


def test_settings_that_are_not_safe_are_refused(tmp_path):
    key, cert = tmp_path / "key", tmp_path / "cert"
    tokens = (b"0123456789abcdef",)
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        for unsafe in ({}, {"tokens": tokens}, {"tls_cert": cert, "tls_key": key}):
            with pytest.raises(ArgumentError, match="other machines"):
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


def test_limits_must_be_above_nothing():
    with pytest.raises(ArgumentError, match="lines_per_call"):
        Limits(lines_per_call=0)
