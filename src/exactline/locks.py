"""Settings that all threads share: torch's own and Python's warning filters.

Whoever changes them, or runs what changes them (torch.export does, and puts them back), holds this lock meanwhile.
"""

from __future__ import annotations

import threading

settings_lock = threading.RLock()
