"""generate: arrays made of nothing but indices: arange, linspace, eye, windows and their like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar,
    Step, Ulp, Variant, View, choice, element, extents, flag, inout, integer, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, EAGER, Benchmark
from ...core.checked import INT64, checked, wholes
from ...core.element import COMPLEX, INTS
from ...core.element import cast as cast_values
from ...core.errors import InvalidProblemError, UnsupportedError
from ...schedules.map import STRIDED, THREADS, chunked, lay_out, map_params, strided, takes, widths

FORMS = ("counted", "spaced", "powers", "ratio", "equal", "below", "cosine", "tent", "reciprocal", "lower", "upper")
WHOLE = ("counted", "spaced", "equal", "below", "lower", "upper")  # what integers and bools have
TRIANGLES = ("lower", "upper")  # and what they alone have
ELEMENTS = (*FLOATS, *INTS, ElementKind.BOOL, *COMPLEX)


@dataclass(frozen=True, kw_only=True)
class GenerateDescriptor(Descriptor):
    """y has shape `shape`. Its element at (i_0, i_1, …) is a function of the number n = Σ i_a steps[a].

    a, b and c are the scalars begin, end and base. form: "counted", a + n b, or of integers first + n stride;
    "spaced", from a to b in `last` equal steps; "powers", c to the power of these; "ratio", from a to b by equal
    factors; "equal", whether n is `diagonal`; "below", whether n is at most that; "cosine",
    a - b cos(2π n / last) + c cos(4π n / last); "tent", 1 - |2 n / last - 1|; "reciprocal", 1 / (n + 1); "lower" and
    "upper", row number n, or column number n - last, of the `last` elements on and below, or above, a diagonal of a
    matrix of so many columns, row by row. ends: b is met at n = last.
    """

    shape: tuple[int, ...] = extents()
    steps: tuple[int, ...] = checked(
        lambda name, value: wholes(name, value, -INT64, INT64, "integers"), accepts="Sequence[int]"
    )
    form: str = choice(FORMS)
    last: int = integer(0, minimum=0)
    ends: bool = flag(True)
    diagonal: int = integer(0)
    columns: int = integer(0, minimum=0)
    element: ElementKind = element(ELEMENTS)

    def validate(self) -> None:
        """A step for each axis, and a form that the element has."""
        if len(self.steps) != len(self.shape):
            raise InvalidProblemError(f"steps must have an item for each axis of {self.shape}, got {self.steps}")
        if self.form not in WHOLE and not self.element.is_inexact:
            raise UnsupportedError(f"form {self.form!r} is for floats and complex numbers, not for {self.element}")
        if self.form in TRIANGLES:
            self._check_triangle()

    def _check_triangle(self) -> None:
        if not self.element.is_integer:
            raise UnsupportedError(f"form {self.form!r} is for integers, not for {self.element}")
        most = max(self.columns - max(self.diagonal, 0), 0)  # in the first row that is cut
        above = max(0, -self.diagonal) * self.columns + most * (most + 1) // 2
        if self.last and (not self.columns or (self.form == "upper" and self.last > above)):
            raise InvalidProblemError(f"last {self.last} is more than {self.columns} columns have")


@dataclass(slots=True, kw_only=True)
class GenerateArgs(Args):
    """y is only written, through any strides. begin, end, base: a, b, c of the form; first and stride: of integers."""

    y: Array = inout("*shape")
    begin: Scalar = scalar(0.0)
    end: Scalar = scalar(1.0)
    base: Scalar = scalar(0.0)
    first: Scalar = scalar(0, integer=True)
    stride: Scalar = scalar(1, integer=True)


def _numbers(desc: GenerateDescriptor) -> Any:
    total = np.zeros(desc.shape, np.int64)
    for axis, (n, step) in enumerate(zip(desc.shape, desc.steps, strict=True)):
        total += (np.arange(n) * step).reshape(-1, *(1,) * (len(desc.shape) - axis - 1))
    return total


def _spaced(desc: GenerateDescriptor, n: Any, a: float, b: float) -> Any:
    if not desc.last:
        return np.full(n.shape, a)
    step = (b - a) / np.float64(desc.last)
    rising = a + n * step
    return np.where(2 * n < desc.last, rising, b - (desc.last - n) * step) if desc.ends else rising


def _values(desc: GenerateDescriptor, n: Any, a: Any, b: Any, c: Any) -> Any:
    """The values in float64."""
    a, b, c = (np.float64(float(one)) for one in (a, b, c))
    last = np.float64(desc.last)
    if desc.form == "counted":
        return a + n.astype(np.float64) * b
    if desc.form == "spaced":
        return _spaced(desc, n, a, b)
    if desc.form == "powers":
        return np.power(c, _spaced(desc, n, a, b))
    if desc.form == "reciprocal":
        return 1 / (n + np.float64(1))
    if desc.form == "ratio":
        inner = a * np.power(b / a, n / last)
        return np.where(n == 0, a, np.where((n == desc.last) & desc.ends, b, inner))
    if not desc.last:
        return np.ones(n.shape)
    if desc.form == "tent":
        return 1 - np.abs(2 * n / last - 1)
    one, two = _sinpi(n / last), _sinpi(2 * n / last)
    return a - b + c + 2 * b * (one * one) - 2 * c * (two * two)


def _triangle(desc: GenerateDescriptor) -> Any:
    """The rows of all elements of a triangle, then their columns."""
    rows = np.arange(desc.last + abs(desc.diagonal) + 1)
    edge = np.clip(rows + desc.diagonal + (desc.form == "lower"), 0, desc.columns)
    counts, begin = (edge, 0 * edge) if desc.form == "lower" else (desc.columns - edge, edge)
    row = np.repeat(rows, counts)[: desc.last]
    return np.concatenate([row, np.arange(desc.last) - (np.cumsum(counts) - counts)[row] + begin[row]])


def _sinpi(x: Any) -> Any:
    """sin(π x) of x in [0, ∞), exact where x is a multiple of one half."""
    x = x % 2
    half = np.where(x > 1, x - 1, x)
    return np.where(x > 1, -1.0, 1.0) * np.sin(np.pi * np.minimum(half, 1 - half))


def reference(
    desc: GenerateDescriptor, *, y: Any, begin: Any, end: Any, base: Any, first: Any, stride: Any
) -> Mapping[str, Any]:
    """NumPy in float64, integers in 64 bits."""
    n = _numbers(desc)
    if desc.form in ("equal", "below"):
        return {"y": cast_values(n == desc.diagonal if desc.form == "equal" else n <= desc.diagonal, desc.element)}
    if desc.form == "counted" and not desc.element.is_inexact:
        with np.errstate(over="ignore"):
            return {"y": cast_values(np.int64(int(first)) + n * np.int64(int(stride)), desc.element)}
    if desc.form in TRIANGLES:
        return {"y": cast_values(_triangle(desc)[n], desc.element)}
    with np.errstate(all="ignore"):
        return {"y": cast_values(_values(desc, n, begin, end, base), desc.element)}


PARAMS = Params(
    "GenerateParams", y="ptr", begin="scalar", end="scalar", base="scalar", first="iscalar", stride="iscalar",
    last="i64", diagonal="i64", columns="i64", along="i64", form="i32", ends="i32", GenerateForm=FORMS, **map_params(2),
)  # fmt: skip


def _flat(kind: ElementKind) -> Mapping[str, Any]:
    return {"VEC": widths(kind.itemsize)[:1]}


def _strided(kind: ElementKind) -> Mapping[str, Any]:
    return {"VEC": widths(kind.itemsize)}


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    found = lay_out((p.y, View(0, desc.shape, desc.steps, desc.element)))
    if isinstance(found, str):
        return found
    (axes,), alone = found.groups, replace(found, views=(p.y, None))
    options = widths(desc.element.itemsize)
    flat = alone.dense and axes.rank <= 1 and (not axes.rank or axes.strides[1][0] == 1) and alone.access(options[0])
    vec = options[0] if flat else next(w for w in options if takes(alone, w))
    each = 1 if flat else strided(vec)
    params = {
        **chunked(found, vec), "last": desc.last, "diagonal": desc.diagonal, "columns": desc.columns,
        "form": FORMS.index(desc.form),
        "ends": desc.ends, "along": axes.strides[1][-1] if axes.rank else 0,
    }  # fmt: skip
    blocks = max(1, -(-(axes.count // vec) // (THREADS * each)))
    step = Step("flat" if flat else "strided", (blocks, 1, 1), params, {"VEC": vec}, THREADS)
    return Geometry((step,), layout=alone.layout(alone.inner))


def _bound(kind: ElementKind, _: Any) -> Any:
    if not kind.is_inexact:
        return Exact()
    return Ulp(16 if kind in (ElementKind.F64, ElementKind.C128) else 0.501)


def in_torch(
    torch: Any, desc: GenerateDescriptor, *, y: Any, begin: Any, end: Any, base: Any, first: Any, stride: Any
) -> Any:  # fmt: skip
    """torch's formulas over a sum of aranges in float64 and int64, but for those that need its own last place."""
    if 0 in desc.shape or (desc.form in ("powers", "ratio") and desc.element in _WIDE):
        return NotImplemented
    n = torch.zeros((), dtype=torch.int64)
    for axis, (extent, step) in enumerate(zip(desc.shape, desc.steps, strict=True)):
        n = n + (torch.arange(extent) * step).reshape(-1, *(1,) * (len(desc.shape) - axis - 1))
    a, b, last = float(begin), float(end), max(desc.last, 1)
    if desc.form in ("equal", "below"):
        return {"y": (n == desc.diagonal if desc.form == "equal" else n <= desc.diagonal).to(y.dtype)}
    if desc.form in TRIANGLES:
        made = torch.tril_indices if desc.form == "lower" else torch.triu_indices
        rows = desc.last + abs(desc.diagonal) + 1
        return {"y": made(rows, desc.columns, desc.diagonal)[:, : desc.last].reshape(-1)[n].to(y.dtype)}
    if desc.form == "counted":
        return {"y": (a + n.double() * b if desc.element.is_inexact else first + n * stride).to(y.dtype)}
    if not desc.last or desc.form not in ("spaced", "tent", "reciprocal", "lower", "upper"):
        return NotImplemented
    if desc.form == "spaced":
        each = (b - a) / last
        rising, falling = a + n.double() * each, b - (last - n).double() * each
        made = torch.where(2 * n < last, rising, falling) if desc.ends else rising
        return {"y": made.to(y.dtype)} if y.dtype.is_floating_point or y.dtype.is_complex else NotImplemented
    return {"y": (1 - (2 * n.double() / last - 1).abs() if desc.form == "tent" else 1 / (n.double() + 1)).to(y.dtype)}


_WIDE = (ElementKind.F64, ElementKind.C128)


class GeneratePlan(Plan):
    """y = a function of a number that indices make, in place (torch.arange, linspace, eye, windows); see `form`.

    Floats are computed in float64 and rounded once; integers of "counted" are exact and wrap as the element does. The
    bound of float64 itself is that of windows: of other numbers whose cosines cancel, fewer digits may be left.
    """

    op = "layout.generate"
    descriptor = GenerateDescriptor
    args = GenerateArgs
    raw = True
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", _geometry, "layout/generate.cu",
            (
                Kernel(
                    "flat", "generate<{T}, Flat<{VEC}>>", PARAMS, _flat, threads=THREADS,
                ),
                Kernel("strided", f"generate<{{T}}, {STRIDED}>", PARAMS, _strided, threads=THREADS),
            ),
            elements=ELEMENTS, guarantee=Guarantee(_bound, batch_invariant=True, math="float64"), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "arange of 134M f32", shape=1 << 27, steps=(1,), form="counted", element="float32", work=BYTES, peers=()
        ),
        Benchmark(
            "eye of 8192 bf16", shape=(8192, 8192), steps=(-1, 1), form="equal", element="bfloat16", work=BYTES,
            peers=(EAGER,),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GenerateDescriptor:
        form = draw.choice(FORMS[:-2] if draw.element.is_inexact else WHOLE if draw.element.is_integer else WHOLE[:-2])
        if form in TRIANGLES:
            return GenerateDescriptor(**_drawn_triangle(draw), form=form, element=draw.element)
        if draw.flag():
            n = draw.sizes(5, 16, 1, 2, 33)
            last = draw.choice((n, max(n - 1, 0)))
            return GenerateDescriptor(
                shape=(n,), steps=(1,), form=form, last=last, ends=draw.flag(), element=draw.element
            )
        shape = (*draw.shape(0, 1, 0, 3), draw.integer(0, 7), draw.sizes(16, 5, 1, 32))
        steps = (*(0,) * (len(shape) - 2), *draw.choice(((-1, 1), (1, 1), (1, 0), (0, 1))))
        if form not in ("equal", "below", "counted"):
            steps = tuple(map(abs, steps))
        last = max(1, sum(shape) - 2)
        diagonal = draw.choice((0, 1, -3))
        return GenerateDescriptor(
            shape=shape, steps=steps, form=form, last=last, diagonal=diagonal, element=draw.element
        )

    @classmethod
    def complete(cls, desc: GenerateDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers that the form has values for, none of which is 0 only because terms cancel."""
        others = {"powers": (-1.5, 2.0, 3.0), "ratio": (0.25, 1024.0, 0.0), "spaced": (0.5, 3.0, 0.0)}
        a, b, c = others.get(desc.form, (0.5, 0.5, 0.0625))
        arrays.update(begin=a, end=b, base=c, first=2**40 + 3, stride=-7)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(math.prod(desc.shape) * desc.element.itemsize)


def _drawn_triangle(draw: Any) -> dict[str, Any]:
    """Fewer elements than a triangle of some columns has."""
    columns, diagonal = draw.integer(1, 9), draw.choice((0, 2, -3))
    last = draw.integer(1, columns + 1 if diagonal < 0 else max(1, columns - diagonal))
    diagonal = min(diagonal, columns - 1)
    return {"shape": (2, last), "steps": (last, 1), "last": last, "columns": columns, "diagonal": diagonal}


generate = functional(GeneratePlan)
