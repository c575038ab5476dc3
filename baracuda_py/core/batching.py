"""A batch of problems as one: the descriptor that holds one more axis, where the declarations show that there is one.

An op is independent along a leading axis where prepending an extent to a shape field of its descriptor (shifting the
fields that name axes) prepends it to every operand that is mapped, and to every output, and to nothing else; or where
multiplying `batch_size` does so. Extents are checked with one that occurs nowhere else, so that no equality is chance.
A random stream is numbered by element: ops that draw from one have no such problem.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

from .args import Operand, scalars_of
from .errors import BaracudaError
from .plan import Plan

_PROBE = 1009  # a prime that no extent of a problem is
Shapes = dict[str, tuple[int, ...]]
Held = Sequence[tuple[Operand, tuple[int, ...]]]
"""The operands and outputs of a problem, none of them a list, with their shapes."""


def batched(
    plan: type[Plan], desc: Any, held: Held, mapped: Collection[str], size: int, check: Callable[[Any, Shapes], bool]
) -> tuple[Any, Shapes] | None:
    """The descriptor of `size` problems at once, and the shapes of all that is `held`, of which `mapped` have an item
    for each problem; None where the declarations do not show that there is one.

    check: whether a descriptor serves operands of these shapes.
    """
    if plan.coupled(desc):
        return None
    random = any(spec.name == "seed" for spec in scalars_of(plan.args))
    if random and getattr(desc, "dropout_p", 1.0) != 0.0:
        return None
    for change in _changes(desc, held):
        if _fits(desc, held, change, _PROBE, mapped, check) is not None:
            return _fits(desc, held, change, size, mapped, check)
    return None


Change = Callable[[Any, int], Any]  # a descriptor and a number of items → the descriptor of all of them


def _changes(desc: Any, held: Held) -> Iterator[tuple[Change, bool]]:
    """Ways to widen the descriptor, and whether each multiplies an extent instead of prepending one."""
    fields = {f.name for f in dataclasses.fields(desc)}
    stars = [[dim[1:] if dim[0] == "*" else "" for dim in spec.dims] for spec, _ in held]
    inner = {name for dims in stars for name in dims[1:]}  # an extent before one of these lies between others
    known = [name for name in dict.fromkeys((*(dims[0] for dims in stars if dims), "shape")) if name in fields - inner]
    for count in range(1, len(known) + 1):
        for chosen in itertools.combinations(known, count):
            yield partial(_prepended, names=chosen), False
    if "batch_size" in fields:
        yield (lambda desc, size: dataclasses.replace(desc, batch_size=size * desc.batch_size)), True


def _prepended(desc: Any, size: int, names: tuple[str, ...]) -> Any:
    """The descriptor with an extent before those of some shapes; axes that count from the front move by one."""
    facts: dict[str, Any] = {name: (size, *getattr(desc, name)) for name in names}
    for field in dataclasses.fields(desc):
        if field.name.startswith(("axis", "axes")):
            facts[field.name] = _shifted(getattr(desc, field.name))
    return dataclasses.replace(desc, **facts)


def _shifted(axes: Any) -> Any:
    if isinstance(axes, tuple):
        return tuple(_shifted(axis) for axis in axes)
    return axes + 1 if isinstance(axes, int) and axes >= 0 else axes


def _fits(
    before: Any, held: Held, change: tuple[Change, bool], size: int, mapped: Collection[str],
    check: Callable[[Any, Shapes], bool],
) -> tuple[Any, Shapes] | None:  # fmt: skip
    """The wider problem, if every operand gets the axis that must, and no other changes."""
    make, folds = change
    try:
        desc = make(before, size)
    except BaracudaError:
        return None
    shapes: Shapes = {}
    like = {spec.like for spec, _ in held if spec.like}
    for spec, one in sorted(held, key=lambda item: item[0].like is not None):
        if spec.like:
            new: tuple[int, ...] | None = shapes[spec.like]
        else:
            new = _shape(spec, one, before, desc, size, folds, spec.name in mapped, spec.name in like)
        if new is None or (spec.writes and math.prod(new) != size * math.prod(one)):
            return None
        shapes[spec.name] = new
    return (desc, shapes) if check(desc, shapes) else None


def _shape(
    spec: Operand, one: tuple[int, ...], before: Any, after: Any, size: int, folds: bool, mapped: bool, like: bool
) -> tuple[int, ...] | None:
    """An operand's shape in the wider problem; None where the declaration does not give it the axis it must have."""
    old, new = spec.shape(before), spec.shape(after)
    wide = (size * old[0], *old[1:]) if folds and old else (size, *old)
    if new not in (old, wide) or (new == old and (mapped or spec.writes)):
        return None
    if new == old:
        return one
    if not spec.broadcast:
        return new
    if not mapped and not like and (len(one) < len(old) or not folds or one[0] == 1):
        return one  # broadcast to every item as to one
    rest = (*(1,) * (len(old) - len(one)), *one)
    if not folds:
        return (size, *rest)
    return None if like and rest[:1] != old[:1] else (size * old[0], *rest[1:])
