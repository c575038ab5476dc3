"""qkv_project, and KAIO's qkv_project_int4 and qkv_project_int8: q, k and v by weights of few bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import Array, ElementKind, Scalar
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import shape_of
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import kind_of
from .qkv_gemm import KINDS, PARTS, QkvGemmPlan, qkv_gemm
from .qkv_int8 import QkvInt8Plan, qkv_int8
from .weight_only import by_rows, expect, kaio_int4, quantized_matmul

E = ElementKind
_STORED = ("codes", "scales", "zeros", "index", "scale")


@entry(QkvGemmPlan, kind=FormatKind.INT4)
def qkv_project(
    x: Array, w_q: Any, w_k: Any, w_v: Any, *, kind: Any, bias: Any = None, out_element: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """q, k, v = x @ Wᵀ + bias by three matrices [n, k] stored in one format of `FormatKind`: x [*, k], each [*, n].

    w_q, w_k, w_v: the parts of a matrix as `block_quantize` returns and `block_dequantize` takes them: codes alone, a
    sequence (codes, scales, zeros, index) cut where the rest is absent, or a dict of them by name, with its scale. The
    widths may differ (grouped queries) and be any number. bias: None, or three vectors [n], each of which may be None.
    out_element: x's or float32. Formats of `QkvGemmPlan` take one launch for few rows of x, other formats three
    products; results and the gradient of x are those of three calls of `quantized_matmul` but for its sum, which is
    rounded once.
    """
    known, outs, biases = kind_of(kind), each_of(out, 3), _three("bias", bias)
    weights = [_parts(name, w) for name, w in zip(("w_q", "w_k", "w_v"), (w_q, w_k, w_v), strict=True)]
    given = {"kind": known, "out_element": out_element, "stream": stream, "preference": preference}
    if known not in KINDS:
        return tuple(
            quantized_matmul(x, **w, bias=one, out=to, **given)
            for w, one, to in zip(weights, biases, outs, strict=True)
        )
    named = {f"{name}_{part}": a for part, w in zip(PARTS, weights, strict=True) for name, a in w.items()}

    def products(rows: Any, to: Sequence[Any]) -> Any:
        return qkv_gemm(x=rows, **named, **_by_part("bias", biases), **given, out=_by_part("y", to) or None)

    return by_rows(products, x, [shape_of(w["codes"], "codes")[0] for w in weights], outs)


@entry(QkvGemmPlan, kind=FormatKind.INT4, element=E.F16)
def qkv_project_int4(
    x: Array, w_q: Array, w_k: Array, w_v: Array, scales_q: Array, scales_k: Array, scales_v: Array, *,
    bias: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """q, k, v = x @ W + bias of float16 x [*, k] and three int4 matrices as `matmul_int4` takes them, in float16.

    The widths may differ (grouped queries) and be any number; the group is the same for all. bias: None, or three
    vectors [n], each of which may be None. For few rows of x it is one launch, see `QkvGemmPlan`.
    """
    biases, matrices = _three("bias", bias), ((w_q, scales_q), (w_k, scales_k), (w_v, scales_v))

    def products(rows: Any, to: Sequence[Any]) -> Any:
        stored = [kaio_int4("qkv_project_int4", rows, packed, scales) for packed, scales in matrices]
        groups = [shape_of(scales, "scales")[0] for _, scales in matrices]
        if len(set(groups)) > 1:
            raise InvalidProblemError(f"scales of q, k and v must have the same groups, got {groups}")
        named = {f"{name}_{part}": a for part, w in zip(PARTS, stored, strict=True) for name, a in w.items()}
        return qkv_gemm(
            x=rows, **named, **_by_part("bias", biases), kind=FormatKind.INT4, out=_by_part("y", to) or None,
            stream=stream, preference=preference,
        )  # fmt: skip

    widths = [(0, *shape_of(scales, "scales"))[-1] for _, scales in matrices]
    return by_rows(products, x, widths, each_of(out, 3))


@entry(QkvInt8Plan, element=E.F16)
def qkv_project_int8(
    x: Array, w_q: Array, w_k: Array, w_v: Array, scale_q: Scalar = 1.0, scale_k: Scalar = 1.0, scale_v: Scalar = 1.0,
    *, scales: Any = None, bias: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """q, k, v = scale · (x @ W) · scales + bias of float16 x [*, k] and int8 matrices [k, n], in float16.

    The widths may differ (grouped queries) and be any number. The scale of a matrix, a number or a 0-d float32 array,
    multiplies its float32 sums, and so do scales, float32 [n], those of its columns; bias [n] is added there, and the
    sum rounded once (KAIO's W8A16). scales, bias: None, or three vectors, each of which may be None. For few rows of x
    it is one launch, see `QkvInt8Plan`, which takes other elements of x too.
    """
    expect("qkv_project_int8", "x", x, E.F16)
    given = {"w_q": w_q, "w_k": w_k, "w_v": w_v}
    for name, w in given.items():
        expect("qkv_project_int8", name, w, E.I8)
        if len(shape := shape_of(w, name)) != 2:
            raise InvalidProblemError(f"{name} must be a matrix [k, n], got shape {shape}")
    given |= _by_part("scales", _three("scales", scales)) | _by_part("bias", _three("bias", bias))

    def products(rows: Any, to: Sequence[Any]) -> Any:
        return qkv_int8(
            x=rows, **given, scale_q=scale_q, scale_k=scale_k, scale_v=scale_v, out=_by_part("y", to) or None,
            stream=stream, preference=preference,
        )  # fmt: skip

    return by_rows(products, x, [shape_of(w, "w")[1] for w in (w_q, w_k, w_v)], each_of(out, 3))


def _by_part(name: str, given: Sequence[Any]) -> dict[str, Any]:
    return {f"{name}_{part}": a for part, a in zip(PARTS, given, strict=True) if a is not None}


def _three(name: str, given: Any) -> tuple[Any, ...]:
    if given is None:
        return (None,) * 3
    if not isinstance(given, (list, tuple)) or len(given) != 3:
        raise InvalidProblemError(f"{name} must be None or three arrays, each of which may be None, got {shown(given)}")
    return tuple(given)


def _parts(name: str, w: Any) -> dict[str, Any]:
    """The parts of a stored matrix, by name."""
    if isinstance(w, Mapping):
        found = {part: a for part, a in w.items() if a is not None}
    else:
        parts = tuple(w) if isinstance(w, (list, tuple)) else (w,)
        if not 1 <= len(parts) <= 4:
            raise InvalidProblemError(f"{name} must be (codes, scales, zeros, index) or less, got {len(parts)} arrays")
        found = {part: a for part, a in zip(_STORED, parts, strict=False) if a is not None}
    if "codes" not in found or not found.keys() <= set(_STORED):
        got = ", ".join(map(str, found)) or "nothing"
        raise InvalidProblemError(f"{name} must have codes, and of {', '.join(_STORED[1:])} what there is, got {got}")
    if len(shape := shape_of(found["codes"], name)) != 2:
        raise InvalidProblemError(f"codes of {name} must be rows of bytes [n, bytes], got shape {shape}")
    return found
