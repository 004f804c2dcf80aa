"""What one looks at: pictures and tables of results. Nothing here computes."""

from .plot import save_picture as save_picture
