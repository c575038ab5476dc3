"""Rows of attention whose scores a formula changes, each for all pairs and under a block mask.

They are the kernels of the other rows, with the formula among their score terms
(`kernels/attention/score_formula.cuh`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core import Geometry, Guarantee, Kernel, Params, Problem, Step, Variant
from .. import block_masks
from ..score_terms import LEAST_UNIT, LEVELS, RESTS, TERMS, drop_probability, refuse_terms, terms
from .backward import Arrangement, Cut, dense_cut, mma_row, wgmma_row
from .backward_blocks import NARROW, SM90A, WIDE
from .backward_simt import simt_row as backward_simt_row
from .forward import FIELDS, Form, dense, simt_row, sm80_row, sm89_row, sm90a_row, split_scale, strides
from .lse_rests import Rests
from .table_gradients import Tables

_RUNS, _FORMULA = 2, 3
"""LEVEL of the forward's kernels on tensor cores and of the backward's on wgmma; of all others."""
_HEADER = "attention/score_formula.cuh"
_BLOCKS, _ALONE = "Blocks", "Alone"
Prelude = Callable[[Any, Any], str]


@dataclass(frozen=True)
class Embedded:
    """A formula in kernels: their further parameters, what a launch gives for them, its device code, its guarantee.

    tables: the operands that it reads by index. code: (element, kind) → text. gradients: of tables, in the backward.
    masked: whether kernels take a block mask. name: part of the names of parameter structs. Spills are the formula's
    own, so every kernel may have some.
    """

    tables: Sequence[str]
    fields: Mapping[str, str]
    values: Callable[[Problem], Mapping[str, Any]]
    code: Prelude
    guarantee: Guarantee
    gradients: Tables | None = None
    masked: bool = False
    name: str = ""

    def under_block_mask(self) -> Embedded:
        """The same in kernels that skip what a block mask says is hidden."""
        return replace(self._with(_BLOCKS, block_masks.FIELDS, block_masks.values), masked=True)

    def alone(self) -> Embedded:
        """The same in kernels without other terms than sinks."""
        return self._with(_ALONE, {"alone": "i32"}, lambda p: {"alone": 1})

    def _with(self, name: str, fields: Mapping[str, str], more: Callable[[Problem], Mapping[str, Any]]) -> Embedded:
        given, gradients, name = self.values, self.gradients, self.name + name

        def values(p: Problem) -> dict[str, Any]:
            return {**given(p), **more(p)}

        if gradients is not None:
            gradients = replace(gradients, fields={**gradients.fields, **fields}, values=values, name=name)
        return replace(self, fields={**self.fields, **fields}, values=values, gradients=gradients, name=name)

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
    """Rows that take a block mask or none, and other terms or none; see `_merged`."""
    forms = {"": of, "_blocks": of.under_block_mask()}
    forms |= {"_alone": of.alone(), "_alone_blocks": of.alone().under_block_mask()}
    return tuple(_merged(dict(zip(forms, row, strict=True))) for row in zip(*map(rows, forms.values()), strict=True))


def _is_alone(p: Problem) -> bool:
    """Whether a problem has no other terms than its formula and sinks."""
    desc = p.desc
    given = p.views.get("mask") is not None or p.views.get("slopes") is not None
    return not (given or drop_probability(desc) or desc.softcap > 0 or abs(desc.scale) < LEAST_UNIT)


def _merged(rows: Mapping[str, Variant]) -> Variant:
    """One row of those whose kernels have a suffix in their names, unless one before has the same kernel."""
    kernels: dict[tuple[Any, ...], Kernel] = {}
    names: dict[str, dict[str, str]] = {}
    for suffix, row in rows.items():
        names[suffix] = {}
        for kernel in row.kernels:
            own = replace(kernel, name=kernel.name + suffix)
            names[suffix][kernel.name] = kernels.setdefault((kernel.name, kernel.template, kernel.params), own).name

    def geometry(p: Problem) -> Geometry | str:
        suffix = ("_alone" if _is_alone(p) else "") + ("" if p.views.get("block_mask") is None else "_blocks")
        made = rows[suffix].geometry(p)
        if isinstance(made, str):
            return made
        steps = [replace(s, kernel=names[suffix][s.kernel]) if isinstance(s, Step) else s for s in made.steps]
        return replace(made, steps=tuple(steps))

    return replace(rows[""], geometry=geometry, kernels=tuple(kernels.values()))


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
