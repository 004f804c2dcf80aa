"""Pictures, web pages and tables of results. Nothing here computes: it draws what the library has found."""

from .figure import save_picture as save_picture
