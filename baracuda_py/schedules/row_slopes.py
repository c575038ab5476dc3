"""Gradients of the softmax family from the saved result: rows as in `row_terms`, kernels/softmax/row_slopes.cu."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem
from .row_terms import last_axis, outputs, term_geometry, term_kernels, term_params


class Rule(enum.IntEnum):
    """What the gradient of a row is; in the order of row_slopes.cu."""

    SOFTMAX = 0
    LOG = 1
    SPARSEMAX = 2
    ENTMAX15 = 3


SLOPES = Params(
    "RowSlopeParams", dy="ptr", y="ptr", dx="ptr", mask="ptr", scale="scalar", diagonal="i64", causal="i32",
    divide="i32", **term_params(5),
)  # fmt: skip


def slope_kernels(*rules: Rule, widened: bool = False) -> tuple[Kernel, ...]:
    """The kernels of these rules; `widened`: for results in the accumulator's element, too."""

    def axes(kind: ElementKind) -> dict[str, tuple[Any, ...]]:
        results = outputs(kind) if widened else {"OUT": (kind,)}
        return {**results, "RULE": tuple(int(rule) for rule in rules)}

    return term_kernels("slopes_rows<{T}, {OUT}, {RULE}, {GROUP}>", "slopes_long<{T}, {OUT}, {RULE}>", SLOPES, axes)


def slope_geometry(
    p: Problem, views: Sequence[View | None], axis: int, rule: Rule, causal: tuple[int, int] = (0, 0),
    divide: bool = False, **places: str,
) -> Geometry | str:  # fmt: skip
    """The launch for dy, y, dx, a mask and the causal rows of each; `places`: pointers that have other names."""
    params = {"divide": int(divide), "causal": causal[0], "diagonal": causal[1], **places}
    out = views[1].element if views[1] is not None else p.desc.element
    return term_geometry(last_axis(views, axis), p.desc.element, params, {"OUT": out, "RULE": int(rule)})
