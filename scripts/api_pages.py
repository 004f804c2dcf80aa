"""The pages of the API reference: the names on each page, and its introduction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """One page: ``names`` are public, ``results`` are classes that public functions return; all are dotted paths."""

    file: str
    title: str
    intro: str
    names: tuple[str, ...]
    results: tuple[str, ...] = ()


def _qualify(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names.split())


LINES = Page(
    "lines",
    "Lines",
    """A network between two points, or along many lines. [Quickstart](../quickstart.md).

```python
import exactline as xl
from exactline.plot import save_picture

line = xl.restrict(xl.zoo.loan_network(), *xl.zoo.loan_line())
save_picture(line.plot(), "loan.svg")
```""",
    (
        *_qualify("exactline", "restrict restrict_many restrict_path sweep Restriction Restrictions"),
        "exactline.plot.save_picture",
    ),
    _qualify("exactline.results", "piece.Piece origins.Origin origins.Origins check.Check"),
)

DECISIONS = Page(
    "decisions",
    "Decisions",
    """Which output leads where ([decisions](../decisions.md)), and whether an input breaks a property
([verification](../verification.md), [counterexamples](../falsifier.md)).
`line.decisions()`, `line.extrema()` and `line.level()` return the first five.""",
    (
        *_qualify("exactline.decide", "Decisions Interval ManyDecisions Extrema LevelSet"),
        *_qualify("exactline", "falsify verify check_proof"),
    ),
    _qualify(
        "exactline.verification", "falsifier.FalsifierResult verify.VerificationResult proof.Proof checker.ProofCheck"
    ),
)

SMOOTH = Page(
    "smooth",
    "Smooth networks",
    "Any network along a line, to a tolerance. [Smooth networks](../smooth.md).",
    _qualify("exactline", "approximate Approximation ToleranceWarning"),
    _qualify("exactline", "smooth.curve_metrics.CurveMetrics network.smooth_network.SmoothNetwork"),
)

PLANES = Page(
    "planes",
    "Planes",
    "A network on a convex polygon of input space. [Planes](../planes.md).",
    _qualify("exactline", "restrict_plane grid plane_through plot_regions PlaneRestriction"),
    _qualify(
        "exactline", "results.polygon.Polygon results.check.PlaneCheck decide.regions.Regions decide.regions.Region"
    ),
)

ATTRIBUTIONS = Page(
    "attributions",
    "Attributions",
    "`exactline.attr`: exact integrated gradients and related methods. [Attributions](../attribution.md).",
    _qualify(
        "exactline.attr",
        "IntegratedGradients LayerConductance NeuronConductance LayerIntegratedGradients InternalInfluence"
        " NeuronIntegratedGradients ExpectedGradients AttributionReport ExactWarning plot recommend SamplingReport"
        " integrate error_curve path_integral PathIntegral",
    ),
    _qualify("exactline.attr", "step_counts.RuleNeed quantus.explain_func"),
)

STUDIES = Page(
    "studies",
    "Density and studies",
    "Break densities, and the paper's experiments as functions: [density](../density.md), [ACAS Xu](../acas.md), "
    "[the paper's tables](../paper.md), [training](../training.md).",
    _qualify("exactline", "density Density"),
    _qualify(
        "exactline.paper",
        "acas.lines.run acas.maps.run acas.geometry.EncounterGeometry tables.linearity.run tables.ig.run"
        " training.digits.train pendulum.run",
    ),
)

METRICS = Page(
    "metrics",
    "Metrics",
    "Measures of lines and planes, networks compared, regions while training. [Definitions](../metrics.md).",
    (
        *_qualify("exactline", "compare NetworkComparison"),
        *_qualify("exactline.callbacks", "RegionDensity RegionRecord"),
    ),
    _qualify(
        "exactline.measures",
        "line_metrics.LineMetrics line_metrics.LayerMetrics margin_profile.MarginProfile plane_metrics.PlaneMetrics"
        " comparison.Disagreement",
    ),
)

NETWORKS = Page(
    "networks",
    "Networks",
    "Networks from [files](../formats.md), the graph that a module becomes, and "
    "[operators of your own](../adding-an-operator.md).",
    _qualify("exactline", "load read_point Network register_pointwise"),
    _qualify("exactline.network", "as_network graph.Node graph.Tail"),
)

SCALE = Page(
    "scale",
    "Many lines",
    "`exactline.scale`: one job for many lines, with answers that survive a crash. [More](../scale.md).",
    _qualify("exactline.scale", "run open restrict Store Progress LineAttribution LineDensity"),
)

CLIENT = Page(
    "client",
    "Client and server",
    """`exactline.rpc.client`: the library's functions on a [server](../server.md).

```python
import asyncio
from pathlib import Path

import exactline as xl
from exactline.network import as_network
from exactline.rpc.client import AsyncClient, Client, ModelDescription, RemoteModel
from exactline.rpc.limits import Limits
from exactline.rpc.server.server import Server, Settings

start, end = xl.zoo.loan_line()
as_network(xl.zoo.loan_network(), [start]).save("loan.onnx")
token = "sixteen characters or more"
settings = Settings(port=0, models=Path(), workers=1, tokens=(token.encode(),), limits=Limits(lines_per_call=2))


async def both(address):
    async with AsyncClient(address, token=token) as client:
        return await asyncio.gather(client.restrict("loan", start, end), client.decide("loan", start, end))


with Server(settings) as server:
    with Client(server.address, token=token) as client:
        model = client.describe("loan")
        print(isinstance(model, ModelDescription), model.units)
        print(client.restrict(model, start, end).alphas)
        print(client.restrict(RemoteModel("loan", shape=(2,)), start, end).alphas)
        try:
            client.restrict_many("loan", [[20.0, 30.0]] * 3, [[30.0, 50.0]] * 3)
        except xl.LimitError as error:
            print(error)
    line, decided = asyncio.run(both(server.address))
    print(len(line), decided.boundaries)
    try:
        Client(server.address, token="another, that it does not know").restrict("loan", start, end)
    except xl.AccessError as error:
        print(str(error).splitlines()[0])

try:
    Client(server.address, token=token, retries=0).restrict("loan", start, end)
except xl.ServiceError as error:
    print(type(error).__name__, "after the server has stopped")
```

```output
True {'relu': 2}
tensor([0.0000, 0.3333, 0.6667, 1.0000], dtype=torch.float64)
tensor([0.0000, 0.3333, 0.6667, 1.0000], dtype=torch.float64)
There are 3 lines. The limit lines_per_call is 2.
  where: limit lines_per_call
  try:   Ask for less in one call, or ask the operator of the server to raise the limit.
3 tensor([0.5556], dtype=torch.float64)
The token is missing or wrong.
ServiceError after the server has stopped
```
""",
    _qualify("exactline.rpc.client", "Client AsyncClient ModelDescription RemoteModel"),
    _qualify(
        "exactline.rpc",
        "server.server.Server server.server.Settings limits.Limits client.models.ServerStats"
        " client.models.ModelEntry client.models.LayerDescription",
    ),
)

EXACT = Page(
    "exact",
    "Rationals",
    "`exactline.exact`: restrictions in rational arithmetic, an oracle for tests and proofs. [More](../exactness.md).",
    _qualify("exactline.exact", "restrict ExactRestriction ExactOrigin certify Certificate"),
)

ZOO = Page(
    "zoo",
    "Bundled networks",
    "`exactline.zoo`: small networks and images for examples and tests.",
    _qualify(
        "exactline.zoo",
        "loan_network loan_line tent_network digits_network digits_images digits_set robust_network"
        " robust_facts encounter_network encounter_facts pendulum_controller pendulum_facts",
    ),
)

ERRORS = Page(
    "errors",
    "Errors",
    """Every error is an `ExactlineError` with a problem, a place and a hint; commands print these three lines
and exit with the error's [status](../commands.md#errors-and-exit-statuses).""",
    _qualify(
        "exactline",
        "ExactlineError LineError PlaneError ArgumentError CaptureError TrainingModeError UnsupportedError NumberError"
        " MissingError FileError ServiceError AccessError LimitError",
    ),
)

PAGES = (LINES, DECISIONS, SMOOTH, PLANES, ATTRIBUTIONS, METRICS, STUDIES, NETWORKS, SCALE, CLIENT, EXACT, ZOO, ERRORS)
