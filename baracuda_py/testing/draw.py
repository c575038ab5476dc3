"""Random problems: `Draw`, what a page's `case(draw)` picks from, and the operands that go with a descriptor.

Descriptors are drawn value by value, so that hypothesis can shrink them (`HypothesisDraw`); contents are not: an
array is one NumPy seed, because drawing elements is slow and shrinks badly. `SeededDraw` needs no hypothesis and
gives the same problem for the same seed, for batches on a GPU and for benchmarks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.args import Everywhere, Operand, arrays_of, scalars_of
from ..core.element import ElementKind, cast, joined
from ..core.errors import BaracudaError
from ..core.numbers import range_of
from ..core.plan import Plan


class Draw:
    """What `case(draw)` sees; `element` and `kind` are given, everything else is picked."""

    rare = False  # whether `sizes` picks those too that are too slow to be drawn often

    def __init__(self, element: ElementKind, kind: Any = None) -> None:
        self.element = element
        self.kind = kind

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        raise TypeError(f"{type(self).__name__} must define integer()")

    def number(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        raise TypeError(f"{type(self).__name__} must define number()")

    def choice(self, values: Sequence[Any]) -> Any:
        """One of `values`, the first being the simplest."""
        items = tuple(values)
        return items[self.integer(0, len(items) - 1)]

    def flag(self) -> bool:
        """False or True."""
        return self.integer(0, 1) == 1

    def sizes(self, *values: int, rare: tuple[int, ...] = ()) -> int:
        """One of the sizes worth testing: tails, primes, powers of two.

        `rare` ones reach kernels that the others do not: drawn where problems are searched for, see `coverage`.
        """
        return int(self.choice(rare if rare and self.rare and self.integer(0, 2) == 0 else values))

    def rarely(self) -> bool:
        """True at times where `rare` sizes are drawn: for sizes that reach a kernel only together."""
        return self.rare and self.integer(0, 7) == 0

    def shape(self, min_rank: int, max_rank: int, min_extent: int = 1, max_extent: int = 8) -> tuple[int, ...]:
        """A shape with a rank in [min_rank, max_rank] and extents in [min_extent, max_extent]."""
        rank = self.integer(min_rank, max_rank)
        return tuple(self.integer(min_extent, max_extent) for _ in range(rank))

    def seed(self) -> np.random.Generator:
        """The source of array contents."""
        return np.random.default_rng(self.integer(0, 2**32 - 1))


class SeededDraw(Draw):
    """Draws from NumPy: one seed, one problem."""

    def __init__(self, seed: int, element: ElementKind, kind: Any = None) -> None:
        super().__init__(element, kind)
        self._rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return int(self._rng.integers(low, high, endpoint=True))

    def number(self, low: float, high: float) -> float:
        """A float in [low, high], one of float32: scalars of kernels in float32 and less have no more."""
        return float(np.float32(self._rng.uniform(low, high)))


class HypothesisDraw(Draw):
    """Draws from hypothesis' `data`, so that a failing problem is shrunk."""

    def __init__(self, data: Any, element: ElementKind, kind: Any = None) -> None:
        super().__init__(element, kind)
        self._draw = data.draw

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        from hypothesis import strategies

        return int(self._draw(strategies.integers(low, high)))

    def number(self, low: float, high: float) -> float:
        """A float in [low, high]."""
        from hypothesis import strategies

        return float(self._draw(strategies.floats(low, high, allow_nan=False, allow_infinity=False, width=32)
                                if _float32(low) and _float32(high) else strategies.floats(low, high)))  # fmt: skip


def _float32(value: float) -> bool:
    return float(np.float32(value)) == value


def combinations(plan: type[Plan]) -> list[tuple[Any, ElementKind]]:
    """(kind, element) pairs a plan serves: all of them up to 32, else every kind and every element at least once."""
    pairs = []
    for kind in plan.kinds or (None,):
        served = {e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)}
        pairs.append([(kind, e) for e in ElementKind if e in served])
    if sum(map(len, pairs)) <= 32:
        return [pair for row in pairs for pair in row]
    return [row[(i + j * 5) % len(row)] for i, row in enumerate(pairs) if row for j in range(2)]


@dataclasses.dataclass
class Case:
    """One problem with its operands as NumPy arrays in their stored dtype (lists for list operands).

    `arrays` has inputs, in-outs and scalars, None where an optional operand is absent; `wanted` names the outputs,
    `omitted` those numbers drawn to be what a call takes that leaves them out.
    """

    plan: type[Plan]
    desc: Any
    arrays: dict[str, Any]
    wanted: frozenset[str]
    kind: Any = None
    omitted: frozenset[str] = frozenset()

    def __str__(self) -> str:
        def show(value: Any) -> str:
            if isinstance(value, list):
                return "[" + ", ".join(map(show, value)) + "]"
            return f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else repr(value)

        operands = ", ".join(f"{name}={show(value)}" for name, value in self.arrays.items())
        return f"{self.plan.__name__}: {self.desc}; {operands}; wants {', '.join(sorted(self.wanted))}"


def make_case(plan: type[Plan], draw: Draw, *, special: bool = False, plain: bool = False) -> Case:
    """A drawn descriptor with drawn operands, optional ones present or absent.

    special: floats may be NaN, infinite, signed zero and subnormal. plain: no broadcast or repeated values, every
    optional input present.
    """
    desc = plan.case(draw)
    most = draw.integer(0, 3) > 0  # of the optional operands are present, or few
    present = {s.name: plain or (draw.integer(0, 3) > 0) == most for s in arrays_of(plan.args) if s.optional}
    return fill(plan, desc, draw.seed(), present, special=special, plain=plain, kind=draw.kind)


def fill(
    plan: type[Plan],
    desc: Any,
    rng: np.random.Generator,
    present: Mapping[str, bool] | None = None,
    *,
    special: bool = False,
    plain: bool = True,
    smooth: bool = False,
    usual: bool = False,
    numbers: Mapping[str, Any] | None = None,
    kind: Any = None,
) -> Case:
    """Operands for a descriptor; `present` says which optional ones are given (default: all).

    smooth: floats stay where differences approximate derivatives, also of operands declared `Everywhere`.
    usual: numbers are what a call takes that leaves them out. numbers: those that are given, by name.
    """
    present = present or {}
    arrays: dict[str, Any] = {}
    for spec in arrays_of(plan.args):
        if not spec.reads:
            continue
        if not spec.serves(desc) or not (spec.required(desc) or present.get(spec.name, True)):
            arrays[spec.name] = None
            continue
        kinds = spec.elements(desc)
        element = kinds[int(rng.integers(len(kinds)))]
        made = [_contents(spec, desc, shape, element, rng, special, smooth) for shape in shapes_of(spec, desc)]
        if not plain:
            made = [_repeat(spec, one, rng) for one in made]
        arrays[spec.name] = made if spec.many else made[0]
    defaults = {}
    main = getattr(desc, "element", ElementKind.F32)
    for spec in scalars_of(plan.args):
        choices, default = numbers_of(plan, spec, main), default_of(plan, spec)
        drawn = choices[int(rng.integers(len(choices)))]
        arrays[spec.name] = drawn if not usual else choices[0] if default is dataclasses.MISSING else default
        if len(choices) > 1 and arrays[spec.name] == default and not spec.integer:
            defaults[spec.name] = default
    arrays.update(numbers or {})
    plan.complete(desc, arrays)
    arrays.update(numbers or {})
    possible = possible_outputs(plan, desc, arrays)
    wanted = {name for name in possible if present.get(name, True)}
    if not wanted and all(arrays.get(s.name) is None for s in arrays_of(plan.args) if s.role == "inout"):
        wanted = set(possible[:1])
    omitted = frozenset(name for name, default in defaults.items() if arrays[name] is default)
    return Case(plan, desc, arrays, frozenset(wanted), kind, omitted)


def possible_outputs(plan: type[Plan], desc: Any, arrays: Mapping[str, Any]) -> list[str]:
    """The outputs that a call with these operands may ask for."""
    return [
        s.name
        for s in arrays_of(plan.args)
        if s.role == "out"
        and s.serves(desc)
        and (s.needs is None or arrays.get(s.needs, s.needs) is not None)
        and (s.like is None or arrays[s.like].dtype.kind not in "biu")  # integers have no gradient
    ]


def numbers_of(plan: type[Plan], spec: Operand, element: ElementKind) -> Sequence[float]:
    """What a number is drawn from: its default and others off 0 and 1, of either sign where it is a factor or a term.

    Of one that meets an integer, those that the rule takes (`core.numbers`): for an element it stands itself, ends of
    the range included; coefficients are below 0 and beyond the range, too.
    """
    default = default_of(plan, spec)
    known = () if default is dataclasses.MISSING else (default,)
    if spec.values is not None:
        return tuple(spec.values)
    if spec.meets and not element.is_inexact:
        low, high = range_of(element, spec.meets)
        return (*known, *((3, -2, 300, -(2**40) - 7, low + 5) if spec.meets == "coefficient" else (high, low)))
    if spec.integer:
        return (*known, default + 3) if known else (1, 3)  # the first is that of examples
    return (0.5, -1.25) if not known else (*known, 0.75, -1.25, 2.5) if default in (0, 1) else (*known, 1.5 * default)


def shapes_of(spec: Operand, desc: Any) -> list[tuple[int, ...]]:
    """The shapes of an operand: one, or one per list item."""
    if spec.many:
        return [spec.shape(desc, i) for i in range(len(getattr(desc, spec.many)))]
    return [spec.shape(desc)]


def default_of(plan: type[Plan], spec: Operand) -> Any:
    """What a call takes where the operand or scalar is not given."""
    return next(f.default for f in dataclasses.fields(plan.args) if f.name == spec.name)


def _contents(
    spec: Operand, desc: Any, shape: tuple[int, ...], element: ElementKind, rng: np.random.Generator, special: bool,
    smooth: bool,
) -> np.ndarray:  # fmt: skip
    points = spec.values.points(desc) if isinstance(spec.values, Everywhere) else None
    if points is not None and (element.bits < 8 or element is ElementKind.E8M0):
        return rng.integers(0, 256, shape).astype(np.uint8)  # every code
    if points is not None and not (smooth and element.is_inexact):
        found = everywhere(element, shape, rng, points)
        return _with_specials(found, element, rng) if special and element.is_inexact and found.size else found
    values_of = spec.values.smooth if isinstance(spec.values, Everywhere) else spec.values
    if callable(values_of):
        made = stored(np.asarray(values_of(rng, desc, shape)).reshape(shape), element)
        known = isinstance(spec.values, Everywhere) or getattr(values_of, "finite_only", False)
        if special and not known and _ordinary(made, element):
            made = _with_specials(made, element, rng, getattr(values_of, "no_subnormals", False))
        return made
    if spec.values is not None and not isinstance(spec.values, Everywhere):
        low, high = (getattr(desc, v) if isinstance(v, str) else v for v in spec.values)
        if element.is_float:
            made = stored(rng.uniform(low, high, shape), element)
            made = _with_specials(made, element, rng) if special and _ordinary(made, element) else made
            return np.abs(made) if low >= 0 else made  # what is declared not to be negative is not
        return stored(rng.integers(low, max(high, low + 1), shape), element)
    if element.bits < 8 or element is ElementKind.E8M0:
        low, high = (120, 134) if element is ElementKind.E8M0 else (0, 256)
        return rng.integers(low, high, shape).astype(np.uint8)
    if element is ElementKind.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if element.is_integer:
        low, high = int(max(element.limits.min, -100)), int(min(element.limits.max, 100))
        return rng.integers(low, high, shape, endpoint=True).astype(element.dtype)
    values: Any = rng.standard_normal(shape)
    if element.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    if special and values.size:
        values = _with_specials(values, element, rng)
    return stored(values, element)


def everywhere(
    element: ElementKind, shape: tuple[int, ...], rng: np.random.Generator, points: Sequence[float] = ()
) -> np.ndarray:
    """Values over the whole range of an element: see `Everywhere`; floats are finite."""
    if element is ElementKind.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if element.is_complex:
        real, imag = (everywhere(element.part, shape, rng, points) for _ in range(2))
        alike = np.where(rng.random(shape) < 0.1, real, imag)  # on the diagonals, too
        alike = np.where(rng.random(shape) < 0.5, alike, -alike)
        axis = np.where(rng.random(shape) < 0.2, 0 * alike, alike)
        return joined(*((axis, real) if rng.integers(2) else (real, axis)))
    if element.is_integer:
        low, high = int(element.limits.min), int(element.limits.max)
        values = rng.integers(low, high, shape, element.dtype, endpoint=True)
        values = values >> rng.integers(0, element.bits, shape, element.dtype)  # every magnitude
        ends = np.array([low, high, 0, 1, -1 if low else 2], element.dtype)
        return np.where(rng.random(shape) < 0.1, rng.choice(ends, shape), values)
    word = np.dtype(f"u{element.itemsize}")
    largest = cast(np.array(element.limits.max), element).view(word)
    named = np.array([0.0, *points, element.limits.max, 2.0**element.limits.min_exponent])
    near = np.minimum(cast(np.abs(named), element).view(word), largest).astype(np.int64)
    steps = rng.integers(-3, 4, shape) * rng.choice((1, 16), shape)
    codes = np.clip(rng.choice(near, shape) + steps, 0, int(largest)).astype(word)
    bits = rng.integers(0, int(largest), shape, word, endpoint=True)
    sizes = np.where(rng.random(shape) < 0.5, bits, codes).view(element.dtype)
    usual = cast(4 * rng.standard_normal(shape), element)
    values = np.where(rng.random(shape) < 0.3, usual, np.where(rng.random(shape) < 0.5, sizes, -sizes))
    return values if values.dtype == element.carrier else values.view(element.carrier)


def _ordinary(array: np.ndarray, element: ElementKind) -> bool:
    """Whether there are floats of 16 bits or more, which have NaN and infinities."""
    return bool(array.size) and element.is_inexact and element.bits >= 16


def _with_specials(values: Any, element: ElementKind, rng: np.random.Generator, normal: bool = False) -> Any:
    """A few elements replaced by what kernels get wrong: signed zeros, subnormals (numbers of half their exponent where
    only normal ones are meant), half the time infinities and NaN."""
    if element.is_complex:
        parts = (_with_specials(cast(x, element.part), element.part, rng, normal) for x in (values.real, values.imag))
        return joined(*parts)
    least = 2.0 ** (element.limits.min_exponent // (2 if normal else 1))
    tiny = least / 2 if normal else element.limits.tiny
    choices = [0.0, -0.0, tiny, -3 * tiny, least]
    if rng.integers(2):
        choices += [np.inf, -np.inf, np.nan]
    values = np.array(values)
    flat = values.reshape(-1)
    count = int(rng.integers(1, max(2, flat.size // 8)))
    flat[rng.integers(0, flat.size, count)] = cast(rng.choice(choices, count), element)
    return values


def stored(values: Any, element: ElementKind) -> np.ndarray:
    """Values as an array in the element's carrier dtype."""
    array = np.asarray(values)
    if array.dtype == element.carrier and element.carrier != element.dtype:
        return np.array(array)
    made = np.array(cast(array, element))
    return made if made.dtype == element.carrier else made.view(element.carrier)


def _repeat(spec: Operand, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sometimes a shape that only broadcasts to the declared one, or values equal along an axis (a stride-0 view)."""
    if spec.role != "in" or not array.ndim or rng.integers(3):
        return array
    axis = int(rng.integers(array.ndim))
    if array.shape[axis] == 0:
        return array
    one = np.take(array, [0], axis)
    if spec.broadcast and rng.integers(2):
        lead = int(rng.integers(array.ndim + 1)) if axis == 0 else 0
        if lead == array.ndim and array.size:
            return np.array(array.reshape(-1)[0])
        return np.array(one[(0,) * lead] if all(n == 1 for n in one.shape[:lead]) and lead <= 1 else one)
    if callable(spec.values):
        return array  # contents that belong together: offsets, permutations
    return np.ascontiguousarray(np.broadcast_to(one, array.shape))


def zero_sized(plan: type[Plan], desc: Any) -> list[Any]:
    """Descriptors like this one with one extent of its operands' shapes set to zero, as far as they are accepted."""
    found = []
    names = {d.lstrip("*") for s in arrays_of(plan.args) for d in s.dims}
    for field in dataclasses.fields(desc):
        value = getattr(desc, field.name)
        if field.name not in names:
            continue
        if isinstance(value, tuple):
            options: list[Any] = [(*value[:i], 0, *value[i + 1 :]) for i in range(len(value))]
        else:
            options = [0]
        for option in options:
            try:
                found.append(dataclasses.replace(desc, **{field.name: option}))
            except BaracudaError:
                continue  # refused by its own typed error: there is no such problem
    return found
