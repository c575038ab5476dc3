"""One call of a plan on the emulator, with the arrays of a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda_py.core.plan import Plan
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view


def call(plan: type[Plan], desc: Any, outputs: dict[str, np.ndarray], **operands: Any) -> dict[str, np.ndarray]:
    """`outputs` as the kernels leave them; operands are NumPy arrays in their stored dtype, numbers, or None."""
    arrays = {n: pointer_view(x) if isinstance(x, np.ndarray) else x for n, x in operands.items()}
    with emulating(1):
        chosen = plan.select(desc, device=emulated_device(9.0))
        chosen.run(plan.args(**arrays, **{n: pointer_view(y) for n, y in outputs.items()}))
    return outputs
