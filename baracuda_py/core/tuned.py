"""Which of several rows a plan takes: what `autotune` measured here, before the order of the dispatch table.

The measurements are a JSON file beside the compiled kernels. An entry is for one device, driver, compiler and version
of this package, one op and element, one class of shapes and one class of layouts; whatever differs is not found. A
measured row only counts where it promises at least what the row would that is taken without it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from .._forking import Mutex
from . import config, lock, storage
from .dispatch import fit
from .tensor import View
from .variant import Problem, Variant

FORMAT = 1
_FILE = "tuned.json"
_EXACT = 16  # extents up to this are a class of their own
_MOST = 1 << 16  # entries that are kept

log = logging.getLogger("baracuda_py.tune")


class Tuner(Protocol):
    """What measures; see `measure.tuner`."""

    def measure(self, plan: Any, problem: Problem, rows: tuple[Variant, ...]) -> Mapping[str, float]:
        """Microseconds by the row's name; rows that compute something else are left out."""

    def again(self, key: str) -> bool:
        """Whether a problem that is known is measured anew."""


_active: ContextVar[Tuner | None] = ContextVar("baracuda_py.tuner", default=None)
_forget: list[Callable[[], None]] = []


def ordered(plan: Any, problem: Problem, measuring: bool = False) -> tuple[Variant, ...]:
    """The plan's rows, the one measured fastest here first, before those that their table puts first for a problem.

    measuring: what is unknown may be measured.
    """
    rows: tuple[Variant, ...] = plan.rows
    if len(rows) < 2 or problem.device.kind != "cuda":
        return rows
    rows = tuple(sorted(rows, key=lambda row: row.first is None or not row.first(problem)))
    table, tuner = measurements(), _active.get() if measuring else None
    if tuner is None and not table.entries():
        return rows
    key, candidates = problem_key(plan, problem), eligible(plan, problem)
    times = table.entries().get(key)
    if tuner is not None and len(candidates) > 1 and (times is None or tuner.again(key)):
        times = dict(tuner.measure(plan, problem, candidates))
        if times:
            table.add(key, times)
    if not times:
        return rows
    best = min((v for v in candidates if v.name in times), key=lambda v: times[v.name], default=None)
    return rows if best is None else (best, *(v for v in rows if v is not best))


@contextlib.contextmanager
def tuning(tuner: Tuner) -> Iterator[None]:
    """While the context lasts, in this thread and its tasks, `tuner` measures what is prepared."""
    for forget in _forget:
        forget()
    token = _active.set(tuner)
    try:
        yield
    finally:
        _active.reset(token)


def on_tuning(forget: Callable[[], None]) -> None:
    """Register what drops prepared layouts, so that they are chosen again."""
    _forget.append(forget)


def eligible(plan: Any, problem: Problem) -> tuple[Variant, ...]:
    """The rows that take a problem and promise no less than the first of them."""
    fitting = [v for v in plan.rows if not isinstance(fit(v, problem, plan.preference), str)]
    promises = [v.guarantee.of(plan.desc.element, plan.kind) for v in fitting]
    return tuple(v for v, p in zip(fitting, promises, strict=True) if p.weakest(promises[0]) == promises[0])


# ---- keys -----------------------------------------------------------------------------------------------------------


def problem_key(plan: Any, problem: Problem) -> str:
    """What an entry is found by."""
    desc = problem.desc
    shapes = ",".join(f"{f.name}={_class(getattr(desc, f.name))}" for f in fields(desc))
    layouts = ",".join(f"{name}:{_layout(view)}" for name, view in sorted(problem.views.items()))
    version = sys.modules[__name__.partition(".")[0]].__version__
    return "|".join((problem.device.name, *plan.runner.versions, version, plan.op, shapes, layouts))


def _class(value: Any) -> str:
    """Extents by the power of two that they reach, and whether 8 divides them; anything else as it is."""
    if isinstance(value, tuple):
        return f"({' '.join(map(_class, value))})"
    if type(value) is int and value > _EXACT:
        return f"{1 << (value - 1).bit_length()}{'' if value % 8 == 0 else 'u'}"
    return str(value)


def _layout(view: Any) -> str:
    if isinstance(view, tuple):
        return f"[{len(view)}]"
    if not isinstance(view, View):
        return "-"
    order = "d" if view.dense else "r" if view.strides[-1:] == (1,) else "c" if view.strides[-2:-1] == (1,) else "s"
    shared = "b" if 0 in view.strides else ""
    return f"{order}{shared}{'16' if view.aligned(16) else ''}"


# ---- the file -------------------------------------------------------------------------------------------------------


class Measurements:
    """The entries of one file. It is read once; entries of other processes are kept when one is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, dict[str, float]] | None = None
        self._mutex = Mutex()

    def entries(self) -> dict[str, dict[str, float]]:
        """Microseconds of each row, by key."""
        found = self._entries
        if found is None:
            with self._mutex():
                found = self._entries = self._read() if self._entries is None else self._entries
        return found

    def add(self, key: str, times: Mapping[str, float]) -> None:
        """Note a measurement, here and in the file where it can be written."""
        with self._mutex():
            self._entries = {**(self._entries or {}), key: dict(times)}
            try:
                storage.make_folder(self.path.parent)
                if why := storage.distrust(self.path.parent):
                    raise OSError(why)
                with lock.exclusive(self.path.with_suffix(".lock")):
                    merged = {**self._read(), **self._entries}
                    kept = dict(list(merged.items())[-_MOST:])
                    storage.write_file(self.path, json.dumps({"format": FORMAT, "entries": kept}, indent=1).encode())
            except OSError as error:
                log.warning("%s cannot be written (%s); measurements last as long as this process", self.path, error)

    def clear(self) -> None:
        """Forget everything."""
        with self._mutex():
            self._entries = {}
            self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            if why := storage.distrust(self.path.parent):
                raise ValueError(why)
            data, _ = storage.read_file(self.path)
            held = json.loads(data)
            if held["format"] != FORMAT:
                return {}
            return {str(key): _times(value) for key, value in held["entries"].items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.warning("%s is not used (%s: %s)", self.path, type(error).__name__, error)
            return {}


def _times(value: Any) -> dict[str, float]:
    return {str(name): float(us) for name, us in value.items() if float(us) > 0}


@cache
def _measurements(directory: Path) -> Measurements:
    config.apply_log_level()
    return Measurements(directory / _FILE)


def measurements() -> Measurements:
    """Those beside the kernels of the cache in force."""
    return _measurements(storage.cache_folder())
