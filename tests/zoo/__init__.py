"""The bundled networks."""
