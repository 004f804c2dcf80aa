"""Where a sweep is stopped, stored or proved: partial answers, files that fail, certificates that must not lie."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import exactline as xl
from tests.oracle.compare import mismatch
from tests.oracle.families import FAMILIES, seeded, small_integers

from .truth import Function, breaks, mlp, points, refused, right, same_line, tent

Q3, R3 = points(-2.0, 1.5, 0.5), points(2.5, -1.0, -3.0)


# -- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "most"), [(60, 2), (40, 101), (30, 3000)])
def test_max_breaks_stops_a_deep_tent_and_is_right_that_far(depth, most):
    line = xl.restrict(tent(depth), [0.0], [1.0], max_breaks=most)
    assert not line.complete
    assert line.stopped == "max_breaks"
    assert len(line.alphas) == most
    assert "max_breaks" in str(line)
    # one fold takes 2^-depth of the line: every alpha is a multiple, in order, and values go up and down
    steps = line.alphas * 2.0**depth
    assert torch.equal(steps, torch.arange(most, dtype=torch.float64))
    assert torch.equal(line.values.flatten(), (torch.arange(most) % 2).double())
    assert line.reached == breaks(line)[-1]
    assert float(line.at(line.reached / 2)) == (0.0 if most % 4 == 1 else 1.0 if most % 4 == 3 else 0.5)


def test_a_limit_of_two_breaks_on_a_deep_net_is_quick():
    model = tent(60)
    xl.restrict(model, [0.0], [2.0**-70])  # capture is not what is timed
    began = time.process_time()
    line = xl.restrict(model, [0.0], [1.0], max_breaks=2)
    assert len(line.alphas) == 2
    assert time.process_time() - began < 4  # sixty layers of two points are milliseconds


def test_max_breaks_of_one_or_of_all_are_the_edges():
    line = xl.restrict(tent(3), [0.0], [1.0], max_breaks=1)
    assert breaks(line) == [0.0]
    assert len(line) == 0
    assert not line.complete
    assert str(line).startswith("0 pieces")
    assert line.at(0.0).tolist() == [0.0]
    refused(xl.ArgumentError, line.at, 0.1)
    whole = xl.restrict(tent(3), [0.0], [1.0], max_breaks=9)
    assert whole.complete
    assert whole.stopped == ""
    almost = xl.restrict(tent(3), [0.0], [1.0], max_breaks=8)
    assert not almost.complete
    assert breaks(almost) == [k / 8 for k in range(8)]


def test_seconds_stop_a_tent_of_depth_60_and_the_answer_is_right_that_far():
    model = tent(60)
    xl.restrict(model, [0.0], [2.0**-70])  # capture is not what is timed
    for seconds in (2.0, 8.0, 32.0):  # on a busy machine two seconds may be hardly any
        began = time.perf_counter()
        line = xl.restrict(model, [0.0], [1.0], seconds=seconds)
        assert time.perf_counter() - began < seconds + 8
        if len(line.alphas) > 2:
            break
    assert not line.complete
    assert line.stopped == "seconds"
    assert "stopped by seconds at alpha" in str(line)
    count = len(line.alphas)
    assert count > 2
    assert torch.equal(line.alphas * 2.0**60, torch.arange(count, dtype=torch.float64))
    assert torch.equal(line.values.flatten(), (torch.arange(count) % 2).double())


def test_a_partial_answer_of_a_random_net_is_a_prefix_of_the_whole():
    model = mlp(4, 40, 40, 40, 3)
    Q, R = torch.randn(4) * 3, torch.randn(4) * 3
    whole = xl.restrict(model, Q, R)
    for most in (2, 7, len(whole) // 2):
        part = xl.restrict(model, Q, R, max_breaks=most)
        assert (part.alphas - whole.alphas[:most]).abs().max() <= 1e-12
        assert torch.allclose(part.values, whole.values[:most], atol=1e-12)
        assert [b and b.node for b in part.origins] == [b and b.node for b in whole.origins[:most]]
        part.piece(0).affine()
        assert part.check(samples=20).worst <= 1e-12
        part.minimal()
        refused(xl.ArgumentError, part.at, 1.0)


def test_no_time_at_all_gives_an_empty_answer_that_can_be_asked():
    line = xl.restrict(tent(60), [0.0], [1.0], seconds=0)
    assert not line.complete
    assert line.stopped == "seconds"
    assert line.reached == 0.0
    assert len(line) == 0
    assert "0 pieces" in str(line)
    assert "stopped by seconds" in str(line)
    assert "stopped by seconds" in repr(line)
    assert len(line.origins) == len(line.alphas)
    assert len(line.points) == len(line.alphas)
    assert len(line.values) == len(line.alphas)


@pytest.mark.parametrize("ask", ["at", "piece", "minimal", "check", "certify"])
def test_an_empty_answer_refuses_questions_with_typed_errors(ask):
    line = xl.restrict(tent(60), [0.0], [1.0], seconds=0)
    argument = (0.0,) if ask in ("at", "piece") else ()
    if ask == "piece":
        argument = (0,)
    try:
        getattr(line, ask)(*argument)
    except xl.ExactlineError as error:
        assert error.problem  # noqa: PT017


def test_a_partial_answer_cannot_be_certified_as_a_whole():
    line = xl.restrict(tent(12), [0.0], [1.0], max_breaks=9)
    try:
        proof = line.certify()
    except xl.ExactlineError as error:
        assert error.hint  # noqa: PT017
    else:
        assert not proof.whole


def test_limits_over_many_lines_say_which_lines_are_complete():
    starts, ends = torch.zeros(4, 1), torch.ones(4, 1)
    lines = xl.restrict_many(tent(4), starts, ends, max_breaks=40)
    assert [line.complete for line in lines] == [True, True, False, False]
    assert [len(line.alphas) for line in lines] == [17, 17, 6, 0]
    assert lines[2].stopped == "max_breaks"
    assert lines[3].stopped == "max_breaks"
    assert "stopped by max_breaks" in repr(lines)
    assert lines.pieces.tolist() == [16, 16, 5, 0]


def test_a_stream_that_runs_out_of_time_says_so():
    last = None
    for seconds in (0.5, 4.0, 32.0):  # on a busy machine half a second may be hardly any
        for part in xl.sweep(tent(25), [0.0], [1.0], seconds=seconds, memory=1 << 12):
            last = part
        if last is not None:
            break
    assert last is not None
    assert float(last.alphas[-1]) < 1.0
    assert not last.complete  # nothing else tells the caller that the stream ended early


@pytest.mark.parametrize(
    "options",
    [
        {"max_breaks": 0},
        {"max_breaks": -1},
        {"max_breaks": 2.5},
        {"max_breaks": "many"},
        {"max_breaks": float("nan")},
        {"memory": 0},
        {"memory": -5},
        {"memory": "1GB"},
        {"memory": float("nan")},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": "soon"},
        {"dtype": torch.int64},
        {"dtype": "float64"},
        {"until": 3},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options):
    refused(xl.ArgumentError, xl.restrict, mlp(3, 4, 2), Q3, R3, **options)


def test_whole_numbers_given_as_floats_are_read_or_refused():
    for options in ({"memory": 1e6}, {"max_breaks": 1e6}, {"memory": float("inf")}, {"seconds": float("inf")}):
        try:
            line = xl.restrict(mlp(3, 4, 2), Q3, R3, **options)
        except xl.ArgumentError as error:
            assert error.hint  # noqa: PT017
        else:
            assert line.complete


def test_a_wide_layer_holds_the_memory_it_was_given():
    # 3,000 units, each at its own place: all points at once would be 3,000 x 3,000 numbers, 72 MB a copy
    code = """
import resource, torch, exactline as xl
torch.set_num_threads(1)
from torch import nn
model = nn.Sequential(nn.Linear(1, 3000), nn.ReLU(), nn.Linear(3000, 1)).double()
model[0].weight.data.fill_(1.0)
model[0].bias.data.copy_(-torch.linspace(0.001, 0.999, 3000))
xl.restrict(model, [0.0], [1e-9])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
line = xl.restrict(model, [0.0], [1.0], memory=4 << 20)
print(len(line), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    pieces, grown = map(int, done.stdout.split())
    assert pieces == 3001
    assert grown < 48 << 20


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf"), [0.5, 2.0], -5e-324, 1 + 2**-52])
def test_alphas_off_the_line_are_refused(alpha):
    refused(xl.ArgumentError, xl.restrict(mlp(3, 4, 2), Q3, R3).at, alpha)


@pytest.mark.parametrize(
    "alpha", ["half", None, [[0.1], [0.2, 0.3]], 1j, object()], ids=["text", "none", "ragged", "complex", "object"]
)
def test_alphas_that_are_no_numbers_are_refused(alpha):
    refused(xl.ArgumentError, xl.restrict(mlp(3, 4, 2), Q3, R3).at, alpha)


def test_alphas_of_any_shape_are_answered_in_that_shape():
    line = xl.restrict(mlp(3, 4, 2), Q3, R3)
    assert line.at([]).shape == (0, 2)
    assert line.at(torch.rand(2, 3, 4)).shape == (2, 3, 4, 2)
    assert line.at(1).shape == (2,)
    assert torch.equal(line.at(line.alphas), line.values)
    assert torch.equal(line.at(torch.tensor([0.0, 1.0], dtype=torch.float16)), line.values[[0, -1]])


@pytest.mark.parametrize("index", [10**6, -(10**6), 1.5, "first", None], ids=str)
def test_pieces_that_are_not_there_are_refused(index):
    refused(xl.ArgumentError, xl.restrict(mlp(3, 4, 2), Q3, R3).piece, index)


# -- files -------------------------------------------------------------------------------------------------------


def saved(tmp_path: Path, model: nn.Module | None = None, **options) -> tuple[xl.Restriction, Path]:
    line = xl.restrict(model or mlp(3, 8, 8, 2), Q3, R3, **options)
    path = tmp_path / "line.safetensors"
    line.save(path)
    return line, path


def test_a_saved_line_comes_back_whole(tmp_path):
    model = mlp(3, 8, 8, 2)
    line, path = saved(tmp_path, model)
    for back in (xl.Restriction.load(path), xl.Restriction.load(str(path), model)):
        assert torch.equal(back.alphas, line.alphas)
        assert torch.equal(back.values, line.values)
        assert torch.equal(back.points, line.points)
        assert list(back.origins) == list(line.origins)
        assert back.ambiguous_per_piece.tolist() == line.ambiguous_per_piece.tolist()
        assert (back.units, back.error, back.stopped, back.complete) == (line.units, line.error, "", True)
        assert str(back) == str(line)
        assert torch.equal(back.at(0.3), line.at(0.3))
    back = xl.Restriction.load(path, model)
    assert torch.equal(back.piece(1).affine()[0], line.piece(1).affine()[0])
    assert back.certify().whole
    assert back.check(samples=5).worst <= 1e-12
    refused(xl.MissingError, xl.Restriction.load(path).piece, 0)
    refused(xl.MissingError, xl.Restriction.load(path).certify)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["line.safetensors"]


def test_lines_of_every_kind_survive_a_file(tmp_path):
    path = tmp_path / "x"
    two = Function(lambda x, y: (torch.relu(x) + y, torch.relu(y).amax(1)))
    kinds = [
        xl.restrict(mlp(3, 8, 2), Q3, R3, values=False),
        xl.restrict(two, (Q3, Q3.flip(0)), (R3, R3.flip(0))),
        xl.restrict(tent(9), [0.0], [1.0], max_breaks=7),
        xl.restrict(mlp(3, 8, 2), Q3, R3).minimal(),
        xl.restrict(nn.ReLU(), torch.zeros(2, 0), torch.zeros(2, 0)),
        xl.restrict(nn.ReLU(), -1.0, 1.0),
        next(iter(xl.sweep(tent(5), [0.0], [1.0], memory=1))),
    ]
    for line in kinds:
        line.save(path)
        back = xl.Restriction.load(path)
        assert torch.equal(back.alphas, line.alphas)
        assert (back.stored_values is None) == (line.stored_values is None)
        assert all(torch.equal(a, b) for a, b in zip(back.stored_values or (), line.stored_values or (), strict=True))
        facts = ("stopped", "complete", "is_minimal", "several_inputs", "several_outputs", "names", "units")
        assert [getattr(back, f) for f in facts] == [getattr(line, f) for f in facts]
        assert str(back) == str(line)


@pytest.mark.parametrize("options", [{"rewrite": False}, {"until": "1"}, {"dtype": torch.float32}], ids=str)
def test_a_line_made_with_options_can_be_loaded_with_its_model(tmp_path, options):
    model = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 2)).eval()
    line = xl.restrict(model, torch.randn(1, 5) * 3, torch.randn(1, 5) * 3, **options)
    line.save(tmp_path / "x")
    back = xl.Restriction.load(tmp_path / "x", model)
    assert torch.equal(back.piece(0).affine()[0], line.piece(0).affine()[0])


def test_a_file_with_another_model_is_refused(tmp_path):
    _, path = saved(tmp_path, mlp(3, 8, 8, 2))
    refused(xl.FileError, xl.Restriction.load, path, mlp(3, 8, 2))
    refused(xl.ExactlineError, xl.Restriction.load, path, mlp(4, 8, 8, 2))


def test_a_file_with_the_same_model_of_other_weights_is_refused(tmp_path):
    _, path = saved(tmp_path, mlp(3, 8, 8, 2))
    refused(xl.FileError, xl.Restriction.load, path, mlp(3, 8, 8, 2))


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, keep):
    _, path = saved(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    refused(xl.FileError, xl.Restriction.load, path)


def test_foreign_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    weights = tmp_path / "weights.safetensors"
    save_file({"weight": torch.zeros(3)}, weights)
    tagged = tmp_path / "tagged.safetensors"
    save_file({"alphas": torch.zeros(3)}, tagged, metadata={"format": "exactline.restriction.1", "facts": "{}"})
    contents = {
        "text": b"alpha,value\n0,1\n",
        "zip": b"PK\x03\x04" + bytes(64),
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "header": (2**62).to_bytes(8, "little") + b"{}",
        "json": (2).to_bytes(8, "little") + b"[]",
        "nested": (20000).to_bytes(8, "little") + b"[" * 20000,
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    for path in (weights, tagged, *(tmp_path / name for name in contents)):
        refused(xl.FileError, xl.Restriction.load, path)


@pytest.mark.parametrize(
    "facts", ["[]", "3", "null", '"text"', "{", '{"values": true}', '{"values": true, "names": 5}', '{"surprise": 1}']
)
def test_files_with_damaged_facts_are_refused(tmp_path, facts):
    from safetensors.torch import load_file, save_file

    _, path = saved(tmp_path)
    tensors = load_file(path)
    save_file(tensors, path, metadata={"format": "exactline.restriction.1", "facts": facts})
    refused(xl.FileError, xl.Restriction.load, path)


@pytest.mark.parametrize("damage", ["short", "shape", "dtype", "lost", "nan"])
def test_files_with_damaged_arrays_are_refused(tmp_path, damage):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    _, path = saved(tmp_path)
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    if damage == "short":
        tensors["value.0"] = tensors["value.0"][:-1].clone()
    elif damage == "shape":
        tensors["births"] = tensors["births"].flatten()
    elif damage == "dtype":
        tensors["alphas"] = tensors["alphas"].to(torch.int64)
    elif damage == "lost":
        del tensors["start.0"]
    else:
        tensors["alphas"][1] = float("nan")
    save_file(tensors, path, metadata=metadata)
    refused(xl.FileError, xl.Restriction.load, path)


def test_missing_files_and_folders_are_refused(tmp_path):
    line, _ = saved(tmp_path)
    refused(xl.FileError, xl.Restriction.load, tmp_path / "nothing")
    refused(xl.FileError, xl.Restriction.load, tmp_path)
    refused(xl.FileError, xl.Restriction.load, tmp_path / "line.safetensors" / "inside")
    refused(xl.FileError, line.save, tmp_path / "no" / "folder" / "x")
    refused(xl.FileError, line.save, tmp_path)
    refused(xl.FileError, line.save, "")
    refused(xl.FileError, line.save, "/proc/nothing/x")
    refused(xl.FileError, line.save, "nul\0byte")
    refused(xl.FileError, xl.Restriction.load, "nul\0byte")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["line.safetensors"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_an_existing_file_survives_a_failed_save(tmp_path, monkeypatch, step):
    line, path = saved(tmp_path)
    before = path.read_bytes()
    other = xl.restrict(tent(10), [0.0], [1.0])

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "write":  # a real failure: the process may not write files so large
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            refused(xl.FileError, other.save, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    else:
        monkeypatch.setattr(os, step, fail)
        error = refused(xl.FileError, other.save, path)
        assert "No space left" in error.problem
        monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["line.safetensors"]
    assert torch.equal(xl.Restriction.load(path).alphas, line.alphas)


def test_an_interrupt_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    _, path = saved(tmp_path)
    before = path.read_bytes()

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        xl.restrict(nn.ReLU(), Q3, R3).save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["line.safetensors"]


def test_a_saved_file_has_the_permissions_any_new_file_has(tmp_path):
    _, path = saved(tmp_path)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode


# -- check and certify -------------------------------------------------------------------------------------------


def nets() -> list[tuple[str, nn.Module, torch.Tensor, torch.Tensor]]:
    made = []
    for kind in ("mlp", "conv", "mixed", "residual", "concat", "normed", "ordered"):
        g = torch.Generator().manual_seed(7)
        model, shape = FAMILIES[kind](g)
        Q, R = (torch.randn(shape, generator=g, dtype=torch.float64) * 3 for _ in range(2))
        made.append((kind, seeded(model, g), Q, R))
        g = torch.Generator().manual_seed(8)
        model, shape = FAMILIES[kind](g)
        Q, R = (torch.randint(-3, 4, shape, generator=g).double() for _ in range(2))
        if kind != "normed":  # its running statistics are no small integers
            made.append((f"{kind} tied", small_integers(g, model), Q, R))
    return made


NETS = nets()


@pytest.mark.parametrize(("model", "Q", "R"), [n[1:] for n in NETS], ids=[n[0] for n in NETS])
def test_the_check_is_small_and_the_certificate_complete_on_small_nets(model, Q, R):
    line = right(model, Q, R)
    check = line.check(samples=100)
    assert check.worst <= 1e-11 * max(check.scale, 1.0)
    assert "module" in check.against
    assert check.points > 0
    proof = line.certify()
    assert proof.whole, str(proof)
    assert proof.proved == len(line)


@pytest.mark.parametrize(("model", "Q", "R"), [n[1:] for n in NETS[::3]], ids=[n[0] for n in NETS[::3]])
def test_the_certificate_is_not_complete_when_a_break_is_missing_or_added(model, Q, R):
    line = right(model, Q, R)
    if len(line) < 3:
        model = mlp(*Q.shape, 12, 2)
        line = right(model, Q, R)
    for k in {1, len(line) // 2, len(line) - 1}:
        keep = [i for i in range(len(line.alphas)) if i != k]
        assert not with_alphas(line, line.alphas[keep]).certify().complete
        extra = (line.alphas[k - 1] + line.alphas[k]) / 2
        added = torch.cat([line.alphas[:k], extra[None], line.alphas[k:]])
        assert not with_alphas(line, added).certify().complete
        moved = line.alphas.clone()
        moved[k] = line.alphas[k] * 0.999999 + line.alphas[k - 1] * 0.000001
        assert not with_alphas(line, moved).certify().complete


def with_alphas(line: xl.Restriction, alphas: torch.Tensor) -> xl.Restriction:
    births, doubts = torch.zeros(len(alphas), 3, dtype=torch.int64), torch.zeros(len(alphas) - 1, dtype=torch.int64)
    return replace(line, alphas=alphas, origin_table=births, ambiguous_per_piece=doubts, stored_values=None)


def test_a_certificate_of_some_pieces_is_not_one_of_the_whole():
    line = right(mlp(3, 12, 2), Q3 * 2, R3 * 2)
    some = line.certify(pieces=2)
    assert some.checked == 2
    assert some.complete
    assert not some.whole
    assert line.certify(pieces=[0, -1]).checked == 2
    for pieces in (0, -1, [10**6], [-(10**6)]):
        refused(xl.ArgumentError, line.certify, pieces=pieces)


def test_a_check_sees_values_that_are_wrong():
    line = xl.restrict(mlp(3, 12, 2), Q3, R3)
    spoilt = replace(line, stored_values=(line.values + 0.01,))
    assert spoilt.check(samples=20).worst >= 0.009
    bent = line.alphas[[0, -1]]
    missing = replace(
        line,
        alphas=bent,
        origin_table=line.origin_table[[0, -1]],
        ambiguous_per_piece=line.ambiguous_per_piece[:1],
        stored_values=(line.values[[0, -1]],),
    )
    assert len(line) > 3
    assert missing.check(samples=200).worst > 1e-3


def test_a_path_is_its_lines_one_after_another():
    corners = torch.stack([Q3, R3, R3, -Q3, Q3])
    model = mlp(3, 12, 2)
    lines = xl.restrict_path(model, corners)
    assert len(lines) == 4
    for i in range(4):
        assert mismatch(lines[i].alphas, xl.exact.restrict(model, corners[i], corners[i + 1])) is None
        if i:
            assert torch.allclose(lines[i].values[0], lines[i - 1].values[-1], atol=1e-13)
    same_line(xl.restrict_path(model, corners, memory=1)[3], lines[3])
