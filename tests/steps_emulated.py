"""Functions of several calls on the emulator: each plan that they run, by its kernels."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from baracuda_py.backends.numpy_direct import Direct
from baracuda_py.core.element import ElementKind
from baracuda_py.core.execution import MISS
from baracuda_py.core.plan import Plan
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.sku import BackendKind
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

_OURS = PlanPreference(prefer_backend=BackendKind.BESPOKE)


def _seen(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_seen(one) for one in x]
    return pointer_view(x.view(ElementKind.of(x.dtype).carrier)) if isinstance(x, np.ndarray) else x


@contextlib.contextmanager
def by_kernels() -> Iterator[list[str]]:
    """Calls on NumPy arrays run emulated kernels within; gives the symbols of what was launched.

    Every plan is chosen for its own operands as a device would, libraries aside.
    """
    run, rows = Plan.run, list[str]()

    def emulated(self: Plan, args: Any, workspace: Any = None, stream: Any = None) -> None:
        if self.device.fake:
            run(self, args, workspace, stream)
            return
        given = {f.name: _seen(getattr(args, f.name)) for f in dataclasses.fields(args)}
        with emulating(1) as emulator:
            before = len(emulator.record.launches)
            type(self).select(self.desc, _OURS, device=emulated_device(9.0)).run(type(args)(**given))
            rows.extend(one.function.symbol for one in emulator.record.launches[before:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "run", emulated)
        patch.setattr(Direct, "call", lambda self, *given: MISS)
        yield rows
