"""Small bundled networks and data: for examples, the demo and tests."""

from .analytic import loan_line as loan_line
from .analytic import loan_network as loan_network
from .analytic import tent_network as tent_network
from .digits import digits_images as digits_images
from .digits import digits_network as digits_network
from .digits import digits_set as digits_set
from .encounter import encounter_facts as encounter_facts
from .encounter import encounter_network as encounter_network
from .pendulum import pendulum_controller as pendulum_controller
from .pendulum import pendulum_facts as pendulum_facts
from .robust import robust_facts as robust_facts
from .robust import robust_network as robust_network
