"""einsum, tensordot and dot_general: products of any axes of arrays, each step a plan on views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...calls.entries import entry
from ...core.views import permuted, shape_of, with_axis, without_axes
from ...core.arrays import read
from ..elementwise.cast import cast
from ..reduce.reduce_kinds import total
from .contraction import ELEMENTS, Factor, Labels, Options, contract, copied, factor, same_element, totalled
from .gemm import GemmPlan
from .equation import Equation, Label, Text, of_lists, parse, solved
from .paths import Path, checked_path, path_of


def _spelled(equation: Any, operands: Sequence[Any]) -> tuple[Text, list[Any]]:
    """An equation and its operands from either way to write them."""
    if isinstance(equation, str):
        many = len(operands) == 1 and isinstance(operands[0], (list, tuple))
        return parse(equation), list(operands[0] if many else operands)
    if not operands or not isinstance(operands[0], (list, tuple)):
        raise InvalidProblemError(
            "einsum: first stands an equation such as 'ij,jk->ik', or operands each with a list of labels, got a "
            f"{type(equation).__name__}"
        )
    given = [equation, *operands]
    output = given.pop() if len(given) % 2 else None
    return of_lists(given[1::2], output), given[::2]


def product(
    name: str, equation: Equation, arrays: Sequence[Any], options: Options, out: Any = None, path: Path | None = None
) -> Any:
    """The array of an equation; out: what is written."""
    shape = tuple(equation.extents[label] for label in equation.output)
    given = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    if given is not None and shape_of(given, "out") != shape:
        raise InvalidProblemError(f"{name}: out must have shape {shape}, got {shape_of(given, 'out')}")
    single = [axis for axis, n in enumerate(shape) if n == 1]
    wanted = tuple(label for label in equation.output if equation.extents[label] != 1)
    target = None if given is None else without_axes(given, single, "out")
    if len(arrays) == 1:
        arrays = [_counted(arrays[0], equation, given, options)]
    factors = [factor(x, labels) for x, labels in zip(arrays, equation.inputs, strict=True)]
    if len(arrays) > 1 or set(equation.output) < set(equation.extents):
        same_element(name, [x.element for x in factors])
    if path is None:
        path = path_of([x.labels for x in factors], wanted, equation.extents)
    made = _along(path, factors, wanted, options, target)
    if given is not None:
        return given
    return reduce(lambda y, axis: with_axis(y, axis, "y"), single, made)


def _counted(x: Any, equation: Equation, out: Any, options: Options) -> Any:
    """An operand alone, in the element of its sums where all that are made are of one element each."""
    away = set(equation.inputs[0]) - set(equation.output)
    kind = read(x, "operand 0").element
    wide = total(kind) if kind in ELEMENTS else kind
    if not away or wide is kind or any(equation.extents[label] != 1 for label in away):
        return x
    return x if out is not None and read(out, "out").element is kind else cast(x, wide, **options.of_others)


def _along(path: Path, live: list[Factor], wanted: Labels, options: Options, target: Any) -> Any:
    """The product of all factors in the order of a path."""
    for step in path:
        taken = [live[at] for at in step]
        live = [x for at, x in enumerate(live) if at not in step]
        while len(taken) > 1:
            a, b, *taken = taken
            if not live and not taken:
                return contract(a, b, wanted, options, target)
            needed = {*wanted, *(label for x in (*live, *taken) for label in x.labels)}
            kept = tuple(label for label in dict.fromkeys((*a.labels, *b.labels)) if label in needed)
            taken = [Factor(contract(a, b, kept, replace(options, out_element=None)), kept), *taken]
        live += taken
    return _alone(live[0], wanted, options, target)


def _alone(x: Factor, wanted: Labels, options: Options, target: Any) -> Any:
    """One factor: a view of it, or its sum over what is not wanted."""
    if set(x.labels) == set(wanted):
        y = x.arranged(wanted)
        return y if target is None else copied(y, out=target, **options.of_others)
    kept = tuple(label for label in x.labels if label in wanted)
    to = None if target is None else permuted(target, [wanted.index(label) for label in kept], "out")
    return totalled(x, kept, options, to).arranged(wanted)


@entry(GemmPlan)
def einsum(
    equation: Any, *operands: Any, path: Any = None, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The sum of products that an equation names, "ij,jk->ik" (torch.einsum, numpy.einsum, jax.numpy.einsum).

    A letter names an axis, of one extent in all operands or 1, which broadcasts; a letter twice in an operand is a
    diagonal, "..." any further axes, aligned at the right. Letters that the result after "->" has not are summed over;
    without "->" it has the axes of the ellipses and then, sorted, the letters that stand once. The same in integers:
    `einsum(a, [0, 1], b, [1, 2], [0, 2])`. Operands have one element, real, integer or complex. Products of integers
    keep it, and wrap; sums of one operand are those of `sum`, in 64 bits.

    Of several operands two at a time are multiplied, in the order of `path` (see `einsum_path`), or by default in
    opt_einsum's where it is installed, else smallest results first. Each step is one plan on views: a batched matrix
    product of floats where an operand has axes of its own (tf32 by `math_precision`), else `vecdot` (also all sums of
    products of integers and complex numbers) or, with nothing to sum, `mul`; axes that one operand has alone are summed
    away by a plan before. An operand is copied first only where the axes that become the rows, the columns or the sum
    of a matrix product are not evenly spaced as one; of float32 and float64 the batch axes, too, if each element meets
    64 others. The result is copied only into an `out=` whose axes are so, and an integer narrower than 64 bits after a
    sum, to its element. A result of one operand with nothing to sum is a view of it, and one of a matrix product may be
    transposed in memory.
    """
    text, arrays = _spelled(equation, operands)
    found = solved(text, tuple([shape_of(x, f"operand {place}") for place, x in enumerate(arrays)]))
    steps = None if path is None else checked_path(path, len(arrays))
    return product("einsum", found, arrays, Options(math_precision, stream, preference), out, steps)


@exported
def einsum_path(equation: Any, *operands: Any) -> Path:
    """The order in which `einsum` multiplies its operands, for its `path=` (numpy.einsum_path): places, step by step.

    Each step takes the operands at its places out of the list; what it makes of them comes last. Only shapes count, and
    a shape may stand in an array's place.
    """
    text, arrays = _spelled(equation, operands)
    shapes = [tuple(x) if isinstance(x, (list, tuple)) else shape_of(x, f"operand {i}") for i, x in enumerate(arrays)]
    found = solved(text, tuple(shapes))
    extents = found.extents
    inputs = [tuple(label for label in dict.fromkeys(labels) if extents[label] != 1) for labels in found.inputs]
    return path_of(inputs, [label for label in found.output if extents[label] != 1], extents)


def _axes(name: str, said: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Axes of an operand, counted from its first."""
    listed = axes if isinstance(axes, (list, tuple)) else [axes]
    found = [whole(f"{name}: {said}", axis) for axis in listed]
    if any(not -rank <= axis < rank for axis in found) or len({axis % rank for axis in found}) < len(found):
        raise InvalidProblemError(f"{name}: {said} must be different axes of an array of {rank}, got {shown(axes)}")
    return tuple(axis % rank for axis in found)


def _paired(
    name: str, a: Any, b: Any, pairs: Mapping[int, int], batch: Sequence[int] = (), strict: bool = False
) -> Equation:
    """The equation of two arrays whose axes are paired, a's to b's: summed over, but kept where they are in `batch`."""
    left, right = shape_of(a, "a"), shape_of(b, "b")
    for i, j in pairs.items():
        if left[i] != right[j] and (strict or 1 not in (left[i], right[j])):
            raise InvalidProblemError(f"{name}: axis {i} of a {left} and axis {j} of b {right} are not as long")
    of = {j: i for i, j in pairs.items()}
    labels: tuple[tuple[Label, ...], ...] = (
        tuple(range(len(left))), tuple(of.get(j, len(left) + j) for j in range(len(right)))
    )  # fmt: skip
    output = (*batch, *(i for i in labels[0] if i not in pairs), *(j for j in labels[1] if j not in pairs))
    extents = dict(zip(labels[0], left, strict=True))
    for label, n in zip(labels[1], right, strict=True):
        extents[label] = n if extents.get(label, 1) == 1 else extents[label]
    return Equation(labels, output, extents)


@entry(GemmPlan)
def tensordot(
    a: Array, b: Array, axes: Any = 2, *, math_precision: str = "element", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The sum of products along axes of a and axes of b (torch.tensordot, numpy.tensordot): a's others, then b's.

    axes: how many of a's last are summed with as many of b's first, or a list of a's and one of b's. Along an axis of
    extent 1 it broadcasts. One step of `einsum`, which says what is copied.
    """
    ranks = len(shape_of(a, "a")), len(shape_of(b, "b"))
    if not isinstance(axes, (list, tuple)):
        count = whole("tensordot: axes", axes, 0, min(ranks))
        axes = tuple(range(ranks[0] - count, ranks[0])), tuple(range(count))
    if len(axes) != 2:
        raise InvalidProblemError(f"tensordot: axes must be a number, or axes of a and axes of b, got {shown(axes)}")
    first, second = (_axes("tensordot", f"axes[{i}]", one, ranks[i]) for i, one in enumerate(axes))
    if len(first) != len(second):
        raise InvalidProblemError(f"tensordot: {len(first)} axes of a are paired with {len(second)} of b")
    found = _paired("tensordot", a, b, dict(zip(first, second, strict=True)))
    return product("tensordot", found, (a, b), Options(math_precision, stream, preference), out)


@entry(GemmPlan)
def dot_general(
    a: Array, b: Array, dimension_numbers: Any, *, math_precision: str = "element", out_element: Any = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The sum of products of ((a's summed, b's summed), (a's batch, b's batch)) axes (jax.lax.dot_general).

    The result has the batch axes, then a's others, then b's. out_element: of the result, by default that of a and b;
    float32 of 16-bit floats, any integer of integers. One step of `einsum`, which says what is copied.
    """
    summed, batch = paired_axes("dot_general", a, b, dimension_numbers)
    element = None if out_element is None else ElementKind.of(out_element)
    options = Options(math_precision, stream, preference, element)
    found = _paired("dot_general", a, b, summed | batch, tuple(batch), strict=True)
    return product("dot_general", found, (a, b), options, out)


def paired_axes(name: str, a: Any, b: Any, dimension_numbers: Any) -> tuple[dict[int, int], dict[int, int]]:
    """The axes of a that are summed over and those of the batch, each with b's that belongs to it."""
    ranks = {"a": len(shape_of(a, "a")), "b": len(shape_of(b, "b"))}
    pairs: list[dict[int, int]] = []
    for said, both in zip(("summed", "batch"), _halves(name, dimension_numbers), strict=True):
        each = zip("ab", _halves(name, both), strict=True)
        of_a, of_b = (_axes(name, f"{said} axes of {x}", axes, ranks[x]) for x, axes in each)
        if len(of_a) != len(of_b):
            raise InvalidProblemError(f"{name}: {len(of_a)} {said} axes of a are paired with {len(of_b)} of b")
        pairs.append(dict(zip(of_a, of_b, strict=True)))
    twice = {*pairs[0]} & {*pairs[1]} or {*pairs[0].values()} & {*pairs[1].values()}
    if twice:
        raise InvalidProblemError(f"{name}: axis {min(twice)} is summed and batch: {shown(dimension_numbers)}")
    return pairs[0], pairs[1]


def _halves(name: str, both: Any) -> Any:
    if not isinstance(both, (list, tuple)) or len(both) != 2:
        raise InvalidProblemError(
            f"{name}: dimension_numbers must be ((summed of a, of b), (batch of a, of b)), got {shown(both)}"
        )
    return both
