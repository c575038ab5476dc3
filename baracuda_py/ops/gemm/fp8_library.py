"""The cuBLAS row of `Fp8GemmPlan`: operands with k along memory, scales of matrices, or of rows and columns."""

from __future__ import annotations

from typing import Any

from ...backends import cublas
from ...core import ElementKind, Geometry, Problem
from ...core.element import FP8, HALVES
from .library import alignment_of, called

_KNOWN = ("a", "b", "c", "y", "bias", "scale_a", "scale_b", "scale_y")
_SIXTEEN = 16  # what extents and rows of memory are whole multiples of


def refuses(desc: Any) -> str | None:
    """Why cuBLAS does not serve a descriptor."""
    out, both = desc.out_element, (desc.element, desc.b_element)
    if both == (ElementKind.FP8E5M2,) * 2:
        return "cuBLAS has no product of float8_e5m2 by itself"
    if out is ElementKind.FP8E5M2 and ElementKind.FP8E5M2 not in both:
        return "cuBLAS has no float8_e5m2 result of float8_e4m3fn"
    if desc.activation != "none":
        return f"cuBLAS has no activation {desc.activation} of fp8"
    if desc.k % _SIXTEEN or desc.n % _SIXTEEN or 0 in (desc.m, desc.n, desc.k):
        return f"cuBLAS needs multiples of {_SIXTEEN} as k and n, got {desc.k} and {desc.n}"
    return _refused_scales(desc)


def _refused_scales(desc: Any) -> str | None:
    """Why cuBLAS has no such scales."""
    shapes, lines = (desc.a_scales, desc.b_scales), ((desc.m, 1), (1, desc.n))
    if all(shape == (1, 1) for shape in shapes) or shapes == lines:
        return None
    got = f"got {desc.a_scales} and {desc.b_scales}"
    return f"cuBLAS takes scales of both matrices, or of rows and columns (blocks in an order of its own), {got}"


def geometry(p: Problem) -> Geometry | str:
    """What cuBLAS does with a problem."""
    desc = p.desc
    if more := [name for name, view in p.views.items() if view is not None and name not in _KNOWN]:
        return f"cuBLAS has no {more[0]} of fp8"
    if p.device.cc < (8, 9):
        return "cuBLAS multiplies fp8 on devices from 8.9 on"
    matrices = _matrices(p)
    if isinstance(matrices, str):
        return matrices
    lines = (desc.a_scales, desc.b_scales) != ((1, 1), (1, 1)) and not (p.scale_a is None and p.scale_b is None)
    if lines and (why := _lines(p)):
        return why
    if why := _beside(p):
        return why
    given = {"bias": "bias", "scale_a": "scale_a", "scale_b": "scale_b", "scale_d": "scale_y"}
    beside = tuple(name for name in cublas.BESIDE if p.views[given[name]] is not None)
    problem = {
        "m": desc.m, "n": desc.n, "k": desc.k, "beside": beside, "scaled_lines": lines, "compute": "float32",
    }  # fmt: skip
    return called(p, problem | matrices, ("a", "b", "c", "y", *(given[name] for name in beside)))


def _matrices(p: Problem) -> dict[str, Any] | str:
    """a, b, c and y as cuBLAS describes them."""
    found: dict[str, Any] = {"c": None}
    for name, view, trans in (("a", p.a, False), ("b", p.b, True), ("d", p.y, False), ("c", p.c, False)):
        if view is None:
            continue
        said = cublas.describe(view.shape, view.strides, trans)
        own = "y" if name == "d" else name
        if said is None or alignment_of(view, said[1], 0) != _SIXTEEN:
            along = "k along memory" if name in "ab" else "dense rows"
            return f"cuBLAS needs {own} with {along}, each at a multiple of 16 bytes, got strides {view.strides}"
        found[name] = cublas.Matrix(str(view.element), trans, said[1])
    return found


def _lines(p: Problem) -> str | None:
    """Why cuBLAS does not scale these rows and columns."""
    if p.scale_a is None or p.scale_b is None:
        return "cuBLAS scales rows and columns, or neither"
    if p.desc.out_element in FP8:
        return f"cuBLAS scales rows and columns of results of 16 and 32 bits, not {p.desc.out_element}"
    if p.device.cc != (9, 0):
        return "cuBLAS scales rows and columns on devices of 9.0"
    if not p.device.fake and not cublas.scales_lines():
        return "cuBLAS scales rows and columns from version 12.9 on"
    for name, view, axis in (("scale_a", p.scale_a, 0), ("scale_b", p.scale_b, 1)):
        if view.shape[axis] > 1 and view.strides[axis] != 1:
            return f"cuBLAS needs dense scales, got {name} with strides {view.strides}"
    return None


def _beside(p: Problem) -> str | None:
    """Why cuBLAS does not take these vectors and numbers."""
    out = p.desc.out_element
    if p.bias is not None:
        if out not in HALVES:
            return f"cuBLAS adds no bias to {out} of fp8"
        if (p.desc.n > 1 and p.bias.strides[0] != 1) or p.bias.ptr % _SIXTEEN:
            return "cuBLAS needs a dense bias at a multiple of 16 bytes"
    if p.c is not None and out in FP8:
        return f"cuBLAS adds no c to {out}"
    if p.scale_y is not None and out not in FP8:
        return f"cuBLAS scales y where it is fp8, not {out}"
    return None
