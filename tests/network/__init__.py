"""How models become networks, and stay so."""
