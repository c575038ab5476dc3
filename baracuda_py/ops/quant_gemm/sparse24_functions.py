"""2:4 sparsity as functions with gradients: sparse24_prune, sparse24_mask, sparse24_matmul."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...calls.functional import functional
from ...core.checked import truth
from ...calls.composed import composed
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import shape_of, transposed
from ...expressions.elementwise import Expression, elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..gemm.linear import linear
from ..gemm.matmul import matmul
from ..layout.moves import copy
from .lines import columns_of, matrix_of, over_rows
from .sparse24 import Sparse24PrunePlan, sparse24_decompress, sparse24_decompress_backward
from .sparse24_gemm import HALVES, Sparse24GemmPlan, sparse24_gemm

_prune = functional(Sparse24PrunePlan, "sparse24_prune", returns=("y",))


@cache
def _masked() -> Expression:
    return elementwise("where(m, d, 0)")


@cache
def _column_sums() -> Any:
    return reduction("d", "sum", axis=0, keepdims=False)


@composed("sparse24_prune_backward", "x")
@entry(Sparse24PrunePlan)
def sparse24_prune(
    x: Array, *, straight_through: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with all but the two largest of every four neighbours along the last axis made 0; see `Sparse24PrunePlan`.

    The gradient is dy where x is kept and 0 elsewhere. straight_through: it is dy as it is, so that elements that were
    made 0 go on learning and may come back (Zhou et al., Learning N:M fine-grained structured sparse neural networks
    from scratch, 2021).
    """
    truth("straight_through", straight_through)
    return _prune(x, out=out, stream=stream, preference=preference)


@entry(Sparse24PrunePlan)
def sparse24_prune_backward(
    dy: Array, x: Array, *, straight_through: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `sparse24_prune` in x: dy where x is kept, or dy itself."""
    options = {"stream": stream, "preference": preference}
    if shape_of(dy, "dy") != (shape := shape_of(x, "x")):
        raise InvalidProblemError(f"dy must have the shape of x, {shape}, got {shape_of(dy, 'dy')}")
    if truth("straight_through", straight_through):
        return copy(dy, out=out, **options)
    return _masked()(m=sparse24_mask(x, **options), d=dy, out=out, **options)


@entry(Sparse24PrunePlan)
def sparse24_mask(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Which elements of x `sparse24_prune` keeps, bool: two of every four neighbours along the last axis."""
    return _prune(x, return_y=False, return_mask=True, out=out, stream=stream, preference=preference)


def _float(given: dict[str, Any]) -> bool:
    return read(given["x"], "x").element.is_float


@composed("sparse24_matmul_backward", "x", "values", "bias", where=_float)
@entry(Sparse24GemmPlan)
def sparse24_matmul(
    x: Array, values: Array, metadata: Array, bias: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x @ Wᵀ + bias of the 2:4 sparse W [n, k] that `sparse24_compress` made (values, metadata) of: x [*, k], bias [n].

    float16, bfloat16 and int8 (int32 out, no bias) are multiplied on sparse tensor cores, see `Sparse24GemmPlan`;
    float32 and float64 by the dense W, two launches. Gradients of x, values and bias.
    """
    options = {"stream": stream, "preference": preference}
    columns = columns_of(values, "values")
    if read(x, "x").element in (*HALVES, ElementKind.I8):
        return over_rows(
            lambda rows, to: sparse24_gemm(rows, values, metadata, bias, out=to, **options), x, "x", columns, out
        )
    return linear(x, sparse24_decompress(values, metadata, **options), bias, out=out, **options)


@entry(Sparse24GemmPlan)
def sparse24_matmul_backward(
    dy: Array, x: Array, values: Array, metadata: Array, bias: Array | None = None, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(dx, dvalues, dbias) of `sparse24_matmul`; dbias is None without a bias.

    dx = dy W, and dvalues are what dyᵀ x has at the places of the values; five launches.
    """
    options = {"stream": stream, "preference": preference}
    to = each_of(out, 3)
    rows, inputs = matrix_of(dy, "dy"), matrix_of(x, "x")
    dense = sparse24_decompress(values, metadata, **options)
    dx = over_rows(lambda a, y: matmul(a, dense, out=y, **options), dy, "dy", shape_of(x, "x")[-1], to[0])
    full = matmul(transposed(rows, "dy"), inputs, **options)
    dvalues = sparse24_decompress_backward(full, metadata, out=to[1], **options)
    dbias = None if bias is None else _column_sums()(d=rows, out=to[2], **options)
    return dx, dvalues, dbias
