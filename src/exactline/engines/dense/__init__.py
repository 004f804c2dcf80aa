"""The dense engine: values of every live tensor at every break."""
