"""Products of arrays whose axes have labels: a sum, an elementwise product, or a matrix product of views, each a plan.

What einsum, tensordot and dot_general are made of. A label that two factors share and the result does not have is
summed over, one that only one has and the result not is summed away first. Axes are grouped by reading strides, so
that a matrix product gets views; a factor whose axes no strides group is copied once, and so is a result for an `out=`
of that kind.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ...core.element import COMPLEX, FLOATS, HALVES, INTS, ElementKind
from ...core.errors import UnsupportedError
from ...core.preference import PlanPreference
from ...core.views import diagonal, permuted, reshaped, with_axis, without_axes
from ...core.arrays import Reading, read
from ...interop.packages import package_name
from ..elementwise.binary_functions import mul
from ..elementwise.binary_numbers import promoted
from ..elementwise.cast import cast
from ..elementwise.unary import positive  # type: ignore[attr-defined]
from ..reduce import reduce as reductions
from ..reduce.reduce_kinds import total
from ..reduce.vecdot import vecdot
from .gemm import gemm
from .equation import Label

Labels = tuple[Label, ...]
ELEMENTS = (*FLOATS, *INTS, *COMPLEX)
MANY = 64  # products of an element beyond which a copy costs less than cuBLAS gains, which takes one batch axis alone


class Factor:
    """An array with a label for each axis, none twice and none of extent 1; strides are None where there are none."""

    def __init__(self, array: Any, labels: Labels, view: Reading | None = None) -> None:
        view = view or read(array, "operand")
        self.array, self.labels, self.element = array, labels, view.element
        self.package = package_name(type(array))
        self.extents = dict(zip(labels, view.shape, strict=True))
        self.strides = None if self.package == "jax" else dict(zip(labels, view.strides, strict=True))
        self.size = math.prod(view.shape)

    def arranged(self, order: Sequence[Label]) -> Any:
        """A view with the axes in this order, of extent 1 where there is none of a label."""
        made = permuted(self.array, [self.labels.index(one) for one in order if one in self.labels], "operand")
        for place, label in enumerate(order):
            if label not in self.labels:
                made = with_axis(made, place, "operand")
        return made

    def groups(self, order: Sequence[Label]) -> bool:
        """Whether axes that follow each other in this order are one axis for the strides."""
        if len(order) < 2 or self.strides is None or not self.size:
            return True
        return all(self.strides[p] == self.strides[q] * self.extents[q] for p, q in pairwise(order))

    def grouped(self, *groups: Sequence[Label]) -> Any:
        """A view with an axis for each group; None where no strides say so."""
        made = self.arranged([label for group in groups for label in group])
        if all(len(group) == 1 for group in groups):
            return made
        shape = [math.prod([self.extents[label] for label in group]) for group in groups]
        return reshaped(made, shape, "operand")

    def descending(self, labels: Iterable[Label]) -> list[Label]:
        """Labels in the order of their strides, the longest first."""
        strides = self.strides or {}
        return sorted(labels, key=lambda label: -abs(strides.get(label, 0)))


@dataclasses.dataclass(frozen=True)
class Options:
    """What the steps of a contraction are told; out_element is that of the last, None as the operands'."""

    math_precision: str = "element"
    stream: Any = None
    preference: Any = None
    out_element: ElementKind | None = None

    @property
    def of_products(self) -> dict[str, Any]:
        """For matrix products."""
        facts = {"stream": self.stream, "preference": self.preference, "out_element": self.out_element}
        return facts if self.math_precision == "element" else {**facts, "math_precision": self.math_precision}

    @property
    def of_others(self) -> dict[str, Any]:
        """For the other plans, whose backends are none that a matrix product has."""
        return {"stream": self.stream, "preference": of_any_backend(self.preference)}


def of_any_backend(preference: Any) -> Any:
    """A preference for plans that do not have the backends of a matrix product."""
    if isinstance(preference, PlanPreference) and preference.prefer_backend is not None:
        return dataclasses.replace(preference, prefer_backend=None)
    return preference


def factor(array: Any, labels: Labels) -> Factor:
    """An operand as a factor: a label that stands twice is a diagonal, an axis of extent 1 is left out."""
    view = read(array, "operand")
    single = [axis for axis, n in enumerate(view.shape) if n == 1]
    if not single and len(set(labels)) == len(labels):
        return Factor(array, labels, view)
    array = without_axes(array, single, "operand")
    left = [label for axis, label in enumerate(labels) if axis not in single]
    while len(set(left)) < len(left):
        second = next(axis for axis, label in enumerate(left) if label in left[:axis])
        array = diagonal(array, left.index(left[second]), second, "operand")
        del left[second]
    return Factor(array, tuple(left))


def same_element(name: str, kinds: Sequence[ElementKind]) -> ElementKind:
    """The element of all operands of a product; raises where they differ, or there is none of it."""
    for place, kind in enumerate(kinds):
        if kind is not kinds[0]:
            wanted = promoted(kinds[0], kind)
            raise UnsupportedError(
                f"{name}: operand 0 is {kinds[0]} and operand {place} is {kind}; nothing is promoted unasked: cast(…, "
                f"'{wanted}') the others first"
            )
        if kind not in ELEMENTS:
            raise UnsupportedError(f"{name}: operand {place} is {kind}, which has no products; cast(…, 'float32') it")
    return kinds[0]


def summed(x: Factor, kept: Labels, options: Options) -> Factor:
    """The factor with all labels but those kept summed away; integers keep their element, and wrap."""
    made = totalled(x, kept, options)
    if made.element is x.element:
        return made
    return Factor(cast(made.array, x.element, **options.of_others), made.labels)


def totalled(x: Factor, kept: Labels, options: Options, target: Any = None) -> Factor:
    """The factor with all labels but those kept summed away as by `sum`, integers in 64 bits; target: what is written.

    A target of integers of fewer bits gets the totals modulo theirs.
    """
    axes = tuple(axis for axis, label in enumerate(x.labels) if label not in kept)
    if not axes:
        return x
    left = tuple(label for label in x.labels if label in kept)
    add_up = reductions.__dict__["sum"]
    if target is not None and read(target, "out").element is x.element is not total(x.element):
        wide = add_up(x.array, axis=axes, **options.of_others)
        return Factor(cast(wide, x.element, out=target, **options.of_others), left)
    return Factor(add_up(x.array, axis=axes, out=target, **options.of_others), left)


def contract(a: Factor, b: Factor, wanted: Labels, options: Options, target: Any = None) -> Any:
    """The array of the sum of a b over the labels that are not wanted, its axes in the order wanted.

    target: what is written, with these axes; else a new array, or a view of one.
    """
    a = summed(a, tuple(label for label in a.labels if label in wanted or label in b.labels), options)
    b = summed(b, tuple(label for label in b.labels if label in wanted or label in a.labels), options)
    inner = [label for label in a.labels if label not in wanted]
    widened = options.out_element not in (None, a.element)
    if not inner and not widened:
        return mul(a.arranged(wanted), b.arranged(wanted), out=target, **options.of_others)
    alone = all(label in a.labels and label in b.labels for label in wanted)
    if not a.element.is_float or (alone and not widened):
        return _dotted(a, b, wanted, inner, options, target)
    if wanted and wanted[-1] not in b.labels and a.package == b.package:
        a, b = b, a  # so that the result's last axis is the product's
    return _multiplied(a, b, wanted, inner, options, target)


def _dotted(a: Factor, b: Factor, wanted: Labels, inner: list[Label], options: Options, target: Any) -> Any:
    """Row by row, any strides; integers are totalled in 64 bits, and wrap where their element is narrower."""
    left, right = a.arranged((*wanted, *inner)), b.arranged((*wanted, *inner))
    facts = {"axis": tuple(range(len(wanted), len(wanted) + len(inner))), "conjugate": False}
    goal = options.out_element or a.element
    if goal is total(a.element):
        return vecdot(left, right, **facts, out=target, **options.of_others)
    return cast(vecdot(left, right, **facts, **options.of_others), goal, out=target, **options.of_others)


def _multiplied(a: Factor, b: Factor, wanted: Labels, inner: list[Label], options: Options, target: Any) -> Any:
    """A product of matrices: a's rows are its own labels, b's columns its own, what both keep is the batch."""
    batch = _common([label for label in wanted if label in a.labels and label in b.labels], a, b)
    rows = [label for label in wanted if label not in b.labels]
    columns = [label for label in wanted if label not in a.labels]
    goal = None if target is None else Factor(target, wanted)
    inner, met = _common(inner, a, b), (_count(columns, b), _count(rows, a))
    a, rows = _matrix(a, batch, rows, inner, met[0], goal, options)
    b, columns = _matrix(b, batch, columns, inner, met[1], goal, options)
    each = [[label] for label in batch]
    y = None if goal is None else goal.grouped(*each, rows, columns)
    left, right = a.grouped(*each, rows, inner), b.grouped(*each, inner, columns)
    made = gemm(left, right, out=y, **options.of_products)
    if y is not None:
        return target
    order = [*batch, *rows, *columns]
    extents = {**a.extents, **b.extents}
    if len(rows) != 1 or len(columns) != 1:
        made = reshaped(made, [extents[label] for label in order], "y")
    made = permuted(made, [order.index(label) for label in wanted], "y")
    return made if target is None else copied(made, out=target, **options.of_others)


def _common(labels: list[Label], a: Factor, b: Factor) -> list[Label]:
    """The order of what both have in which it is one axis for the strides of most elements."""

    if a.groups(labels) and b.groups(labels):
        return labels

    def served(order: list[Label]) -> int:
        return sum(x.size for x in (a, b) if x.groups(order))

    return max((labels, a.descending(labels), b.descending(labels)), key=served)  # the first of equals


def _count(labels: list[Label], x: Factor) -> int:
    return math.prod([x.extents[label] for label in labels])


def _matrix(
    x: Factor, batch: list[Label], own: list[Label], inner: list[Label], met: int, goal: Factor | None, options: Options
) -> tuple[Factor, list[Label]]:
    """x with its own labels in an order that groups them in it, and in the result where one does; a copy if none.

    met: with how many elements of the other factor each of x is multiplied.
    """
    orders = [order for order in (own, x.descending(own)) if x.groups(order)] if x.groups(inner) else []
    if orders and (x.groups(batch) or met < MANY or x.element in HALVES):
        return x, next((order for order in orders if goal is None or goal.groups(order)), orders[0])
    order = [*batch, *own, *inner]
    return Factor(copied(x.arranged(order), **options.of_others), tuple(order)), own


def copied(x: Any, **options: Any) -> Any:
    """A dense array of what x holds, or `out`; with a gradient, which a cast has not."""
    element = read(x, "operand").element
    return cast(x, element, **options) if element.is_complex else positive(x, **options)
