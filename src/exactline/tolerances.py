"""Every numerical tolerance: what it limits, in which unit, and the derivation of its size.

Limits that only trade time against memory, such as batch sizes, are defined beside the code that they tune.
"""

import numpy as np
import torch

FLOAT64_EPS = float(np.finfo(np.float64).eps)  # 2^-52, the spacing of floats at 1
SMALLEST_SUBNORMAL = 5e-324  # 2^-1074: added to error bounds so that a bound is never zero
SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)  # 2^-1022: values below it have fewer digits, or flush to zero

# --- overflow -------------------------------------------------------------------------------------------------------
# Absolute value beyond which numbers are scaled before they are added: the sum of eight smaller ones is below 2^1024.
OVERFLOW_GUARD = 2.0**1020
# Factor for numbers beyond OVERFLOW_GUARD before they are subtracted. A power of two: scaling is exact.
HUGE_VALUE_SCALE = 0.25
# Factor by which the inputs of an affine node are scaled where its values may exceed OVERFLOW_GUARD: a product of two
# numbers of up to 2^800 each then stays below 2^1000, and what underflows below 2^-1022 is negligible beside 2^1020.
OVERFLOW_SCALE = 2.0**-600
# Absolute value beyond which the lines of a maximum are scaled by HUGE_LINE_SCALE before they are subtracted. Any bound
# below 1.8e308 / 2^12 serves.
SUBTRACTION_GUARD = 1e300
HUGE_LINE_SCALE = 2.0**-12

# --- positions on a line (in alpha, relative to alpha) ----------------------------------------------------------------
# Distance below which two alphas are the same break. Computing a crossing rounds three times and comparing it once,
# each by at most half an ulp: four ulps are on the safe side.
ALPHA_RESOLUTION = 4 * FLOAT64_EPS
# Error of a crossing's distance from the nearer end of its piece, where the values at both ends are exact, as at the
# network's inputs: two differences, their sum, a quotient and a product are rounded, each by at most half an ulp, and
# the width of the piece. The sum with the end is rounded by half an ulp of the position.
POSITION_ERROR = 3 * FLOAT64_EPS
# Distances of the points at which crossings that may share a break are evaluated, coarse ones first. The positions that
# two engines compute differ by some ulps, so that they are near different points once in a thousand times. Up to the
# nearest point, a slope that is off by a share of 2^-16 displaces a crossing by 2^-57 at most.
POSITION_GRIDS = (2.0**-40, 2.0**-46)
# Alpha error above which a unit that leaves its knot slowly is counted as ambiguous. Empirical: on random networks
# the breaks of float64 sweeps agree with the rational oracle to 1e-11.
MAX_ALPHA_ERROR = 1e-10
# Displacement of a patch engine's break above which its segment is recomputed densely. Empirical: see MAX_ALPHA_ERROR.
MAX_PATCH_ALPHA_SHIFT = 1e-11
# Alpha error above which the position of a patch break is checked against a direct evaluation. Empirical, on 899
# structured cases: breaks with a smaller error never moved by more than MAX_PATCH_ALPHA_SHIFT.
MAX_UNCHECKED_ALPHA_ERROR = 2.5e-9
# Displacement of breaks when a line is swept again in other parts: some ulps. A float32 sweep moves them by far more.
REPEATED_SWEEP_ALPHA_SHIFT = 1e-12

# --- errors of values -------------------------------------------------------------------------------------------------
# Samples of a value's error, each with a random sign for every rounding.
ERROR_SAMPLES = 4
# Error bounds in multiples of the estimated standard deviation. A normal variable exceeds six deviations with
# probability 2e-9, and a single rounding is counted with almost twice its deviation.
ERROR_WIDTH = 6.0
# Factor by which the values at a point may be smaller than at the ends of its piece if they are interpolated between
# them. Rounding errors of an interpolation are relative to the ends: about two products there and three operations,
# each at most this factor larger than at the point, against the factor ERROR_WIDTH in every error bound.
MAX_SHRINKAGE = 2.0
# Share of the root mean square of a sum's terms that rounding its partial sums adds to the error, in half ulps and per
# square root of the number of terms. Empirical: 0.05 for pairwise and blocked sums, 0.1 for plain ones.
SUMMATION_SHARE = 1 / 8
# Distance from a knot, in error bounds, within which a unit that crosses it slowly is counted as ambiguous.
AMBIGUITY_WIDTH = 3.0
# Share of the distances and alpha errors by which units are ambiguous, at which a sweep remembers them as candidates:
# values at other points of a piece are off by other errors, each within its bound.
CANDIDATE_SHARE = 0.5
# Multiple of the deviations in the middle of a piece that the error bounds at its ends do not exceed: no unit that is
# ambiguous is missed with such bounds. The samples of the error, which decide at the ends, exceed the deviation by the
# square root of the number of equal errors at most; in all tests by less than this.
MIDDLE_REACH = 256.0
# Multiple of the error that several points share, estimated with the largest values of them all, that the
# error bounds at none of them exceed. Deviations do not exceed it at all. Samples may, as the largest values need not
# add up to the largest sum. Empirical: on DenseNet121 the largest ratio is 2.1.
SHARED_REACH = 4.0
# Error bound, as a share of the largest one of the same tensor, up to which a value counts as free of rounding: errors
# of 0 are replaced by what may underflow where they are propagated in single precision, for n terms 2^-63 sqrt(n) of
# the largest.
ROUNDING_FREE_SHARE = 2.0**-48
# Width of the floating-point filter in multiples of the expected error: values further from a knot are unambiguous.
# Empirical: wide enough that the oracle suites show no wrong decision, narrow enough that few values are refined.
FILTER_WIDTH = {torch.float64: 4096.0, torch.float32: 64.0}
# Points whose estimated errors calibrate the filter, in narrow networks and in those where a point is expensive, and
# the factor by which errors elsewhere may be larger. Empirical.
SAMPLE_POINTS = 16
WIDE_SAMPLE_POINTS = 4
SAMPLE_SAFETY = 256.0
# Factor between the roundings of a convolution with a batch norm behind it and those of both as one product. With g and
# b the scale and offset, y the convolution, z = g y + b and S what its partial sums add, one product rounds by A + S,
# A = |z| + |b|; apart they round by |g y| + S, at most A + S, and by |z| + 1.1 |g y| + |b|, at most 2.1 A: together by
# at most sqrt(1 + 2.1^2) times as much.
FUSED_ROUNDING_FACTOR = 2.5
# Expected number of values inside the filter below which the calibration is not worth its cost.
MIN_EXPECTED_HITS = 0.01
# Factor by which the error of one unit may exceed its share of the layer's error by weights. Empirical.
ERROR_SHARE_SLACK = 256.0
# Relative distance below which two lines of a maximum are tied at one end: 64 roundings.
TIE_TOLERANCE = 64 * FLOAT64_EPS
# Error bound, as a share of a maximum or of a value that is sorted, above which errors can hide a whole line, so that
# ties are counted. Empirical: far above the rounding of float64 networks without cancellation.
AMBIGUITY_SHARE = 2.0**-32
# Distance, in roundings of the largest line of a window, below which lines are tied at a crossing.
RANK_TIE_ROUNDINGS = 32

# --- the patch engine -------------------------------------------------------------------------------------------------
# Points of a line, including both ends, whose errors are estimated, and the number of error samples there.
SEGMENT_SAMPLE_POINTS = 3
SEGMENT_ERROR_SAMPLES = 2
# Length of a line, as a share of its start's size (maximum norms), up to which one error is estimated for all of it.
SHORT_LINE_SHARE = 1 / 64
# Factors by which the error at any other point of the segment may be smaller and larger. Empirical.
MAX_SAMPLE_DEFICIT = 4.0
MAX_SAMPLE_EXCESS = 16.0
# Share of the smallest error expected up to which breaks are one without an estimate of their own. The error of a value
# that is small where it crosses a knot, but large at the sample points, may be less than MAX_SAMPLE_DEFICIT allows.
CERTAIN_SHARE = 1 / 8
# Error of cumulative sums along a segment, in roundings of the largest value, above which the dense engine takes over.
MAX_DRIFT_ROUNDINGS = 1024.0
# Roundings of a value by each crossing along a segment: the slope, its product with the width, and the sum, and one to
# spare. Segments of up to 256 crossings have fewer roundings than MAX_DRIFT_ROUNDINGS.
ROUNDINGS_PER_CROSSING = 4.0
# Error of cumulative sums of float32 patches along a segment, as a share of the largest value.
FLOAT32_DRIFT_SHARE = 1e-3
# Share of an error bound by which a distance may exceed it and still be ambiguous: estimates are not sharper than that.
AMBIGUITY_MARGIN = 1 / 8
# Number of random perturbations of all values that decide whether a segment may end at an alpha.
PERTURBATIONS = 16

# --- planes (in plane coordinates, relative to the extent, unless stated) ---------------------------------------------
# Difference from a full turn, in radians, above which the corners are not in convex order.
FULL_TURN_TOLERANCE = 1e-6
# Distance below which a convex weight is rounded to 0 or 1, so that the user's corners keep their exact coordinates.
WHOLE_WEIGHT_TOLERANCE = 1e-14
# Distance outside the outline below which a point counts as on it: rounding of coordinates.
OUTSIDE_TOLERANCE = 1e-12
# Padding of the cells of the point locator, so that rounding never leaves a polygon out.
CELL_PADDING = 1e-9
# Distance of the user's corners from a common plane.
OFF_PLANE_TOLERANCE = 1e-9
# Sine of the angle below which the outline is straight at a corner: rounding of float64 corners stays below it.
MIN_TURN = 1e-12
# Distance of convex weights below which two corners are the same: computing a corner rounds eight times.
CORNER_RESOLUTION = 8 * FLOAT64_EPS
# Width, relative to the polygon, below which a part that a cut would remove is too thin, and the cut is dropped.
MIN_RELATIVE_WIDTH = 32 * FLOAT64_EPS
# Distance below which corners on the seam of two parts may be the same. Empirical.
SEAM_TOLERANCE = 1e-11
# Angle, in radians, by which rounding may turn a straight corner. Empirical.
STRAIGHT_ANGLE_TOLERANCE = 1e-6
# Distance from a corner below which a line through the plane passes through the corner: 64 roundings.
EDGE_END_TOLERANCE = 64 * FLOAT64_EPS
# Difference of stored coordinates and areas: far above rounding, far below what damage to a file causes.
GEOMETRY_TOLERANCE = 1e-6

# --- decisions --------------------------------------------------------------------------------------------------------
# Width of the filter that selects differences of outputs for an error estimate, in multiples of the largest sampled
# error, and its minimum in roundings of the largest value. Empirical: on a thousand networks, most of them with ties,
# all labels and ties agree with rational arithmetic.
DECISION_FILTER_ERRORS = 64.0
MIN_DECISION_FILTER_ROUNDINGS = 4096.0
# Samples of the errors of all outputs, which share most of their roundings, and the factor from the largest difference
# of two samples to a bound on the error of the outputs' difference. Empirical: see DECISION_FILTER_ERRORS.
DECISION_SAMPLES = 8
DECISION_SAMPLE_WIDTH = 16.0
# Breaks at which that error is sampled, and lines with the largest coordinates whose ends are sampled as well.
DECISION_SAMPLE_BREAKS = 32
DECISION_SAMPLE_LINES = 64
# Factor from the distance between two evaluations of a difference to a bound on its error. Empirical.
REEVALUATION_SAFETY = 4.0
# Factor on the errors of a minimal partition, whose values are interpolated between fewer breaks. Empirical.
MINIMAL_ERROR_FACTOR = 4.0
# Absolute value beyond which the outputs of a line are scaled before they are compared, and the factor, a power of two.
DECISION_OVERFLOW_GUARD = 2.0**1000
DECISION_OVERFLOW_SCALE = 2.0**-64
# Factor from the largest value at a few points of a plane to a bound on all values. Empirical.
PLANE_SAMPLE_HEADROOM = 16.0

# --- attributions and verification ------------------------------------------------------------------------------------
# Change of the logits, relative to the leading one, on one subinterval of the tail's quadrature. On the Bernstein
# ellipse with (rho - 1/rho) / 2 = 1.428 the arguments of all exponentials differ by at most 1.428 from the leader's, so
# that a probability is at most 1 / cos(1.428) = 7 times its value on the real axis. Then rho = 3.17, and 20
# Gauss-Legendre nodes are off by less than (64 / 15) 50 rho^-38 / (1 - rho^-2), 3e-17 of the largest value nearby.
MAX_LOGIT_CHANGE = 2.0
# Distance to the leading logit, in addition to the logarithm of the number of classes, beyond which a logit no longer
# matters: together such logits change a probability by less than exp(-40) = 4e-18 of it.
NEGLIGIBLE_LOGIT_GAP = 40.0
# Exponent beyond which exp underflows to 0: shares that are smaller need no relative accuracy.
MAX_EXPONENT = 746.0
# Difference between the integral of a probability's derivative and the change of the probability, as a share of the
# integral of the derivative's absolute value, above which the quadrature has failed. In addition, rounding displaces
# each of the vertices of the envelope by a few roundings of the largest difference of logits.
TAIL_CHECK_TOLERANCE = 1e-11
TAIL_CHECK_ROUNDINGS = 64.0
# Step of Newton's method for a root in [-1, 1]: it converges quadratically, so that one more step changes no digit.
NEWTON_STEP_TOLERANCE = 1e-14
# Added to exact attributions in relative errors, so that these stay finite where an attribution is 0.
RELATIVE_ERROR_OFFSET = 1e-11
# Excess up to which VNN-COMP accepts a counterexample that another program evaluates.
VNNCOMP_TOLERANCE = 1e-4
# Share of an input's range by which a property's bounds may exceed it and still be in its units: published properties
# round the ranges to a few digits, and physical ranges are many times as wide as normalised ones.
UNITS_SLACK = 0.05

# --- metrics ---------------------------------------------------------------------------------------------------------
# Relative error of the largest slope, from differences of values, above which it is computed from the affine map of its
# piece. Empirical: above the rounding of ordinary pieces, far below what plots and reports show.
MAX_SLOPE_ERROR = 1e-11
# Roundings of the largest value that the error of a value is assumed to stay below when slopes are filtered. Empirical:
# room for deep networks; a larger number only costs time.
VALUE_ERROR_ROUNDINGS = 4096.0

# --- points -----------------------------------------------------------------------------------------------------------
# Widths of one point's range by which values of the other may lie outside it without a warning. Pixels of 0 to 255 lie
# 254 widths outside those of 0 to 1, and about 50 outside normalised ones of -2.1 to 2.6.
FAR_RANGE_WIDTHS = 10.0
# Numbers of a point below which its range says little: features have units of their own, pixels come in hundreds.
MIN_RANGE_NUMBERS = 16

# --- captures ---------------------------------------------------------------------------------------------------------
# Relative difference above which a node of a captured network counts as different from torch's. Empirical: a wrong
# rule errs by far more, float64 rounding by far less.
GRAPH_CHECK_TOLERANCE = 1e-7
# By precision of a module: relative difference above which its answer for a single point counts as different from the
# network's. Empirical: room for the roundings of a deep module; another function errs by more.
SINGLE_POINT_TOLERANCES = {torch.float16: 0.05, torch.bfloat16: 0.2, torch.float32: 1e-3, torch.float64: 1e-6}
# By how much a custom operator may deviate from a straight line between its knots, relative to its largest value there.
# Empirical: room for some thousand roundings of its formula.
STRAIGHTNESS_TOLERANCE = 1e-9
# Distance of the samples nearest to a knot from it, relative to the interval. Empirical: above rounding by a factor of
# 4,096, so that a jump at the knot is seen on its own side.
KNOT_OFFSET = 2.0**-40
# Distance from a knot within which a deviation is reported as a jump, relative to the span of the knots. Empirical.
KNOT_RADIUS = 1e-6
# Largest relative distance from the outer pieces far away from all knots. Empirical, as STRAIGHTNESS_TOLERANCE.
FAR_TOLERANCE = 1e-6
# Rounding error of a difference of two steep terms, relative to their size: 16 roundings.
CANCELLATION_ERROR = 2.0**-48

# --- proofs -----------------------------------------------------------------------------------------------------------
# Distance in alpha of a break from the exact one up to which a certificate confirms it. Empirical: far above the error
# of float64 breaks, far below common pieces.
CERTIFIED_ALPHA_TOLERANCE = 1e-12
# Distance of a float from the fraction that it stands for, such as 1/9 in an average: several roundings of a number up
# to 1.
FRACTION_TOLERANCE = 1e-14
# Factor on the first-order bound of the rounding errors of stored values: sweeps add interpolations and cumulative sums
# to the roundings of an evaluation. Empirical: on the families of the oracle suite the errors of both engines stay
# below 1 % of the bound with this factor. It decides which errors are reported; the errors themselves are exact.
VALUE_ERROR_SAFETY = 4.0
# Error of a sum of products of rounded numbers, relative to the sum of their sizes: the floating-point filter of
# complete verification, below which integers decide. Each number has a relative error below 2^-49, so each product one
# below 2^-47.9, and adding n products in any order loses less than n * 2^-53 more: together less than 2^-46 for the two
# terms of a line, and less than 2^-40 for up to 4,096 terms of a cell.
LINE_FORM_ERROR = 2.0**-46
CELL_FORM_ERROR = 2.0**-40
# Absolute error of a rounded number there, beside the relative one: some hundred roundings of subnormal numbers.
UNDERFLOW_ERROR = 1e-300

# --- the legacy protocol ----------------------------------------------------------------------------------------------
# Thickness of a polygon relative to its extent below which it is a line. Empirical.
MAX_LINE_THICKNESS = 2e-9
# By how much float32 shares of a combination may miss a sum of 1. Empirical.
MAX_SHARE_ERROR = 1e-4
