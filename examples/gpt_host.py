"""How the examples use a host's processors and memory. Import it before NumPy: BLAS reads its threads as it loads.

The CPU preset's arrays are small. Threads of BLAS wait for one another by spinning, so where other processes want the
cores, too, two take many times as long as one. Its temporaries are a few megabytes each, which glibc asks of the system
and gives back every time; kept, they need no new pages.
"""

from __future__ import annotations

import ctypes
import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def keep_memory() -> None:
    """Let glibc keep what is freed, for the next temporary of that size; elsewhere nothing is done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
