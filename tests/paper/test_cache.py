"""Finished parts of a study on disk: found again whole, and by nothing else than what made them."""

import json
import math

import pytest

import exactline as xl
from exactline.paper.cache import FOLDER, Kept


def test_numbers_come_back_as_they_were(tmp_path):
    kept = Kept(tmp_path, "study 1")
    part = {"a": 0.1 + 0.2, "b": [math.pi, 1e-300, 5e-324], "c": None, "d": 2**60, "e": {"x": -0.0}}
    kept.put(part, "network", "image")
    again = Kept(tmp_path, "study 1")
    found = again.get("network", "image")
    assert found == part
    assert math.copysign(1, found["e"]["x"]) == -1
    assert again.found == 1


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
def test_what_was_made_from_something_else_is_not_found(tmp_path, other):
    Kept(tmp_path, "study 1").put({"a": 1}, "network", "image")
    assert Kept(tmp_path, other[0]).get(*other[1:]) is None


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b"null", b'{"from": [], "part": {}}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_file_is_computed_again(tmp_path, damage):
    kept = Kept(tmp_path, "study")
    kept.put({"a": 1}, "image")
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_bytes(damage)
    assert kept.get("image") is None
    kept.put({"a": 2}, "image")
    assert kept.get("image") == {"a": 2}


def test_a_file_under_a_wrong_name_is_not_believed(tmp_path):
    kept = Kept(tmp_path, "study")
    kept.put({"a": 1}, "image")
    (file,) = (tmp_path / FOLDER).iterdir()
    stored = json.loads(file.read_text())
    stored["from"] = ["study", "other"]
    file.write_text(json.dumps(stored))
    assert kept.get("image") is None


def test_without_a_folder_nothing_is_kept():
    kept = Kept(None, "study")
    kept.put({"a": 1}, "image")
    assert kept.get("image") is None


def test_nothing_half_written_lies_about(tmp_path):
    kept = Kept(tmp_path, "study")
    for i in range(20):
        kept.put({"a": i}, str(i))
    names = [p.name for p in (tmp_path / FOLDER).iterdir()]
    assert len(names) == 20
    assert all(name.endswith(".json") and not name.startswith(".") for name in names)


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path):
    (tmp_path / FOLDER).write_text("a file")
    with pytest.raises(xl.FileError):
        Kept(tmp_path, "study").put({"a": 1}, "image")
