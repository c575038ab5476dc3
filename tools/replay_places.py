"""Where calls are recorded: NumPy, torch and JAX on this machine, and CUDA devices that are not there.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from replay_values import Known, failed, given, is_array, leaves, moved, params, usual, words

_TAKES = re.compile(r"(\w+)\(const __grid_constant__ (\w+) p\)")


_TOLD = re.compile(r"\s*\w+:\S+.* = |.*attributes=|\{ lambda")  # of a jaxpr: its equations, without names of functions


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
        return words(
            f"{type(plan).__name__} {usual(plan.desc)} {usual(plan.preference)} {plan.device} | {row} |{at} {', '.join(operands)}"
        )


class Place:
    """A kind of arrays: `move` makes one of a NumPy array."""

    name = "numpy"
    valued = True

    def __init__(self, plans: Plans) -> None:
        self.plans = plans

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

    def __init__(self, plans: Plans, tree: Path) -> None:
        super().__init__(plans)
        self.second = of_tree(tree, "second_device")

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
        for held in (self.made, self.devices.made, self.devices.called, self.devices.record.launches):
            held.clear()
        self.devices.record.allocations.clear()

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


class Torch(Place):
    """Tensors on the host."""

    name = "torch"
    growing = False

    def move(self, array: np.ndarray) -> Any:
        torch, dense = sys.modules["torch"], array.flags.c_contiguous
        held = np.array(array, order="C")
        if held.dtype.isbuiltin == 1:
            made = torch.from_numpy(held)
        else:  # NumPy has no such element of its own
            carried = held.view(np.int16 if held.itemsize == 2 else np.uint8)
            made = torch.from_numpy(carried).view(getattr(torch, str(held.dtype)))
        if not dense:
            wide = made.new_zeros([2 * n for n in made.shape])
            view = wide[tuple(slice(None, None, 2) for _ in made.shape)]
            view.copy_(made)
            made = view
        return made.requires_grad_() if self.growing and (made.is_floating_point() or made.is_complex()) else made

    def like(self, made: Any) -> Any:
        return made.detach().new_ones(made.shape)

    def begin(self, known: Known) -> None:
        super().begin(known)
        sys.modules["torch"].manual_seed(0)


class Grown(Torch):
    """Tensors on the host that require a gradient, which is asked for."""

    name = "torch gradient"
    growing = True

    def gradients(self, made: Any, operands: Any) -> Any:
        torch = sys.modules["torch"]
        results = [one for _, one in leaves(made) if getattr(one, "requires_grad", False)]
        wanted = [one for _, one in leaves(operands) if one.requires_grad]
        if not results or not wanted:
            return None
        rng = np.random.default_rng(7)
        ups = [self.upstream(torch.from_numpy(rng.standard_normal(tuple(r.shape)).astype("f4")).to(r.dtype), r) for r in results]
        return list(torch.autograd.grad(results, wanted, ups, allow_unused=True))

    def upstream(self, made: Any, result: Any) -> Any:
        """The gradient that comes to a result."""
        return made


class Mirrored(Grown):
    """The functions of `baracuda_py.torch`."""

    name = "baracuda_py.torch"

    def function(self, name: str) -> Any:
        return getattr(sys.modules["baracuda_py.torch"], name)


class Traced(Torch):
    """Tensors without values, as a trace has them."""

    name = "torch trace"
    valued = False

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.mode = FakeTensorMode()
        yield

    def move(self, array: np.ndarray) -> Any:
        return self.mode.from_tensor(super().move(array))

    def function(self, name: str) -> Any:
        made = getattr(sys.modules["baracuda_py.torch"], name)

        def call(*args: Any, **facts: Any) -> Any:
            with self.mode:
                return made(*args, **facts)

        return call


class TorchCuda(Grown):
    """Tensors that say that they are on a CUDA device, and require a gradient."""

    name = "torch cuda"
    valued = False

    def __init__(self, plans: Plans, tree: Path) -> None:
        super().__init__(plans)
        self.recorded = of_tree(tree, "recorded_torch")

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        import pytest

        from baracuda_py.testing.recording import recording

        with pytest.MonkeyPatch.context() as patch, recording() as self.record:
            self.recorded.pretend(patch)
            yield

    def move(self, array: np.ndarray) -> Any:
        made = super().move(array)
        return self.recorded.on_gpu(made.detach()).requires_grad_(made.requires_grad)

    def upstream(self, made: Any, result: Any) -> Any:
        return self.recorded.on_gpu(made)

    def begin(self, known: Known) -> None:
        super().begin(known)
        self.record.launches.clear()

    def launches(self, known: Known) -> list[Any]:
        return [launched(one, known) for one in self.record.launches]


class Jax(Place):
    """JAX arrays on the host: what a call is when JAX traces it."""

    name = "jax"

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        import jax

        with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
            yield

    def function(self, name: str) -> Any:
        jax, plain = sys.modules["jax"], self.plain(name)

        def call(*args: Any, **facts: Any) -> Any:
            held = [args, facts]

            def again(*values: Any) -> Any:
                items = iter(values)
                put = moved(held, lambda a: next(items))
                return [one for _, one in leaves(plain(*put[0], **put[1]))]

            lines = str(jax.make_jaxpr(again)(*(one for _, one in leaves(held)))).splitlines()
            return [line.strip() for line in lines if _TOLD.match(line)]

        call.__name__ = name
        return call

    def plain(self, name: str) -> Any:
        """The function itself."""
        return getattr(sys.modules["baracuda_py.jax"], name)

    def move(self, array: np.ndarray) -> Any:
        return sys.modules["jax"].device_put(np.ascontiguousarray(array).reshape(array.shape))


class JaxGradient(Jax):
    """A call under `jax.vjp`: what it gives are the results and the gradients, or the results and why there are none."""

    name = "jax gradient"

    def function(self, name: str) -> Any:
        jax, plain = sys.modules["jax"], self.plain(name)
        jnp = jax.numpy

        def inexact(one: Any) -> bool:
            return bool(jnp.issubdtype(one.dtype, jnp.inexact))

        def call(*args: Any, **facts: Any) -> Any:
            held = [args, facts]
            wanted = [one for _, one in leaves(held) if inexact(one)]

            def again(*values: Any) -> Any:
                items = iter(values)
                put = moved(held, lambda a: next(items) if inexact(a) else a)
                return [one for _, one in leaves(plain(*put[0], **put[1])) if inexact(one)]

            if not wanted:
                return plain(*args, **facts)
            try:
                made, pull = jax.vjp(again, *wanted)
                rng = np.random.default_rng(7)
                return made, pull([jnp.asarray(rng.standard_normal(one.shape), one.dtype) for one in made])
            except Exception as error:
                return plain(*args, **facts), failed(error)

        call.__name__ = name
        return call


class Functional(Place):
    """`baracuda_py.nn.functional`."""

    name = "nn.functional"

    def function(self, name: str) -> Any:
        return getattr(sys.modules["baracuda_py.nn.functional"], name)


def of_tree(tree: Path, name: str) -> ModuleType:
    """A module of a tree's `tests/interop/`."""
    full = f"tests.interop.{name}"
    spec = importlib.util.spec_from_file_location(full, tree / "tests" / "interop" / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def places(plans: Plans, tree: Path) -> dict[str, Callable[[], Place]]:
    """All, in the order in which they are recorded."""
    simple = [Place, Functional, Torch, Grown, Mirrored, Traced, Jax, JaxGradient]
    made: dict[str, Callable[[], Place]] = {one.name: lambda one=one: one(plans) for one in simple}
    return made | {one.name: lambda one=one: one(plans, tree) for one in (Cupy, TorchCuda)}
