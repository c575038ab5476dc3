"""`autotune`: measure the rows that could take a problem, and remember the fastest (`core.tuned`).

Rows are timed on random operands of the problem's shapes, strides and alignment, several sets of them so that none is
found in L2, with CUDA events and in turn. What they compute is compared first: a row that is far from the others is
left out, and said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from ..core import tuned
from ..core.args import arrays_of
from ..core.checked import truth, whole
from ..core.element import ElementKind
from ..core.execution import runner_for
from ..core.plan import Plan
from ..core.tensor import View
from ..core.variant import Problem, Variant
from ..interop.packages import package_name
from . import problems
from .timing import interleaved

_AGREE = 64.0  # eps of the element: how far two rows may be apart, of the size of the output

Progress = Callable[[str], None]


@contextlib.contextmanager
def autotune(*, rounds: int = 20, again: bool = False, progress: Progress | None = None) -> Iterator[None]:
    """While the context lasts, a problem that several rows can take is measured before it runs.

        with bc.autotune():
            train_step()                 # slow once: every problem met is timed, compiled kernels included
        train_step()                     # each product on the row that measured fastest

    What was found is kept beside the compiled kernels for this device, driver, compiler and version of the package, and
    holds for problems of one class: extents within a power of two, the same layouts. A row is taken only where it
    promises no less than the one taken without tuning: never a less deterministic, less accurate or less
    batch-invariant one. rounds: how often each row is timed. again: measure anew what is known. progress: called with a
    line for every problem measured; by default they are logged (logger `baracuda_py.tune`, level INFO).

    Nothing is measured on the CPU, and nothing while a graph is captured, which would wait for the device.
    """
    with tuned.tuning(_Tuner(whole("rounds", rounds, 1, 10_000), truth("again", again), progress)):
        yield


class _Tuner:
    """Measures each class of problems once."""

    def __init__(self, rounds: int, anew: bool, progress: Progress | None) -> None:
        self.rounds, self.anew = rounds, anew
        self.say = progress or (lambda line: tuned.log.info("%s", line))
        self._seen: set[str] = set()

    def again(self, key: str) -> bool:
        """Once, where everything is measured anew."""
        return self.anew and key not in self._seen

    def measure(self, plan: Plan, problem: Problem, rows: tuple[Variant, ...]) -> Mapping[str, float]:
        """Microseconds of each row; none on a device that is not there."""
        if plan.device.fake:
            return {}
        times = time_rows(plan, problem, rows, self.rounds)
        self._seen.add(tuned.problem_key(plan, problem))
        ranked = sorted(times.items(), key=lambda one: one[1])
        self.say(f"{plan.op} {plan.desc}: " + ", ".join(f"{name} {us:.1f} us" for name, us in ranked))
        return times


def time_rows(plan: Plan, problem: Problem, rows: tuple[Variant, ...], rounds: int) -> dict[str, float]:
    """Microseconds of each row that computes what the first one does."""
    first = operands_like(plan, problem, 0)
    sets = [first, *(operands_like(plan, problem, seed) for seed in range(1, problems.sets_of(first)))]
    calls, wanted = {}, None
    for row in rows:
        own = only(plan, row)
        calls[row.name] = [own.bind(plan.args(**one)) for one in sets]
        calls[row.name][0]()
        made = outputs(plan, first)
        if wanted is None:
            wanted = made
        elif why := differ(wanted, made):
            tuned.log.warning("%s: row %s is left out, as %s", plan.op, row.name, why)
            del calls[row.name]
    return {name: timing.median for name, timing in interleaved(calls, rounds).items()}


def only(plan: Plan, row: Variant) -> Plan:
    """The same plan with one row."""
    made: Plan = object.__new__(type(plan))
    kept = ("desc", "preference", "device", "kind", "_refused")
    vars(made).update({name: value for name, value in vars(plan).items() if name in kept})
    made.rows = (row,)
    made.runner = runner_for(plan.device.kind)(made)
    return made


def operands_like(plan: Plan, problem: Problem, seed: int) -> dict[str, Any]:
    """Random operands with the views' shapes, strides and alignment, and outputs; scalars at their defaults."""
    present = [spec.name for spec in arrays_of(plan.args) if problem.views[spec.name] is not None]
    asked = problems.Problem(type(plan), "", problem.desc)
    made = problems.operands(asked, problem.device, seed, present)
    for name in present:
        view = problem.views[name]
        if isinstance(view, tuple):
            made[name] = [laid(array, one) for array, one in zip(made[name], view, strict=True)]
        else:
            made[name] = laid(made[name], view)
    return made


def laid(array: Any, view: View) -> Any:
    """The array's values in memory of their own that is strided and aligned as a view is."""
    low, high = view.span
    size = view.element.itemsize
    package: Any = import_module(package_name(type(array)))
    memory = package.empty(high - low + 16, np.uint8)
    start = memory.ctypes.data if package is np else memory.data.ptr
    at = (view.ptr + low - start) % 16 - low  # of element 0
    steps = tuple(step * size for step in view.strides)
    if package is np:
        made = np.ndarray(view.shape, array.dtype, memory, at, steps)
    else:
        made = package.ndarray(view.shape, array.dtype, memory.data + at, strides=steps)
    if 0 not in view.strides or view.size == 0:
        made[...] = array.reshape(view.shape)
    else:  # one value for all that share it
        shared = tuple(slice(0, 1) if step == 0 else slice(None) for step in view.strides)
        made[shared] = array.reshape(view.shape)[shared]
    return made


def outputs(plan: Plan, operands: Mapping[str, Any]) -> list[np.ndarray]:
    """What a call wrote, on the host in float64 (complex128 for complex numbers)."""
    found = []
    for spec in arrays_of(plan.args):
        value = operands.get(spec.name)
        if spec.writes and value is not None:
            for one in value if isinstance(value, list) else [value]:
                host = one.get() if hasattr(one, "get") else one
                found.append(host.copy())
    return found


def differ(wanted: list[np.ndarray], made: list[np.ndarray]) -> str | None:
    """Why two rows' outputs are not of one computation, or None."""
    for a, b in zip(wanted, made, strict=True):
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return "its integers are others"
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return "its numbers are not finite where the others' are"
        x, y = (np.where(np.isfinite(one), one, 0) for one in (x, y))
        eps, distance, size = float(ElementKind.of(a.dtype).limits.eps), np.linalg.norm(x - y), np.linalg.norm(x)
        if distance > _AGREE * eps * size:
            return f"it is {distance / max(size, 1e-300):.1e} away, relative to the output"
    return None
