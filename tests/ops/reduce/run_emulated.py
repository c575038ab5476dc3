"""One call of a plan by its kernels on the emulator, on arrays where they lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.core.tensor import TensorRef
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.layouts import aligned_bytes


def laid_out(values: np.ndarray, strides: tuple[int, ...] | None = None, start: int = 0) -> np.ndarray:
    """These values with these strides (elements, 0 where they repeat), `start` past a 256-byte boundary."""
    if strides is None:
        strides = tuple(s // values.itemsize for s in np.empty(values.shape, values.dtype).strides)
    reach = start + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True) if n) + 1
    buffer = aligned_bytes(max(reach, 1) * values.itemsize)
    size = values.itemsize
    made = np.ndarray(values.shape, values.dtype, buffer.data, start * size, [s * size for s in strides])
    made[...] = values
    return made


def run(
    plan: type[Plan], desc: Any, sms: int = 132, steps: list[Any] | None = None, **arrays: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The outputs by name, dense unless given; those given as None are not wanted. `steps` gets what was launched."""
    chosen = plan.select(desc, device=replace(emulated_device(9.0), sms=sms))
    for spec in arrays_of(plan.args):
        if spec.writes and spec.name not in arrays:
            like = arrays[spec.like] if spec.like else None
            shape = spec.shape(desc) if like is None else like.shape
            arrays[spec.name] = np.full(shape, 77, spec.elements(desc)[0].dtype)
    given = {
        name: None
        if x is None
        else TensorRef(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), ElementKind.of(x.dtype))
        for name, x in arrays.items()
    }
    args = plan.args(**given)
    if steps is not None:
        steps += chosen.plan_layout(args)[1].steps
    with emulating(1):
        chosen.run(args)
    return {s.name: arrays[s.name] for s in arrays_of(plan.args) if s.writes and arrays[s.name] is not None}  # type: ignore[misc]
