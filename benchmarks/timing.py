"""Timing on the device, as `baracuda_py.measure.timing` has it, and the rate of a matrix product to compare with."""

from __future__ import annotations

import checkout  # noqa: F401

from baracuda_py.measure.timing import Timing, copy_bandwidth, interleaved, spin

__all__ = ["Timing", "copy_bandwidth", "interleaved", "matmul_rate", "spin"]


def matmul_rate() -> float:
    """FLOP/s of a bf16 8192³ product through cuBLAS (torch), random data."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * 8192**3 / (interleaved({"mm": [lambda: torch.mm(a, b, out=out)]}, 10)["mm"].median * 1e-6)
