"""Examples of hand-written functions over low-bit formats; tests run every one."""

from __future__ import annotations

_W = "rng = np.random.default_rng(0)\nx = rng.standard_normal((3, 64), dtype=np.float32)\n"

QUANTIZED = {"block_quantize": f"{_W}codes, scales = bc.block_quantize(x, kind='nf4', group=32)"}
