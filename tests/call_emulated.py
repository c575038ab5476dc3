"""One call of a plan on the emulator, with the arrays of a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda_py.core.plan import Plan
from baracuda_py.testing import Case, emulated_device, operands
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


def by_last_row(case: Case) -> tuple[dict[tuple[str, int], np.ndarray], Any]:
    """What a plan's last row that serves a case writes, by output and place in a list, and the bound it promises."""
    ready, chosen = operands(case), case.plan.select(case.desc, device=emulated_device(8.0))
    chosen.rows = chosen.rows[-1:]
    args = ready.args(pointer_view)
    with emulating(1):
        chosen.run(args)
    bound = chosen.can_implement(args).sku.precision_guarantee.error
    return {(spec.name, i): np.array(one.view) for spec, i, one in ready.items() if spec.writes}, bound
