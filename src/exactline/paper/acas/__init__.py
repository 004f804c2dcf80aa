"""The ACAS Xu study, figure 2 of the paper: what a collision-avoidance network advises around the ownship.

`lines.run` computes the advice along lines, compares it with samples and lists what the samples missed; `maps.run`
computes every region of constant advice on the whole disc around the ownship.
"""

from . import lines as lines
from . import maps as maps
