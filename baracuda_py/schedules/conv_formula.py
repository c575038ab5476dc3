"""Rows of convolutions whose epilogue is a formula: those of `ConvPlan`.

They are the same kernels with another epilogue (kernels/conv/formula_epilogue.cuh), whose operands broadcast to the
result by strides of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..core.element import FP8, ElementKind
from ..core.params import Params
from ..core.variant import Geometry, Kernel, Problem, Step, Variant
from .conv_kernels import BLOCK_FILTER, PACK, PACK_RUNS
from .conv_problem import Convolution, Field, convolution_of, field_of
from .gemm import dense
from .gemm_formula import Embedded

E = ElementKind
CODES = (E.I8, E.U8, *FP8)
"""Elements of results that saturate."""
_BEFORE = tuple(kernel.name for kernel in (PACK, PACK_RUNS, BLOCK_FILTER))  # which have no epilogue
_NEIGHBOURS = 8  # outputs that a thread writes together at most


def outputs_of(kind: ElementKind) -> tuple[ElementKind, ...]:
    """The elements that a result of operands of `kind` may have."""
    return (kind,) if kind is E.F64 else tuple(dict.fromkeys((kind, kind.acc, *CODES)))


class EmbeddedInConv(Embedded):
    """A formula in kernels of convolutions."""

    @property
    def fields(self) -> dict[str, str]:
        """The kernels' further parameters."""
        found = {f"o{i}": "ptr" for i in range(len(self.arrays))}
        found |= {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(self.numbers.values())}
        return found | {"formula_steps": f"i64[{max(1, len(self.arrays))}][6]", "formula_wide": "i32"}

    def values_beside(self, p: Problem) -> dict[str, Any]:
        """What a launch gives for them, and whether y is written in whole pieces."""
        conv, rank, shape = convolution_of(p.desc), len(p.desc.kernel_size), p.desc.out_shape
        operands = [p.views[name].broadcast_to(shape) for name in self.arrays]
        fields = [field_of("y", view, rank, conv.cols) for view in (p.y, *operands)]
        pieces = [in_pieces(f, conv, conv.depthwise) for f in fields]
        return {
            **{f"o{i}": name for i, name in enumerate(self.arrays)},
            **{f"s{i}_ptr": name for i, name in enumerate(self.numbers)},
            "formula_steps": [f.steps for f in fields[1:]] or [(0,) * 6],
            "formula_wide": sum(1 << i for i, wide in enumerate(pieces[1:]) if wide), "wide": int(pieces[0]),
        }  # fmt: skip


def in_pieces(field: Field, conv: Convolution, depthwise: bool) -> bool:
    """Whether a thread's outputs lie together in aligned pieces: those of a group, or neighbouring groups."""
    each, extents = _NEIGHBOURS, (conv.batch, conv.groups, *conv.out_extent)
    if depthwise:
        outer = zip((field.steps[0], *field.steps[3:]), (conv.batch, *conv.out_extent), strict=True)
        together = field.steps[1] == 1 and conv.groups % each == 0 and field.aligned
        return together and all(s % each == 0 for s, n in outer if n > 1)
    cols = each if conv.groups == 1 else conv.cols
    return field.pieces(extents, cols, each) and field.steps[2] == 1


def formula_rows(rows: Iterable[Variant], of: EmbeddedInConv) -> tuple[Variant, ...]:
    """The rows of `ConvPlan` with the formula for their epilogue."""
    return tuple(_row(row, of) for row in rows)


def _row(row: Variant, of: EmbeddedInConv) -> Variant:
    served, tf32 = row.elements_for(None), row.guarantee.math == "tf32"

    def bound(element: ElementKind, kind: Any) -> Any:
        made: Any = of.guarantee.error
        own = made(element, kind)
        return replace(own, k=own.k * 2.0**13, mean=own.mean * 2.0**13) if tf32 else own  # whose operands are cut

    def geometry(p: Problem) -> Geometry | str:
        plain: Any = row.geometry
        views = {name: p.views[name] for name in ("x", "w", "y")} | dict.fromkeys(("bias", "z", "pre"))
        views |= {f"o{i}": p.views[name] for i, name in enumerate(of.arrays)}
        found: Geometry | str = plain(Problem(of.plain(p.desc), p.device, views), of.values_beside(p))
        if isinstance(found, str):
            return found
        steps = list[Step]()
        for step in found.steps:
            assert isinstance(step, Step)
            if step.kernel not in _BEFORE:
                step = replace(step, axes={**step.axes, "OUT": p.desc.out_element})
            steps.append(step)
        return replace(found, steps=tuple(steps), layout="contiguous" if dense(p) else "strided")

    return replace(
        row, geometry=geometry, kernels=tuple(_kernel(kernel, of) for kernel in row.kernels), prelude=of.code,
        may_spill=True,
        guarantee=replace(of.guarantee, error=bound, order=row.guarantee.order, math=row.guarantee.math),
        elements=lambda kind: tuple(e for e in kind.elements[:1] if e in served),
    )  # fmt: skip


def _kernel(kernel: Kernel, of: EmbeddedInConv) -> Kernel:
    """A kernel with the epilogue as its last template argument."""
    if kernel.name in _BEFORE:
        return kernel

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {**kernel.axes_for(kind), "OUT": outputs_of(kind)}

    return replace(
        kernel, template=f"{kernel.template.removesuffix('>')}, ConvFormulaEpilogue<{{OUT}}>>", axes=axes, shared="",
        params=Params(kernel.params.name, **kernel.params.fields, **of.fields),
    )  # fmt: skip
