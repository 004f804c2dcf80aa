"""Cached results of a study: read back unchanged, and only under the key they were stored with."""

import json
import math

import pytest

import exactline as xl
from exactline.paper.cache import CACHE_FOLDER, ResultCache


def test_numbers_are_read_back_unchanged(tmp_path):
    cache = ResultCache(tmp_path, "study 1")
    part = {"a": 0.1 + 0.2, "b": [math.pi, 1e-300, 5e-324], "c": None, "d": 2**60, "e": {"x": -0.0}}
    cache.put(part, "network", "image")
    again = ResultCache(tmp_path, "study 1")
    found = again.get("network", "image")
    assert found == part
    assert math.copysign(1, found["e"]["x"]) == -1
    assert again.reused == 1


@pytest.mark.parametrize(
    "other",
    [
        ("study 2", "network", "image"),
        ("study 1", "another", "image"),
        ("study 1", "network", "another"),
        ("study 1", "networkimage", ""),
        ("study 1", "network"),
    ],
)
def test_a_result_of_another_key_is_not_found(tmp_path, other):
    ResultCache(tmp_path, "study 1").put({"a": 1}, "network", "image")
    assert ResultCache(tmp_path, other[0]).get(*other[1:]) is None


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b"null", b'{"from": [], "part": {}}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_file_is_ignored(tmp_path, damage):
    cache = ResultCache(tmp_path, "study")
    cache.put({"a": 1}, "image")
    (file,) = (tmp_path / CACHE_FOLDER).iterdir()
    file.write_bytes(damage)
    assert cache.get("image") is None
    cache.put({"a": 2}, "image")
    assert cache.get("image") == {"a": 2}


def test_a_file_under_a_wrong_name_is_ignored(tmp_path):
    cache = ResultCache(tmp_path, "study")
    cache.put({"a": 1}, "image")
    (file,) = (tmp_path / CACHE_FOLDER).iterdir()
    stored = json.loads(file.read_text())
    stored["from"] = ["study", "other"]
    file.write_text(json.dumps(stored))
    assert cache.get("image") is None


def test_without_a_folder_nothing_is_stored():
    cache = ResultCache(None, "study")
    cache.put({"a": 1}, "image")
    assert cache.get("image") is None


def test_no_temporary_files_are_left(tmp_path):
    cache = ResultCache(tmp_path, "study")
    for i in range(20):
        cache.put({"a": i}, str(i))
    names = [p.name for p in (tmp_path / CACHE_FOLDER).iterdir()]
    assert len(names) == 20
    assert all(name.endswith(".json") and not name.startswith(".") for name in names)


def test_a_folder_that_cannot_be_created_is_a_file_error(tmp_path):
    (tmp_path / CACHE_FOLDER).write_text("a file")
    with pytest.raises(xl.FileError):
        ResultCache(tmp_path, "study").put({"a": 1}, "image")
