"""Products of many rows by a compressed 2:4 sparse matrix that is unpacked into the workspace first.

Its zeros double the work of the tensor cores, which then run at their full rate; the pass that writes them is paid
once, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core import ElementKind, Exact, Geometry, Guarantee, Kernel, Problem, Step
from ...core.args import Args
from ...core.variant import Variant
from ...schedules.gemm import Operand, product_kernels
from ...schedules.int_gemm import LINE_SUMS
from ...schedules.products import Place
from ..gemm.gemm import GemmArgs, GemmDescriptor
from .int_gemm import IntGemmArgs, IntGemmDescriptor, IntGemmKind, IntGemmPlan
from .sparse24 import Sparse24DecompressPlan, Sparse24Descriptor
from .unpacked import DENSE, held_bytes, held_view, product_after

E = ElementKind
_SUMS = IntGemmKind.SUMS
_SOURCE = Sparse24DecompressPlan.variants[0]
_UNPACK = replace(_SOURCE.kernels[0], source=_SOURCE.source or "", shared="sparse24_decompress")
# Rows of x up to which the sparse product by mma.sync costs less than writing the dense matrix and multiplying by it.
# On an H100 the products run at 190 and 600 TFLOP/s of 16-bit elements, at 400 and 960 of int8.
_MOST = {2: 176, 1: 224}


def many(p: Problem) -> bool:
    """Whether unpacking pays for so many rows of x."""
    return bool(p.desc.m > _MOST[p.desc.element.itemsize])


def _integer(row: Variant) -> Variant:
    """A row of `IntGemmPlan` for plans whose products are sums of int8 by int8, without zero points."""
    kernels = tuple(
        replace(k, template=k.template.replace("{KIND}", _SUMS.cpp), axes=_signed(k))
        for k in row.kernels
        if k is not LINE_SUMS
    )
    return replace(row, kinds=None, elements=(E.I8,), kernels=kernels)


def _signed(kernel: Kernel) -> dict[str, Any]:
    axes = dict(kernel.axes_for(E.I8))
    return axes | ({"B": (E.I8,)} if "B" in axes else {})


_INTEGERS = tuple(_integer(row) for row in IntGemmPlan.variants if row.name in ("wgmma", "cublas", "mma"))


def _unpacking(p: Problem, held: Any) -> tuple[Step, ...] | str:
    """The launch that writes the dense matrix to the workspace; none where it is empty."""
    if not held.size:
        return ()
    desc = Sparse24Descriptor(shape=held.shape, element=held.element)
    views = {"values": p.values, "metadata": p.metadata, "y": held}
    found = _SOURCE.geometry(Problem(desc, p.device, views))
    if isinstance(found, str):
        return found
    return tuple(
        replace(step, params={**step.params, "dense": ("@workspace", 0)})
        for step in found.steps
        if isinstance(step, Step)
    )


def _product(desc: Any) -> Any:
    """The descriptor of the dense product."""
    sizes = {"m": desc.m, "n": desc.n, "k": desc.k, "element": desc.element}
    return IntGemmDescriptor(kind=_SUMS, **sizes) if desc.element is E.I8 else GemmDescriptor(**sizes)


def _row(row: Variant, args: type[Args], elements: tuple[ElementKind, ...], guarantee: Guarantee) -> Variant:
    integer = elements == (E.I8,)
    gemm: type[Args] = IntGemmArgs if integer else GemmArgs

    def geometry(p: Problem) -> Geometry | str:
        held = held_view(p.desc.element, (p.desc.n, p.desc.k))
        first = _unpacking(p, held)
        if isinstance(first, str):
            return first
        named = {"a": "x", "y": "y", "bias": "bias"}
        given = {to: Operand(Place(name), p.views[name]) for to, name in named.items() if p.views[name] is not None}
        given["b"] = Operand(Place("@workspace"), held).t
        return product_after(p, args, row, first, given, _product(p.desc), held_bytes(held), gemm=gemm)

    def reason(desc: Any) -> str | None:
        return row.refuses(_product(desc)) if row.refuses and desc.element in elements else None

    return Variant(
        f"unpacked_{row.name}{'_int8' if integer else ''}", geometry, source=_SOURCE.source,
        kernels=(_UNPACK, *product_kernels(row)), elements=elements, design=row.design, backend=row.backend,
        guarantee=guarantee, first=many, refuses=reason, missing=row.missing,
    )  # fmt: skip


def unpacked_rows(args: type[Args], halves: tuple[ElementKind, ...], guarantee: Guarantee) -> tuple[Variant, ...]:
    """The rows of a plan with operands `args`: of 16-bit elements, with this guarantee, and of int8, exact."""
    exact = Guarantee(Exact(), math="int8")
    return (
        *(_row(row, args, halves, replace(guarantee, order=row.name)) for row in DENSE if row.name != "simt"),
        *(_row(row, args, (E.I8,), exact) for row in _INTEGERS),
    )
