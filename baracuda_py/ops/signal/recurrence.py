"""y[t] = f[t] - Σ_k a[k] y[t - k] along the last axis, block by block.

A block of B outputs is the product of its f and the impulse response's triangle, and what the p outputs before the
block go on to: powers of the companion matrix C, made by doubling. The outputs before each block obey s ← C^B s + c, a
recurrence of n / B vectors, which a scan by doubling solves in log2(n / B) products. Tables and that recurrence are of
float64; products are of the element.
"""

from __future__ import annotations

from typing import Any

from ...core import ElementKind, registry
from ...core.arrays import read
from ...core.outputs import beside
from ...core.views import reshaped, shape_of, transposed, with_axis, without_axes
from ..elementwise.cast import cast
from ..gemm.matmul import matmul
from ..layout.concat import concat
from ..layout.creation import eye, zeros
from ..layout.moves import copy, flip
from ..layout.pad import pad
from ..layout.structured import toeplitz
from ..layout.views import part
from ..scan.linear_scan import linear_scan

_BLOCK = 64


def _wide(x: Any, options: Any) -> Any:
    return x if read(x, "x").element is ElementKind.F64 else cast(x, "float64", **options)


def _as(x: Any, kind: ElementKind, options: Any) -> Any:
    return x if kind is ElementKind.F64 else cast(x, str(kind), **options)


def _powers(a: Any, order: int, block: int, options: Any) -> tuple[Any, Any]:
    """The first rows of C^0, …, C^block, [block + 1, order], and C^block; C is the companion matrix of -a[1:]."""
    negated: Any = registry.public("neg")
    top = with_axis(negated(part(a, 0, 1, order + 1), **options), 0, "a")
    if order > 1:
        with beside(a, options["stream"]):
            below = eye(order - 1, order, element=ElementKind.F64, like=a)
        matrix = concat([top, below], axis=0, **options)
    else:
        matrix = top
    rows, power, held = top, matrix, 1  # rows: those of C^1, …, C^held
    while held < block:
        rows, held = concat([rows, matmul(rows, power, **options)], axis=0, **options), 2 * held
        power = matmul(power, power, **options)
    with beside(a, options["stream"]):
        first = eye(1, order, element=ElementKind.F64, like=a)
    return concat([first, rows], axis=0, **options), power


def _before(ends: Any, power: Any, count: int, options: Any) -> Any:
    """s of each block, [..., blocks, p]: s[b + 1] = C^B s[b] + ends[b] from s[0] = 0."""
    rank = len(shape_of(ends, "x"))

    def later(x: Any, by: int) -> Any:
        return pad(part(x, rank - 2, 0, count - by), [(0, 0)] * (rank - 2) + [(by, 0), (0, 0)], **options)

    states, by = later(ends, 1), 1
    while by < count - 1:
        states = matmul(later(states, by), transposed(power, "power"), states, **options)
        by *= 2
        if by < count - 1:
            power = matmul(power, power, **options)
    return states


def recursive(f: Any, a: Any, out: Any, options: Any) -> Any:
    """y of f and the coefficients a, of which a[0] is 1, both of one element; along the last axis."""
    order, kind = shape_of(a, "a")[0] - 1, read(f, "x").element
    *many, n = shape_of(f, "x")
    if not order or not n or 0 in many:
        return f if out is None else copy(f, out=out, **options)
    if order == 1:
        negated: Any = registry.public("neg")
        return linear_scan(negated(part(a, 0, 1, 2), **options), f, axis=-1, out=out, **options)
    block = _BLOCK
    while block < order:
        block *= 2
    rows, power = _powers(_wide(a, options), order, block, options)
    response = without_axes(part(rows, 1, 0, 1), (1,), "rows")
    with beside(f, options["stream"]):
        above = zeros((block,), ElementKind.F64, like=f)
    triangle = toeplitz(part(response, 0, 0, block), above, **options)
    count = -(-n // block)
    if count * block > n:
        f = pad(f, [(0, 0)] * len(many) + [(0, count * block - n)], **options)
    blocks = reshaped(f, (*many, count, block), "x")
    if blocks is None:
        blocks = reshaped(copy(f, **options), (*many, count, block), "x")
    taps = transposed(_as(triangle, kind, options), "triangle")
    if count == 1:
        made = matmul(blocks, taps, **options)
    else:
        latest = flip(part(triangle, 0, block - order, block), 0, **options)
        ends = matmul(_wide(blocks, options), transposed(latest, "triangle"), **options)
        states = _as(_before(ends, power, count, options), kind, options)
        onward = transposed(_as(part(rows, 0, 1, block + 1), kind, options), "rows")
        made = matmul(blocks, taps, matmul(states, onward, **options), **options)
    whole = reshaped(made, (*many, count * block), "y")
    kept = part(whole, len(many), 0, n)
    return kept if out is None else copy(kept, out=out, **options)
