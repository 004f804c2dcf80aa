"""The density study: lines as defined, tables against plain restrictions, killed runs that go on."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.errors import ArgumentError, FileError, LineError
from exactline.formats.labelled_images import labelled, read_labelled
from exactline.paper import density as study
from exactline.paper import density_tables as tables
from exactline.paper.density_report import moved, report
from exactline.paper.plot_density import draw
from exactline.paper.published import read_images


def classifier(seed, hidden=8):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3)).double().eval()


@pytest.fixture(scope="module")
def images():
    points = np.random.RandomState(0).uniform(0, 1, (5, 1, 2, 3))
    return labelled("mine", points, [0, 1, 2, 0, 1], (1, 2, 3), "images")


@pytest.fixture(scope="module")
def subjects():
    return study.subjects_of({"one": classifier(0), "two": classifier(1)}, (1, 2, 3))


@pytest.fixture(scope="module")
def found(subjects, images):
    moments = study.subjects_of({f"epoch {k}": classifier(k, 4) for k in (5, 6)}, (1, 2, 3))
    return study.run(subjects, images, study.Plan(eps=0.5, random=3, reach=4.0), checkpoints=moments)


def test_each_line_is_the_plain_restriction_of_its_ends(found, images):
    for r in found.rows:
        model = classifier(["one", "two"].index(r.network))
        x = torch.tensor(images.points[r.image])[None].requires_grad_()
        model(x)[0, (r.label + 1) % 3].backward()
        signs = [x.grad[0].sign().numpy()]
        signs += [np.random.RandomState(20 * r.image + j).choice([-1, 1], (1, 2, 3)) for j in range(3)]
        for j, sign in enumerate(signs):
            start = images.points[r.image]
            end = np.clip(start + 0.5 * sign, 0, 1)
            line = xl.restrict(model, start, end)
            assert r.breaks[j] == len(line.alphas)
            assert r.lengths[j] == pytest.approx(np.linalg.norm(end - start), rel=1e-14)
            assert r.births["relu"][j] == len(line.alphas) - 2
            for k, length in enumerate(found.lengths):
                short = xl.restrict(model, start, start + length * sign / np.linalg.norm(sign))
                assert r.within[j][k] == len(short)
        with torch.no_grad():
            assert r.predicted == int(model(x)[0].argmax())


def test_tables_are_those_of_the_rows(found):
    right = {s.name: [r for r in found.rows if r.network == s.name and r.right] for s in found.subjects}
    ratios = [r.densities[0] / d for r in right["one"] for d in r.densities[1:]]
    first = next(tables.ratio_rows(found))
    assert first[:2] == ("FGSM over random", "one")
    assert first[4:] == (len(ratios), *np.percentile(ratios, [50, 25, 75]).tolist())
    both = [(a, b) for a in right["one"] for b in right["two"] if a.image == b.image]
    wanted = [a.densities[0] / b.densities[0] for a, b in both]
    assert tables.against_other(found, "one", "two", "FGSM").tolist() == wanted
    rows = list(tables.layer_rows(found))
    assert [row[2] for row in rows] == ["relu"] * 4
    mean = np.mean([r.births["relu"][0] for r in right["one"]])
    assert rows[0][5] == pytest.approx(mean)
    assert rows[0][6] == 1.0
    curves = [row for row in tables.length_rows(found) if row[:2] == ("two", "random")]
    assert [row[4] for row in curves] == sorted(row[4] for row in curves)  # more line, more pieces
    assert curves[-1][2] == 4.0
    epochs = list(tables.epoch_rows(found))
    assert [row[0] for row in epochs] == [0, 0, 1, 1]
    assert epochs[1][3] == 5 * 3  # all images, right or wrong


def test_perturbations_are_as_the_paper_s_when_asked(found):
    plan = study.Plan(eps=0.03, multiplicative=True, levels=255)
    pixels = np.array([0.0, 100.0, 250.0, 33.0]) / 255
    assert (plan.changed(pixels, np.array([1.0, -1.0, 1.0, 1.0])) * 255).round(9).tolist() == [0.0, 97.0, 255.0, 33.0]
    assert moved(plan) == "x + floor(255 0.03 x) / 255 s"
    assert moved(study.Plan()) == "x + 0.1 s"
    assert moved(study.Plan(multiplicative=True)) == "x + 0.1 x s"


def test_without_labels_the_network_s_own_class_counts(subjects, images):
    plan = study.Plan(reach=0.0)
    bare = study.run(subjects, replace(images, labels=None), plan)
    assert all(r.right for r in bare.rows)
    assert len(bare.lengths) == 0
    assert "as none was given" in report(bare)
    assert "Lengths" not in report(bare)


def test_lines_without_length_count_for_nothing():
    """A black image moves nowhere multiplicatively; a network without slope has no FGSM direction."""
    flat = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double().eval()
    for p in flat.parameters():
        nn.init.zeros_(p)
    images = labelled("dark", np.array([[0.0, 0.0], [0.5, 0.25]]), [0, 0], (2,), "images")
    subjects = study.subjects_of({"flat": flat}, (2,))
    found = study.run(subjects, images, study.Plan(eps=0.5, multiplicative=True))
    assert found.rows[0].breaks == (0,) * 5
    assert found.rows[1].breaks == (0, 2, 2, 2, 2)
    assert found.rows[1].within[0] == ()
    assert len(tables.pooled(found.rows, "FGSM")) == 0
    assert len(tables.pooled(found.rows, "random")) == 4
    text = report(found)
    assert "| flat | 2 | FGSM | 0 | nan" in text


def test_a_second_run_finds_everything_and_writes_the_same(subjects, images, tmp_path):
    plan = study.Plan(eps=0.5, reach=1.0)
    written = []
    for _ in range(2):
        found = study.run(subjects, images, plan, folder=tmp_path)
        names = [p.name for p in tables.save(found, tmp_path)]
        written.append({name: (tmp_path / name).read_bytes() for name in names})
    assert found.resumed == 10
    assert written[0] == written[1]
    assert study.run(subjects, images, replace(plan, seed=1), folder=tmp_path).resumed == 0
    with (tmp_path / "densities.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 5 * 5
    assert all(float(r["density"]) == int(r["breaks"]) / float(r["length"]) for r in rows)


def long_run(folder, pause):
    """Twenty images, two networks, with a pause before each."""
    points = np.random.RandomState(0).uniform(0, 1, (20, 1, 2, 3))
    images = labelled("mine", points, [0] * 20, (1, 2, 3), "images")
    subjects = study.subjects_of({"one": classifier(0), "two": classifier(1)}, (1, 2, 3))
    found = study.run(subjects, images, folder=folder, progress=lambda share, what: time.sleep(pause))
    return found.resumed, tables.save(found, folder)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_killed_run_goes_on_and_gives_identical_tables(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    code = f"from pathlib import Path; from tests.paper.test_density import *; long_run(Path({str(killed)!r}), 0.2)"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while len(list(killed.glob("kept/*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "densities.csv").exists()
    resumed, names = long_run(killed, 0)
    assert 3 <= resumed < 40
    assert long_run(whole, 0)[0] == 0
    for path in names:
        assert path.read_bytes() == (whole / path.name).read_bytes()


def test_pictures_show_every_network_and_kind(found, tmp_path):
    pytest.importorskip("matplotlib")
    written = draw(found, tmp_path)
    assert [p.name for p in written] == [
        f"{name}.{kind}" for name in ("densities", "layers", "lengths", "epochs") for kind in ("png", "svg")
    ]
    text = (tmp_path / "lengths.svg").read_text()
    assert all(f"{s.name}, {kind}" in text for s in found.subjects for kind in tables.KINDS)
    assert "accuracy" in (tmp_path / "epochs.svg").read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"eps": 0.0}, {"eps": float("nan")}, {"low": 1.0}, {"random": 0}, {"reach": -1.0}, {"seed": -1}),
        *({"levels": 0}, {"high": float("inf")}, {"eps": "wide"}, {"random": 2.5}, {"eps": True}, {"seed": None}),
    ],
    ids=str,
)
def test_plans_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ArgumentError):
        study.Plan(**wrong)


def test_networks_that_cannot_be_compared_are_refused(images):
    with pytest.raises(ArgumentError, match="same shapes"):
        study.subjects_of({"a": classifier(0), "b": nn.ReLU()}, (1, 2, 3))
    with pytest.raises(ArgumentError, match="different names"):
        study.subjects_of([])
    wrong = replace(images, labels=(0, 1, 2, 3, 0))
    with pytest.raises(ArgumentError, match="class 3, and the network knows 3"):
        study.run(study.subjects_of({"a": classifier(0)}, (1, 2, 3)), wrong)


def test_bytes_that_nobody_divided_are_refused(subjects, images):
    with pytest.raises(ArgumentError, match="Pixels run from") as caught:
        study.run(subjects, replace(images, points=images.points * 255))
    assert "--scale 255" in str(caught.value)
    wide = study.Plan(low=0.0, high=255.0, eps=20.0, reach=0.0)
    assert study.run(subjects, replace(images, points=images.points * 255).first(1), wide).rows[0].lengths[0] > 1


def test_images_come_out_of_files(tmp_path):
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    labels = np.array([0, 1, 2, 0])
    np.savez(tmp_path / "a.npz", images=pixels, labels=labels)
    np.savez(tmp_path / "b.npz", x=pixels)
    np.save(tmp_path / "c.npy", pixels)
    rows = [",".join(map(str, [c, *p.reshape(-1)])) for c, p in zip(labels, pixels, strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    (tmp_path / "e.csv").write_text("\n".join(row.partition(",")[2] for row in rows))
    for name, known in (("a.npz", True), ("b.npz", False), ("c.npy", False), ("d.csv", True), ("e.csv", False)):
        got = read_labelled(tmp_path / name, (1, 2, 3), 255)
        assert got.points.tolist() == (pixels.reshape(4, 1, 2, 3) / 255).tolist()
        assert got.labels == ((0, 1, 2, 0) if known else None)
    assert len(got.first(2)) == 2


@pytest.mark.parametrize(
    ("name", "arrays", "error", "words"),
    [
        ("a.npz", {"pictures": np.zeros((2, 6))}, LineError, "no array of the name images"),
        ("a.npz", {"images": np.zeros((2, 5))}, LineError, "takes points of shape"),
        ("a.npz", {"images": np.zeros((0, 6))}, LineError, "takes points of shape"),
        ("a.npz", {"images": np.full((2, 6), np.nan)}, LineError, "NaN"),
        ("a.npz", {"images": np.zeros((2, 6)), "labels": np.zeros(3)}, LineError, "one whole number"),
        ("a.npz", {"images": np.zeros((2, 6)), "labels": np.array([0.5, 1])}, LineError, "one whole number"),
        ("a.npz", {"images": np.zeros((2, 6)), "labels": np.array([-1, 1])}, LineError, "one whole number"),
        ("a.npz", {"images": np.array(["a"] * 6)}, LineError, "takes points of shape"),
        ("a.csv", "1,2,x", FileError, "not numbers"),
        ("a.csv", "1,2,3\n1,2", FileError, "not numbers"),
        ("a.csv", "", LineError, "takes points of shape"),
        ("a.npz", "nothing of the kind", FileError, "damaged"),
        ("a.pkl", "x", FileError, "not read from such files"),
    ],
)
def test_files_that_hold_something_else_are_refused(tmp_path, name, arrays, error, words):
    if isinstance(arrays, str):
        (tmp_path / name).write_text(arrays)
    else:
        np.savez(tmp_path / name, **arrays)
    with pytest.raises(error, match=words):
        read_labelled(tmp_path / name, (6,))
    with pytest.raises(ArgumentError):
        read_labelled(tmp_path / name, (6,), scale=0.0)


def test_kept_parts_are_plain_json(subjects, images, tmp_path):
    study.run(subjects[:1], images.first(1), folder=tmp_path)
    (path,) = (tmp_path / "kept").iterdir()
    part = json.loads(path.read_text())["part"]
    assert set(part) == {"breaks", "lengths", "births", "within", "predicted", "label"}


@pytest.mark.slow
def test_the_paper_s_fgsm_ratios_of_cifar_come_out_of_the_general_study(data):
    """Table 4's FGSM entries, to the last digit; its random signs are drawn in another order than ours."""
    pictures = read_images(data, "cifar10")
    images = labelled("CIFAR10", pictures.pixels / 255, pictures.labels, (3, 32, 32), "images")
    files = [data / "eran/cifar10" / f"convSmallRELU__{word}.onnx" for word in ("Point", "DiffAI", "PGDK")]
    plan = study.Plan(eps=0.03, multiplicative=True, levels=255, random=1, reach=0.0)
    found = study.run(study.subjects_of(files), images, plan)
    normal, diffai, pgd = (s.name for s in found.subjects)
    assert [len(found.of(s.name)) for s in found.subjects] == [59, 53, 70]
    for other, published in ((diffai, (3.37, 2.77, 4.94)), (pgd, (1.48, 1.22, 1.67))):
        ratios = tables.quarters(tables.against_other(found, normal, other, "FGSM"))
        assert tuple(round(ratio, 2) for ratio in ratios) == published
