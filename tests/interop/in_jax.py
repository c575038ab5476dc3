"""Drawn problems of every page as calls of the functional layer, plain and in JAX."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from baracuda_py.calls.functional import functional
from baracuda_py.core import ElementKind, registry
from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.memo import memo
from baracuda_py.core.plan import Plan
from baracuda_py.testing.draw import Case, SeededDraw, combinations, fill, make_case

jax = pytest.importorskip("jax")
PLANS = registry.plans()


@memo()
def entry(plan: type[Plan]) -> Any:
    """The functional layer of a plan alone, its kind an argument like others."""
    return functional(plan, "entry")


@dataclasses.dataclass
class Drawn:
    """A case and its call: operands as NumPy arrays, everything else by keyword."""

    case: Case
    arrays: dict[str, Any]
    facts: dict[str, Any]

    @property
    def function(self) -> Any:
        return entry(self.case.plan)

    def call(self, **arrays: Any) -> Any:
        return self.function(**arrays, **self.facts)

    def plain(self) -> list[np.ndarray]:
        """What the call makes and updates, on copies of the operands."""
        given = jax.tree.map(np.array, self.arrays)
        made = jax.tree.leaves(self.call(**given))
        specs = arrays_of(self.case.plan.args)
        updated = [given[s.name] for s in specs if s.role == "inout" and s.name in given]
        outputs = made if any(s.role == "out" for s in specs) else []
        return [*outputs, *jax.tree.leaves(updated)]


def drawn(case: Case) -> Drawn:
    plan, desc = case.plan, case.desc
    arrays = {s.name: case.arrays[s.name] for s in arrays_of(plan.args) if s.reads}
    facts = {f.name: getattr(desc, f.name) for f in dataclasses.fields(desc)}
    facts |= {s.name: case.arrays[s.name] for s in scalars_of(plan.args)}
    asked = {s.name: s.name in case.wanted for s in arrays_of(plan.args) if s.role == "out" and s.optional}
    facts |= {f"return_{name}": wanted for name, wanted in asked.items()}
    return Drawn(case, {n: a for n, a in arrays.items() if a is not None}, facts)


def seed_of(plan: type[Plan], kind: Any, element: Any) -> int:
    return zlib.crc32(f"{plan.op} {kind} {element}".encode())


def problems(plan: type[Plan], each: int = 1) -> Iterator[Drawn]:
    """Drawn problems for every kind, and for every element of a plan with few kinds."""
    pairs = combinations(plan)
    for kind, element in pairs if len(pairs) <= 32 else list({k: (k, e) for k, e in pairs}.values()):
        for i in range(each):
            yield drawn(make_case(plan, SeededDraw(seed_of(plan, kind, element) + i, element, kind)))


def alike(case: Case, count: int) -> list[Case]:
    """Cases with the descriptor and the operands of `case`, of the same elements, and other values."""
    present = {s.name: case.arrays.get(s.name) is not None or s.name in case.wanted for s in arrays_of(case.plan.args)}
    rng = np.random.default_rng(7)
    first = fill(case.plan, case.desc, rng, present, kind=case.kind)
    found = [first]
    while len(found) < count:
        one = fill(case.plan, case.desc, rng, present, kind=case.kind)
        pairs = zip(jax.tree.leaves(one.arrays), jax.tree.leaves(first.arrays), strict=True)
        if all(np.asarray(a).dtype == np.asarray(b).dtype for a, b in pairs):
            found.append(one)
    return [dataclasses.replace(one, wanted=case.wanted, arrays=jax.tree.map(_normal, one.arrays)) for one in found]


def _normal(value: Any) -> Any:
    """Subnormal numbers as 0, which XLA makes of them where it repeats narrow floats on the CPU."""
    if not isinstance(value, np.ndarray) or not ElementKind.of(value.dtype).is_float:
        return value
    least = 2.0 ** ElementKind.of(value.dtype).limits.min_exponent
    return np.where(np.abs(value) < least, np.zeros_like(value), value)


def same(ours: Any, theirs: Any) -> bool:
    """Whether two arrays have the same bytes; JAX has float8 where NumPy has the bytes of it."""
    a, b = np.asarray(ours), np.asarray(theirs)
    return a.shape == b.shape and a.itemsize == b.itemsize and a.tobytes() == np.ascontiguousarray(b).tobytes()


def in_jax(value: Any) -> Any:
    """Operands as JAX arrays, or None where JAX has not their elements."""
    made = jax.tree.map(jax.device_put, value)
    leaves = zip(jax.tree.leaves(value), jax.tree.leaves(made), strict=True)
    return made if all(a.dtype == b.dtype for a, b in leaves) else None


WIDEST = (ElementKind.F64, ElementKind.C128)
