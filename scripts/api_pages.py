"""Which page of the API reference holds which names, and what each says first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """One page: names are dotted paths, those in ``results`` belong to what the others give back."""

    file: str
    title: str
    intro: str
    names: tuple[str, ...]
    results: tuple[str, ...] = ()


def _of(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


SAVE = "exactline.plot.line.save_picture"
LINES = Page(
    "lines",
    "Lines",
    """What a network does between two points, or along many such lines. [Quickstart](../quickstart.md).

```python
import exactline as xl
from exactline.plot import save_picture

line = xl.restrict(xl.zoo.loan_network(), *xl.zoo.loan_line())
save_picture(line.plot(), "loan.svg")
```""",
    (*_of("exactline", "restrict restrict_many restrict_path sweep Restriction Restrictions"), SAVE),
    _of("exactline", "piece.Piece births.Birth births.Born checking.Check"),
)

DECISIONS = Page(
    "decisions",
    "Decisions",
    """Which output leads where, and whether a property can be broken: [which output leads](../decisions.md),
[counterexamples](../falsifier.md). `line.decisions()`, `line.extrema()` and `line.level()` make the first five.""",
    (*_of("exactline.decide", "Decisions Interval ManyDecisions Extrema Crossings"), "exactline.falsify"),
    ("exactline.verification.falsifier.Falsified",),
)

PLANES = Page(
    "planes",
    "Planes",
    """Two dimensions: [planes](../planes.md). `exactline.engines.polygons` also holds `restrict_plane`, `grid`, `plane_through`
and `PlaneRestriction`, by the same names.""",
    (*_of("exactline", "restrict_plane grid plane_through PlaneRestriction"), "exactline.results.polygon.Polygon"),
    _of("exactline.decide.regions", "Regions Region"),
)

ATTRIBUTIONS = Page(
    "attributions",
    "Attributions",
    "`exactline.attr`: integrated gradients and their relatives, without samples. [Attributions](../attribution.md).",
    _of(
        "exactline.attr",
        "IntegratedGradients LayerConductance NeuronConductance LayerIntegratedGradients InternalInfluence"
        " AttributionReport ExactWarning plot recommend Report integrate error_curve"
        " adaptive_integrated_gradients path_integral PathIntegral",
    ),
    ("exactline.attr.quantus.explain_func",),
)

STUDIES = Page(
    "studies",
    "Density and studies",
    "Counting breaks, and the paper's experiments as functions: [density](../density.md), [ACAS Xu](../acas.md), "
    "[the paper's tables](../paper.md), [training](../training.md).",
    _of("exactline", "density Density"),
    _of("exactline.paper", "acas.run acas_plane.run scene.Scene linearity.run ig.run training.train"),
)

NETWORKS = Page(
    "networks",
    "Networks",
    "What is restricted: a module as it is, a network read from a [file](../formats.md), an "
    "[operator of your own](../adding-an-operator.md).",
    _of("exactline", "load Network register_pointwise"),
    _of("exactline.network", "as_network graph.Node graph.Tail"),
)

SCALE = Page(
    "scale",
    "Many lines",
    "`exactline.scale`: one question asked of many lines, and answers that outlive a crash. [More](../scale.md).",
    _of("exactline.scale", "run open Store Progress LineAttribution LineDensity"),
)

CLIENT = Page(
    "client",
    "Client and server",
    """`exactline.rpc.client`: the library's questions, asked of a [server](../server.md).

```python
import asyncio
from pathlib import Path

import exactline as xl
from exactline.rpc.client import AsyncClient, Client, Model, Remote
from exactline.rpc.limits import Limits
from exactline.rpc.server.server import Server, Settings

Q, R = xl.zoo.loan_line()
xl.network.as_network(xl.zoo.loan_network(), [Q]).save("loan.onnx")
token = "sixteen characters or more"
settings = Settings(port=0, models=Path(), workers=1, tokens=(token.encode(),), limits=Limits(lines_per_call=2))


async def both(address):
    async with AsyncClient(address, token=token) as client:
        return await asyncio.gather(client.restrict("loan", Q, R), client.decide("loan", Q, R))


with Server(settings) as server:
    with Client(server.address, token=token) as client:
        model = client.describe("loan")
        print(isinstance(model, Model), model.units)
        print(client.restrict(model, Q, R).alphas, client.restrict(Remote("loan", shape=(2,)), Q, R).alphas)
        try:
            client.restrict_many("loan", [[20.0, 30.0]] * 3, [[30.0, 50.0]] * 3)
        except xl.LimitError as error:
            print(error)
    print(asyncio.run(both(server.address)))
    try:
        Client(server.address, token="another, that it does not know").restrict("loan", Q, R)
    except xl.AccessError as error:
        print(error)

try:
    Client(server.address, token=token, retries=0).restrict("loan", Q, R)
except xl.ServiceError as error:
    print(error)
```
""",
    _of("exactline.rpc.client", "Client AsyncClient Model Remote"),
    _of("exactline.rpc.server.server", "Server Settings"),
)

EXACT = Page(
    "exact",
    "Rationals",
    "`exactline.exact`: the same in rational numbers, as an oracle and for proofs. [Exactness](../exactness.md).",
    _of("exactline.exact", "restrict ExactRestriction Born certify Certificate"),
)

ZOO = Page(
    "zoo",
    "Networks that ship with us",
    "`exactline.zoo`: small networks and digits, so that every example runs anywhere.",
    _of(
        "exactline.zoo",
        "loan_network loan_line tent_network digits_network digits_images digits_set robust robust_facts encounter"
        " encounter_facts",
    ),
)

ERRORS = Page(
    "errors",
    "Errors",
    """Every error is an `ExactlineError` with a problem, a place and something to try; commands print these three lines
and end with the error's [exit status](../commands.md#errors-and-exit-statuses).""",
    _of(
        "exactline",
        "ExactlineError LineError PlaneError ArgumentError CaptureError TrainingModeError UnsupportedError NumberError"
        " MissingError FileError ServiceError AccessError LimitError",
    ),
)

PAGES = (LINES, DECISIONS, PLANES, ATTRIBUTIONS, STUDIES, NETWORKS, SCALE, CLIENT, EXACT, ZOO, ERRORS)
