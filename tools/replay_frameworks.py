"""Where calls are recorded, continued: torch and JAX on this machine, and torch on CUDA devices that are not there."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from replay_places import Cupy, Functional, Place, Plans, launched, of_tree
from replay_values import Known, failed, leaves, moved

_TOLD = re.compile(r"\s*\w+:\S+.* = |.*attributes=|\{ lambda")  # of a jaxpr: its equations, without names of functions


_TOKEN = re.compile(r"(?<=[0-9a-f]{32}) [0-9a-f]{32}")  # by which a process names a formula's problem to itself


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
        ups = [
            self.upstream(torch.from_numpy(rng.standard_normal(tuple(r.shape)).astype("f4")).to(r.dtype), r)
            for r in results
        ]
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
        super().__init__(plans, tree)
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
        for held in (self.record.launches, self.record.allocations, self.record.kept):
            held.clear()

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
            return [_TOKEN.sub("", line.strip()) for line in lines if _TOLD.match(line)]

        call.__name__ = name
        return call

    def forget(self) -> None:
        super().forget()
        sys.modules["jax"].clear_caches()

    def plain(self, name: str) -> Any:
        """The function itself."""
        return getattr(sys.modules["baracuda_py.jax"], name)

    def move(self, array: np.ndarray) -> Any:
        return sys.modules["jax"].device_put(np.ascontiguousarray(array).reshape(array.shape))


class JaxGradient(Jax):
    """A call under `jax.vjp`: the results and the gradients, or the results and why there are none."""

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


def places(plans: Plans, tree: Path) -> dict[str, Callable[[], Place]]:
    """All places, in the order in which they are recorded."""
    kinds: list[type[Place]] = [
        Place, Functional, Torch, Grown, Mirrored, Traced, Jax, JaxGradient, Cupy, TorchCuda,
    ]  # fmt: skip
    return {one.name: partial(one, plans, tree) for one in kinds}
