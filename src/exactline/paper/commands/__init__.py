"""The commands ``exactline study`` and ``exactline train``; they import torch only when they run."""
