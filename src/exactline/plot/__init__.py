"""What one looks at: pictures and tables of results. Nothing here computes."""

from .line import save_picture as save_picture
