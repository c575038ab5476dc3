"""unique and unique_consecutive: the different elements of an array, counts, and which each element is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Variant, derived,
    element, extent, flag, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import shown, truth, whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.variant import Step, aligned
from ...core.views import shape_of
from ...schedules.geometry import MOST_BLOCKS
from ...schedules.radix_sort import key_order
from .order import EVERY, torch_keys
from .seen import axis_of, row_of
from .slices import order_numbers, run_numbers, slices_at
from .sort import sort

THREADS, ITEMS = 512, 8
_CLEAR = 256
I64 = ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class UniqueConsecutiveDescriptor(Descriptor):
    """x is a row of n elements, of whose runs of equal ones at most `size` are given, by default n.

    equal_nan: whether every NaN equals the others; else it is a run of its own.
    """

    n: int = extent()
    size: int = extent(derived(lambda desc: desc.n))
    equal_nan: bool = flag(False)
    element: ElementKind = element(EVERY)


def _runs(rng: Any, desc: UniqueConsecutiveDescriptor, shape: Any) -> Any:
    """Some elements several times, next to each other."""
    values = rng.integers(0, 2 if desc.element is ElementKind.BOOL else 7, shape)
    return np.where(rng.random(shape) < 0.1, np.nan, values) if desc.element.is_float else values


def _order(rng: Any, desc: UniqueConsecutiveDescriptor, shape: Any) -> Any:
    return rng.permutation(desc.n)


@dataclass(slots=True, kw_only=True)
class UniqueConsecutiveArgs(Args):
    """Any strides. indices: where each element of x stood before a sort, in another row of n; None: where it stands.

    They are int64 or int32. keep: which elements count; of a run all or none. fill: what values are filled up with.
    values: an element of every run; inverse: the run that each element of the other row is in, -1 of none; counts: how
    many elements a run has; first: the place of its first one; number: how many runs there are.
    """

    x: Array = operand("n", values=_runs)
    indices: Array | None = operand("n", element=INDICES[::-1], optional=True, values=_order)
    keep: Array | None = operand("n", element=ElementKind.BOOL, optional=True)
    fill: Array | None = operand("", optional=True)
    values: Array | None = output("size", optional=True)
    inverse: Array | None = output("n", element=I64, optional=True)
    counts: Array | None = output("size", element=I64, optional=True)
    first: Array | None = output("size", element=I64, optional=True)
    number: Array | None = output("", element=I64, optional=True)


def reference(
    desc: UniqueConsecutiveDescriptor, *, x: Any, indices: Any, keep: Any, fill: Any, wanted: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    n, size = desc.n, desc.size
    kept = np.ones(n, bool) if keep is None else keep.astype(bool)
    places = np.arange(n) if indices is None else indices
    same = x[1:] == x[:-1]
    if desc.equal_nan and x.dtype.kind == "f":
        same = same | ((x[1:] != x[1:]) & (x[:-1] != x[:-1]))
    edge = np.concatenate([[True], ~same, [True]]) if n else np.zeros(1, bool)
    begins = np.flatnonzero(edge[:-1] & kept)
    ends = np.flatnonzero(edge[1:] & kept) + 1
    inverse = np.full(n, -1)
    known = (places >= 0) & (places < n)
    inverse[places[known]] = np.where(kept, np.cumsum(edge[:-1] & kept) - 1, -1)[known]
    total = len(begins)
    none = x.dtype.type(0) if fill is None and not total else x[begins[0]] if fill is None else fill

    def filled(found: Any, rest: Any, dtype: Any) -> Any:
        made = np.full(size, rest, dtype)
        made[: min(total, size)] = found[:size]
        return made

    return {
        "values": filled(x[begins], none, x.dtype), "inverse": inverse,
        "counts": filled((ends - begins) if total else ends, 0, np.int64),
        "first": filled(places[begins], places[begins[0]] if total else 0, np.int64), "number": np.array(total),
    }  # fmt: skip


_STEPS = ("x", "indices", "keep", "values", "inverse", "counts", "first")
PARAMS = Params(
    "UniqueParams", x="ptr", indices="ptr", keep="ptr", fill="ptr", values="ptr", inverse="ptr", counts="ptr",
    first="ptr", number="ptr", states="workspace", starts="workspace", ends="workspace", total="workspace", n="i64",
    size="i64", tiles="i64", step=f"i64[{len(_STEPS)}]", order="u64[7]", nan_alone="i32", wide="i32", UniqueStep=_STEPS,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, n, size = p.desc, p.desc.n, p.desc.size
    if n >= 2**32 - 1:
        return f"a row of {n} elements; it holds 2^32 - 2"
    if size > MOST_BLOCKS * _CLEAR:
        return "more than 2^31 blocks"
    tiles = -(-n // (THREADS * ITEMS))
    named = min(n, size)
    places, end = {}, 0
    for name, nbytes in (("states", 8 * tiles), ("starts", 4 * named), ("ends", 4 * named), ("total", 4)):
        places[name], end = end, end + aligned(max(nbytes, 1))
    params = {
        **places, "n": n, "size": size, "tiles": tiles, "order": key_order(desc.element),
        "step": [0 if p.views[name] is None else p.views[name].strides[0] for name in _STEPS],
        "nan_alone": desc.element.is_float and not desc.equal_nan,
        "wide": p.indices is not None and p.indices.element is I64,
    }  # fmt: skip
    steps = []
    if tiles:
        cleared = tiles if p.indices is None or p.views["inverse"] is None else max(tiles, n // ITEMS)
        steps = [
            Step("clear", (-(-cleared // _CLEAR), 1, 1), params, {}, _CLEAR),
            Step("mark", (tiles, 1, 1), params, {}, THREADS),
        ]
    steps.append(Step("finish", (max(1, -(-size // _CLEAR)), 1, 1), params, {}, _CLEAR))
    dense = all(view.dense for view in p.flat())
    return Geometry(tuple(steps), end, "contiguous" if dense else "strided")


def in_torch(
    torch: Any, desc: UniqueConsecutiveDescriptor, *, x: Any, indices: Any, keep: Any, fill: Any, wanted: Any
) -> Any:
    """torch's, filled up."""
    keys = torch_keys(torch, x)
    if keys is NotImplemented or keep is not None or desc.equal_nan or not desc.n:
        return NotImplemented
    values, own, counts = torch.unique_consecutive(keys, return_inverse=True, return_counts=True)
    places = torch.arange(desc.n) if indices is None else indices.long()
    starts = counts.cumsum(0) - counts
    inverse = torch.empty_like(own)
    inverse[places] = own

    def filled(found: Any, rest: Any) -> Any:
        return torch.cat((found[: desc.size], rest.expand(max(desc.size - len(found), 0))))

    return {
        "values": filled(values.to(x.dtype), x[0] if fill is None else fill), "inverse": inverse,
        "counts": filled(counts, counts.new_zeros(())), "first": filled(places[starts], places[0]),
        "number": torch.tensor(len(values)),
    }  # fmt: skip


class UniqueConsecutivePlan(Plan):
    """values = an element of every run of equal neighbours in x, in their order (torch.unique_consecutive).

    How many there are is known on the device alone: `number` is it, and results have `size` entries, by default as many
    as x has elements. Where there are fewer runs, values are filled up with `fill` or the first value (0 of no run),
    counts with 0, first with the first run's place; where there are more, those beyond are left out, and `inverse` has
    their numbers all the same. Zeros are equal; a NaN equals none unless `equal_nan`.
    """

    op = "sort.unique_consecutive"
    descriptor = UniqueConsecutiveDescriptor
    args = UniqueConsecutiveArgs
    reference = staticmethod(reference)
    value_policy = "an index outside [0, n) leaves no entry of inverse, -1 where none names it; no two may be equal"
    variants = (
        Variant(
            "look_back", _geometry, source="sort/unique.cu", elements=EVERY,
            kernels=(
                Kernel("clear", "unique_clear", PARAMS, threads=_CLEAR),
                Kernel("mark", f"unique_mark<key_word<{{T}}>, {THREADS}, {ITEMS}>", PARAMS, threads=THREADS),
                Kernel("finish", "unique_finish<key_word<{T}>>", PARAMS, threads=_CLEAR),
            ),
            guarantee=Guarantee(Exact(), native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[64 Mi] i32", n=1 << 26, element="int32", also=("values", "counts", "number"),
            make=lambda torch, desc: {"x": torch.arange(desc.n, dtype=torch.int32) // 5},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> UniqueConsecutiveDescriptor:
        n = draw.sizes(40, 0, 1, 7, 700, 5000)
        size = draw.choice((n, draw.integer(0, 9)))
        return UniqueConsecutiveDescriptor(n=n, size=size, equal_nan=draw.flag(), element=draw.element)

    @classmethod
    def complete(cls, desc: UniqueConsecutiveDescriptor, arrays: dict[str, Any]) -> None:
        """Values next to their like, and of every run all or none kept."""
        x = arrays["x"]
        run = 1 + len(x) // 13
        if len(x):
            arrays["x"] = x = np.repeat(x, run)[: len(x)]
        if arrays["keep"] is not None:
            with np.errstate(invalid="ignore"):  # of infinities
                arrays["keep"] = np.asarray(x.astype(np.float64) % 3 != 1)

    @classmethod
    def check_values(cls, desc: UniqueConsecutiveDescriptor, arrays: Mapping[str, Any]) -> str | None:
        if arrays["indices"] is None:
            return None
        index = np.asarray(arrays["indices"])
        wrong = ((index < 0) | (index >= desc.n)).any()
        return f"an index must lie in [0, {desc.n})" if wrong else None


_unique_consecutive = functional(UniqueConsecutivePlan, "unique_consecutive", returns=("values", "number"))


def bound(size: Any) -> None:
    """Raises where a number of entries is none."""
    if size is not None:
        whole("size", size, 0)


@entry(UniqueConsecutivePlan)
def unique_consecutive(
    x: Array, *, axis: int | None = None, return_inverse: bool = False, return_counts: bool = False,
    return_index: bool = False, size: int | None = None, fill_value: Array | None = None, equal_nan: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """An element of every run of equal neighbours in x, seen as a row, or a slice along `axis`, padded; their number.

    Returns values, then inverse, counts and the first places (return_index) where they are asked for, and last how many
    runs there are, on the device: values, counts and places have `size` entries, by default as many as x has; inverse
    has x's shape, of slices one number for each.
    fill_value: an array of no axes. See `UniqueConsecutivePlan`. Slices are equal where all their elements are; values
    have gradients then.
    """
    facts = {"inverse": return_inverse, "counts": return_counts, "size": size, "fill": fill_value, "out": out}
    options = {"stream": stream, "preference": preference}
    if axis is not None:
        at = axis_of_slices(x, axis)
        numbers = run_numbers(x, at, truth("equal_nan", equal_nan), options)
        return _slices_of(x, at, numbers, None, index=return_index, **facts, **options)
    return _of_elements(x, row_of(x, "x"), None, index=return_index, equal_nan=equal_nan, **facts, **options)


@entry(UniqueConsecutivePlan)
def unique(
    x: Array, *, axis: int | None = None, return_inverse: bool = False, return_counts: bool = False,
    return_index: bool = False, size: int | None = None, fill_value: Array | None = None, equal_nan: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The different elements of x, seen as a row, ascending, padded to `size`, and how many there are (torch.unique).

    A sort, and `unique_consecutive` of it, which says what is returned: inverse is of x itself, in its shape, and first
    places are those in x, seen as a row. axis: the different slices along it in the order of their first elements that
    differ; of n slices of m elements, sorts of 2 m n numbers in log₂ m rounds.
    """
    facts = {"inverse": return_inverse, "counts": return_counts, "size": size, "fill": fill_value, "out": out}
    bound(size)
    options = {"stream": stream, "preference": preference}
    if axis is not None:
        at = axis_of_slices(x, axis)
        y, indices = sort(order_numbers(x, at, truth("equal_nan", equal_nan), options), **options)
        return _slices_of(x, at, y, indices, index=return_index, equal_nan=equal_nan, **facts, **options)
    y, indices = sort(row_of(x, "x"), **options)
    return _of_elements(x, y, indices, index=return_index, equal_nan=equal_nan, **facts, **options)


@entry(UniqueConsecutivePlan)
def unique_values(
    x: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The different elements of x, padded, and how many they are (jax.numpy.unique_values); see `unique`."""
    options = {"size": size, "fill_value": fill_value, "out": out, "stream": stream, "preference": preference}
    return unique(x, **options)


@entry(UniqueConsecutivePlan)
def unique_counts(
    x: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`unique`, padded as it is, with the counts of the elements (jax.numpy.unique_counts)."""
    options = {"size": size, "fill_value": fill_value, "out": out, "stream": stream, "preference": preference}
    return unique(x, return_counts=True, **options)


@entry(UniqueConsecutivePlan)
def unique_inverse(
    x: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`unique`, padded as it is, with the number of every element of x, in x's shape (jax.numpy.unique_inverse)."""
    options = {"size": size, "fill_value": fill_value, "out": out, "stream": stream, "preference": preference}
    return unique(x, return_inverse=True, **options)


@entry(UniqueConsecutivePlan)
def unique_all(
    x: Array, *, size: int | None = None, fill_value: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The values of `unique`, padded, first places, the inverse in x's shape, counts, and how many there are.

    In the order of jax.numpy.unique_all, which `out=` has, too.
    """
    to_values, to_first, to_inverse, to_counts, to_number = each_of(out, 5)
    to = None if out is None else (to_values, to_inverse, to_counts, to_first, to_number)
    options = {"size": size, "fill_value": fill_value, "out": to, "stream": stream, "preference": preference}
    made = unique(x, return_inverse=True, return_counts=True, return_index=True, **options)
    values, inverse, counts, first, number = made
    return values, first, inverse, counts, number


def axis_of_slices(x: Any, axis: Any) -> int:
    """An axis that x has, counted from the front."""
    if not shape_of(x, "x"):
        raise InvalidProblemError(f"axis must be None for x without axes, got {shown(axis)}")
    return axis_of(x, axis)[0]


def _slices_of(
    x: Any, axis: int, numbers: Any, indices: Any, *, index: bool, size: int | None, fill: Any, out: Any, stream: Any,
    preference: Any, inverse: bool = False, counts: bool = False, equal_nan: bool = False,
) -> Any:  # fmt: skip
    """What `runs_of` the numbers of slices says of them, with the slices in the place of values."""
    options = {"stream": stream, "preference": preference}
    asked = {"values": True, "inverse": inverse, "counts": counts, "first": index, "number": True}
    names = [name for name, wanted in asked.items() if wanted]
    given = dict(zip(names, each_of(out, len(names)), strict=True))
    to = given.pop("values")
    made = runs_of(
        numbers, indices, None, inverse=inverse, counts=counts, index=True, size=size, equal_nan=equal_nan,
        out={name: one for name, one in given.items() if one is not None} or None, **options,
    )  # fmt: skip
    found = dict(zip([name for name, wanted in asked.items() if wanted or name == "first"], made, strict=True))
    found["values"] = slices_at(x, axis, found["first"], found["number"], fill, to, options)
    return tuple(found[name] for name in names)


def _of_elements(x: Any, row: Any, indices: Any, *, inverse: bool, out: Any, **facts: Any) -> Any:
    """`runs_of` the row that x is, or that was sorted from it, with the inverse in x's shape."""
    shape = shape_of(x, "x")
    if not inverse or len(shape) == 1:
        return runs_of(row, indices, None, inverse=inverse, out=out, **facts)
    named = isinstance(out, Mapping)
    given = out.get("inverse") if named else each_of(out, 3 + bool(facts["counts"]) + bool(facts["index"]))[1]
    if given is not None:
        seen = row_of(given, "inverse")
        out = {**out, "inverse": seen} if named else (out[0], seen, *out[2:])
    values, numbers, *rest = runs_of(row, indices, None, inverse=True, out=out, **facts)
    return values, numbers.reshape(shape) if given is None else given, *rest


def runs_of(
    row: Any, indices: Any, keep: Any, *, inverse: bool = False, counts: bool = False, index: bool = False,
    size: int | None = None, fill: Any = None, equal_nan: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """The runs of a row that may have been sorted from another; options are out, stream and preference."""
    facts = {} if size is None else {"size": size}
    return _unique_consecutive(
        row, indices, keep, fill, return_inverse=inverse, return_counts=counts, return_first=index, equal_nan=equal_nan,
        **options, **facts,
    )  # fmt: skip
