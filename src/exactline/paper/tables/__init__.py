"""Tables 1 to 4 and figures 3 to 5 of the paper, beside the published numbers.

`ig` counts the samples that integrated gradients need (tables 1 and 2); `linearity` counts breaks along adversarial and
random lines (tables 3 and 4). Each has a report and a plot module.
"""

from . import ig as ig
from . import ig_report as ig_report
from . import linearity as linearity
from . import linearity_report as linearity_report
