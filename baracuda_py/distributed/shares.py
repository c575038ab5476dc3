"""Shares of a sum over ranks whose bits do not depend on how many ranks there are: slices, and one binary tree.

A sum over an axis that is split over ranks is cut into a fixed number of slices. What each comes to is float32 (float64
of float64), and they are added in one binary tree: a rank adds a subtree of neighbours, and the communicator's own tree
over the ranks is what is left of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from ..core import Array
from ..core.arrays import read
from ..core.checked import shown, whole
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.outputs import beside
from ..core.preference import PlanPreference, preferred
from ..core.views import reshaped, shape_of
from ..interop.dynamo import uncompiled
from ..interop.packages import package_name
from ..interop.torch_rules import recorded
from ..ops.elementwise.binary_functions import add
from ..ops.reduce.reduce import sum as summed  # type: ignore[attr-defined]

F = TypeVar("F", bound=Callable[..., Any])
SLICES = 8
GRAPH = "what several ranks do together is no part of a graph"
SAME_ROWS = PlanPreference(batch_invariant=True)
"""What products ask for where the caller asks for nothing: an order of sums that no extent but the summed one sets."""


def layer(plan: Any) -> Callable[[F], F]:
    """Marks a composed function: torch.autocast casts operands as those of a plan, and torch.compile's graph ends."""

    def mark(function: F) -> F:
        made: Any = function
        made.plan, made.fixed = plan, {}
        return uncompiled(GRAPH)(function)

    return mark


def options(stream: Any, preference: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What collectives are called with, and what products and other sums are.

    Of a preference collectives hear whether it asks for one order; rows and backends are those of products.
    """
    asked = None if preference is None else PlanPreference(deterministic=preferred(preference).deterministic)
    return {"stream": stream, "preference": asked}, {"stream": stream, "preference": preference or SAME_ROWS}


def size_of(comm: Any) -> int:
    """The ranks of a communicator; None is one rank alone."""
    if comm is None:
        return 1
    if not isinstance(getattr(comm, "size", None), int) or not isinstance(getattr(comm, "rank", None), int):
        raise InvalidProblemError(f"comm must be a Communicator or None, got {shown(comm)}")
    return int(comm.size)


def rank_of(comm: Any) -> int:
    """This rank."""
    return 0 if comm is None else int(comm.rank)


def slice_bounds(extent: int, comm: Any, slices: int) -> list[tuple[int, int]]:
    """The slices, as (first, end), of this rank's `extent` elements of an axis, of which every rank has as many."""
    size, rank = size_of(comm), rank_of(comm)
    slices = whole("slices", slices, 1)
    each = slices // size
    if slices % size or each & (each - 1):
        raise InvalidProblemError(f"slices must be a power of two for each of the {size} ranks, got {slices} for all")
    all_of = extent * size
    marks = [i * all_of // slices - rank * extent for i in range(rank * each, (rank + 1) * each + 1)]
    return list(pairwise(marks))


def own_part(x: Array, comm: Any, name: str) -> Any:
    """This rank's columns of an array whose last axis every rank has whole."""
    size, columns = size_of(comm), shape_of(x, name)[-1]
    if columns % size:
        raise InvalidProblemError(f"{name} has {columns} columns, which {size} ranks cannot have equal parts of")
    part = columns // size
    return x if size == 1 else x[..., rank_of(comm) * part : (rank_of(comm) + 1) * part]


def as_rows(x: Array, name: str) -> tuple[Any, tuple[int, ...]]:
    """x as a matrix of its last axis, a view, and its other axes."""
    *lead, columns = shape_of(x, name) or (0,)
    if not shape_of(x, name):
        raise InvalidProblemError(f"{name} must have an axis of features at least, got shape ()")
    rows = 1
    for n in lead:
        rows *= n
    view = x if len(lead) == 1 else reshaped(x, (rows, columns), name)
    if view is None:
        raise InvalidProblemError(f"the rows of {name} are no even steps apart; give a contiguous copy of it")
    return view, tuple(lead)


def refuse_traced(*arrays: Any) -> None:
    """Collectives take no part in programs of JAX, where `jax.lax` has its own."""
    if any(package_name(type(x)) == "jax" for x in arrays):
        raise UnsupportedError(
            "layers of several ranks take CuPy, torch and NumPy arrays; in JAX use the ops themselves inside "
            "jax.shard_map, with jax.lax.psum"
        )


def flat(x: Array, stream: Any) -> Any:
    """x along one axis: a view, or where no view is, a copy in the order of the stream."""
    with beside(x, stream):
        return x.reshape((math.prod(shape_of(x, "x")),))


def once(slopes: Any, given: dict[str, Any]) -> dict[str, Any]:
    """A call's operands for its gradient, which is not differentiated again: ranks would have to add their parts."""
    each = slopes if isinstance(slopes, tuple) else (slopes,)
    if any(recorded(one) and not one.is_meta for one in (*each, *given.values())):  # those of meta are not read
        raise UnsupportedError("gradients of layers of several ranks are not differentiated again")
    return {name: value for name, value in given.items() if name != "out"}


class TreeSum:
    """Adds arrays, as they come, in one binary tree: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), and so on.

        total = bc.distributed.TreeSum()
        for batch in micro_batches:
            total.add(gradients(batch))     # an array, or a list of arrays, as many and alike each time
        grads = total.result()

    What is added is not written to. Of 2ⁿ micro-batches on one GPU, or 2ⁿ⁻ᵏ on each of 2ᵏ and `all_reduce` after it,
    the sum has the same bits, which are those of float32 additions for float32 arrays: add no 16-bit ones.
    """

    def __init__(self, *, stream: Any = None, preference: Any = None) -> None:
        self._options = {"stream": stream, "preference": preference}
        self._held: list[tuple[int, list[Any], bool]] = []  # (how many levels, the sums, whether they are its own)
        self._listed: bool | None = None

    def add(self, arrays: Any, *, own: bool = False) -> None:
        """Another array, or list of arrays. own: they may be written to, as the tree then needs no more memory."""
        listed = isinstance(arrays, (list, tuple))
        if self._listed not in (None, listed):
            raise InvalidProblemError("a TreeSum adds arrays, or lists of arrays, and not both")
        entry, self._listed = list(arrays) if listed else [arrays], listed
        if self._held and len(self._held[-1][1]) != len(entry):
            raise InvalidProblemError(f"every list must have {len(self._held[-1][1])} arrays, got {len(entry)}")
        self._held.append((0, entry, own))
        while len(self._held) > 1 and self._held[-1][0] == self._held[-2][0]:
            self._merge()

    def _merge(self) -> None:
        _, right, spare = self._held.pop()
        level, left, own = self._held.pop()
        made = []
        for a, b in zip(left, right, strict=True):
            if shape_of(a, "arrays") != shape_of(b, "arrays"):
                raise InvalidProblemError(
                    f"arrays must have shape {shape_of(a, 'arrays')}, got {shape_of(b, 'arrays')}"
                )
            free = a if own else b if spare else None
            made.append(add(a, b, out=None if free is None or recorded(a) or recorded(b) else free, **self._options))
        self._held.append((level + 1, made, True))

    def result(self) -> Any:
        """The sum of what was added; the TreeSum is empty again."""
        if not self._held:
            raise InvalidProblemError("nothing was added to this TreeSum")
        while len(self._held) > 1:
            self._merge()
        (_, made, _), listed = self._held.pop(), self._listed
        self._listed = None
        return made if listed else made[0]


def wide(x: Array, name: str) -> str:
    """The element of sums of x."""
    kind = read(x, name).element
    if not kind.is_float or kind.bits < 16:
        raise InvalidProblemError(f"{name} must be float16, bfloat16, float32 or float64, got {kind}")
    return str(kind.acc)


def wide_sum(x: Array, axis: int, more: dict[str, Any]) -> Any:
    """The sum over an axis, in the element of sums."""
    acc = wide(x, "x")
    wider = {} if str(read(x, "x").element) == acc else {"out_element": acc}
    return summed(x, axis=axis, **wider, **more)


def product_of_slices(
    a: Array, b: Array, bounds: Sequence[tuple[int, int]], multiply: Any, stream: Any
) -> Any:  # fmt: skip
    """Σ a[..., first:end] @ b[first:end] over slices in their tree; multiply(left, right) makes one of them."""
    total = TreeSum(stream=stream)
    for first, end in bounds:
        total.add(multiply(a[..., first:end], b[first:end]), own=True)
    return total.result()
