"""Rows of attention whose scores a formula changes, each for all pairs and under a block mask.

They are the kernels of the other rows, with the formula among their score terms
(`kernels/attention/score_formula.cuh`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core import Geometry, Guarantee, Params, Problem, Step, Variant
from .. import block_masks
from ..score_terms import LEVELS, RESTS, TERMS, refuse_terms, terms
from .backward import Arrangement, Cut, dense_cut, mma_row, wgmma_row
from .backward_blocks import NARROW, SM90A, WIDE
from .backward_simt import simt_row as backward_simt_row
from .forward import FIELDS, Form, dense, simt_row, sm80_row, sm89_row, sm90a_row, split_scale, strides
from .lse_rests import Rests
from .table_gradients import Tables

_RUNS, _FORMULA = 2, 3
"""LEVEL of the forward's kernels on tensor cores and of the backward's on wgmma; of all others."""
_HEADER = "attention/score_formula.cuh"
_BLOCKS = "Blocks"
Prelude = Callable[[Any, Any], str]


@dataclass(frozen=True)
class Embedded:
    """A formula in kernels: their further parameters, what a launch gives for them, its device code, its guarantee.

    tables: the operands that it reads by index. code: (element, kind) → text. gradients: of tables, in the backward.
    masked: whether kernels take a block mask. Spills are the formula's own, so every kernel may have some.
    """

    tables: Sequence[str]
    fields: Mapping[str, str]
    values: Callable[[Problem], Mapping[str, Any]]
    code: Prelude
    guarantee: Guarantee
    gradients: Tables | None = None
    masked: bool = False

    def under_block_mask(self) -> Embedded:
        """The same in kernels that skip what a block mask says is hidden."""
        gradients = self.gradients
        if gradients is not None:
            fields = {**gradients.fields, **block_masks.FIELDS}
            gradients = replace(gradients, fields=fields, values=self._values, name=_BLOCKS)
        return replace(
            self, fields={**self.fields, **block_masks.FIELDS}, values=self._values, gradients=gradients, masked=True
        )

    def _values(self, p: Problem) -> dict[str, Any]:
        return {**self.values(p), **block_masks.values(p)}

    @property
    def name(self) -> str:
        """Part of the names of parameter structs."""
        return _BLOCKS if self.masked else ""

    @property
    def work(self) -> str:
        """The C++ policy by which blocks find their work."""
        return block_masks.WORK if self.masked else "attention::Dense"

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


def _either(rows: Callable[[Embedded], Iterator[Variant]], of: Embedded) -> tuple[Variant, ...]:
    """Rows that take a block mask or none; kernels that do are named `<kernel>_blocks`."""
    return tuple(map(_with_blocks, rows(of), rows(of.under_block_mask())))


def _with_blocks(plain: Variant, blocks: Variant) -> Variant:
    known = {(kernel.template, kernel.params) for kernel in plain.kernels}
    shared = {kernel.name for kernel in blocks.kernels if (kernel.template, kernel.params) in known}

    def name(kernel: str) -> str:
        return kernel if kernel in shared else f"{kernel}_blocks"

    def geometry(p: Problem) -> Geometry | str:
        if p.views.get("block_mask") is None:
            return plain.geometry(p)
        made = blocks.geometry(p)
        if isinstance(made, str):
            return made
        steps = [replace(s, kernel=name(s.kernel)) if isinstance(s, Step) else s for s in made.steps]
        return replace(made, steps=tuple(steps))

    own = [replace(kernel, name=name(kernel.name)) for kernel in blocks.kernels if kernel.name not in shared]
    return replace(plain, geometry=geometry, kernels=(*plain.kernels, *own))


def forward_rows(of: Embedded) -> tuple[Variant, ...]:
    """The rows of the forward."""
    return _either(_forward_rows, of)


def _forward_rows(of: Embedded) -> Iterator[Variant]:
    params = Params(f"FlashSdpaFormula{of.name}Params", **(FIELDS | TERMS), **of.fields)

    def launch(p: Problem, kernel: str, axes: Any, rows: int, threads: int, smem: int) -> Geometry | str:
        if why := of.refuse(p):
            return why
        return dense(p, kernel, axes, rows, threads, smem, **terms(p, split_scale(p.desc)["scale"]), **of.values(p))

    def launch_runs(p: Problem, kernel: str, axes: Any, *rest: int) -> Geometry | str:
        return launch(p, kernel + LEVELS[_RUNS], {}, *rest)

    runs = Form(params, of.work, launch_runs, level=_RUNS)
    yield of.row(sm90a_row(runs, None), "attention/score_formula_runs.cuh")
    yield of.row(sm80_row(runs), "attention/score_formula_runs.cuh")
    yield of.row(sm89_row(runs), "attention/score_formula_runs.cuh")
    yield of.row(simt_row(Form(params, of.work, launch, level=_FORMULA)), _HEADER)


def backward_rows(of: Embedded) -> tuple[Variant, ...]:
    """The rows of the backward; sums of dq have a fixed order."""
    return _either(_backward_rows, of)


def _backward_rows(of: Embedded) -> Iterator[Variant]:
    def arrangement(scale: Callable[[Any], float], tilings: Sequence[Any], level: int = _FORMULA) -> Arrangement:
        counts = bool(tilings) and of.masked
        tiles = dict.fromkeys((t.queries, t.keys) for t in tilings)

        def cut(p: Problem, queries: int, keys: int, sorted_: bool) -> Cut | str:
            if why := of.refuse(p):
                return why
            made = dense_cut(p, queries, keys, sorted_)
            made = replace(made, sizes={**made.sizes, **terms(p, scale(p.desc)), **of.values(p)})
            if not counts:
                return made
            found, steps, size = block_masks.turns(p, queries, keys)
            return replace(made, sizes={**made.sizes, **found}, steps=lambda segment: steps, start=size)

        kernels = tuple(block_masks.turns_kernel(*sizes) for sizes in tiles) if counts else ()
        return Arrangement(
            f"Formula{of.name}", of.work, strides, cut, level=level,
            fields={**TERMS, **RESTS, **of.fields, **(block_masks.TURNS if counts else {})},
            rests=Rests(_FORMULA, "flash_lse_rests_formula", of.fields, of.values, of.name),
            before=(*kernels, *(of.gradients.kernels() if of.gradients else ())),
            after=of.gradients.steps if of.gradients else None,
        )  # fmt: skip

    gradients = "attention/dense/score_formula_gradients.cuh"
    groups = arrangement(lambda desc: desc.scale, [*SM90A.values()], _RUNS)
    warps = arrangement(lambda desc: desc.scale, [*WIDE.values(), *NARROW.values()])
    plain = arrangement(lambda desc: split_scale(desc)["scale"], [])
    yield of.row(wgmma_row(groups), gradients)
    yield of.row(mma_row(warps), gradients)
    yield of.row(backward_simt_row(plain), "attention/dense/score_formula_pairs.cuh")
