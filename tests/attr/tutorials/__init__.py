"""Scripts in the manner of captum's tutorials, on synthetic data; each leaves its numbers in ``results``."""
