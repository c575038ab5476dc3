"""Embeddings, and bags, of quantised tables: a scale and a zero point for each row, a code or two a byte."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ...core import Array, ElementKind
from ...core.checked import shown, whole
from ...core.outputs import beside
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..indexing.take import TakePlan, take
from ..layout.creation import arange
from ..layout.made import from_host
from ..segment.gather_scatter import GatherScatterPlan
from .embedding_bag import embedding_bag

_HALVES = {  # two codes a byte, the lower half first: what one of them is, s being 0 or 4
    "uint4": "((q >> s) & 15)",
    "int4": "(int32(((q >> s) & 15) ^ 8) - 8)",
}


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _checked(weight: Any, scale: Any, zero_point: Any, code: Any) -> tuple[ElementKind, tuple[int, ...]]:
    """The element of the result, and the shape of a table, of codes."""
    element, rows = read(scale, "scale").element, shape_of(weight, "weight")
    if not element.is_float:
        raise InvalidProblemError(f"scale must be of a float, got {element}")
    if code is not None and (not isinstance(code, str) or code not in _HALVES):
        raise InvalidProblemError(f"code must be None, uint4 or int4, got {shown(code)}")
    if code is not None and read(weight, "weight").element is not ElementKind.U8:
        raise InvalidProblemError(f"weight must be of uint8, two codes a byte, got {read(weight, 'weight').element}")
    shapes = {"scale": shape_of(scale, "scale")}
    if zero_point is not None:
        shapes["zero_point"] = shape_of(zero_point, "zero_point")
    for name, shape in shapes.items():
        if len(rows) != 2 or shape != rows[:1]:
            raise InvalidProblemError(f"{name} must be [rows] of weight [rows, dim], got {shape} for {rows}")
    return element, (rows[0], rows[1] * (1 if code is None else 2))


@entry(TakePlan)
def quantized_embedding(
    indices: Array, weight: Array, scale: Array, zero_point: Array | None = None, *, code: str | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[..., :] = scale[i] · (weight[i, :] - zero_point[i]) of the rows i = indices[...]: a table of int8 or uint8.

    weight: [rows, dim]; scale: [rows], of a float, which is y's element; zero_point: [rows], of the element of weight
    or scale. code: "uint4" or "int4" of a uint8 table [rows, dim / 2] with two codes a byte, the lower half first, as
    torch's quint4x2 (out must be dense then). 3 or 4 launches. A negative index counts from the end; one outside
    [-rows, rows) gives 0. The scales have gradients, the codes none.
    """
    options = {"stream": stream, "preference": preference}
    element, (_, dim) = _checked(weight, scale, zero_point, code)
    q = take(weight, indices, axis=0, **options)
    s = with_axis(take(scale, indices, axis=0, **options), -1, "scale")
    z = None if zero_point is None else with_axis(take(zero_point, indices, axis=0, **options), -1, "zero_point")
    facts: dict[str, Any] = {"c": s, **({} if z is None else {"z": z})}
    to, number = out, "q"
    if code is not None:
        number = _HALVES[code]
        facts = {name: with_axis(one, -1, name) for name, one in facts.items()}
        facts["s"] = from_host(np.array([0, 4], np.uint8), weight, stream)
        q = with_axis(q, -1, "weight")
        to = None if out is None else _dense(out, (*shape_of(out, "out")[:-1], dim // 2, 2))
    wide = element.acc
    text = f"c * {number}" if z is None else f"{wide}(c) * ({wide}({number}) - {wide}(z))"
    y = _formula(f"{element}({text})")(q=q, **facts, out=to, **options)
    if code is None:
        return y
    return out if out is not None else _dense(y, (*shape_of(indices, "indices"), dim))


def _dense(x: Any, shape: tuple[int, ...]) -> Any:
    """An output in another shape."""
    made = reshaped(x, shape, "out") if math.prod(shape_of(x, "out")) == math.prod(shape) else None
    if made is None:
        raise InvalidProblemError(f"out must be dense and of shape {(*shape[:-2], shape[-2] * shape[-1])}")
    return made


@entry(GatherScatterPlan)
def quantized_embedding_bag(
    indices: Array, weight: Array, scale: Array, zero_point: Array | None = None, offsets: Array | None = None,
    per_sample_weights: Array | None = None, *, code: str | None = None, mode: str = "mean",
    padding_idx: int | None = None, include_last_offset: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`embedding_bag` of the rows that `quantized_embedding` makes of a quantised table (FBGEMM's, torch's byte rows).

    The rows of all tokens are made first, then combined: 6 launches. An index outside [0, rows) has no part. Gradients
    of the scales, of float zero points and of per_sample_weights.
    """
    options = {"stream": stream, "preference": preference}
    _, (rows, _) = _checked(weight, scale, zero_point, code)
    shape = shape_of(indices, "indices")
    count = math.prod(shape)
    flat = reshaped(indices, (count,), "indices")
    if flat is None:
        raise InvalidProblemError("indices must be one run of memory, got other strides; copy them to a dense array")
    known = "i >= 0 and i < n" + ("" if padding_idx is None else " and i != p")
    spared = {} if padding_idx is None else {"p": whole("padding_idx", padding_idx, -rows, rows - 1) % max(rows, 1)}
    with beside(indices, stream):
        numbers = arange(count, like=indices)
    places = _formula(f"k if {known} else -1")(i=flat, k=numbers, n=rows, **spared, **options)
    table = quantized_embedding(flat, weight, scale, zero_point, code=code, **options)
    own = reshaped(places, shape, "indices") if len(shape) != 1 else places
    given = {"mode": mode, "include_last_offset": include_last_offset, "out": out, **options}
    return embedding_bag(own, table, offsets, per_sample_weights, **given)
