"""The cuBLAS rows of `GemmPlan`: layouts that cuBLAS can express, without an epilogue or with one that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ...backends import cublas
from ...core import ElementKind, Geometry, InvalidProblemError, LibraryStep, Problem, View
from ...core.device import Device
from ...core.element import FP8, HALVES
from ...core.tensor import merge_axes
from ...core.variant import aligned
from ...schedules.gemm import batch_count, dense, for_precision

_WORKSPACE = 32 << 20  # what torch gives cuBLAS on Hopper; less keeps it from its split-k kernels
# Where c is y and beta is exactly 1, cuBLAS rounds a 16-bit product before it adds (read on an H200). One ulp of
# float32 above 1 keeps the sum in the epilogue, rounded once, at a cost of eps(float32) |c|.
_ALMOST_ONE = 1.0 + 2.0**-23
_DEPTH = dict.fromkeys(FP8, 16)  # of the least product that cuBLAS has of an element, where that is not 1
_ZERO = 256  # bytes for a scalar on the device, which leave the workspace aligned
PLAIN = ("a", "b", "c", "y")  # the operands that cuBLAS knows
_EPILOGUES = ("none", "relu", "gelu_tanh")  # the activations


def batched(view: View, rank: int) -> View | None:
    """The view with its batch axes merged into one."""
    shape, (strides,) = merge_axes(view.shape[:rank], [view.strides[:rank]])
    if len(shape) > 1:
        return None
    return View(view.ptr, (*shape, *view.shape[rank:]), (*strides, *view.strides[rank:]), view.element)


def alignment_of(view: View, ld: int, batch_stride: int) -> int:
    """The power of two, at most 16 bytes, that every row of the matrix starts at a multiple of."""
    spots = view.ptr | ld * view.element.itemsize | batch_stride * view.element.itemsize
    return min(16, spots & -spots) if spots else 16


def refuses(precision: str) -> Callable[[Any], str | None]:
    """Why a row of one `math_precision` does not serve a descriptor."""

    other = for_precision(precision)

    def reason(desc: Any) -> str | None:
        return other(desc) or (None if desc.activation == "none" else f"cuBLAS has no activation {desc.activation}")

    return reason


def refuses_epilogue(desc: Any) -> str | None:
    """Why cuBLAS has no epilogue for a descriptor."""
    if desc.activation not in _EPILOGUES:
        return f"cuBLAS has no activation {desc.activation}"
    if desc.activation == "gelu_tanh" and desc.element not in HALVES:
        return f"cuBLAS approximates tanh, too coarsely for {desc.element}"
    if desc.out_element is not desc.element:
        return f"cuBLAS adds a bias of y's element, {desc.out_element}, not of {desc.element}"
    return for_precision("element")(desc)


def _epilogue(p: Problem) -> tuple[str, ...] | str:
    """The vectors of cuBLAS's epilogue, or why it has none for these operands."""
    if p.bias is None:
        return () if p.desc.activation != "none" else "there is neither a bias nor an activation"
    if batch_count(p) != 1:
        return "cuBLAS adds a bias to one product"
    if (p.bias.shape[0] > 1 and p.bias.strides[0] != 1) or p.bias.ptr % 16:
        return f"cuBLAS needs a dense bias at a multiple of 16 bytes, got stride {p.bias.strides[0]}"
    return ("bias",)


def library(precision: str, epilogue: bool = False) -> Callable[[Problem], Geometry | str]:
    """What cuBLAS does with a problem in a precision; epilogue: with a bias or an activation, else with neither."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        beside = _epilogue(p) if epilogue else ()
        if isinstance(beside, str):
            return beside
        known = (*PLAIN, *beside)
        if more := [name for name, view in p.views.items() if view is not None and name not in known]:
            return f"cuBLAS has no {more[0]}"
        if 0 in (desc.m, desc.n, desc.k):
            return "cuBLAS takes no empty extents"
        rank = len(desc.batch_shape)
        matrices: dict[str, cublas.Matrix | None] = {"c": None}
        count, order = batch_count(p), None
        for name, view in (("d", p.y), ("a", p.a), ("b", p.b), ("c", p.c)):
            if view is None:
                continue
            merged = batched(view, rank)
            found = merged and cublas.describe(merged.shape, merged.strides, order if name == "c" else None)
            if not found:
                return f"cuBLAS cannot express {'y' if name == 'd' else name} with strides {view.strides}"
            trans, ld, step = found
            order = trans if name == "d" else order
            if beside and order:
                return "cuBLAS adds a bias to the columns of a row-major y"
            matrices[name] = cublas.Matrix(str(view.element), trans, ld, step, alignment_of(view, ld, step))
        compute = "tf32" if precision == "tf32" else str(desc.element.acc)
        problem = {
            "m": desc.m, "n": desc.n, "k": desc.k, "batch": count, "compute": compute,
            "beside": beside, "activation": desc.activation,
        }  # fmt: skip
        return called(p, problem | matrices, known)

    return geometry


def called(p: Problem, problem: Mapping[str, Any], known: Sequence[str]) -> Geometry:
    """The call of cuBLAS; known: the operands that it is given, a, b, c and y first."""
    desc, depth = p.desc, _DEPTH.get(p.desc.element, 1)
    workspace = max(_WORKSPACE, sum(_zeros(desc.m, desc.n, depth * desc.element.itemsize))) + _spare(problem)
    places = [list(p.views).index(name) for name in known]
    call = LibraryStep(_caller({**problem, "max_workspace": _WORKSPACE}, places))
    return Geometry((call,), workspace, "contiguous" if dense(p) else "strided")


def _zeros(m: int, n: int, nbytes: int) -> tuple[int, int]:
    """Bytes of m zeros and of n, each of so many bytes."""
    return aligned(m * nbytes), aligned(n * nbytes)


def _spare(problem: Mapping[str, Any]) -> int:
    """Bytes of zeros that go with an alpha on the device: a beta, and behind it what an fp8 y has as its c."""
    stands = problem["d"].element in map(str, FP8)
    return _ZERO + (aligned(problem["m"] * problem["n"] * ElementKind.BF16.itemsize) if stands else 0)


def _clear(at: int, nbytes: int, stream: int) -> None:
    """Zeros on the device."""
    from cupy.cuda.runtime import memsetAsync

    memsetAsync(at, 0, nbytes, stream)


def _without_product(problem: Mapping[str, Any], device: Device) -> Callable[..., None]:
    """y = beta c, as a product of zeros: of alpha = 0 cuBLAS makes NaN where a or b has one, but for float32."""
    m, n, kind = problem["m"], problem["n"], ElementKind.of(problem["a"].element)
    depth = _DEPTH.get(kind, 1)
    left, right = _zeros(m, n, depth * kind.itemsize)
    zeros: dict[str, Any] = {
        "a": replace(problem["a"], trans=depth == 1, ld=m if depth == 1 else depth, batch_stride=0),
        "b": replace(problem["b"], trans=depth > 1, ld=n if depth == 1 else depth, batch_stride=0),
    }  # fmt: skip
    gemm = cublas.prepare(cublas.GemmProblem(**{**problem, **zeros, "k": depth, "max_workspace": 0}), device)

    def call(c: int, y: int, beta: float, workspace: int, stream: int, beside: Sequence[int]) -> None:
        _clear(workspace, left + right, stream)
        gemm.run(workspace, workspace + left, c, y, 0.0, beta, 0, 0, stream, beside)

    return call


def _caller(problem: Mapping[str, Any], places: Sequence[int]) -> Callable[[Device], Callable[..., None]]:
    """The prepared call of a problem: host and device scalars each have an algorithm of their own.

    places: of the operands that cuBLAS knows among those of the plan.
    """
    beta_counts = problem["c"] is not None
    halves = problem["d"].element in ("float16", "bfloat16")
    spare = _spare(problem)

    def prepare(device: Device) -> Callable[..., None]:
        gemms = {
            mode: cublas.prepare(cublas.GemmProblem(**problem, device_scalars=mode), device) for mode in (False, True)
        }
        tag = 1.0 if problem["compute"] == "float64" else 0.0
        without_product = cache(partial(_without_product, problem, device))

        def call(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            a, b, c, y, *beside = (pointers[i] for i in places)
            (alpha_at, alpha), (beta_at, beta) = scalars
            if not beta_counts:  # without a c cuBLAS would scale y by it: it is a zero that stands where alpha does
                if alpha_at:
                    _clear(workspace, spare, stream)
                    c = workspace + _ZERO if spare > _ZERO else c
                beta_at, beta = (workspace, alpha) if alpha_at else (0, 0.0)
                workspace, nbytes = workspace + spare, nbytes - spare
            if not alpha_at and not beta_at:
                if c == y and halves and beta == 1.0:
                    beta = _ALMOST_ONE
                if alpha == 0.0:
                    without_product()(c, y, beta, workspace, stream, beside)
                else:
                    gemms[False].run(a, b, c, y, alpha, beta, workspace, nbytes, stream, beside)
                return
            if not (alpha_at and beta_at) or (alpha, beta) != (tag, tag):
                kind = "float64" if tag else "float32"
                raise InvalidProblemError(f"alpha and beta must both be numbers or both be 0-d {kind} device arrays")
            gemms[True].run(a, b, c, y, alpha_at, beta_at, workspace, nbytes, stream, beside)

        return call

    return prepare
