"""Products by stored weights that are unpacked first: into the workspace, rounded to the element, then a dense product.

It serves every format, element and number of rows, so that no product by stored weights is slower than those two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from ...core import Descriptor, ElementKind, Geometry, Problem, Step, View
from ...core.args import Args
from ...core.variant import Variant, aligned
from ...schedules.gemm import Operand, product_kernels, product_steps
from ...schedules.products import Place
from ..gemm.gemm import INNER, GemmArgs, GemmDescriptor
from ..quantize.block_dequantize import BlockDequantizeDescriptor, BlockDequantizePlan
from ..quantize.stored import StoredArgs, StoredFields

_SOURCE = BlockDequantizePlan.variants[0]
_PARTS = tuple(name for name in StoredArgs.__slots__ if name != "scale")
_PITCH = 16  # bytes at multiples of which rows of the unpacked weights start
DENSE = tuple(row for row in INNER if row.name in ("cublas", "wgmma", "mma", "simt"))
UNPACK = replace(_SOURCE.kernels[0], source=_SOURCE.source or "")


def dense_kernels(row: Variant) -> tuple[Any, ...]:
    """What such a row launches: the unpacking of each format, and the product, which is the same for all."""
    return UNPACK, *product_kernels(row)


def refuses(row: Variant) -> Callable[[Any], str | None]:
    """What such a row refuses of a product that has nothing but a bias."""

    def reason(desc: Any) -> str | None:
        product = GemmDescriptor(m=1, n=1, k=1, out_element=desc.out_element, element=desc.element)
        return row.refuses(product) if row.refuses else None

    return reason


def held_view(element: ElementKind, shape: tuple[int, ...]) -> View:
    """Matrices of the workspace, in rows that start 16-byte aligned."""
    *batch, rows, cols = shape
    pitch = max(-(-cols * element.itemsize // _PITCH) * _PITCH // element.itemsize, 1)
    strides, step = [pitch, 1], rows * pitch
    for extent in reversed(batch):
        strides.insert(0, step)
        step *= extent
    return View(0, shape, tuple(strides), element)


def held_bytes(view: View) -> int:
    """What such matrices take of the workspace."""
    rows = view.size // max(view.shape[-1], 1)
    return aligned(rows * view.strides[-2] * view.element.itemsize)


def weights_view(desc: Any) -> View:
    """The unpacked weights [*batch_shape, n, k]."""
    return held_view(desc.element, (*desc.batch_shape, desc.n, desc.k))


def product_problem(p: Problem, views: Mapping[str, View | None], m: int, n: int, k: int, out: Any) -> Problem:
    """That of the dense product, as `GemmPlan` sees it."""
    desc = GemmDescriptor(batch_shape=p.desc.batch_shape, m=m, n=n, k=k, out_element=out, element=p.desc.element)
    return Problem(desc, p.device, dict.fromkeys(GemmArgs.__slots__) | dict(views))


def unpacked(
    p: Problem, args: type[Args], row: Variant, operands: Mapping[str, Operand], weights: str, desc: Descriptor,
    used: int = 0, factors: tuple[float, float] = (1.0, 0.0), gemm: type[Args] = GemmArgs,
) -> Geometry | str:  # fmt: skip
    """Unpacks the weights, and multiplies by a row of `GemmPlan`, or of the plan of the operands `gemm`.

    operands: those of the product but `weights`, which is b = Wᵀ ("t") or b = W ("n"). desc: the product's. used: bytes
    of workspace that are taken. factors: alpha and beta, where the operands have a c.
    """
    view = weights_view(p.desc)
    unpacking = _unpacking(p, view, used)
    if isinstance(unpacking, str):
        return unpacking
    held = Operand(Place("@workspace", used), view)
    given = {**operands, "b": held.t if weights == "t" else held}
    return product_after(p, args, row, unpacking, given, desc, used + held_bytes(view), factors, gemm)


def product_after(
    p: Problem, args: type[Args], row: Variant, first: tuple[Step, ...], operands: Mapping[str, Operand],
    desc: Descriptor, used: int, factors: tuple[float, float] = (1.0, 0.0), gemm: type[Args] = GemmArgs,
) -> Geometry | str:  # fmt: skip
    """The launches `first`, which leave `used` bytes of the workspace taken, and then the product `desc`.

    operands: those of the product, which a row of `GemmPlan`, or of the plan of the operands `gemm`, multiplies.
    """
    found = product_steps(p, args, (row,), gemm, desc, operands, used, factors)
    if isinstance(found, str):
        return found
    steps, nbytes, _ = found
    dense = all(one.dense for one in p.flat())
    return Geometry((*first, *steps), used + nbytes, "contiguous" if dense else "strided")


def _unpacking(p: Problem, view: View, at: int) -> tuple[Step, ...] | str:
    """The launch that writes the weights to byte `at` of the workspace; none where there are none."""
    if not view.size:
        return ()
    desc = BlockDequantizeDescriptor(
        **{f.name: getattr(p.desc, f.name) for f in fields(StoredFields)}, element=p.desc.element
    )
    views = {name: p.views[name] for name in _PARTS} | {"y": view}
    found = _SOURCE.geometry(Problem(desc, p.device, views))
    if isinstance(found, str):
        return found
    return tuple(
        replace(step, params={**step.params, "y": ("@workspace", at)}) for step in found.steps if isinstance(step, Step)
    )
