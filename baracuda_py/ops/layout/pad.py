"""pad: more or fewer elements at the ends of axes (torch.nn.functional.pad, numpy.pad, jax.lax.pad); roll."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Variant, Vjp, choice, element,
    extents, operand, output, pairs, per_axis,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import INT32, INT64, MAX_AXES, checked, sequence, shown, whole, wholes
from ...core.element import cast as cast_values
from ...core.element import encode
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.numbers import met
from ...core.tensor import Shape
from ...core.views import shape_of
from ...schedules.copy import launched
from ...schedules.pad import KERNELS, MODES, SOURCE, pad_step
from ..indexing.indexed import MOVED
from .axes import places
from .views import part, raveled, reshape


def number_of(name: str, value: Any) -> Any:
    """A number, kept as it is: integers beyond 2⁵³ are exact."""
    if isinstance(value, int) and value.bit_length() > 1023:
        raise InvalidProblemError(f"{name} must fit a float64, got {shown(value)}")
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return value
    raise InvalidProblemError(f"{name} must be a number, got {shown(value)}")


@dataclass(frozen=True, kw_only=True)
class PadDescriptor(Descriptor):
    """x has shape `shape`; y `before` elements before and `after` behind it along each axis, less where below 0.

    padding: (before, after) of each axis. mode: "constant", the padding is `value`; "reflect", x mirrored about its
    ends; "symmetric", mirrored with the ends twice; "replicate", the ends; "circular", x again. interior: of a
    constant, so many elements of padding between two of x, along each axis.
    """

    shape: tuple[int, ...] = extents()
    padding: tuple[tuple[int, int], ...] = pairs(0, minimum=-INT64, maximum=INT64)
    mode: str = choice(MODES, "constant")
    value: float = checked(number_of, 0, accepts="complex")
    interior: tuple[int, ...] = per_axis(0, maximum=INT32, of="shape")
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """Nothing of no elements is repeated, and no extent is below 0."""
        if isinstance(self.value, (complex, np.complexfloating)) and not self.element.is_complex:
            raise UnsupportedError(f"value {self.value!r} is complex and x is {self.element}; give its real part")
        if not self.element.is_inexact:
            met("value", self.value, self.element, "element")
        if self.mode != "constant" and any(self.interior):
            raise InvalidProblemError(f"interior must be 0 in mode {self.mode!r}, got {self.interior}")
        for axis, (n, extent, given) in enumerate(zip(self.shape, self.out_shape, self.padding, strict=True)):
            if extent < 0:
                raise InvalidProblemError(f"padding {given} takes more than the {n} elements of axis {axis}")
            if self.mode != "constant" and not n and extent:
                raise InvalidProblemError(f"axis {axis} has no elements to pad with in mode {self.mode!r}")

    @cached_property
    def out_shape(self) -> Shape:
        """The shape of y."""
        return tuple(
            before + after + n + max(n - 1, 0) * gap
            for n, (before, after), gap in zip(self.shape, self.padding, self.interior, strict=True)
        )

    @property
    def before(self) -> Shape:
        """Elements before the first of x, along each axis."""
        return tuple(before for before, _ in self.padding)

    @property
    def gap(self) -> Shape:
        """How far neighbours of x are apart in y."""
        return tuple(n + 1 for n in self.interior)

    @cached_property
    def stored(self) -> Any:
        """The value as the element is stored: NumPy, 0-d."""
        return encode(cast_values(np.asarray(self.value), self.element), self.element)


@dataclass(slots=True, kw_only=True)
class PadArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    y: Array = output("*out_shape")


def source(desc: PadDescriptor, axis: int) -> tuple[Any, Any]:
    """For each place along an axis of y the index in x, and whether it has one."""
    n, gap = desc.shape[axis], desc.gap[axis]
    j = np.arange(desc.out_shape[axis]) - desc.before[axis]
    if desc.mode == "constant":
        held = (j >= 0) & (j < (n - 1) * gap + 1) & (j % gap == 0) if n else np.zeros(j.shape, bool)
        return np.where(held, j // gap, 0), held
    if desc.mode == "replicate":
        j = np.clip(j, 0, n - 1)
    elif desc.mode == "circular":
        j = j % max(n, 1)
    elif desc.mode == "symmetric":
        once = np.concatenate([np.arange(n), np.arange(n)[::-1]])
        j = once[j % max(2 * n, 1)] if j.size else j
    else:
        once = np.concatenate([np.arange(n), np.arange(n)[1:-1][::-1]])
        j = once[j % max(len(once), 1)] if j.size else j
    return j, np.ones(j.shape, bool)


def reference(desc: PadDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values, axis by axis."""
    if not x.size:
        return {"y": np.full(desc.out_shape, desc.stored)}
    for axis in range(x.ndim):
        index, held = source(desc, axis)
        x = np.take(x, index, axis)
        x = np.where(held.reshape(-1, *(1,) * (x.ndim - axis - 1)), x, desc.stored)
    return {"y": np.array(x)}


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    word = desc.stored.tobytes() * (16 // desc.element.itemsize)
    return launched([pad_step(p.y, p.x, desc.before, desc.gap, desc.mode, word, ("y", "x"))], (p.x, p.y))


def in_torch(torch: Any, desc: PadDescriptor, *, x: Any) -> Any:
    """torch's pad where its lengths allow; else elements picked by places along each axis, and the value."""
    flat = [k for pair in reversed(desc.padding) for k in pair]
    crops = all(max(-a, -b) <= n for n, (a, b) in zip(desc.shape, desc.padding, strict=True))
    if desc.mode == "constant" and not any(desc.interior) and crops:
        return torch.nn.functional.pad(x, flat, value=desc.value) if any(flat) else x.clone()
    for axis, n in enumerate(desc.shape):
        j = torch.arange(desc.out_shape[axis]) - desc.before[axis]
        kept = torch.ones_like(j, dtype=torch.bool)
        if desc.mode == "constant":
            kept = (j >= 0) & (j < (n - 1) * desc.gap[axis] + 1) & (j % desc.gap[axis] == 0)
            j = torch.where(kept, j // desc.gap[axis], 0)
        elif desc.mode == "replicate":
            j = j.clamp(0, n - 1)
        elif desc.mode == "circular":
            j = j % n
        else:  # the distance from the nearest end of a period that stands at 0
            period = 2 * n if desc.mode == "symmetric" else max(2 * n - 2, 1)
            j = torch.minimum(j % period, period - (desc.mode == "symmetric") - j % period)
        if not n:
            return NotImplemented
        trailing = (-1, *(1,) * (x.dim() - axis - 1))
        x = torch.where(kept.reshape(trailing), x.index_select(axis, j), torch.tensor(desc.value, dtype=x.dtype))
    return x.clone()


class PadPlan(Plan):
    """y = x with elements put before and behind along each axis, or taken away (torch.nn.functional.pad).

    Paddings may be any number of times as long as x. Below 0 they take elements away, whatever the mode. Elements are
    moved as they are; `value` is one that integers have, and is rounded to other elements.
    """

    op = "layout.pad"
    descriptor = PadDescriptor
    args = PadArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("PadBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "copy", _geometry, SOURCE, KERNELS, elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[64, 64, 224, 224] bf16 by 1", shape=(64, 64, 224, 224), padding=((0, 0), (0, 0), (1, 1), (1, 1)),
                  element="bfloat16", work=BYTES),
        Benchmark("[64, 224, 224, 64] bf16 by 1 reflected, channels last", shape=(64, 224, 224, 64), mode="reflect",
                  padding=((0, 0), (1, 1), (1, 1), (0, 0)), element="bfloat16", work=BYTES, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> PadDescriptor:
        return PadDescriptor(**drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int((math.prod(desc.shape) + math.prod(desc.out_shape)) * desc.element.itemsize)


def drawn(draw: Any) -> dict[str, Any]:
    """A few axes padded, cropped or neither, at times by whole words, at times by more than there is."""
    if draw.rarely():  # for copies of operands that are transposed
        return {"shape": (36, 48), "padding": ((1, 0), (0, 2)), "mode": "constant"}
    mode = draw.choice(MODES)
    even = draw.choice((1, 8, 16))
    least = 0 if mode == "constant" else 1
    least = 1 if draw.flag() else least
    shape = [*draw.shape(0, 2, least, 4), draw.integer(least, 3) * even]
    padding = []
    for axis, n in enumerate(shape):
        by = even if axis == len(shape) - 1 and draw.flag() else 1
        before, after = (draw.choice((0, 1, 2, -1, 7, 0)) * by for _ in range(2))
        padding.append((before, after) if n + before + after >= 0 else (0, 0))
    interior = [draw.choice((0, 0, 1, 2)) if mode == "constant" else 0 for _ in shape]
    value = draw.choice((0, 1, True))
    return {"shape": tuple(shape), "padding": tuple(padding), "mode": mode, "value": value, "interior": tuple(interior)}


_pad = functional(PadPlan, "pad")
_MODES = {"edge": "replicate", "wrap": "circular"}


def _widths(pad: Any, shape: Shape) -> tuple[tuple[int, int], ...]:
    """(before, after) of each axis, of PyTorch's numbers, the last axis first, or of NumPy's pairs."""
    if isinstance(pad, (int, np.integer)):
        return ((whole("pad", pad), whole("pad", pad)),) * len(shape)
    try:
        given = tuple(islice(pad, 2 * MAX_AXES + 1))
    except Exception:  # no iterable, or one that raises
        raise InvalidProblemError(f"pad must be an integer, integers or pairs, got {shown(pad)}") from None
    if given and not all(isinstance(one, (int, np.integer)) for one in given):
        each = [wholes(f"pad[{i}]", one, -INT64, INT64, "integers") for i, one in enumerate(given)]
        each = each * len(shape) if len(each) == 1 else each
        if len(each) != len(shape) or any(len(one) != 2 for one in each):
            raise InvalidProblemError(
                f"pad must have a pair (before, after) for each of the {len(shape)} axes, got {pad}"
            )
        return tuple((a, b) for a, b in each)
    numbers = [whole(f"pad[{i}]", one) for i, one in enumerate(given)]
    if len(numbers) % 2 or len(numbers) > 2 * len(shape):
        raise InvalidProblemError(
            f"pad must have two numbers for each axis from the last on, of {len(shape)} axes, got {pad}"
        )
    found = [(numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2)]
    return ((0, 0),) * (len(shape) - len(found)) + tuple(reversed(found))


def _cropped(x: Array, widths: tuple[tuple[int, int], ...]) -> tuple[Array, tuple[tuple[int, int], ...]]:
    """A view of x without what a padding takes away, where it puts others in: those, as in PyTorch, are of the rest."""
    left = []
    for axis, (before, after) in enumerate(widths):
        if before * after < 0:
            n = shape_of(x, "x")[axis]
            x = part(x, axis, min(max(-before, 0), n), n - min(max(-after, 0), n))
            before, after = max(before, 0), max(after, 0)
        left.append((before, after))
    return x, tuple(left)


@entry(PadPlan)
def pad(
    x: Array, pad: Any, mode: str = "constant", value: Any = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with elements put before and behind along axes (torch.nn.functional.pad, numpy.pad); see `PadPlan`.

    pad: PyTorch's numbers (before, after) of the last axis, of the one before it, …; or NumPy's, a pair for each axis
    from the first on, one pair for all, or a number. mode: "constant", "reflect", "replicate" ("edge"), "circular"
    ("wrap") or "symmetric".
    """
    widths = _widths(pad, shape_of(x, "x"))
    given = _MODES.get(mode, mode) if isinstance(mode, str) else mode
    value = 0 if value is None else value
    if given == "circular":
        x, widths = _cropped(x, widths)
    return _pad(x, padding=widths, mode=given, value=value, out=out, stream=stream, preference=preference)


constant_pad_nd = pad


@entry(PadPlan)
def pad_in_dim(
    x: Array, padding_value: Any, padding_config: Any, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with (before, after, between) elements of `padding_value` along each axis (jax.lax.pad), below 0 taken away."""
    config = sequence("padding_config", padding_config, "(before, after, between)")
    each = [wholes(f"padding_config[{i}]", one, -INT64, INT64, "integers") for i, one in enumerate(config)]
    if any(len(one) != 3 for one in each):
        raise InvalidProblemError(
            f"padding_config must have (before, after, between) for each axis, got {padding_config}"
        )
    widths, between = tuple((a, b) for a, b, _ in each), tuple(c for _, _, c in each)
    return _pad(x, padding=widths, value=padding_value, interior=between, out=out, stream=stream, preference=preference)


@entry(PadPlan)
def roll(
    x: Array, shifts: Any, axis: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with its elements `shifts` further along an axis, or several, those beyond the end at the start (torch.roll).

    Without `axis` x is rolled as one axis, in its row-major order.
    """
    shape = shape_of(x, "x")
    if axis is None:
        flat = raveled(x, stream)
        seen = None if out is None else reshape(out, (-1,))
        made = roll(flat, shifts, 0, out=seen, stream=stream, preference=preference)
        return reshape(made, shape) if out is None else out
    axes = (axis,) if isinstance(axis, (int, np.integer)) else sequence("axis", axis, "axes")
    many = (shifts,) * len(axes) if isinstance(shifts, (int, np.integer)) else sequence("shifts", shifts, "integers")
    if len(many) != len(axes):
        raise InvalidProblemError(f"shifts and axis must be as many, got {shifts} and {axis}")
    by = [0] * len(shape)
    for one, shift in zip(axes, many, strict=True):  # of an axis that stands twice the shifts add up
        (at,) = places(one, len(shape))
        by[at] += whole("shifts", shift)
    widths = tuple((s % n, -(s % n)) if n else (0, 0) for s, n in zip(by, shape, strict=True))
    return _pad(x, padding=widths, mode="circular", out=out, stream=stream, preference=preference)
