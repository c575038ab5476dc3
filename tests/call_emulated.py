"""One call of a plan on the emulator, with the arrays of a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda_py.core.plan import Plan
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view


def _seen(x: Any) -> Any:
    if isinstance(x, list):
        return [_seen(one) for one in x]
    return pointer_view(x) if isinstance(x, np.ndarray) else x


def call(plan: type[Plan], desc: Any, outputs: dict[str, Any], **operands: Any) -> dict[str, Any]:
    """`outputs` as the kernels leave them; operands are NumPy arrays in their stored dtype, lists of them, numbers, or
    None."""
    arrays = {n: _seen(x) for n, x in {**operands, **outputs}.items()}
    with emulating(1):
        chosen = plan.select(desc, device=emulated_device(9.0))
        chosen.run(plan.args(**arrays))
    return outputs
