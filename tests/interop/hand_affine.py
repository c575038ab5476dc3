"""Operands of the affine quantisers that are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]
_SHAPES = {
    "": ((), {}), "_per_tensor": ((), {}), "_per_channel": ((8,), {"axis": 1}), "_per_token": ((3,), {}),
    "_per_group": ((3, 2), {"group_size": 4}), "_per_block": ((2, 2), {"block": (2, 4)}),
}  # fmt: skip


def _call(verb: str, scope: str) -> Call:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 8)).astype(np.float32) if verb == "quantize" else np.arange(24, dtype=np.int8)
    shape, facts = _SHAPES[scope]
    return [x.reshape(3, 8), np.asarray(0.05 + rng.random(shape), np.float32)], dict(facts)


AFFINE: dict[str, Callable[[], Call]] = {
    f"{verb}{scope}": lambda verb=verb, scope=scope: _call(verb, scope)
    for verb in ("quantize", "dequantize")
    for scope in _SHAPES
}
