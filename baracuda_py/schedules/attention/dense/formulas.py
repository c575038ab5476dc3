"""Rows of attention whose scores a formula changes: those of mma.sync and without tensor cores, forward and backward.

They are the kernels of the other rows, with the formula among their score terms
(`kernels/attention/score_formula.cuh`). The wgmma rows take none: such devices have the row of mma.sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core import Geometry, Guarantee, Params, Problem, Variant
from ..score_terms import LEVELS, RESTS, TERMS, refuse_terms, terms
from .backward import Arrangement, Cut, dense_cut, mma_row
from .backward_simt import simt_row as backward_simt_row
from .forward import FIELDS, Form, dense, simt_row, sm80_row, sm89_row, split_scale, strides
from .lse_rests import Rests
from .table_gradients import Tables

_RUNS, _FORMULA = 2, 3
"""LEVEL of the forward's tensor-core kernels, whose terms are `RunTerms`, and of the others."""
_HEADER = "attention/score_formula.cuh"
Prelude = Callable[[Any, Any], str]


@dataclass(frozen=True)
class Embedded:
    """A formula in kernels: their further parameters, what a launch gives for them, its device code, its guarantee.

    tables: the operands that it reads by index. code: (element, kind) → text. gradients: of tables, in the backward.
    Spills are the formula's own, so every kernel may have some.
    """

    tables: Sequence[str]
    fields: Mapping[str, str]
    values: Callable[[Problem], Mapping[str, Any]]
    code: Prelude
    guarantee: Guarantee
    gradients: Tables | None = None

    def refuse(self, p: Problem) -> str | None:
        """Why kernels cannot take a problem: they count queries, keys and what tables have in 32 bits."""
        for name in self.tables:
            if max(p.views[name].shape, default=0) >= 2**31:
                return f"{name} has 2^31 or more elements along an axis"
        return refuse_terms(p.desc.query_len, p.desc.key_len)

    def row(self, row: Variant, header: str) -> Variant:
        """A row of kernels with the formula behind the header that takes it."""

        def prelude(element: Any, kind: Any) -> str:
            return f'#include "{_HEADER}"\n{self.code(element, kind)}#include "{header}"\n'

        served = row.elements_for(None)
        own = row.guarantee
        return replace(
            row, prelude=prelude, guarantee=replace(self.guarantee, order=own.order, flushes=own.flushes),
            elements=lambda kind: tuple(e for e in kind.elements[:1] if e in served), may_spill=True,
        )  # fmt: skip


def forward_rows(of: Embedded) -> tuple[Variant, ...]:
    """The rows of the forward."""
    params = Params("FlashSdpaFormulaParams", **(FIELDS | TERMS), **of.fields)

    def launch(p: Problem, kernel: str, axes: Any, rows: int, threads: int, smem: int) -> Geometry | str:
        if why := of.refuse(p):
            return why
        return dense(p, kernel, axes, rows, threads, smem, **terms(p, split_scale(p.desc)["scale"]), **of.values(p))

    def launch_runs(p: Problem, kernel: str, axes: Any, *rest: int) -> Geometry | str:
        return launch(p, kernel + LEVELS[_RUNS], {}, *rest)

    runs = Form(params, "attention::Dense", launch_runs, level=_RUNS)
    plain = Form(params, "attention::Dense", launch, level=_FORMULA)
    return (
        of.row(sm80_row(runs), "attention/score_formula_runs.cuh"),
        of.row(sm89_row(runs), "attention/score_formula_runs.cuh"),
        of.row(simt_row(plain), _HEADER),
    )


def backward_rows(of: Embedded) -> tuple[Variant, ...]:
    """The rows of the backward; sums of dq have a fixed order."""

    def arrangement(scale: Callable[[Any], float]) -> Arrangement:
        def cut(p: Problem, queries: int, keys: int, sorted_: bool) -> Cut | str:
            if why := of.refuse(p):
                return why
            made = dense_cut(p, queries, keys, sorted_)
            return replace(made, sizes={**made.sizes, **terms(p, scale(p.desc)), **of.values(p)})

        return Arrangement(
            "Formula", "attention::Dense", strides, cut, fields={**TERMS, **RESTS, **of.fields}, level=_FORMULA,
            rests=Rests(_FORMULA, "flash_lse_rests_formula", of.fields, of.values),
            before=of.gradients.kernels() if of.gradients else (), after=of.gradients.steps if of.gradients else None,
        )  # fmt: skip

    tensor_cores = arrangement(lambda desc: desc.scale)
    plain = arrangement(lambda desc: split_scale(desc)["scale"])
    return (
        of.row(mma_row(tensor_cores), "attention/dense/score_formula_gradients.cuh"),
        of.row(backward_simt_row(plain), "attention/dense/score_formula_pairs.cuh"),
    )
