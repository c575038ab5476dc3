"""Gradients of the softmax family from the saved result: rows as in `row_terms`, kernels/softmax/row_slopes.cu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem
from .row_terms import last_axis, outputs, term_geometry, term_kernels, term_params

SLOPES = Params(
    "RowSlopeParams", dy="ptr", y="ptr", dx="ptr", mask="ptr", scale="scalar", diagonal="i64", causal="i32",
    divide="i32", **term_params(5),
)  # fmt: skip


def slope_kernels(rule: str, widened: bool = False, **axes: tuple[bool, ...]) -> tuple[Kernel, ...]:
    """The kernels of a rule of row_slopes.cu, which may name `axes`; `widened`: for wider results, too."""

    def of(kind: ElementKind) -> dict[str, tuple[Any, ...]]:
        return {**(outputs(kind) if widened else {"OUT": (kind,)}), **axes}

    names = f"<{{T}}, {{OUT}}, {rule}"
    return term_kernels(f"slopes_rows{names}, {{WHOLE}}, {{GROUP}}>", f"slopes_long{names}, {{WHOLE}}>", SLOPES, of)


def slope_geometry(
    p: Problem, views: Sequence[View | None], axis: int, causal: tuple[int, int] = (0, 0), divide: bool = False,
    axes: Mapping[str, bool] | None = None, **places: str,
) -> Geometry | str:  # fmt: skip
    """The launch for dy, y, dx, a mask and the causal rows of each; `places`: pointers that have other names."""
    params = {"divide": int(divide), "causal": causal[0], "diagonal": causal[1], **places}
    out = views[1].element if views[1] is not None else p.desc.element
    return term_geometry(last_axis(views, axis), p.desc.element, params, {"OUT": out, **(axes or {})})
