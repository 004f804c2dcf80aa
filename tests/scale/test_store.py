"""A store survives torn records, damaged shards and a second run, and refuses other lines."""

import shutil

import numpy as np
import pytest
import torch

import exactline as xl
from exactline.errors import FileError
from exactline.scale.index import read_index
from tests.scale.examples import assert_same, random_lines, small_network

COUNT = 700


@pytest.fixture(scope="module")
def complete_store(tmp_path_factory):
    """A finished store of several shards; tests work on copies."""
    folder = tmp_path_factory.mktemp("scale") / "store"
    xl.scale.run(small_network(), pairs(), out=folder)
    return folder


@pytest.fixture
def copy(complete_store, tmp_path):
    return shutil.copytree(complete_store, tmp_path / "copy")


def pairs(count: int = COUNT):
    return zip(*(side[:count] for side in random_lines(COUNT)), strict=True)


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_whole(folder, complete_store):
    """Every line once, each as it was; all checksums match; no stray files."""
    store, wanted = xl.scale.open(folder), xl.scale.open(complete_store)
    assert store.complete
    assert store.numbers.tolist() == list(range(COUNT))
    for found, line in zip(store, wanted, strict=True):
        assert_same(found, line)
    assert {p.name for p in (folder / "shards").iterdir()} == set(store.index.records)


def test_a_second_run_does_nothing(copy):
    before = content(copy)
    xl.scale.run(small_network(), pairs(), out=copy)
    assert content(copy) == before
    assert len(before) > 4  # several shards


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"network": small_network(seed=4)}, "another network"),
        ({"job": "decide"}, "another job"),
        ({"values": False}, "another job"),
        ({"lines": list(pairs())[1:]}, "other lines"),
        ({"lines": (p for k, p in enumerate(pairs()) if k != 100)}, "other lines"),
        ({"lines": (p for k, p in enumerate(pairs()) if k != 150)}, "not those of before"),
        ({"lines": (p for p in pairs(690))}, "holds more"),
        ({"lines": (p for p in [*pairs(), *pairs(1)])}, "more were given"),
        ({"resume": False}, "a store already"),
    ],
)
@pytest.mark.every(3)
def test_another_network_job_or_lines_are_refused_and_change_nothing(copy, change, word):
    before = content(copy)
    options = {"network": small_network(), "lines": pairs(), "out": copy}
    with pytest.raises(FileError, match=word):
        xl.scale.run(**(options | change))
    assert content(copy) == before


def test_other_lines_in_a_gap_leave_no_trace(copy, complete_store):
    """The store lacks some lines, and the lines given now differ only after the gap."""
    names = list(xl.scale.open(copy).index.records)
    (copy / "shards" / names[1]).unlink()
    wrong = [p if k < 690 else (p[1], p[0]) for k, p in enumerate(pairs())]
    with pytest.raises(FileError, match="not those of before"):
        xl.scale.run(small_network(), iter(wrong), out=copy)
    xl.scale.run(small_network(), pairs(), out=copy)
    assert_whole(copy, complete_store)


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "remove", "replace"])
@pytest.mark.every(6)
def test_damaged_shards_are_named_and_computed_again(copy, complete_store, harm):
    store = xl.scale.open(copy)
    names = list(store.index.records)
    victim = copy / "shards" / names[2]
    data = bytearray(victim.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    changed = {
        "flip": data,
        "cut": data[:-7],
        "empty": b"",
        "remove": None,
        "replace": (copy / "shards" / names[1]).read_bytes(),
    }
    victim.unlink()
    if (content := changed[harm]) is not None:
        victim.write_bytes(content)
    first = store.index.records[names[2]].ranges[0].first
    damaged = xl.scale.open(copy)
    assert list(damaged.damaged) == [names[2]]
    assert not damaged.complete
    assert "damaged" in repr(damaged)
    with pytest.raises(FileError, match=names[2]):
        _ = damaged[first]
    assert_same(damaged[0], xl.scale.open(complete_store)[0])
    lazily = xl.scale.open(copy, check=False)
    with pytest.raises(FileError, match=names[2]):
        _ = lazily[first]
    xl.scale.run(small_network(), pairs(), out=copy)
    assert_whole(copy, complete_store)


def test_an_index_torn_anywhere_is_read_up_to_the_tear(copy, complete_store):
    path = copy / "index"
    whole = path.read_bytes()
    ends = [k + 1 for k, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        found = read_index(copy)
        assert found.valid_bytes == max([e for e in ends if e <= cut], default=0)
        assert found.torn_records == (cut not in (0, *ends))
    path.write_bytes(whole[: ends[1] + 30])
    xl.scale.run(small_network(), pairs(), out=copy)
    assert_whole(copy, complete_store)


def test_a_changed_record_costs_only_its_shard(copy, complete_store):
    path = copy / "index"
    data = bytearray(path.read_bytes())
    data[data.index(b"\n") + 40] ^= 4
    path.write_bytes(data)
    assert xl.scale.open(copy).done < COUNT
    xl.scale.run(small_network(), pairs(), out=copy)
    assert_whole(copy, complete_store)


def test_stray_files_of_a_killed_run_are_removed(copy, complete_store):
    (copy / "shards" / "000000000000-abcdef00.safetensors").write_bytes(b"half")
    (copy / "shards" / ".000000000128-abcdef00.safetensors.tmp").write_bytes(b"half")
    xl.scale.run(small_network(), pairs(), out=copy)
    assert_whole(copy, complete_store)


def test_only_one_process_writes(copy):
    fcntl = pytest.importorskip("fcntl")
    with (copy / "lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FileError, match="Another process"):
            xl.scale.run(small_network(), pairs(), out=copy)


@pytest.mark.parametrize(
    ("text", "word"), [("{", "JSON"), ("[]", "no store"), ('{"format": "exactline.store.9"}', "no store")]
)
def test_a_folder_without_a_store_is_refused(tmp_path, text, word):
    with pytest.raises(FileError, match="no store"):
        xl.scale.open(tmp_path)
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(FileError, match=word):
        xl.scale.open(tmp_path)


def test_a_run_that_is_interrupted_goes_on(tmp_path, complete_store):
    def lines_then_interrupt():
        for number, pair in enumerate(pairs()):
            if number == 500:
                raise KeyboardInterrupt
            yield pair

    with pytest.raises(KeyboardInterrupt):
        xl.scale.run(small_network(), lines_then_interrupt(), out=tmp_path)
    part = xl.scale.open(tmp_path)
    assert 0 < part.done <= 500
    assert not part.complete
    xl.scale.run(small_network(), pairs(), out=tmp_path)
    assert_whole(tmp_path, complete_store)


@pytest.mark.parametrize("kind", ["npz", "compressed", "npy", "safetensors"])
@pytest.mark.every(4)
def test_files_give_what_pairs_give(tmp_path, complete_store, kind):
    starts, ends = (side.numpy() for side in random_lines(COUNT))
    path = tmp_path / f"lines.{'npz' if kind == 'compressed' else kind}"
    if kind == "npz":
        np.savez(path, starts=starts, ends=ends)
    elif kind == "compressed":
        np.savez_compressed(path, starts=starts, ends=ends)
    elif kind == "npy":
        np.save(path, np.stack([starts, ends], 1))
    else:
        from safetensors.numpy import save_file

        save_file({"starts": starts, "ends": ends}, path)
    xl.scale.run(small_network(), path, out=tmp_path / "store")
    assert_whole(tmp_path / "store", complete_store)


def test_files_that_hold_no_lines_are_refused(tmp_path):
    model, out = small_network(), tmp_path / "store"
    cases = {
        "missing.npz": None,
        "a.txt": b"1 2",
        "junk.npz": b"PK not a zip",
        "junk.npy": b"no numpy",
        "junk.safetensors": b"\xff" * 64,
    }
    for name, data in cases.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError):
            xl.scale.run(model, tmp_path / name, out=out)
    np.savez(tmp_path / "other.npz", points=np.zeros((3, 5)))
    np.savez(tmp_path / "uneven.npz", starts=np.zeros((3, 5)), ends=np.zeros((4, 5)))
    np.savez(tmp_path / "objects.npz", starts=np.array([None]), ends=np.array([None]))
    np.save(tmp_path / "flat.npy", np.zeros(7))
    for name in ("other.npz", "uneven.npz", "objects.npz", "flat.npy"):
        with pytest.raises(FileError):
            xl.scale.run(model, tmp_path / name, out=out)
    np.savez(tmp_path / "narrow.npz", starts=np.zeros((3, 4)), ends=np.ones((3, 4)))
    with pytest.raises(xl.ExactlineError):
        xl.scale.run(xl.network.as_network(model, [torch.zeros(5)]), tmp_path / "narrow.npz", out=out)
    assert not out.exists()


def test_a_network_in_a_file(tmp_path):
    path = tmp_path / "small.onnx"
    xl.network.as_network(small_network(), [torch.zeros(5)]).save(path)
    store = xl.scale.run(path, pairs(5), out=tmp_path / "store")
    starts, ends = (side[:5] for side in random_lines(COUNT))
    assert [len(line) for line in store] == xl.restrict_many(small_network(), starts, ends).pieces.tolist()


def test_no_lines_at_all(tmp_path):
    network = xl.network.as_network(small_network(), [torch.zeros(5)])
    store = xl.scale.run(network, [], out=tmp_path)
    assert (len(store), list(store), store.complete) == (0, [], True)
    assert len(store.summary()) == 0
