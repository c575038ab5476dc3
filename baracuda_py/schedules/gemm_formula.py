"""Rows of matrix products whose epilogue is a formula: those of `GemmPlan` with kernels of our own.

They are the same kernels with another epilogue (kernels/gemm/formula_epilogue.cuh), whose operands broadcast to the
result by strides of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.params import Params
from ..core.tensor import AXES, merge_axes, pad
from ..core.variant import Geometry, Guarantee, Kernel, Problem, Step, Variant
from .gemm import MATRICES, VECTORS, dense, steps_of, transposed, ungated, wide_view


@dataclass(frozen=True)
class Embedded:
    """A formula in kernels: the arrays that it reads, its numbers, its device code, its guarantee.

    numbers: name → whether it is an integer. code: (element, kind) → text. plain: the plan's descriptor → that of
    `GemmPlan` for the product alone. Spills are the formula's own, so every kernel may have some.
    """

    arrays: Sequence[str]
    numbers: Mapping[str, bool]
    code: Callable[[Any, Any], str]
    plain: Callable[[Any], Any]
    guarantee: Guarantee

    @property
    def fields(self) -> dict[str, str]:
        """The kernels' further parameters."""
        count = max(1, len(self.arrays))
        found = {f"o{i}": "ptr" for i in range(len(self.arrays))}
        found |= {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(self.numbers.values())}
        return found | {
            "formula_strides": f"i64[{count}][2]", "formula_batch": f"i64[{count}][{AXES}]",
            "formula_batch_shape": f"i64[{AXES}]", "formula_batch_rank": "i32", "formula_wide": "i32",
        }  # fmt: skip

    def values(self, p: Problem, turned: bool) -> dict[str, Any] | str:
        """What a launch gives for them, or why it cannot; turned: the kernel solves the transposed problem."""
        batch_shape, rank = p.desc.batch_shape, len(p.desc.batch_shape)
        views = [p.views[name].broadcast_to((*batch_shape, p.desc.m, p.desc.n)) for name in self.arrays]
        views = [transposed(view) for view in views] if turned else views
        shape, batch = merge_axes(batch_shape, [view.strides[:rank] for view in views])
        if len(shape) > AXES:
            return f"more than {AXES} batch axes of the formula's operands remain after merging"
        return {
            **{f"o{i}": name for i, name in enumerate(self.arrays)},
            **{f"s{i}_ptr": name for i, name in enumerate(self.numbers)},
            "formula_strides": [steps_of(view) for view in views] or [(0, 0)],
            "formula_batch": [pad(steps) for steps in batch] or [pad(())],
            "formula_batch_shape": pad(shape), "formula_batch_rank": len(shape),
            "formula_wide": sum(1 << i for i, view in enumerate(views) if wide_view(view)),
        }  # fmt: skip


def formula_rows(rows: Iterable[Variant], of: Embedded) -> tuple[Variant, ...]:
    """The rows of `GemmPlan` with the formula for their epilogue."""
    return tuple(_row(row, of) for row in rows)


def _row(row: Variant, of: Embedded) -> Variant:
    served = row.elements_for(None)

    def geometry(p: Problem) -> Geometry | str:
        views = dict.fromkeys((*MATRICES, *VECTORS)) | {name: p.views[name] for name in ("a", "b", "y")}
        found = row.geometry(Problem(of.plain(p.desc), p.device, views))
        if isinstance(found, str):
            return found
        steps = [step for step in found.steps if isinstance(step, Step)]
        values = of.values(p, turned=steps[0].params.get("a") == "b")
        if isinstance(values, str):
            return values
        unused = dict.fromkeys((name for name, view in views.items() if view is None), "@null")
        copied = {"plain": 0, "y_map": None} if "plain" in steps[0].params else {}  # y would bypass the formula
        steps = [replace(step, params={**step.params, **unused, **values, **copied}) for step in steps]
        return replace(found, steps=tuple(steps), layout="contiguous" if dense(p) else "strided")

    return replace(
        row, geometry=geometry, kernels=tuple(_kernel(kernel, of) for kernel in row.kernels),
        prelude=of.code, guarantee=replace(of.guarantee, order=row.guarantee.order),
        elements=lambda kind: tuple(e for e in kind.elements[:1] if e in served),
        may_spill=True, first=None,  # which is about bare products
    )  # fmt: skip


def _kernel(kernel: Kernel, of: Embedded) -> Kernel:
    """A kernel with the epilogue as its last template argument."""
    kept = {name: kind for name, kind in kernel.params.fields.items() if name != "beta"}  # there is no c
    params = Params(kernel.params.name, **kept, **of.fields)
    epilogue = f"FormulaEpilogue<{{OUT}}, {{A}}, {params.name}>"
    return replace(ungated(kernel), template=f"{kernel.template.removesuffix('>')}, {epilogue}>", params=params)
