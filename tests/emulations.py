"""`passes` emulates, but for what did so before: `tests/emulations.lock` has the keys of what need not be repeated.

A key is of all that the outcome depends on: that of `tools/emulation_lock.py` (the problem, what is launched, the text
of the kernels, the reference, its bound, the emulator) and every byte of the operands. A few are emulated all the same.
After a change the file may be written anew, and need not be: what it does not know runs.

    pytest -n auto --emulations passed tests && sort -u passed > tests/emulations.lock
"""

from __future__ import annotations

import hashlib
import os
import random
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts import tool

from baracuda_py.core.errors import UnsupportedError
from baracuda_py.core.plan import Plan
from baracuda_py.testing import Draw, Operands, emulate, pointer_view
from baracuda_py.testing.coverage import Launch
from baracuda_py.testing.emulated import draw_problem

LOCK = Path(__file__).with_suffix(".lock")
SAMPLE = 0.02  # of what the lock knows is emulated all the same
_anew = random.SystemRandom()  # which hypothesis does not seed
written: list[Path] = []  # where the keys of this run go, given by `--emulations`


def passes(plan: Plan, ready: Operands) -> None:
    """`emulate`, unless the same passed before: then nothing is written, so a test that reads outputs calls that."""
    mark = key(plan, ready)
    if mark is None or mark not in known() or _anew.random() < SAMPLE:
        emulate(plan, ready)
    for path in written if mark is not None else ():
        with path.open("a") as file:
            file.write(f"{mark}\n")


def passes_drawn(plan: type[Plan], draw: Draw) -> None:
    """The same over what `baracuda_py.testing.emulated` draws."""
    passes(*draw_problem(plan, draw))


@cache
def known() -> frozenset[str]:
    return frozenset(LOCK.read_text().split()) if LOCK.exists() else frozenset()


def key(plan: Plan, ready: Operands) -> str | None:
    """What tells an emulation from others; None where nothing is launched that the emulator runs."""
    try:
        row, geometry, _ = plan.plan_layout(ready.args(pointer_view))
    except UnsupportedError:
        return None
    launch = Launch(None, plan, ready, row, geometry)  # type: ignore[arg-type]  # of no drawn problem
    if not launch.steps:
        return None
    digest = hashlib.blake2b(_locks().key(launch).encode(), digest_size=10)
    for spec, place, one in ready.items():
        digest.update(f"{spec.name} {place} {one.view.strides} {one.buffer.dtype}".encode())
        digest.update(one.before.tobytes())
    numbers: dict[str, Any] = {**ready.case.arrays, **ready.held}
    digest.update(repr([(n, repr(x)) for n, x in sorted(numbers.items()) if getattr(x, "ndim", 0) == 0]).encode())
    return digest.hexdigest()


@cache
def _locks() -> ModuleType:
    return tool("emulation_lock")


def note(path: str | os.PathLike[str]) -> None:
    """Keys of what passes from now on go to a file, too."""
    written.append(Path(path).absolute())
