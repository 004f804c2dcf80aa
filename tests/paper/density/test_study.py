"""The density study: lines as defined, tables against single restrictions, killed runs that continue."""

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
from exactline.errors import ArgumentError
from exactline.formats.labelled_images import make_labelled_images
from exactline.paper.density import study, tables
from exactline.paper.density.plan import LinePlan
from exactline.paper.density.plot import draw_figures
from exactline.paper.density.report import format_line_end, format_report, save_report
from exactline.paper.published import read_images


def classifier(seed, hidden=8):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3)).double().eval()


@pytest.fixture(scope="module")
def images():
    points = np.random.RandomState(0).uniform(0, 1, (5, 1, 2, 3))
    return make_labelled_images("mine", points, [0, 1, 2, 0, 1], (1, 2, 3), "images")


@pytest.fixture(scope="module")
def networks():
    return study.load_networks({"one": classifier(0), "two": classifier(1)}, (1, 2, 3))


@pytest.fixture(scope="module")
def result(networks, images):
    checkpoints = study.load_networks({f"epoch {k}": classifier(k, 4) for k in (5, 6)}, (1, 2, 3))
    return study.run(networks, images, LinePlan(eps=0.5, random=3, reach=4.0), checkpoints=checkpoints)


@pytest.mark.slow
def test_each_line_agrees_with_a_single_restriction(result, images):
    for r in result.rows:
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
            assert r.origins["relu"][j] == len(line.alphas) - 2
            for k, length in enumerate(result.curve_lengths):
                short = xl.restrict(model, start, start + length * sign / np.linalg.norm(sign))
                assert r.pieces_within[j][k] == len(short)
        with torch.no_grad():
            assert r.predicted == int(model(x)[0].argmax())


def test_tables_agree_with_the_rows(result):
    right = {s.name: [r for r in result.rows if r.network == s.name and r.is_correct] for s in result.networks}
    ratios = [r.densities[0] / d for r in right["one"] for d in r.densities[1:]]
    first = next(tables.list_ratios(result))
    assert (first.ratio, first.network) == ("FGSM over random", "one")
    assert first[4:] == (len(ratios), *np.percentile(ratios, [50, 25, 75]).tolist())
    both = [(a, b) for a in right["one"] for b in right["two"] if a.image == b.image]
    wanted = [a.densities[0] / b.densities[0] for a, b in both]
    assert tables.compute_network_ratios(result, "one", "two", "FGSM").tolist() == wanted
    rows = list(tables.list_layers(result))
    assert [row.layer for row in rows] == ["relu"] * 4
    mean = np.mean([r.origins["relu"][0] for r in right["one"]])
    assert rows[0].mean_breaks == pytest.approx(mean)
    assert rows[0].share == 1.0
    curves = [row for row in tables.list_lengths(result) if (row.network, row.kind) == ("two", "random")]
    means = [row.mean_pieces for row in curves]
    assert means == sorted(means)  # longer lines have more pieces
    assert curves[-1].length == 4.0
    epochs = list(tables.list_epochs(result))
    assert [row.checkpoint for row in epochs] == [0, 0, 1, 1]
    assert epochs[1].lines == 5 * 3  # all images, classified correctly or not


def test_perturbations_can_be_those_of_the_paper(result):
    plan = LinePlan(eps=0.03, multiplicative=True, levels=255)
    pixels = np.array([0.0, 100.0, 250.0, 33.0]) / 255
    assert (plan.perturb(pixels, np.array([1.0, -1.0, 1.0, 1.0])) * 255).round(9).tolist() == [0.0, 97.0, 255.0, 33.0]
    assert format_line_end(plan) == "x + floor(255 0.03 x) / 255 s"
    assert format_line_end(LinePlan()) == "x + 0.1 s"
    assert format_line_end(LinePlan(multiplicative=True)) == "x + 0.1 x s"


def test_without_labels_the_predicted_class_is_used(networks, images):
    plan = LinePlan(reach=0.0)
    bare = study.run(networks, replace(images, labels=None), plan)
    assert all(r.is_correct for r in bare.rows)
    assert len(bare.curve_lengths) == 0
    assert "as none was given" in format_report(bare)
    assert "Lengths" not in format_report(bare)


def test_lines_of_length_0_are_left_out():
    """Multiplicative steps do not move a black image; a constant network has no FGSM direction."""
    flat = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).double().eval()
    for p in flat.parameters():
        nn.init.zeros_(p)
    images = make_labelled_images("dark", np.array([[0.0, 0.0], [0.5, 0.25]]), [0, 0], (2,), "images")
    networks = study.load_networks({"flat": flat}, (2,))
    result = study.run(networks, images, LinePlan(eps=0.5, multiplicative=True))
    assert result.rows[0].breaks == (0,) * 5
    assert result.rows[1].breaks == (0, 2, 2, 2, 2)
    assert result.rows[1].pieces_within[0] == ()
    assert len(tables.pool_densities(result.rows, "FGSM")) == 0
    assert len(tables.pool_densities(result.rows, "random")) == 4
    text = format_report(result)
    assert "| flat | 2 | FGSM | 0 | nan" in text


def test_a_second_run_reuses_all_results_and_writes_the_same_files(networks, images, tmp_path):
    plan = LinePlan(eps=0.5, reach=1.0)
    written = []
    for _ in range(2):
        result = study.run(networks, images, plan, folder=tmp_path)
        names = [p.name for p in save_report(result, tmp_path)]
        written.append({name: (tmp_path / name).read_bytes() for name in names})
    assert result.reused == 10
    assert written[0] == written[1]
    assert study.run(networks, images, replace(plan, seed=1), folder=tmp_path).reused == 0
    with (tmp_path / "densities.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 5 * 5
    assert all(float(r["density"]) == int(r["breaks"]) / float(r["length"]) for r in rows)


def long_run(folder, pause):
    """Twenty images, two networks, with a pause before each."""
    points = np.random.RandomState(0).uniform(0, 1, (20, 1, 2, 3))
    images = make_labelled_images("mine", points, [0] * 20, (1, 2, 3), "images")
    networks = study.load_networks({"one": classifier(0), "two": classifier(1)}, (1, 2, 3))
    result = study.run(networks, images, folder=folder, progress=lambda share, what: time.sleep(pause))
    return result.reused, save_report(result, folder)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.slow
def test_a_killed_run_continues_and_gives_identical_tables(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    code = (
        f"from pathlib import Path; from tests.paper.density.test_study import *; long_run(Path({str(killed)!r}), 0.2)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    while len(list(killed.glob("kept/*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "densities.csv").exists()
    reused, names = long_run(killed, 0)
    assert 3 <= reused < 40
    assert long_run(whole, 0)[0] == 0
    for path in names:
        assert path.read_bytes() == (whole / path.name).read_bytes()


@pytest.mark.slow
def test_pictures_show_every_network_and_kind(result, tmp_path):
    pytest.importorskip("matplotlib")
    written = draw_figures(result, tmp_path)
    assert [p.name for p in written] == [
        f"{name}.{kind}" for name in ("densities", "layers", "lengths", "epochs") for kind in ("png", "svg")
    ]
    text = (tmp_path / "lengths.svg").read_text()
    assert all(f"{s.name}, {kind}" in text for s in result.networks for kind in tables.DIRECTION_KINDS)
    assert "accuracy" in (tmp_path / "epochs.svg").read_text()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"eps": 0.0}, {"eps": float("nan")}, {"low": 1.0}, {"random": 0}, {"reach": -1.0}, {"seed": -1}),
        *({"levels": 0}, {"high": float("inf")}, {"eps": "wide"}, {"random": 2.5}, {"eps": True}, {"seed": None}),
    ],
    ids=str,
)
def test_invalid_plans_are_refused(wrong):
    with pytest.raises(ArgumentError):
        LinePlan(**wrong)


def test_networks_that_cannot_be_compared_are_refused(images):
    with pytest.raises(ArgumentError, match="same shapes"):
        study.load_networks({"a": classifier(0), "b": nn.ReLU()}, (1, 2, 3))
    with pytest.raises(ArgumentError, match="different names"):
        study.load_networks([])
    wrong = replace(images, labels=(0, 1, 2, 3, 0))
    with pytest.raises(ArgumentError, match="class 3, but the network has 3"):
        study.run(study.load_networks({"a": classifier(0)}, (1, 2, 3)), wrong)


def test_pixels_out_of_range_are_refused(networks, images):
    with pytest.raises(ArgumentError, match="Pixels range from") as caught:
        study.run(networks, replace(images, points=images.points * 255))
    assert "--scale 255" in str(caught.value)
    wide = LinePlan(low=0.0, high=255.0, eps=20.0, reach=0.0)
    assert study.run(networks, replace(images, points=images.points * 255).take(1), wide).rows[0].lengths[0] > 1


def test_cached_results_are_plain_json(networks, images, tmp_path):
    study.run(networks[:1], images.take(1), folder=tmp_path)
    (path,) = (tmp_path / "kept").iterdir()
    part = json.loads(path.read_text())["part"]
    assert set(part) == {"breaks", "lengths", "births", "within", "predicted", "label"}


@pytest.mark.slow
def test_the_paper_s_fgsm_ratios_of_cifar_come_out_of_the_general_study(data):
    """Table 4's FGSM entries, to the last digit; its random signs are drawn in another order than ours."""
    pictures = read_images(data, "cifar10")
    images = make_labelled_images("CIFAR10", pictures.pixels / 255, pictures.labels, (3, 32, 32), "images")
    files = [data / "eran/cifar10" / f"convSmallRELU__{word}.onnx" for word in ("Point", "DiffAI", "PGDK")]
    plan = LinePlan(eps=0.03, multiplicative=True, levels=255, random=1, reach=0.0)
    result = study.run(study.load_networks(files), images, plan)
    normal, diffai, pgd = (s.name for s in result.networks)
    assert [len(result.correct_rows(s.name)) for s in result.networks] == [59, 53, 70]
    for other, published in ((diffai, (3.37, 2.77, 4.94)), (pgd, (1.48, 1.22, 1.67))):
        ratios = tables.compute_quartiles(tables.compute_network_ratios(result, normal, other, "FGSM"))
        assert tuple(round(ratio, 2) for ratio in ratios) == published
