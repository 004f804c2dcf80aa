"""All rules for operators with arithmetic; importing the modules fills the table."""

from . import function_rules, kink_rules, linear_rules, normalization_rules
from .rule_table import RULES

__all__ = ["RULES", "function_rules", "kink_rules", "linear_rules", "normalization_rules"]
