"""Constants of certified computations, each with its unit and its derivation."""

from __future__ import annotations

# Relative error of one rounding to nearest in float64.
UNIT_ROUNDOFF = 2.0**-53
# Factor on a computed bound that covers the roundings of the bound itself. A bound is a sum of products of nonnegative
# numbers with at most 2^20 terms and a few dozen further operations, so its relative error is below 2^21 * 2^-53.
OUTWARD_FACTOR = 1.0 + 2.0**-31
# Absolute error of products and exponentials that underflow, summed over at most 2^20 of them.
UNDERFLOW = 1e-290
# Accuracy assumed of torch's exp, sin, cos, erf, log1p, sqrt and tanh for real float64 arguments, in units of roundoff
# of the result. The vector libraries behind them document at most 2.
ELEMENTARY_ROUNDINGS = 8.0
# Distance of an exponential from 1 below which their difference is not used in a bound: its relative error stays below
# 2^-39, far below that of OUTWARD_FACTOR.
CANCELLATION_GAP = 2.0**-10
# Ratios of the circle of Cauchy's estimate to the disc. The best one is chosen for every unit.
CAUCHY_RATIOS = (1.2, 1.5, 2.0, 2.7, 4.0, 8.0)
# Squarings of W^T W in the bound on a spectral norm: n^(1 / 256) is 1.03 for n = 1024.
SPECTRAL_SQUARINGS = 6

# --- subdivision of the line ------------------------------------------------------------------------------------------
# Radius of the disc around a sub-interval, in half widths of it. The Bernstein ellipse with this semi-axis has the
# parameter s + sqrt(s^2 - 1) = 2.62, so that every Gauss-Legendre node gains a factor of 6.9.
DISC_RATIO = 1.5
# Coefficients of a Taylor model.
ORDER = 16
# Discs that share one pass over the tape: the interpreter's overhead is shared too.
MAX_DISCS_PER_PASS = 8
# Width of sub-intervals, in alpha, at which bisection gives up.
MIN_WIDTH = 2.0**-20
# Grid of the ends of sub-intervals, in alpha: sums and midpoints of its points are exact in float64.
ALPHA_GRID = 2.0**-44
# Half width of a bracket around a kink, in radii of the error of the kinked operator's input over its slope.
KINK_MARGIN = 4.0
# Half width of a bracket around a kink, in alpha, beside that of the errors.
MIN_KINK_RADIUS = 2.0**-38
# Width of a bracket around a kink, in alpha, that is always accepted.
MAX_KINK_WIDTH = 2.0**-28
# On sub-intervals narrower than the first number, in alpha, brackets up to this share of them are accepted too: there,
# remainders do not get smaller by bisection.
MAX_SPLIT_WIDTH = 2.0**-6
MAX_KINK_SHARE = 2.0**-6
# Kinks of one sub-interval above which it is bisected first.
MAX_KINKS_PER_SPLIT = 8
# Imaginary part of a root below which it counts as real. It only suggests where to divide.
REAL_ROOT_TOLERANCE = 1e-6
# Gauss-Legendre or Chebyshev nodes of one sub-interval above which bisection is cheaper.
MAX_NODES = 40
# Points of a line at which all values are checked to be finite.
CHECKED_POINTS = 5
# Points that share one pass over the tape.
MAX_POINTS_PER_PASS = 64
# Share of the tolerance that the truncation error may use; the rest is left for rounding.
TRUNCATION_SHARE = 0.5

# --- decisions --------------------------------------------------------------------------------------------------------
# Width of a bracket around a boundary, in alpha, at which bisection stops.
MIN_BRACKET_WIDTH = 2.0**-40
# Change of outputs across an interval, relative to their errors, at which bisection stops: the bracket of a boundary
# then exceeds the stretch that the errors leave undecided by a few percent.
BRACKET_RESOLUTION = 1 / 32
