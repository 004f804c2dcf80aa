from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    FLOAT64: _ClassVar[DType]
    FLOAT32: _ClassVar[DType]
    INT64: _ClassVar[DType]
    BOOL: _ClassVar[DType]
DTYPE_UNSPECIFIED: DType
FLOAT64: DType
FLOAT32: DType
INT64: DType
BOOL: DType

class Array(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("inputs",)
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[Array]
    def __init__(self, inputs: _Optional[_Iterable[_Union[Array, _Mapping]]] = ...) -> None: ...

class ModelRef(_message.Message):
    __slots__ = ("name", "skip_normalization", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SKIP_NORMALIZATION_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    skip_normalization: bool
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., skip_normalization: bool = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelEntry]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelEntry, _Mapping]]] = ...) -> None: ...

class ModelEntry(_message.Message):
    __slots__ = ("name", "sha256", "bytes", "uploaded")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    bytes: int
    uploaded: bool
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., bytes: _Optional[int] = ..., uploaded: bool = ...) -> None: ...

class DescribeModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: ModelRef
    def __init__(self, model: _Optional[_Union[ModelRef, _Mapping]] = ...) -> None: ...

class Layer(_message.Message):
    __slots__ = ("name", "operator", "kind", "shape", "units")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    operator: str
    kind: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    units: int
    def __init__(self, name: _Optional[str] = ..., operator: _Optional[str] = ..., kind: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., units: _Optional[int] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("dims",)
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dims: _Optional[_Iterable[int]] = ...) -> None: ...

class Unit(_message.Message):
    __slots__ = ("operator", "count")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    operator: str
    count: int
    def __init__(self, operator: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "sha256", "inputs", "outputs", "several_inputs", "several_outputs", "units", "weights", "checksum", "layers", "notes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_INPUTS_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    inputs: _containers.RepeatedCompositeFieldContainer[Shape]
    outputs: _containers.RepeatedCompositeFieldContainer[Shape]
    several_inputs: bool
    several_outputs: bool
    units: _containers.RepeatedCompositeFieldContainer[Unit]
    weights: int
    checksum: str
    layers: _containers.RepeatedCompositeFieldContainer[Layer]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., several_inputs: bool = ..., several_outputs: bool = ..., units: _Optional[_Iterable[_Union[Unit, _Mapping]]] = ..., weights: _Optional[int] = ..., checksum: _Optional[str] = ..., layers: _Optional[_Iterable[_Union[Layer, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class UploadModelRequest(_message.Message):
    __slots__ = ("data", "suffix", "sha256")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    suffix: str
    sha256: str
    def __init__(self, data: _Optional[bytes] = ..., suffix: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("model", "dtype", "memory", "no_values", "no_rewrite", "until", "max_breaks", "seconds", "progress", "engine", "no_errors", "joined")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    NO_VALUES_FIELD_NUMBER: _ClassVar[int]
    NO_REWRITE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    MAX_BREAKS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    NO_ERRORS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    model: ModelRef
    dtype: DType
    memory: int
    no_values: bool
    no_rewrite: bool
    until: str
    max_breaks: int
    seconds: float
    progress: bool
    engine: str
    no_errors: bool
    joined: bool
    def __init__(self, model: _Optional[_Union[ModelRef, _Mapping]] = ..., dtype: _Optional[_Union[DType, str]] = ..., memory: _Optional[int] = ..., no_values: bool = ..., no_rewrite: bool = ..., until: _Optional[str] = ..., max_breaks: _Optional[int] = ..., seconds: _Optional[float] = ..., progress: bool = ..., engine: _Optional[str] = ..., no_errors: bool = ..., joined: bool = ...) -> None: ...

class RestrictRequest(_message.Message):
    __slots__ = ("options", "starts", "ends")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    options: Options
    starts: Point
    ends: Point
    def __init__(self, options: _Optional[_Union[Options, _Mapping]] = ..., starts: _Optional[_Union[Point, _Mapping]] = ..., ends: _Optional[_Union[Point, _Mapping]] = ...) -> None: ...

class DecideRequest(_message.Message):
    __slots__ = ("options", "starts", "ends", "order", "top", "output", "one_line")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ONE_LINE_FIELD_NUMBER: _ClassVar[int]
    options: Options
    starts: Point
    ends: Point
    order: str
    top: int
    output: int
    one_line: bool
    def __init__(self, options: _Optional[_Union[Options, _Mapping]] = ..., starts: _Optional[_Union[Point, _Mapping]] = ..., ends: _Optional[_Union[Point, _Mapping]] = ..., order: _Optional[str] = ..., top: _Optional[int] = ..., output: _Optional[int] = ..., one_line: bool = ...) -> None: ...

class ApproximateRequest(_message.Message):
    __slots__ = ("options", "starts", "ends", "tol", "certified", "max_evaluations", "output_name", "output_index")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    TOL_FIELD_NUMBER: _ClassVar[int]
    CERTIFIED_FIELD_NUMBER: _ClassVar[int]
    MAX_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_INDEX_FIELD_NUMBER: _ClassVar[int]
    options: Options
    starts: Point
    ends: Point
    tol: float
    certified: bool
    max_evaluations: int
    output_name: str
    output_index: int
    def __init__(self, options: _Optional[_Union[Options, _Mapping]] = ..., starts: _Optional[_Union[Point, _Mapping]] = ..., ends: _Optional[_Union[Point, _Mapping]] = ..., tol: _Optional[float] = ..., certified: bool = ..., max_evaluations: _Optional[int] = ..., output_name: _Optional[str] = ..., output_index: _Optional[int] = ...) -> None: ...

class Index(_message.Message):
    __slots__ = ("indices",)
    INDICES_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, indices: _Optional[_Iterable[int]] = ...) -> None: ...

class AttributeRequest(_message.Message):
    __slots__ = ("options", "inputs", "baselines", "targets", "target_per_example", "gradients_only", "delta")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    BASELINES_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    TARGET_PER_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_ONLY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    options: Options
    inputs: Point
    baselines: Point
    targets: _containers.RepeatedCompositeFieldContainer[Index]
    target_per_example: bool
    gradients_only: bool
    delta: bool
    def __init__(self, options: _Optional[_Union[Options, _Mapping]] = ..., inputs: _Optional[_Union[Point, _Mapping]] = ..., baselines: _Optional[_Union[Point, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[Index, _Mapping]]] = ..., target_per_example: bool = ..., gradients_only: bool = ..., delta: bool = ...) -> None: ...

class Grid(_message.Message):
    __slots__ = ("base", "axes", "bounds")
    BASE_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    base: Array
    axes: _containers.RepeatedCompositeFieldContainer[Index]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, base: _Optional[_Union[Array, _Mapping]] = ..., axes: _Optional[_Iterable[_Union[Index, _Mapping]]] = ..., bounds: _Optional[_Iterable[float]] = ...) -> None: ...

class PlaneRequest(_message.Message):
    __slots__ = ("options", "vertices", "grid", "max_polygons")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    MAX_POLYGONS_FIELD_NUMBER: _ClassVar[int]
    options: Options
    vertices: Point
    grid: Grid
    max_polygons: int
    def __init__(self, options: _Optional[_Union[Options, _Mapping]] = ..., vertices: _Optional[_Union[Point, _Mapping]] = ..., grid: _Optional[_Union[Grid, _Mapping]] = ..., max_polygons: _Optional[int] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[DType, str]] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("fields", "names", "units", "several_inputs", "several_outputs", "checksum", "outputs", "output_shapes", "lines")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_INPUTS_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHAPES_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    names: _containers.RepeatedScalarFieldContainer[str]
    units: _containers.RepeatedCompositeFieldContainer[Unit]
    several_inputs: bool
    several_outputs: bool
    checksum: str
    outputs: _containers.RepeatedScalarFieldContainer[int]
    output_shapes: _containers.RepeatedCompositeFieldContainer[Shape]
    lines: int
    def __init__(self, fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., names: _Optional[_Iterable[str]] = ..., units: _Optional[_Iterable[_Union[Unit, _Mapping]]] = ..., several_inputs: bool = ..., several_outputs: bool = ..., checksum: _Optional[str] = ..., outputs: _Optional[_Iterable[int]] = ..., output_shapes: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., lines: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("field", "data")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    field: int
    data: bytes
    def __init__(self, field: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("pieces", "first_line", "counts")
    PIECES_FIELD_NUMBER: _ClassVar[int]
    FIRST_LINE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    pieces: _containers.RepeatedCompositeFieldContainer[Piece]
    first_line: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pieces: _Optional[_Iterable[_Union[Piece, _Mapping]]] = ..., first_line: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("share", "count")
    SHARE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    share: float
    count: int
    def __init__(self, share: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...

class PartEnd(_message.Message):
    __slots__ = ("seconds", "stopped", "error", "engine")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    stopped: str
    error: float
    engine: str
    def __init__(self, seconds: _Optional[float] = ..., stopped: _Optional[str] = ..., error: _Optional[float] = ..., engine: _Optional[str] = ...) -> None: ...

class CurveFacts(_message.Message):
    __slots__ = ("status", "tol", "evaluations", "source", "output_names")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOL_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NAMES_FIELD_NUMBER: _ClassVar[int]
    status: str
    tol: float
    evaluations: int
    source: str
    output_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[str] = ..., tol: _Optional[float] = ..., evaluations: _Optional[int] = ..., source: _Optional[str] = ..., output_names: _Optional[_Iterable[str]] = ...) -> None: ...

class Tail(_message.Message):
    __slots__ = ("seconds", "stopped", "error", "plane_ambiguous", "pieces", "attribution_ambiguous", "output", "engine", "curve")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PLANE_AMBIGUOUS_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTION_AMBIGUOUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    CURVE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    stopped: str
    error: float
    plane_ambiguous: int
    pieces: int
    attribution_ambiguous: int
    output: int
    engine: str
    curve: CurveFacts
    def __init__(self, seconds: _Optional[float] = ..., stopped: _Optional[str] = ..., error: _Optional[float] = ..., plane_ambiguous: _Optional[int] = ..., pieces: _Optional[int] = ..., attribution_ambiguous: _Optional[int] = ..., output: _Optional[int] = ..., engine: _Optional[str] = ..., curve: _Optional[_Union[CurveFacts, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("head", "rows", "progress", "part_end", "tail", "first_head", "last_tail")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PART_END_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    FIRST_HEAD_FIELD_NUMBER: _ClassVar[int]
    LAST_TAIL_FIELD_NUMBER: _ClassVar[int]
    head: Head
    rows: Rows
    progress: Progress
    part_end: PartEnd
    tail: Tail
    first_head: Head
    last_tail: Tail
    def __init__(self, head: _Optional[_Union[Head, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., part_end: _Optional[_Union[PartEnd, _Mapping]] = ..., tail: _Optional[_Union[Tail, _Mapping]] = ..., first_head: _Optional[_Union[Head, _Mapping]] = ..., last_tail: _Optional[_Union[Tail, _Mapping]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("uptime_seconds", "calls", "lines", "breaks", "in_flight", "queued", "workers", "busy", "pids", "workers_forked", "workers_killed", "workers_died", "calls_retried", "models_cached", "bytes_cached", "cache_hits", "cache_misses", "uploads", "upload_bytes", "refused_tokens", "version")
    class CallsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    BREAKS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FORKED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_KILLED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_DIED_FIELD_NUMBER: _ClassVar[int]
    CALLS_RETRIED_FIELD_NUMBER: _ClassVar[int]
    MODELS_CACHED_FIELD_NUMBER: _ClassVar[int]
    BYTES_CACHED_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    uptime_seconds: float
    calls: _containers.ScalarMap[str, int]
    lines: int
    breaks: int
    in_flight: int
    queued: int
    workers: int
    busy: int
    pids: _containers.RepeatedScalarFieldContainer[int]
    workers_forked: int
    workers_killed: int
    workers_died: int
    calls_retried: int
    models_cached: int
    bytes_cached: int
    cache_hits: int
    cache_misses: int
    uploads: int
    upload_bytes: int
    refused_tokens: int
    version: str
    def __init__(self, uptime_seconds: _Optional[float] = ..., calls: _Optional[_Mapping[str, int]] = ..., lines: _Optional[int] = ..., breaks: _Optional[int] = ..., in_flight: _Optional[int] = ..., queued: _Optional[int] = ..., workers: _Optional[int] = ..., busy: _Optional[int] = ..., pids: _Optional[_Iterable[int]] = ..., workers_forked: _Optional[int] = ..., workers_killed: _Optional[int] = ..., workers_died: _Optional[int] = ..., calls_retried: _Optional[int] = ..., models_cached: _Optional[int] = ..., bytes_cached: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., uploads: _Optional[int] = ..., upload_bytes: _Optional[int] = ..., refused_tokens: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...
