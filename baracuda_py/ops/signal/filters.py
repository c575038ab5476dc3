"""lfilter and what is made of it: filters by the coefficients of their difference equation (scipy.signal)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Array, registry
from ...core.arrays import read
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import broadcast, shape_of, without_axes
from ...calls.entries import entry
from ..elementwise.binary_functions import add, div, mul, sub
from ..gemm.matmul import matmul
from ..layout.axes import place
from ..layout.concat import stack
from ..layout.made import from_host
from ..layout.moves import copy, flip
from ..layout.pad import PadPlan, pad
from ..layout.structured import hankel
from ..layout.views import part
from ..reduce.convolve import windowed
from ..scan.linear_scan import LinearScanPlan, linear_scan
from ..scan.scan import cumsum
from .frames import formula, last, one_of, real_kind, returned, to_last, with_same
from .recurrence import recursive


def numbers(name: str, given: Any, x: Any, options: Any, rank: int = 1) -> Any:
    """An array of coefficients beside x: one that is given, or Python's numbers, which are copied from the host."""
    if isinstance(given, (list, tuple, int, float)):
        held = np.asarray(given, np.float64)
        held = held.reshape(1) if held.ndim < rank == 1 else held
        given = from_host(held.astype(read(x, "x").element.dtype), x, options["stream"])
    if len(shape_of(given, name)) != rank or 0 in shape_of(given, name):
        axes = "one axis" if rank == 1 else f"{rank} axes"
        raise InvalidProblemError(f"{name} must have {axes}, and elements, got shape {shape_of(given, name)}")
    with_same(x, given, name, "lfilter")
    return given


def _extended(c: Any, n: int, options: Any) -> Any:
    count = shape_of(c, "c")[0]
    return c if count == n else pad(c, ((0, n - count),), **options)


def filtered(b: Any, a: Any, x: Any, zi: Any, out: Any, options: Any) -> tuple[Any, Any]:
    """(y, zf) along the last axis, zf None where zi is."""
    order = max(shape_of(a, "a")[0], shape_of(b, "b")[0]) - 1
    first = part(a, 0, 0, 1)
    b, a = div(b, first, **options), div(a, first, **options)
    *many, n = shape_of(x, "x")
    taps = shape_of(b, "b")[0]
    more = 0 if zi is None else order
    if 0 in (*many, n + more):
        f = pad(x, [(0, 0)] * len(many) + [(0, more)], **options) if more else x
    elif taps == 1 and not more:
        f = mul(x, b, **options)
    else:
        f = windowed(x, flip(b, **options), (taps - 1,), (n + more,), None, options)
    if zi is None:
        return recursive(f, a, out, options), None
    if shape_of(zi, "zi") != (*many, order):
        try:
            zi = broadcast(zi, (*many, order), "zi")
        except Exception:
            wanted = (*many, order)
            raise InvalidProblemError(f"zi must have shape {wanted}, got {shape_of(zi, 'zi')}") from None
    f = add(f, pad(zi, [(0, 0)] * len(many) + [(0, n)], **options), **options)
    y = recursive(part(f, len(many), 0, n), a, out, options)
    after = part(f, len(many), n, n + order)
    if shape_of(a, "a")[0] == 1 or not order:
        return y, after if order else copy(after, **options)
    seen = part(y, len(many), max(n - order, 0), n)
    if n < order:
        seen = pad(seen, [(0, 0)] * len(many) + [(order - n, 0)], **options)
    table = hankel(part(_extended(a, order + 1, options), 0, 1, order + 1), **options)
    return y, sub(after, matmul(flip(seen, -1, **options), table, **options), **options)


@entry(LinearScanPlan)
def lfilter(
    b: Array, a: Array, x: Array, axis: int = -1, zi: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y with a[0] y[t] = Σ_k b[k] x[t - k] - Σ_(k > 0) a[k] y[t - k] along an axis (scipy.signal.lfilter).

    x: any shape, float32 or float64. b, a: vectors of x's element, or Python numbers. zi: what the filter holds before
    the first element, of x's shape with max(len(a), len(b)) - 1 along `axis` (`lfilter_zi`); then the result is (y,
    zf), zf what it holds behind the last. Windows of x times b are one launch; of one a, behind a[0], `linear_scan` is
    the other, and of more blocks of 64 outputs are products of matrices: n (64 + p) products and log2(n / 64) small
    launches, in place of n steps. Its tables are of float64. Gradients of b, a, x and zi.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "lfilter")
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    b, a = numbers("b", b, x, options), numbers("a", a, x, options)
    outs = each_of(out, 1 if zi is None else 2)
    if zi is not None:
        with_same(x, zi, "zi", "lfilter")
        if len(shape_of(zi, "zi")) != len(shape_of(x, "x")):
            raise InvalidProblemError(f"zi must have as many axes as x, got shape {shape_of(zi, 'zi')}")
        zi = last(zi, at, "zi")[0]
    y, after = filtered(b, a, rows, zi, to_last(outs[0], at, x), options)
    if zi is None:
        return returned(y, at, outs[0])
    held = after if outs[1] is None else copy(after, out=to_last(outs[1], at, x), **options)
    return returned(y, at, outs[0]), returned(held, at, outs[1])


@entry(LinearScanPlan)
def lfilter_zi(
    b: Array, a: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """What a filter holds at rest on an input of 1, max(len(a), len(b)) - 1 numbers (scipy.signal.lfilter_zi).

    b, a: vectors of one element, float32 or float64. z with z = Aᵀ z + b[1:] - a[1:] b[0], A the companion matrix.
    Gradients of b and a.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(a, "lfilter_zi")
    b, a = numbers("b", b, a, options), numbers("a", a, a, options)
    n = max(shape_of(a, "a")[0], shape_of(b, "b")[0])
    first = part(a, 0, 0, 1)
    b, a = _extended(div(b, first, **options), n, options), _extended(div(a, first, **options), n, options)
    total: Any = registry.public("sum")
    rest = formula("b - a * c")(b=part(b, 0, 1, n), a=part(a, 0, 1, n), c=part(b, 0, 0, 1), **options)
    level = div(total(rest, keepdims=True, **options), total(a, keepdims=True, **options), **options)
    sums = cumsum(part(a, 0, 0, n - 1), axis=0, **options), cumsum(rest, axis=0, exclusive=True, **options)
    return formula("s * z - r")(s=sums[0], z=level, r=sums[1], out=out, **options)


_PADS = {"even": "reflect", "odd": "reflect", "constant": "replicate"}


@entry(LinearScanPlan)
def filtfilt(
    b: Array, a: Array, x: Array, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A filter there and back, which delays nothing: `lfilter` of x, and of that from its end (scipy.signal.filtfilt).

    x is padded by padlen elements, 3 max(len(a), len(b)) by default: "odd", mirrored through its ends; "even",
    mirrored; "constant"; None, not. Each pass begins at rest (`lfilter_zi`). Gradients of b, a and x.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "filtfilt")
    one_of("padtype", padtype, None, *_PADS)
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    b, a = numbers("b", b, x, options), numbers("a", a, x, options)
    rank, n = len(shape_of(x, "x")), shape_of(rows, "x")[-1]
    longest = max(shape_of(a, "a")[0], shape_of(b, "b")[0])
    edge = 0 if padtype is None else 3 * longest if padlen is None else whole("padlen", padlen, 0)
    if n <= edge:
        raise InvalidProblemError(f"x must have more than padlen {edge} elements along axis {at}, got {n}")
    if edge:
        widths = [(0, 0)] * (rank - 1) + [(edge, edge)]
        wide = pad(rows, widths, _PADS[str(padtype)], **options)
        if padtype == "odd":
            wide = formula("2 * e - r")(e=pad(rows, widths, "replicate", **options), r=wide, **options)
        rows = wide
    (out,) = each_of(out, 1)
    rest = lfilter_zi(b, a, **options) if longest > 1 else None
    for _ in range(2):
        begin = None if rest is None else mul(part(rows, rank - 1, 0, 1), rest, **options)
        rows = flip(filtered(b, a, rows, begin, None, options)[0], -1, **options)
    kept = part(rows, rank - 1, edge, edge + n)
    to = to_last(out, at, x)
    return returned(kept if to is None else copy(kept, out=to, **options), at, out)


@entry(LinearScanPlan)
def sosfilt(
    sos: Array, x: Array, axis: int = -1, zi: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """A filter as a cascade of sections of second order, `lfilter` of each (scipy.signal.sosfilt).

    sos: [sections, 6] of x's element, or lists of numbers, b and a of each section. zi: [sections, ...] with 2 in place
    of x's extent along `axis`; then the result is (y, zf). Gradients of sos, x and zi.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "sosfilt")
    sos = numbers("sos", sos, x, options, rank=2)
    count, six = shape_of(sos, "sos")
    if six != 6:
        raise InvalidProblemError(f"sos must have shape [sections, 6], got {shape_of(sos, 'sos')}")
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    outs = each_of(out, 1 if zi is None else 2)
    wanted = (count, *shape_of(rows, "x")[:-1], 2)
    if zi is not None:
        with_same(x, zi, "zi", "sosfilt")
        if len(shape_of(zi, "zi")) != len(wanted) or shape_of(last(zi, at + 1, "zi")[0], "zi") != wanted:
            raise InvalidProblemError(
                f"zi must have shape [{count} sections, *x.shape] with 2 along axis {at + 1}, got {shape_of(zi, 'zi')}"
            )
        zi = last(zi, at + 1, "zi")[0]
    held = []
    for k in range(count):
        row = without_axes(part(sos, 0, k, k + 1), (0,), "sos")
        begin = None if zi is None else without_axes(part(zi, 0, k, k + 1), (0,), "zi")
        to = to_last(outs[0], at, x) if k == count - 1 else None
        rows, after = filtered(part(row, 0, 0, 3), part(row, 0, 3, 6), rows, begin, to, options)
        held.append(after)
    y = returned(rows, at, outs[0])
    if zi is None:
        return y
    to = None if outs[1] is None else last(outs[1], at + 1, "out")[0]
    return y, returned(stack(held, axis=0, out=to, **options), at + 1, outs[1])


@entry(LinearScanPlan)
def biquad(
    x: Array, b0: float, b1: float, b2: float, a0: float, a1: float, a2: float, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`lfilter` of second order by its six numbers, along the last axis (torchaudio.functional.biquad).

    x: [..., n], float32 or float64. What is beyond ±1 is not clamped, as torchaudio does. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "biquad")
    if not shape_of(x, "x"):
        raise InvalidProblemError("x must have an axis of time, got a single number")
    named = {"b0": b0, "b1": b1, "b2": b2, "a0": a0, "a1": a1, "a2": a2}
    held = [float(real(name, value)) for name, value in named.items()]
    if held[3] == 0:
        raise InvalidProblemError(f"a0 must not be 0, got {shown(a0)}")
    (out,) = each_of(out, 1)
    taps, poles = (numbers("b", held[i : i + 3], x, options) for i in (0, 3))
    return filtered(taps, poles, x, None, out, options)[0]


@entry(PadPlan)
def preemphasis(
    x: Array, coeff: float = 0.97, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x[t] - coeff x[t - 1] along the last axis, x[0] at its begin (torchaudio.functional.preemphasis).

    x: [..., n], floats. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    weight, shape = float(real("coeff", coeff)), shape_of(x, "x")
    if not shape:
        raise InvalidProblemError("x must have an axis of time, got a single number")
    widths = [(0, 0)] * (len(shape) - 1) + [(min(1, shape[-1]), 0)]
    before = pad(part(x, len(shape) - 1, 0, max(shape[-1] - 1, 0)), widths, **options)
    return formula("x - c * w")(x=x, c=weight, w=before, out=out, **options)


@entry(LinearScanPlan)
def deemphasis(
    x: Array, coeff: float = 0.97, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[t] = x[t] + coeff y[t - 1] along the last axis: `preemphasis` undone (torchaudio.functional.deemphasis).

    x: [..., n], floats; one `linear_scan`. Not clamped. Gradient of x.
    """
    kind = read(x, "x").element
    held = from_host(np.full((1,), float(real("coeff", coeff))).astype(kind.dtype), x, stream)
    return linear_scan(held, x, axis=-1, out=out, stream=stream, preference=preference)
