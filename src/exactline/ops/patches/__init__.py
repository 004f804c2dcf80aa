"""How a break's change of slope, which is small in space, moves through operators."""
