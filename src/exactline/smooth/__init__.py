"""Any network on a line: piecewise Chebyshev curves to a tolerance, with an error estimate."""
