"""random: an array drawn from a distribution, each element by its number in a Philox stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Scalar, Step, Variant,
    View, choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...core import Problem as Call
from ...core.benchmark import Benchmark
from ...core.element import COMPLEX, INTS, decode
from ...core.errors import UnsupportedError
from ...core.tensor import broadcast_shape
from ...schedules.map import THREADS, chunked, lay_out, map_geometry, map_kernels, map_params
from .distributions import Problem, RandomKind, having
from .draws import numbered, streams

K = RandomKind
_CODES = {ElementKind.F32: 0, ElementKind.F64: 1, ElementKind.F16: 2, ElementKind.BF16: 3, ElementKind.I64: 4,
          ElementKind.I32: 5}  # fmt: skip
_BLOCKS = 32  # of a dense array, for each multiprocessor
EVERY = (*FLOATS, *INTS, ElementKind.BOOL, *COMPLEX)
WIDE = (K.UNIFORM, K.NORMAL, K.BERNOULLI)
"""Kinds whose chunks are wide in any layout; of the others only in dense arrays."""
PLAIN = tuple(k for k in K if k not in WIDE and k.row.op != "TriesOp")
ALONE = tuple(k for k in K if k.row.op == "TriesOp")


def elements_of(kind: RandomKind | None) -> tuple[ElementKind, ...]:
    """The elements that a kind fills."""
    return (*FLOATS, *INTS, ElementKind.BOOL) if kind is None else kind.row.elements


@dataclass(frozen=True, kw_only=True)
class RandomDescriptor(Descriptor):
    """y has shape `shape`, to which the parameters that are arrays broadcast."""

    kind: RandomKind = choice(RandomKind)
    shape: tuple[int, ...] = extents()
    element: ElementKind = element(elements_of(None))

    def validate(self) -> None:
        if self.element not in (known := self.kind.row.elements):
            names = ", ".join(map(str, known))
            raise UnsupportedError(f"{self.kind.value} of {self.element} is not drawn; it may be {names}")

    @property
    def parameter(self) -> tuple[ElementKind, ...]:
        """The elements that parameters may have."""
        return self.kind.row.parameter


def _drawn(index: int) -> Any:
    def values(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
        low, high = desc.kind.row.ranges[index]
        if desc.kind is K.RANDINT:
            return rng.integers(int(low), int(high), shape, endpoint=True)
        return rng.uniform(low, high, shape)

    return values


@dataclass(slots=True, kw_only=True)
class RandomArgs(Args):
    """Any strides. a, b and c are the parameters in the distribution's order: arrays, or the numbers of that name.

    Of randint a and b are the bounds, or `low` is the lower one and `span` the count of numbers, of which 0 is 2⁶⁴.
    like: an array of whose package and device y is; it is not read, and y may be it. seed and offset are 64-bit.
    """

    like: Array | None = operand("*shape", element=EVERY, optional=True, broadcast=True)
    a: Array | None = operand("*shape", element="parameter", optional=True, broadcast=True, kinds=having(1),
                              values=_drawn(0))  # fmt: skip
    b: Array | None = operand("*shape", element="parameter", optional=True, broadcast=True, kinds=having(2),
                              values=_drawn(1))  # fmt: skip
    c: Array | None = operand("*shape", element="parameter", optional=True, broadcast=True, kinds=having(3),
                              values=_drawn(2))  # fmt: skip
    y: Array = output("*shape", inplace=("like",))
    a_number: Scalar = scalar(0.0)
    b_number: Scalar = scalar(1.0)
    c_number: Scalar = scalar(1.0)
    low: Scalar = scalar(0, integer=True)
    span: Scalar = scalar(1, integer=True)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def _same(x: Any) -> Any:
    return x


def reference(
    desc: RandomDescriptor, *, like: Any, a: Any, b: Any, c: Any, a_number: Any, b_number: Any, c_number: Any, low: Any,
    span: Any, seed: Any, offset: Any, store: Any = _same,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: variates in float64, for float64 in longdouble, of the same words; whole numbers exactly."""
    count = int(np.prod(desc.shape, dtype=np.int64))
    wide: Any = np.longdouble if desc.element is ElementKind.F64 else np.float64
    held = np.float64 if desc.element is ElementKind.F64 or desc.kind in ALONE else np.float32
    bounds = _bounds(desc, a, b, low, span) if desc.kind is K.RANDINT else (0, 0)
    flat = [
        _flat(desc, float(number) if array is None else _real(array), held).astype(wide)
        for array, number in ((a, a_number), (b, b_number), (c, c_number))
    ]
    problem = Problem(desc.element, count, (flat[0], flat[1], flat[2]), int(seed), int(offset), wide, store, *bounds)
    with np.errstate(all="ignore"):
        y = np.asarray(desc.kind.row.inside(problem, desc.kind.row.formula(problem))).reshape(desc.shape)
        return {"y": y if desc.element.is_float or y.dtype.kind == "f" else y.astype(desc.element.dtype)}


def _real(array: Any) -> Any:
    return np.asarray(decode(array, ElementKind.of(array.dtype)), np.float64)


def _flat(desc: RandomDescriptor, value: Any, dtype: Any) -> Any:
    return np.broadcast_to(np.asarray(value, dtype), desc.shape).reshape(-1)


def _bounds(desc: RandomDescriptor, a: Any, b: Any, low: Any, span: Any) -> tuple[Any, Any]:
    """low as int64 and span as uint64, of each element."""
    least = _flat(desc, int(low) if a is None else a, np.int64)
    if a is None and b is None:
        return least, np.uint64(int(span) & 0xFFFFFFFFFFFFFFFF)
    end = (int(low) + int(span) + 2**63) % 2**64 - 2**63
    high = _flat(desc, end if b is None else b, np.int64)
    return least, np.where(high > least, high.view(np.uint64) - least.view(np.uint64), np.uint64(1))


PARAMS = Params(
    "RandomParams", y="ptr", a="ptr", b="ptr", c="ptr", a_number="scalar", b_number="scalar", c_number="scalar",
    low="iscalar", span="iscalar", seed="iscalar", offset="iscalar", codes="i32[3]", **map_params(5),
)  # fmt: skip


def _views(p: Call) -> tuple[Any, ...]:
    """Parameters as if of y's element and aligned: the kernels read their elements one by one."""
    given = [None if v is None else v.broadcast_to(p.y.shape) for v in (p.a, p.b, p.c)]
    as_y = [None if v is None else View(0, v.shape, v.strides, p.desc.element) for v in given]
    return (p.y, *as_y, numbered(p.desc.shape, p.desc.element))


def _codes(p: Call) -> dict[str, Any]:
    return {"codes": [0 if v is None else _CODES[v.element] for v in (p.a, p.b, p.c)]}


def _geometry(p: Call) -> Geometry | str:
    """Dense arrays by no more blocks than fill the device some times over: each thread makes many chunks."""
    found = map_geometry(p, _views(p), _codes(p))
    if isinstance(found, str) or not (step := _flat_step(found)):
        return found
    blocks = min(step.grid[0], _BLOCKS * p.device.sms)
    return replace(found, steps=(replace(step, grid=(blocks, 1, 1)),))


def _flat_step(found: Geometry) -> Step | None:
    """The launch of dense arrays, if it is one."""
    (step,) = found.steps
    return step if isinstance(step, Step) and step.kernel == "flat" else None


def _plain_geometry(p: Call) -> Geometry | str:
    """Dense arrays in wide chunks; others element by element."""
    found = _geometry(p)
    return found if isinstance(found, str) or _flat_step(found) else _each(p, "strided")


def _alone_geometry(p: Call) -> Geometry | str:
    return _each(p, "each")


def _each(p: Call, kernel: str) -> Geometry | str:
    """One element a thread."""
    found = lay_out(_views(p))
    if isinstance(found, str):
        return found
    grid = max(1, -(-found.groups[0].count // THREADS))
    axes = {"VEC": 1} if kernel == "strided" else {}
    step = Step(kernel, (grid, 1, 1), {**_codes(p), **chunked(found, 1)}, axes, THREADS)
    return Geometry((step,), layout=found.layout(found.inner))


def _template(op: str, layout: str = "{LAYOUT}") -> str:
    return f"random_fill<random::{op}, random::{{KIND}}, {{T}}, {layout}>"


def _rows() -> tuple[Variant, ...]:
    """A row for each operation: what differs is the template argument of its kernels."""
    rows = []
    for op in ("WordOp", "PairOp", "BitOp", "WholeOp"):
        flat, strided = map_kernels(_template(op), PARAMS, min_blocks=3)
        narrow = Kernel("strided", _template(op, "Strided<1, 1>"), PARAMS, {"VEC": (1,)}, threads=THREADS)
        for kinds, kernels, geometry, end in (
            (WIDE, (flat, strided), _geometry, ""), (PLAIN, (flat, narrow), _plain_geometry, "_plain"),
        ):  # fmt: skip
            if own := tuple(k for k in kinds if k.row.op == op):
                rows.append(_row(op[:-2].lower() + end, geometry, kernels, own))
    each = Kernel("each", _template("TriesOp", "Strided<1, 1>"), PARAMS, {}, threads=THREADS)
    return (*rows, _row("tries", _alone_geometry, (each,), ALONE))


def _row(name: str, geometry: Any, kernels: tuple[Kernel, ...], kinds: tuple[RandomKind, ...]) -> Variant:
    return Variant(
        name, geometry, source="random/fill.cu", kernels=kernels, elements=elements_of, kinds=kinds,
        guarantee=Guarantee(lambda element, kind: kind.row.error(element)),
        may_spill=not set(kinds).isdisjoint((K.TRIANGULAR, K.BINOMIAL)),  # long formulas
    )  # fmt: skip


def _benchmark(name: str, kind: str, element: str, **numbers: Any) -> Benchmark:
    return Benchmark(name, shape=1 << 28, kind=kind, element=element, peers=(),
                     make=lambda torch, desc: {"seed": 1, **numbers})  # fmt: skip


class RandomPlan(Plan):
    """y of a distribution of `RandomKind`, its parameters numbers or arrays that broadcast to y.

    `seed` names a stream of Philox4x32-10 and `offset` a place in it far from all others; element n in row-major order
    has draws of its own there, so that equal calls give equal numbers on every device and in every layout. Give every
    call another offset; both may be 0-d device arrays, which a captured graph reads anew.

    uniform takes as many bits as y has (24, 53, 11, 8), a multiple of 2⁻²⁴ of word n in float32, and never gives high;
    float64 takes 64 bits an element, words 2 n and 2 n + 1. normal and log_normal are Box and Muller's of pairs of
    elements. randint is unbiased over any range up to 2⁶⁴ (Lemire 2019; of 64 tries). bernoulli compares 32 bits with
    p cut to a multiple of 2⁻³². gamma and what rests on it is Marsaglia and Tsang's (32 tries), poisson and binomial
    Hörmann's transformed rejection (64 tries) from a mean of 10, else inversion; truncated_normal is an inversion, and
    Robert's rejection (16 tries) 36 deviations from 0: these draw from blocks that no other element shares and decide
    in float64, whatever y is. Beyond the tries, which has a probability below 2⁻¹⁰⁰, they
    give their mode.

    Integers and float32's standard uniforms are those of NumPy bit for bit; a count may differ from the reference's
    where a decision lies within rounding errors of float64. There is no gradient; that of normal's loc and scale is
    that of the function `normal`.
    """

    op = "random.random"
    kinds = RandomKind
    descriptor = RandomDescriptor
    args = RandomArgs
    reference = staticmethod(reference)
    raw = True
    value_policy = (
        "a parameter outside its range gives NaN where the formula does, 0 of whole numbers; probabilities of "
        "bernoulli are clamped, high <= low of randint gives low, and so does a span of uniform that is not finite"
    )
    variants = _rows()
    benchmarks = (
        _benchmark("uniform 268M f32", "uniform", "float32"), _benchmark("normal 268M f32", "normal", "float32"),
        _benchmark("normal 268M bf16", "normal", "bfloat16"),
        _benchmark("bernoulli 268M u8", "bernoulli", "uint8", a_number=0.5),
        _benchmark("randint 268M i32", "randint", "int32", low=0, span=1000),
        _benchmark("exponential 268M f32", "exponential", "float32", a_number=1.0),
        _benchmark("gamma 2 268M f32", "gamma", "float32", a_number=2.0),
        _benchmark("poisson 20 268M f32", "poisson", "float32", a_number=20.0),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RandomDescriptor:
        return RandomDescriptor(kind=draw.kind, shape=draw.shape(0, 3, 0, 9), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        given = [name for name in ("like", "a", "b", "c") if shapes.get(name) is not None]
        if given and facts.get("shape") is None:
            facts["shape"] = broadcast_shape(shapes, tuple(given))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Numbers from the middle of the parameters' ranges, and spans of 1 to 64 bits."""
        for name, (low, high) in zip("abc", desc.kind.row.ranges, strict=False):
            arrays[f"{name}_number"] = low + 0.625 * (high - low)
        pick = len(desc.shape) + sum(desc.shape)
        arrays["low"], arrays["span"] = ((-90, 91), (0, 2**32), (-5, 3 << 30), (-(2**63), 3 << 61), (7, 0))[pick % 5]
        streams(desc.shape, arrays)
