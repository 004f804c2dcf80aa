"""Why an ONNX operator that is not read cannot be: those that are known not to be piecewise linear say so."""

from __future__ import annotations

SMOOTH = (
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
    *("ReduceLogSum", "Pow", "Det"),
)
NORMS = (
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization", "LRN"),
    *("MeanVarianceNormalization", "LpNormalization", "LpPool", "GlobalLpPool", "ReduceL2"),
)
JUMPS = (
    *("Sign", "Round", "Floor", "Ceil", "ArgMax", "ArgMin", "Mod", "ThresholdedRelu", "Hardmax", "OneHot", "NonZero"),
    *("QuantizeLinear", "DynamicQuantizeLinear", "Binarizer"),
)
PRODUCTS = ("Attention", "ReduceProd", "ReduceSumSquare", "HardSwish", "LSTM", "GRU", "RNN", "CumProd")
REASONS = {
    **dict.fromkeys(SMOOTH, "is smooth, not piecewise linear"),
    **dict.fromkeys(NORMS, "divides by a norm of the data, or is one"),
    **dict.fromkeys(JUMPS, "jumps"),
    **dict.fromkeys(PRODUCTS, "multiplies data by data"),
    **dict.fromkeys(("If", "Loop", "Scan"), "is control flow"),
}


def reason(kind: str, domain: str) -> str:
    """What to say of an operator that is not read."""
    if domain not in ("", "ai.onnx"):
        return f"is of the domain {domain[:80]!r}, not one of ONNX's own"
    return REASONS.get(kind, "is not an operator we know to be piecewise linear")
