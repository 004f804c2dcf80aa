from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransformRequest(_message.Message):
    __slots__ = ("layer", "line", "upolytope", "include_post")
    LAYER_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    UPOLYTOPE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_POST_FIELD_NUMBER: _ClassVar[int]
    layer: Layer
    line: SegmentedLine
    upolytope: UPolytope
    include_post: bool
    def __init__(self, layer: _Optional[_Union[Layer, _Mapping]] = ..., line: _Optional[_Union[SegmentedLine, _Mapping]] = ..., upolytope: _Optional[_Union[UPolytope, _Mapping]] = ..., include_post: bool = ...) -> None: ...

class TransformResponse(_message.Message):
    __slots__ = ("transformed_line", "transformed_upolytope")
    TRANSFORMED_LINE_FIELD_NUMBER: _ClassVar[int]
    TRANSFORMED_UPOLYTOPE_FIELD_NUMBER: _ClassVar[int]
    transformed_line: SegmentedLine
    transformed_upolytope: UPolytope
    def __init__(self, transformed_line: _Optional[_Union[SegmentedLine, _Mapping]] = ..., transformed_upolytope: _Optional[_Union[UPolytope, _Mapping]] = ...) -> None: ...

class SegmentedLine(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[SegmentEndpoint]
    def __init__(self, endpoints: _Optional[_Iterable[_Union[SegmentEndpoint, _Mapping]]] = ...) -> None: ...

class SegmentEndpoint(_message.Message):
    __slots__ = ("coordinates", "preimage_ratio")
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    PREIMAGE_RATIO_FIELD_NUMBER: _ClassVar[int]
    coordinates: _containers.RepeatedScalarFieldContainer[float]
    preimage_ratio: float
    def __init__(self, coordinates: _Optional[_Iterable[float]] = ..., preimage_ratio: _Optional[float] = ...) -> None: ...

class UPolytope(_message.Message):
    __slots__ = ("polytopes", "space_dimensions", "subspace_dimensions")
    POLYTOPES_FIELD_NUMBER: _ClassVar[int]
    SPACE_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSPACE_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    polytopes: _containers.RepeatedCompositeFieldContainer[VPolytope]
    space_dimensions: int
    subspace_dimensions: int
    def __init__(self, polytopes: _Optional[_Iterable[_Union[VPolytope, _Mapping]]] = ..., space_dimensions: _Optional[int] = ..., subspace_dimensions: _Optional[int] = ...) -> None: ...

class VPolytope(_message.Message):
    __slots__ = ("vertices", "combinations", "num_vertices")
    VERTICES_FIELD_NUMBER: _ClassVar[int]
    COMBINATIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_VERTICES_FIELD_NUMBER: _ClassVar[int]
    vertices: _containers.RepeatedScalarFieldContainer[float]
    combinations: _containers.RepeatedScalarFieldContainer[float]
    num_vertices: int
    def __init__(self, vertices: _Optional[_Iterable[float]] = ..., combinations: _Optional[_Iterable[float]] = ..., num_vertices: _Optional[int] = ...) -> None: ...

class Layer(_message.Message):
    __slots__ = ("fullyconnected_data", "conv2d_data", "relu_data", "normalize_data", "maxpool_data", "averagepool_data", "concat_data", "hard_tanh_data", "argmax_data")
    FULLYCONNECTED_DATA_FIELD_NUMBER: _ClassVar[int]
    CONV2D_DATA_FIELD_NUMBER: _ClassVar[int]
    RELU_DATA_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_DATA_FIELD_NUMBER: _ClassVar[int]
    MAXPOOL_DATA_FIELD_NUMBER: _ClassVar[int]
    AVERAGEPOOL_DATA_FIELD_NUMBER: _ClassVar[int]
    CONCAT_DATA_FIELD_NUMBER: _ClassVar[int]
    HARD_TANH_DATA_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_DATA_FIELD_NUMBER: _ClassVar[int]
    fullyconnected_data: FullyConnectedLayerData
    conv2d_data: Conv2DLayerData
    relu_data: ReluLayerData
    normalize_data: NormalizeLayerData
    maxpool_data: MaxPoolLayerData
    averagepool_data: AveragePoolLayerData
    concat_data: ConcatLayerData
    hard_tanh_data: HardTanhLayerData
    argmax_data: ArgMaxLayerData
    def __init__(self, fullyconnected_data: _Optional[_Union[FullyConnectedLayerData, _Mapping]] = ..., conv2d_data: _Optional[_Union[Conv2DLayerData, _Mapping]] = ..., relu_data: _Optional[_Union[ReluLayerData, _Mapping]] = ..., normalize_data: _Optional[_Union[NormalizeLayerData, _Mapping]] = ..., maxpool_data: _Optional[_Union[MaxPoolLayerData, _Mapping]] = ..., averagepool_data: _Optional[_Union[AveragePoolLayerData, _Mapping]] = ..., concat_data: _Optional[_Union[ConcatLayerData, _Mapping]] = ..., hard_tanh_data: _Optional[_Union[HardTanhLayerData, _Mapping]] = ..., argmax_data: _Optional[_Union[ArgMaxLayerData, _Mapping]] = ...) -> None: ...

class FullyConnectedLayerData(_message.Message):
    __slots__ = ("weights", "biases")
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    biases: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, weights: _Optional[_Iterable[float]] = ..., biases: _Optional[_Iterable[float]] = ...) -> None: ...

class StridedWindowData(_message.Message):
    __slots__ = ("in_height", "in_width", "in_channels", "window_height", "window_width", "out_channels", "stride_height", "stride_width", "pad_height", "pad_width")
    IN_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    IN_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IN_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    OUT_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    STRIDE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    STRIDE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    PAD_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    PAD_WIDTH_FIELD_NUMBER: _ClassVar[int]
    in_height: int
    in_width: int
    in_channels: int
    window_height: int
    window_width: int
    out_channels: int
    stride_height: int
    stride_width: int
    pad_height: int
    pad_width: int
    def __init__(self, in_height: _Optional[int] = ..., in_width: _Optional[int] = ..., in_channels: _Optional[int] = ..., window_height: _Optional[int] = ..., window_width: _Optional[int] = ..., out_channels: _Optional[int] = ..., stride_height: _Optional[int] = ..., stride_width: _Optional[int] = ..., pad_height: _Optional[int] = ..., pad_width: _Optional[int] = ...) -> None: ...

class Conv2DLayerData(_message.Message):
    __slots__ = ("window_data", "filters", "biases")
    WINDOW_DATA_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    window_data: StridedWindowData
    filters: _containers.RepeatedScalarFieldContainer[float]
    biases: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, window_data: _Optional[_Union[StridedWindowData, _Mapping]] = ..., filters: _Optional[_Iterable[float]] = ..., biases: _Optional[_Iterable[float]] = ...) -> None: ...

class MaxPoolLayerData(_message.Message):
    __slots__ = ("window_data",)
    WINDOW_DATA_FIELD_NUMBER: _ClassVar[int]
    window_data: StridedWindowData
    def __init__(self, window_data: _Optional[_Union[StridedWindowData, _Mapping]] = ...) -> None: ...

class AveragePoolLayerData(_message.Message):
    __slots__ = ("window_data",)
    WINDOW_DATA_FIELD_NUMBER: _ClassVar[int]
    window_data: StridedWindowData
    def __init__(self, window_data: _Optional[_Union[StridedWindowData, _Mapping]] = ...) -> None: ...

class ReluLayerData(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HardTanhLayerData(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ArgMaxLayerData(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NormalizeLayerData(_message.Message):
    __slots__ = ("means", "standard_deviations")
    MEANS_FIELD_NUMBER: _ClassVar[int]
    STANDARD_DEVIATIONS_FIELD_NUMBER: _ClassVar[int]
    means: _containers.RepeatedScalarFieldContainer[float]
    standard_deviations: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, means: _Optional[_Iterable[float]] = ..., standard_deviations: _Optional[_Iterable[float]] = ...) -> None: ...

class ConcatLayerData(_message.Message):
    __slots__ = ("layers", "concat_along")
    class ConcatAlong(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONCAT_ALONG_INVALID: _ClassVar[ConcatLayerData.ConcatAlong]
        CONCAT_ALONG_CHANNELS: _ClassVar[ConcatLayerData.ConcatAlong]
        CONCAT_ALONG_FLAT: _ClassVar[ConcatLayerData.ConcatAlong]
    CONCAT_ALONG_INVALID: ConcatLayerData.ConcatAlong
    CONCAT_ALONG_CHANNELS: ConcatLayerData.ConcatAlong
    CONCAT_ALONG_FLAT: ConcatLayerData.ConcatAlong
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    CONCAT_ALONG_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedCompositeFieldContainer[Layer]
    concat_along: ConcatLayerData.ConcatAlong
    def __init__(self, layers: _Optional[_Iterable[_Union[Layer, _Mapping]]] = ..., concat_along: _Optional[_Union[ConcatLayerData.ConcatAlong, str]] = ...) -> None: ...
