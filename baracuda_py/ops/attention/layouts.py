"""The functional layer's `layout=`: plans take [batch, heads, sequence, d]; "bshd" passes views, axes swapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core import TensorRef
from ...core.args import arrays_of
from ...calls.call import Call
from ...core.checked import failure, shown, truth
from ...core.errors import InvalidProblemError
from ...calls.interpreters import serve
from ...core.arrays import read

LAYOUTS = ("bhsd", "bshd")
PAGE_LAYOUTS = ("hnd", "nhd")  # of paged caches: [page, heads, cell, d] and [page, cell, heads, d]


def is_swapped(layout: str, layouts: Sequence[str] = LAYOUTS) -> bool:
    """Whether the caller's arrays have the second of the layouts, whatever the case: heads after the sequence."""
    name = layout.lower() if isinstance(layout, str) else layout
    if not isinstance(name, str) or name not in layouts:
        raise InvalidProblemError(f"layout must be one of {list(layouts)}, got {shown(layout)}")
    return bool(name == layouts[1])


def swap(array: Any) -> Any:
    """Axes 1 and 2 exchanged, over the same memory; what has not four axes stays, for the plan to judge."""
    try:
        if len(array.shape) != 4:
            return array
    except Exception:
        return array
    if isinstance(array, TensorRef):
        (a, b, c, d), (p, q, r, s) = array.shape, array.strides or ()
        return TensorRef(array.ptr, (a, c, b, d), (p, r, q, s), array.element, array.nbytes, array.device)
    try:
        return array.swapaxes(1, 2)
    except Exception as error:
        shape_of(array, "an operand of layout=")
        raise InvalidProblemError(
            f"layout= takes arrays that have views of themselves, got a {type(array).__name__} ({failure(error)})"
        ) from error


def asked(flags: Mapping[str, Any]) -> dict[str, bool]:
    """Which results are wanted, by name, each flag being True or False."""
    return {name: truth(f"return_{name}", flag) for name, flag in flags.items()}


def shape_of(array: Any, name: str) -> tuple[int, ...]:
    """The four extents of an operand."""
    shape = read(array, name).shape
    if len(shape) != 4:
        raise InvalidProblemError(f"{name} must have four axes, got shape {shape}")
    return shape


@dataclass(frozen=True)
class Layouts:
    """The `layout=` of a generated function: the plan's own and another, in which axes 1 and 2 are exchanged.

    turned_operands: the inputs and outputs that may have four axes in that order.
    """

    turned_operands: tuple[str, ...]
    names: tuple[str, str] = LAYOUTS

    def turned(self, layout: Any) -> tuple[str, ...]:
        """The operands whose axes are exchanged in a call with this layout."""
        return self.turned_operands if is_swapped(layout, self.names) else ()

    def views(self, arrays: Mapping[str, Any], turned: Sequence[str]) -> dict[str, Any]:
        """Operands of the plan for the caller's arrays, or the reverse: those turned are views."""
        return {name: swap(array) if name in turned else array for name, array in arrays.items()}

    def shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The caller's shape of a turned operand."""
        if len(shape) != 4:
            return tuple(shape)
        a, b, c, d = shape
        return a, c, b, d

    def staged(self, call: Call) -> Any:
        """Traced by JAX: outputs that are asked for and updated operands, all of them results, turned back."""
        turned, specs = self.turned(call.layout), arrays_of(call.entry.plan.args)
        asked = [s for s in specs if s.role == "out" and truth(f"return_{s.name}", call.returns.get(s.name, True))]
        made = [s for s in asked if s.needs is None or call.arrays[s.needs] is not None]
        names = [s.name for s in (*made, *(s for s in specs if s.role == "inout"))]
        results = serve(replace(call, arrays=self.views(call.arrays, turned), layout=self.names[0]))
        values = results if len(names) > 1 else (results,)
        found = tuple(self.views(dict(zip(names, values, strict=True)), turned).values())
        return found if len(found) > 1 else found[0]


def check_heads(shapes: Mapping[str, Any], new: str, cache: str, layouts: Sequence[str] = LAYOUTS) -> None:
    """Functional layer: refuse a cache with other heads than what is appended, as one of another layout has."""
    rows, whole = (tuple(shapes[name]) for name in (new, cache))
    if len(rows) > 1 and len(whole) == 4 and rows[1] != whole[1]:
        raise InvalidProblemError(
            f"{cache} of shape {whole} has {whole[1]} heads, {new} of shape {rows} has {rows[1]}: heads are on axis 1 "
            f"of a cache by the default layout={layouts[0]!r}, on axis 2 by layout={layouts[1]!r}"
        )
