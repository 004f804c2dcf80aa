"""Small networks that ship with the package: for examples, demonstrations and tests."""

from .analytic import loan_line as loan_line
from .analytic import loan_network as loan_network
from .analytic import tent_network as tent_network
from .digit_set import digits_set as digits_set
from .digits import digits_images as digits_images
from .digits import digits_network as digits_network
from .encounter import encounter as encounter
from .encounter import encounter_facts as encounter_facts
from .robust import robust as robust
from .robust import robust_facts as robust_facts
