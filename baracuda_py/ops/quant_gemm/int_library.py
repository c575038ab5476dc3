"""The cuBLAS row of `IntGemmPlan`: sums in int32 of int8 operands with k along memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends import cublas
from ...core import ElementKind, Geometry, LibraryStep, Problem
from ...core.device import Device
from ...schedules.gemm import batch_count, dense
from ..gemm.library import batched

E = ElementKind
_WORKSPACE = 32 << 20
_KNOWN = ("a", "b", "y")
_SIXTEEN = 16  # what extents, and bytes that rows start at, are whole multiples of


def refuses(desc: Any) -> str | None:
    """Why cuBLAS does not serve a descriptor."""
    if desc.b_element is not E.I8:
        return f"cuBLAS multiplies int8 by int8, b is {desc.b_element}"
    if desc.k % _SIXTEEN or desc.n % _SIXTEEN or 0 in (desc.m, desc.n, desc.k):
        return f"cuBLAS needs multiples of {_SIXTEEN} as k and n, got {desc.k} and {desc.n}"
    return None


def geometry(p: Problem) -> Geometry | str:
    """What cuBLAS does with a problem."""
    desc = p.desc
    if more := [name for name, view in p.views.items() if view is not None and name not in _KNOWN]:
        return f"cuBLAS has no {more[0]} of int8"
    matrices: dict[str, Any] = {}
    for name, view, trans in (("a", p.a, False), ("b", p.b, True), ("d", p.y, False)):
        merged = batched(view, len(desc.batch_shape))
        said = merged and cublas.describe(merged.shape, merged.strides, trans)
        if not said or any(n * view.element.itemsize % _SIXTEEN for n in said[1:]) or view.ptr % _SIXTEEN:
            along = "dense rows" if name == "d" else "k along memory"
            own = "y" if name == "d" else name
            return f"cuBLAS needs {own} with {along}, each at a multiple of 16 bytes, got strides {view.strides}"
        matrices[name] = cublas.Matrix(str(view.element), trans, said[1], said[2])
    problem = cublas.GemmProblem(
        m=desc.m, n=desc.n, k=desc.k, batch=batch_count(p), compute="int32", max_workspace=_WORKSPACE, **matrices
    )
    places = [list(p.views).index(name) for name in _KNOWN]
    return Geometry((LibraryStep(_caller(problem, places)),), _WORKSPACE, "contiguous" if dense(p) else "strided")


def _caller(problem: cublas.GemmProblem, places: list[int]) -> Callable[[Device], Callable[..., None]]:
    """The prepared call of a problem; places: of its operands among those of the plan."""

    def prepare(device: Device) -> Callable[..., None]:
        gemm = cublas.prepare(problem, device)

        def call(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            a, b, y = (pointers[i] for i in places)
            gemm.run(a, b, 0, y, 1, 0, workspace, nbytes, stream)

        return call

    return prepare
