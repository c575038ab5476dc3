"""Where calls are recorded: NumPy on this machine, and CUDA devices that are not there.

On these nothing runs: launches go to the recorder of `baracuda_py.testing.recording`, over host memory. How a tree
pretends to have devices is the tree's own affair: it comes from its `tests/interop/`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from replay_values import Known, given, is_array, params, usual, words

_TAKES = re.compile(r"(\w+)\(const __grid_constant__ (\w+) p\)")


class Plans:
    """What plans are run with while a call is made, in their order."""

    def __init__(self, plan: Any) -> None:
        """Every `run` of a plan is seen, whatever a runner puts there in the place of the class's own."""
        self.seen: list[str] = []
        self.known = Known()
        self._watch(plan, "run")
        self._watch(plan, "bind")

    def _watch(self, plan: Any, way: str) -> None:
        own = getattr(plan, way)

        def find(one: Any) -> Any:
            inner = one.__dict__.get(way) or own.__get__(one)

            def call(args: Any, workspace: Any = None, stream: Any = None) -> Any:
                self.seen.append(self.told(one, args, stream))
                return inner(args, workspace, stream)

            return call

        setattr(plan, way, property(find, lambda one, call: one.__dict__.__setitem__(way, call)))

    def begin(self, known: Known) -> None:
        """Forget, and name what the next call is given."""
        self.seen, self.known = [], known

    def told(self, plan: Any, args: Any, stream: Any) -> str:
        """A plan, what it was asked for, the row that it takes, and the operands."""
        verdict = plan.can_implement(args)
        row = str(verdict.sku) if verdict else type(verdict.error).__name__
        operands = [
            f"{field.name}={given(value, self.known, False)}" for field in dataclasses.fields(args)
            if (value := getattr(args, field.name)) is not None
        ]  # fmt: skip
        at = "" if stream is None else f" stream {stream}"
        asked = f"{type(plan).__name__} {usual(plan.desc)} {usual(plan.preference)} {plan.device}"
        return words(f"{asked} | {row} |{at} {', '.join(operands)}")


class Place:
    """A kind of arrays: `move` makes one of a NumPy array."""

    name = "numpy"
    valued = True

    def __init__(self, plans: Plans, tree: Path) -> None:
        self.plans, self.tree = plans, tree
        self.second = of_tree(tree, "second_device")

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        """While calls of this place are made."""
        yield

    def function(self, name: str) -> Any:
        """The public function."""
        return getattr(sys.modules["baracuda_py"], name)

    def move(self, array: np.ndarray) -> Any:
        """An array of this place, dense or strided as the given one."""
        return np.array(array, copy=True) if array.flags.c_contiguous else _strided(array)

    def like(self, made: Any) -> Any:
        """An array that a call may write in the place of one that it made."""
        return np.full_like(made, 1)

    def forget(self) -> None:
        """Before the calls of a function: what is kept of others, so that nothing depends on which they were."""
        self.second.forget()

    def begin(self, known: Known) -> None:
        """Before a call."""
        random.seed(0)
        np.random.seed(0)
        self.plans.begin(known)

    def launches(self, known: Known) -> list[Any]:
        """What a call launched."""
        return []

    def gradients(self, made: Any, operands: Any) -> Any:
        """What the gradients of a call come to, where autograd has recorded it."""
        return None


def _strided(array: np.ndarray) -> np.ndarray:
    """A copy with the strides of a view."""
    base = np.zeros(tuple(2 * n for n in array.shape), array.dtype)
    view = base[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


class Cupy(Place):
    """CuPy arrays on a device that is not there."""

    name = "cuda"
    valued = False

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        import cupy
        import pytest

        with pytest.MonkeyPatch.context() as patch, self.second.two_devices(patch) as self.devices:
            self.devices.use(0)
            self.made: list[Any] = []
            allocate, new = self.devices.allocate, self.devices.new
            patch.setattr(cupy, "asarray", lambda values: self._kept(new(values)))
            patch.setattr(cupy, "arange", lambda *a, **k: self._kept(new(np.arange(*a, **k))))
            with cupy.cuda.using_allocator(lambda nbytes: self._kept(allocate(nbytes))):
                yield

    def _kept(self, made: Any) -> Any:
        self.made.append(made)
        return made

    def move(self, array: np.ndarray) -> Any:
        return self.devices.array(array, 0, 1 if array.flags.c_contiguous else 2)

    def like(self, made: Any) -> Any:
        return self.devices.array(np.zeros(made.shape, made.dtype), 0)

    def begin(self, known: Known) -> None:
        super().begin(known)
        record = self.devices.record
        for held in (
            self.made,
            self.devices.made,
            self.devices.called,
            record.launches,
            record.allocations,
            record.kept,
        ):
            held.clear()

    def launches(self, known: Known) -> list[Any]:
        """The launches, then calls of libraries, and the sizes of what was allocated."""
        for i, one in enumerate(self.made):
            known.memory(f"made {i}", *((one.data.ptr, one.nbytes) if is_array(one) else (one.ptr, one.mem.size)))
        for one in self.devices.record.allocations:
            known.memory("workspace", one.ptr, one.bytes.nbytes)
        found: list[Any] = [launched(one, known) for one in self.devices.record.launches]
        found += [f"library on {place}" for place in self.devices.called]
        sizes = sorted(int(one.mem.size) for one in self.made if not is_array(one))
        return [*found, *([f"allocated {sizes}"] if sizes else [])]


def launched(one: Any, known: Known) -> dict[str, Any]:
    """A launch by what the driver would have been given."""
    takes = dict(_TAKES.findall(one.function.unit.text))
    found: dict[str, Any] = {"kernel": one.function.symbol, "grid": list(one.grid), "block": list(one.block)}
    found |= {"smem": one.smem} if one.smem else {}
    found |= {"cluster": one.cluster} if one.cluster != 1 else {}
    found |= {"stream": one.stream, "options": " ".join(one.function.unit.options)}
    struct_name = takes.get(one.function.symbol, "")
    return found | {"params": params(one.function.unit.text, struct_name, one.image, known)}


class Functional(Place):
    """`baracuda_py.nn.functional`."""

    name = "nn.functional"

    def function(self, name: str) -> Any:
        return getattr(sys.modules["baracuda_py.nn.functional"], name)


def of_tree(tree: Path, name: str) -> ModuleType:
    """A module of a tree's `tests/interop/`."""
    full = f"tests.interop.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, tree / "tests" / "interop" / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
