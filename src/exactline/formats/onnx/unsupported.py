"""The reasons why ONNX operators are not supported."""

from __future__ import annotations

from ...network.builder import MULTIPLIES_INPUTS, NOT_KNOWN

SMOOTH_OPERATORS = (
    *(
        "Elu",
        "Selu",
        "Celu",
        "Gelu",
        "Mish",
        "Softplus",
        "Softsign",
        "Exp",
        "Log",
        "Erf",
        "Sqrt",
        "Reciprocal",
        "Swish",
    ),
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "ReduceLogSumExp"),
    *("ReduceLogSum", "Pow", "Det", "SoftmaxCrossEntropyLoss", "SwiGLU"),
)
NORM_OPERATORS = (
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization", "LRN"),
    *("MeanVarianceNormalization", "LpNormalization", "LpPool", "GlobalLpPool", "ReduceL2"),
)
DISCONTINUOUS_OPERATORS = (
    *("Sign", "Round", "Floor", "Ceil", "ArgMax", "ArgMin", "Mod", "ThresholdedRelu", "Hardmax", "OneHot", "NonZero"),
    *("QuantizeLinear", "DynamicQuantizeLinear", "Binarizer", "Unique", "NonMaxSuppression"),
)
PRODUCT_OPERATORS = (
    "Attention",
    "ReduceProd",
    "ReduceSumSquare",
    "HardSwish",
    "LSTM",
    "GRU",
    "CumProd",
    "LinearAttention",
)
UNSUPPORTED_REASONS = {
    **dict.fromkeys(SMOOTH_OPERATORS, "is smooth, not piecewise linear"),
    **dict.fromkeys(NORM_OPERATORS, "is a norm of its input, or divides by one"),
    **dict.fromkeys(DISCONTINUOUS_OPERATORS, "is discontinuous"),
    **dict.fromkeys(PRODUCT_OPERATORS, MULTIPLIES_INPUTS),
    **dict.fromkeys(("If", "Loop", "Scan"), "is control flow that the input decides"),
    "RNN": "applies an activation other than Relu",
}


def explain_unsupported(op_type: str, domain: str) -> str:
    """The reason why an operator is not supported, as a phrase that follows its name."""
    if domain not in ("", "ai.onnx"):
        return f"belongs to the domain {domain[:80]!r}, not to ONNX's own operators"
    return UNSUPPORTED_REASONS.get(op_type, NOT_KNOWN)
