"""The page of a line holds the library's numbers, escapes names, and refuses bad arguments before writing a file."""

import json
import re
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import resources

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline import zoo
from exactline.errors import ArgumentError, FileError, MissingError
from exactline.plot.page import encode_array

KINDS = {"f8": ("<u8", "<f8"), "i4": ("<u4", "<i4")}


def decode_array(encoded):
    bits, kind = KINDS[encoded["kind"]]
    planes = np.frombuffer(zlib.decompress(b64decode(encoded["data"])), dtype=np.uint8)
    each = np.dtype(bits).itemsize
    steps = np.ascontiguousarray(planes.reshape(each, -1).T).view(bits).reshape(-1)
    return np.cumsum(steps, dtype=bits).view(kind)


def data_of(path):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found[1])


@cache
def loan():
    return xl.restrict(zoo.loan_network(), *zoo.loan_line())


@cache
def digits():
    images, _ = zoo.digits_images()
    return xl.restrict(zoo.digits_network(), images[9], images[6])


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, -0.0, 1e-320, -1e308, np.inf, -np.inf, np.nan, 0.1]),
        np.random.default_rng(0).normal(size=1000),
        np.array([], dtype=np.float64),
        np.array([0, -1, 2**31 - 1, -(2**31), 5]),
    ],
    ids=["odd", "random", "none", "whole"],
)
def test_encoding_loses_no_bit(values):
    decoded = decode_array(encode_array(values))
    assert decoded.tobytes() == values.astype(decoded.dtype).tobytes()


def test_the_page_holds_every_break_value_origin_and_interval(tmp_path):
    line = digits()
    data, decisions = data_of(line.to_html(tmp_path / "a.html")), line.decisions()
    np.testing.assert_array_equal(decode_array(data["alphas"]), line.alphas.numpy())
    np.testing.assert_array_equal(decode_array(data["origins"]).reshape(3, -1).T, line.origin_table.numpy())
    assert [curve["output"] for curve in data["curves"]] == list(range(10))
    for curve in data["curves"]:
        np.testing.assert_array_equal(decode_array(curve["values"]), line.values[:, curve["output"]].numpy())
    classes = data["decisions"]
    np.testing.assert_array_equal(decode_array(classes["starts"])[1:], decisions.boundaries.numpy())
    names = [classes["classes"][i]["name"] for i in decode_array(classes["class_of"])]
    assert names == [str(label) for label in decisions.labels]
    assert sum(node["count"] for node in data["nodes"]) == len(line) - 1


def test_sizes(tmp_path):
    assert digits().to_html(tmp_path / "a.html").stat().st_size < 5e6
    breaks, outputs = 100_001, 12
    rng = np.random.default_rng(0)  # numbers that nothing can shorten: no page of so many pieces is larger
    whole = sum(len(encode_array(rng.normal(size=breaks))["data"]) for _ in range(outputs + 1))
    origins = len(encode_array(rng.integers(0, 4096, 3 * breaks))["data"])
    assert whole + origins + 100_000 < 15e6


def test_ties_are_classes_of_their_own(tmp_path):
    line = xl.restrict(nn.ReLU(), [-1.0, -1.0], [1.0, 0.5])
    classes = data_of(line.to_html(tmp_path / "a.html", labels=["a", "b"]))["decisions"]["classes"]
    assert [(c["name"], c["tie"]) for c in classes] == [("a = b", True), ("a", False)]


def test_of_many_outputs_those_that_lead_or_come_second_are_kept(tmp_path):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1000)).double()
    line = xl.restrict(layers, torch.randn(4), 4 * torch.randn(4))
    data = data_of(line.to_html(tmp_path / "a.html"))
    kept = {curve["output"] for curve in data["curves"]}
    assert len(kept) == 64
    assert "64 of 1,000 outputs have a curve" in data["notes"][0]
    assert data["has_all_margins"]
    alphas = torch.linspace(0, 1, 500, dtype=torch.float64)
    assert set(line.at(alphas).topk(2, 1).indices.flatten().tolist()) <= kept
    least = data_of(line.to_html(tmp_path / "a.html", order="min"))
    kept = {curve["output"] for curve in least["curves"]}
    assert set((-line.at(alphas)).topk(2, 1).indices.flatten().tolist()) <= kept


def test_a_page_says_when_too_many_outputs_lead(tmp_path):
    turns = torch.linspace(0, 3.1, 100, dtype=torch.float64)
    fan = nn.Linear(2, 100, bias=False).double()
    fan.weight = nn.Parameter(torch.stack([turns.cos(), turns.sin()], 1))
    data = data_of(xl.restrict(fan, [1.0, 0.01], [-1.0, 0.01]).to_html(tmp_path / "a.html"))
    assert data["decisions"] is None
    assert data["notes"][-1] == "More than 64 outputs lead somewhere: the page shows no classes."


def test_one_output_has_a_curve_and_no_classes(tmp_path):
    data = data_of(xl.restrict(zoo.tent_network(3), [0.0], [1.0]).to_html(tmp_path / "a.html"))
    assert (len(data["curves"]), data["decisions"]) == (1, None)


def test_values_are_computed_where_they_were_not_kept_and_the_network_is_known(tmp_path):
    line = xl.restrict(zoo.loan_network(), *zoo.loan_line(), values=False)
    data = data_of(line.to_html(tmp_path / "a.html"))
    np.testing.assert_allclose(decode_array(data["curves"][0]["values"]), loan().values[:, 0], atol=1e-13)


def test_notes_say_what_the_numbers_are(tmp_path):
    images, _ = zoo.digits_images()
    tailed = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Softmax(1)).double()
    notes = data_of(xl.restrict(tailed, [-1.0, 0.0], [1.0, 2.0]).to_html(tmp_path / "a.html"))["notes"]
    assert notes == ["Values are those before the smooth function at the network's end."]
    stopped = xl.restrict(zoo.digits_network(), images[9], images[6], max_breaks=20)
    assert f"alpha {stopped.reached!r}" in data_of(stopped.to_html(tmp_path / "a.html"))["notes"][0]
    assert "fewest pieces" in data_of(digits().minimal().to_html(tmp_path / "a.html"))["notes"][0]


class Outputs(nn.Module):
    def forward(self, x):
        return torch.relu(x), -x


def test_one_of_several_outputs_is_shown(tmp_path):
    line = xl.restrict(Outputs(), [-1.0, 1.0], [1.0, 0.5])
    data = data_of(line.to_html(tmp_path / "a.html", output=1))
    assert data["notes"] == ["Output 1 of the network's 2."]
    assert decode_array(data["curves"][0]["values"]).tolist() == [1.0, 0.0, -1.0]
    with pytest.raises(ArgumentError, match="no output 2"):
        line.to_html(tmp_path / "b.html", output=2)


@pytest.mark.parametrize(
    ("shape", "image", "kind"),
    [
        ((8, 8), None, "image"),
        ((1, 8, 8), None, "image"),
        ((3, 8, 8), None, "image"),
        ((8, 8, 3), None, "image"),
        ((2, 8, 8), None, "table"),
        ((2, 3), None, "table"),
        ((2, 3), True, "image"),
        ((8, 8), False, "table"),
        ((64,), None, "table"),
        ((64,), (8, 8), "image"),
        ((192,), (3, 8, 8), "image"),
        ((300,), None, "table"),
    ],
)
@pytest.mark.every(3)
def test_an_input_is_an_image_or_a_table(shape, image, kind, tmp_path):
    start, end = torch.zeros(shape), torch.rand(shape, generator=torch.Generator().manual_seed(0))
    line = xl.restrict(nn.Flatten(), start, end)
    (found,) = data_of(line.to_html(tmp_path / "a.html", image=image))["inputs"]
    assert found["kind"] == kind
    if kind == "image":
        assert found["range"] == [0, 1]
        assert found["high"] * found["wide"] * found["channels"] == end.numel()
    else:
        assert (found["count"], len(found["names"])) == (end.numel(), min(end.numel(), 200))


def test_many_features_show_those_that_change_most(tmp_path):
    end = torch.zeros(1000)
    end[[5, 700, 999]] = torch.tensor([1.0, -2.0, 0.5])
    line = xl.restrict(nn.Linear(1000, 2), torch.zeros(1000), end)
    (found,) = data_of(line.to_html(tmp_path / "a.html"))["inputs"]
    assert found["changed"] == 3
    assert {"x[5]", "x[700]", "x[999]"} <= set(found["names"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["a"]}, "1 name for 2"),
        ({"features": ["a"]}, "1 name for 2 features"),
        ({"order": "most"}, "most"),
        ({"output": 3}, "no output 3"),
        ({"image": True}, "not an image"),
        ({"image": (3, 3)}, "not an image of shape"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_any_file(options, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        loan().to_html(tmp_path / "a.html", **options)
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_written_and_lines_without_pieces(tmp_path):
    with pytest.raises(FileError):
        loan().to_html(tmp_path / "none" / "a.html")
    with pytest.raises(MissingError, match="not kept"):
        replace(loan(), stored_values=None, network=None).to_html(tmp_path / "a.html", labels=["a", "b"])
    empty = replace(
        loan(),
        alphas=loan().alphas[:1],
        origin_table=loan().origin_table[:1],
        ambiguous_per_piece=loan().ambiguous_per_piece[:0],
        stopped="seconds",
    )
    with pytest.raises(MissingError, match="no pieces"):
        empty.to_html(tmp_path / "a.html")
    assert list(tmp_path.iterdir()) == []


def test_names_are_escaped_and_the_policy_allows_one_script_and_one_style(tmp_path):
    evil = "</script><script>alert(1)</script></title><!-- %DATA% %SCRIPT% \ud800 \u2028 &amp; '\""
    line = replace(loan(), names=tuple(f"{evil}{i}" for i in range(len(loan().names))))
    page = line.to_html(tmp_path / "a.html", labels=[evil, "b"], features=[evil, "c"], title=evil)
    text = page.read_text("ascii")
    assert "<script>alert" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert text.count("</title>") == 1
    assert re.findall(r"https?:|//[a-z]+\.|@import|url\(|src=|innerHTML|eval\(|new Function", text) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"{rule} 'sha256-{b64encode(sha256(inner.encode()).digest()).decode()}'" in policy
    data = data_of(page)
    assert data["title"] == data["curves"][0]["name"] == data["inputs"][0]["names"][0] == evil


def test_assets_are_ascii_and_scripts_begin_with_a_comment():
    assets = [
        p for p in resources.files("exactline.plot").joinpath("assets").iterdir() if p.name.endswith((".js", ".css"))
    ]
    assert len(assets) >= 10
    for asset in assets:
        text = asset.read_text("ascii")
        assert asset.name.endswith(".css") or text.startswith("// ")
        assert len(text.splitlines()) <= 200


def test_the_same_line_is_the_same_page(tmp_path):
    pages = [digits().to_html(tmp_path / f"{i}.html").read_bytes() for i in range(2)]
    assert pages[0] == pages[1]


def test_outputs_that_are_not_rivals_have_no_classes(tmp_path):
    names = ["score", "premium"]
    plain = data_of(loan().to_html(tmp_path / "a.html", labels=names, classes=False))
    assert (plain["decisions"], plain["notes"]) == (None, [])
    assert [curve["name"] for curve in plain["curves"]] == names
    assert data_of(loan().to_html(tmp_path / "b.html", labels=names))["decisions"] is not None


def test_one_output_has_no_classes(tmp_path):
    line = xl.restrict(nn.Linear(2, 1), [0.0, 0.0], [1.0, 1.0])
    assert data_of(line.to_html(tmp_path / "a.html"))["decisions"] is None
