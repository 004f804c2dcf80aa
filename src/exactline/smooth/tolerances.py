"""Every numerical threshold of curves and integrals: what it limits, in which unit, and the reason for its size."""

from __future__ import annotations

from ..tolerances import FLOAT64_EPS

# --- features between samples -----------------------------------------------------------------------------------------
# Size of an operator's argument, relative to its largest one, below which the argument lies on a kink already. A few
# hundred roundings, as arguments of deep networks have.
ZERO_SHARE = 1e-13
# Size likewise below which an argument is not told from 0 at all: eight roundings.
NOISE_SHARE = 8 * FLOAT64_EPS
# Distance of an argument from 0, in units of the argument, beyond which sigmoid, tanh, erf, GELU, SiLU and softplus
# are seen to differ from their limits by a sample at best: sigmoid(3) is 0.95, GELU(3) is 2.996.
BEND_REACH = 3.0
# Size of the argument at which a piece is cut where a smooth operator bends within less than one gap between samples.
# All of the operators above differ from their limits there by at least 0.15, so that a sample at the cut shows it.
BEND_LEVEL = 1.0
# Change of an argument below which no operator of that table has a feature of its own.
BEND_CHANGE = 1.0
# Largest change of the argument of a sine between neighbouring samples: more than two samples for each wave.
WAVE_STEP = 3.0
# Share of the smallest sampled argument of a root, a logarithm or a quotient to which it must fall between samples to
# matter: with a smaller fall neighbouring samples show the singularity.
POLE_SHARE = 0.5
# How far an argument may fall below its samples, in multiples of the fall of a parabola through three of them. 1 is a
# parabola, 4 is two straight lines that meet in the middle between two samples.
DIP_MARGIN = 5.0
# Fall of a parabola at which a minimum counts as located, in units of the change that matters or of the minimum.
CONVERGED_DROP = 0.1
# Ratio of neighbouring distances of the cuts beside a feature that is narrower than a gap. A rule of 21 nodes on a
# panel resolves what happens on a twentieth of it.
GRADING_RATIO = 16.0
# Distance of the innermost cut, relative to the width of the piece: 16^-13 is the resolution of float64.
MAX_GRADED_CUTS = 13
MAX_ROOT_STEPS = 60  # of the root finder; bisection alone needs 52
# Steps of the minimiser. Golden sections alone need 75 for all digits; parabolas converge in a dozen.
MAX_DIP_STEPS = 80
GOLDEN_SHARE = 0.381966  # of the larger side of a bracket, where a minimum is searched
# Distance of a cut from others, in multiples of the resolution of alpha.
MIN_CUT_RESOLUTIONS = 4

# --- pieces of a curve ------------------------------------------------------------------------------------------------
# Factors of the error estimate. The last coefficients exceed the truncation error if they fall by half from one to the
# next; the factor allows for slower decay. The largest error on a piece is rarely more than twice that of seven points.
TRUNCATION_FACTOR, RESIDUAL_FACTOR = 8.0, 4.0
# Positions on [-1, 1] inside of a piece that measure its error, and samples of the rounding error.
FRESH_POSITIONS = (-0.7731, -0.4631, 0.0923, 0.5407, 0.8219)
# Position between the last two points of a piece, in multiples of the angle pi / degree between neighbouring points.
# The error beside a singular end is largest there.
END_ANGLES = 0.4
# Rounding errors in multiples of the root mean square of samples with noise of up to one ulp in every operator.
ROUNDING_FACTOR = 8.0
PLATEAU_FACTOR = 8.0  # coefficients below so many rounding errors cannot fall any further
MIN_DECAY = 0.3  # of the coefficients over half of the degrees: slower decay calls for shorter pieces
# Share of the last coefficients that halving a piece must remove; with less they may be rounding errors, and the error
# is measured.
HALVING_SHARE = 0.5
CHOPPED_SHARE = 0.1  # of the error estimate that dropped coefficients may add
MIN_RESOLUTIONS = 64  # width of the shortest piece, in multiples of the resolution of alpha
# Ratio of values on a shortest piece to those at the first samples beyond which they may have no bound at all.
POLE_GROWTH = 1e8
# Width of a piece relative to its position, at which float64 hardly resolves it.
UNRESOLVED_WIDTH = 1e-12
# Position below which a shortest piece touches the start of the line.
UNRESOLVED_START = 1e-25
ROOT_IMAGINARY_PART = 1e-7  # of the eigenvalues that count as real; double roots are off by the root of an ulp
REPEAT_TOLERANCE = 1e-6  # relative difference of two evaluations that rounding may explain

# --- integrals --------------------------------------------------------------------------------------------------------
WORST_SHARE = 0.25  # of the largest error of a line's panels: panels above it are cut together
MIN_CUT_SHARE = 1 / 4  # of a panel's width; the part beside it then has an integral to about ten digits
NEGLIGIBLE_SHARE = 0.05  # of the tolerance: an error of a part that needs no more work
SMALLEST_ALPHA = 1e-290  # positions closer to the start of a line are not told from it
MAX_STALLED = 3  # generations in which cutting does not reduce the error: it is rounding
STALLED_SHARE = 0.3  # of a panel's error that each part keeps if cutting does not help
ROUNDING_PANELS = 6  # of each line, whose gradients are computed again with noise
GRADIENT_ROUNDING_FACTOR = 4.0  # for what these samples miss
PANEL_ROUNDINGS = 64.0  # roundings of the mean size of an integrand: a panel's error cannot fall below them
