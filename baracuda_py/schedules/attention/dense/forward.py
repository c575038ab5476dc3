"""The forward of attention: geometry that its kernels share, and its rows (docs/design/attention-forward.md).

SM90A is wgmma. SM80 and SM89 are tensor-core designs of one kernel (mma.sync) with different tilings. SIMT is without
tensor cores, in the accumulator's element, for float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....core import ArchSku, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Step, Variant, View
from ....core.error_bound import Chained, Relative
from ....core.variant import aligned
from ..score_terms import LEVELS, TERMS, TILE_KEYS, WINDOW, bounded, level, refuse_terms, single, terms, window
from .tilings import COLUMNS, PIPELINE, SM80, SM89, SM90A, GroupTiling, PipelineTiling, Tiling

HEAD_DIMS = (32, 64, 96, 128, 192, 256)
FORWARD_DIMS = (*HEAD_DIMS, 512)
WIDER = (64, 88, 96, 128, 160, 192, 200, 256, 512)
"""Tests: head_dims of the kernels that small ones do not reach."""
HALVES = (ElementKind.F16, ElementKind.BF16)
SINGLES = (ElementKind.F32, ElementKind.F64)
THREADS = 128  # of a SIMT block
# Tensor cores truncate below an accumulator's last bit where other cores round, so errors of a sum lean to one side.
TENSOR_CORES = Guarantee(Relative(2, mean=2), batch_invariant=True)
L2 = 16 * 2**20  # bytes of keys and values that stay in any device's L2 cache

FIELDS = WINDOW | dict.fromkeys(("q", "k", "v", "y", "lse"), "ptr") | {"ticket": "workspace", "stride": "i64[4][3]"}
FIELDS |= dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles", "heads"), "i64")
FIELDS |= {"scale": "f64", "sign": "f64"}
FIELDS |= dict.fromkeys(("num_heads", "group", "d_k", "d_v", "causal", "wide", "chunk"), "i32") | {"unit_log2": "f32"}
PARAMS = Params("FlashSdpaParams", **FIELDS)
TICKET = Params("FlashTicketParams", ticket="workspace")


def head_dim(desc: Any, dims: Collection[int] = HEAD_DIMS) -> int | str:
    """The smallest of the ascending `dims` that holds head_dim, or why there is none."""
    widest = max(desc.d_k, desc.d_v)
    return next((d for d in dims if widest <= d), f"head_dim {widest} is beyond {max(dims)}")


def strides(*views: View | None) -> list[tuple[int, ...]]:
    """Every operand's strides but the inner one; zeros for an absent operand."""
    return [v.strides[:-1] if v is not None else (0, 0, 0) for v in views]


def wide(*views: View | None) -> int:
    """A bit for each operand whose rows all start 16-byte aligned and are whole 16-byte pieces.

    Rows past the end count too: kernels form their addresses, and cp.async takes an aligned one even to read nothing.
    """
    return sum(1 << n for n, v in enumerate(views) if v is not None and _in_pieces(v))


def _in_pieces(v: View) -> bool:
    counts = (*v.strides[:-1], v.shape[-1])
    return v.ptr % 16 == 0 and not any(n * v.element.itemsize % 16 for n in counts)


def layout(*views: View | None) -> str:
    """The layout class for the SKU."""
    return "contiguous" if all(v.dense for v in views if v is not None) else "inner_contiguous"


def parts(desc: Any) -> int:
    """Blocks that share the columns of v past head_dim 256; each computes the scores again."""
    return max(1, -(-int(desc.d_v) // COLUMNS))


def split_scale(desc: Any) -> dict[str, float]:
    """|scale| and its sign. One that vanishes in float32 becomes sign 0, magnitude 1: so -inf stays -inf."""
    size = abs(desc.scale)
    if size < 2.0**-120:
        return {"scale": 1.0, "sign": 0.0}
    return {"scale": size, "sign": math.copysign(1.0, desc.scale)}


def scales(desc: Any) -> dict[str, float]:
    """The same, and the factor that makes a score an exponent of 2."""
    split = split_scale(desc)
    return split | {"unit_log2": single(split["scale"] * math.log2(math.e))}


def chunk(desc: Any) -> int:
    """Heads that walk their keys together under a causal mask: as many as have keys and values in the L2 cache.

    With all heads at once every tile of queries would read the keys from memory again.
    """
    size = desc.key_len * (desc.d_k + desc.d_v) * desc.element.itemsize
    return int(max(1, min(L2 // max(1, size), desc.batch_size * desc.num_kv_heads)) * desc.group)


@dataclass(frozen=True)
class Form:
    """How operands are arranged: a kernel's parameters, the policy by which blocks find work (attention.cuh), launches.

    `launch(problem, kernel, axes, rows, threads, smem)`: a block has `rows` queries. `before`: kernels that it runs
    first. `names`: the operands that are q, k, v and y. `terms`: parameters of the kernels
    `<kernel>_terms`, with score terms besides scale and causality. `level`: of the terms (terms.cuh) that kernels with
    `params` have.
    """

    params: Params
    work: str
    launch: Callable[..., Geometry | str]
    before: tuple[Kernel, ...] = ()
    terms: Params | None = None
    names: tuple[str, str, str, str] = ("q", "k", "v", "y")
    level: int = 0

    @property
    def levels(self) -> tuple[int, ...]:
        """Those of the kernels, by LEVEL of `Terms`."""
        return (self.level,) if self.terms is None else tuple(LEVELS)

    def of_level(self, more: int) -> Params:
        """The parameters of a kernel."""
        return self.terms if more and self.terms is not None else self.params


def dense(
    p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, threads: int, smem: int, **more: Any
) -> Geometry:
    """One block for every `rows` queries of every head; `more` are parameters beyond FIELDS."""
    desc = p.desc
    tiles = -(-desc.query_len // rows)
    heads = desc.batch_size * desc.num_heads
    params = {
        "stride": strides(p.q, p.k, p.v, p.y), "query_len": desc.query_len, "key_len": desc.key_len,
        "shift": desc.shift, "tiles": tiles, "heads": heads, "ticket": 0, **scales(desc),
        "num_heads": desc.num_heads, "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v,
        "causal": int(desc.is_causal), **window(desc),
        "wide": wide(p.q, p.k, p.v, p.y), "chunk": chunk(desc), **more,
    }  # fmt: skip
    step = Step(kernel, (tiles * heads, parts(desc), 1), params, axes, threads, smem)
    return Geometry((step,), layout=layout(p.q, p.k, p.v, p.y))


def _dense(p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, threads: int, smem: int) -> Geometry | str:
    """The same with score terms, where there are any."""
    more = level(p)
    if not more:
        return dense(p, kernel, axes, rows, threads, smem)
    if why := refuse_terms(p.desc.query_len, p.desc.key_len):
        return why
    if more == 2:
        axes = {name: value for name, value in axes.items() if name != "WIDE"}
    return dense(p, kernel + LEVELS[more], axes, rows, threads, smem, **terms(p, split_scale(p.desc)["scale"]))


DENSE = Form(PARAMS, "attention::Dense", _dense, terms=Params("FlashSdpaTermsParams", **(FIELDS | TERMS)))


# ---- tensor cores ----------------------------------------------------------------------------------------------------


def _row(
    name: str, design: ArchSku, source: str, tilings: Mapping[int, Tiling | GroupTiling], form: Form, not_32: str = "",
    pipeline: Mapping[int, PipelineTiling] | None = None,
) -> Variant:  # fmt: skip
    """A row with kernels for each head_dim: for rows of whole aligned 16-byte pieces, for any rows, and with terms.

    not_32: why head_dims up to 32 go to the next row, if they do. pipeline: tilings without masks and dropout.
    """
    pipelined = pipeline or {}

    def tiling(d: int, more: int) -> Tiling | GroupTiling:
        return pipelined.get(d, tilings[d]) if more < 2 else tilings[d]

    kernels = []
    for d in tilings:
        for more in form.levels:
            t = tiling(d, more)
            axes = {"WIDE": (True, False)} if more < 2 else {}
            call = t.call(d, f"{'{WIDE}' if axes else 'false'}, {form.work}, {more}")
            blocks = (t.terms[more - 1] if more else 0) or t.blocks
            kernel = f"{name}_{d}{LEVELS[more]}"
            facts: dict[str, Any] = {"threads": t.threads, "min_blocks": blocks, "source": t.source}
            kernels.append(Kernel(kernel, call, form.of_level(more), axes, **facts))

    def geometry(p: Problem) -> Geometry | str:
        if not_32 and max(p.desc.d_k, p.desc.d_v) <= 32:
            return not_32
        if p.desc.key_len >= 2**30:
            return "more than 2^30 keys"
        d = head_dim(p.desc, tilings)
        if isinstance(d, str):
            return d
        t = tiling(d, level(p) if form.terms else 0)
        axes = {"WIDE": wide(*(p.views[n] for n in form.names)) == 0b1111}
        made = form.launch(p, f"{name}_{d}", axes, t.rows, t.threads, t.smem(d))
        return _persistent(p, made) if isinstance(t, PipelineTiling) and isinstance(made, Geometry) else made

    tickets = [Kernel("clear_ticket", "clear_ticket<{T}>", TICKET, {}, threads=32, source=PipelineTiling.source)]
    return Variant(
        name,
        geometry,
        source=f"attention/dense/flash_sdpa_{source}.cu",
        elements=HALVES,
        design=design,
        kernels=(*kernels, *(form.before or (tickets if pipeline else ()))),
        may_spill=True,
        guarantee=replace(TENSOR_CORES, order=name),  # tiles of other keys rescale elsewhere
    )


def _persistent(p: Problem, made: Geometry) -> Geometry:
    """No more blocks than run at once. Where their work differs they draw tickets from a counter, cleared before."""
    *before, last = made.steps
    if not isinstance(last, Step) or last.grid[0] <= p.device.sms:
        return made
    if not before and bounded(p.desc):
        before, made = [Step("clear_ticket", (1, 1, 1), {"ticket": 0}, {}, 32)], replace(made, workspace=aligned(4))
    return replace(made, steps=(*before, replace(last, grid=(p.device.sms, 1, 1))))


def sm90a_row(form: Form, pipeline: Mapping[int, PipelineTiling] | None = PIPELINE) -> Variant:
    """The wgmma row."""
    return _row(
        "wgmma",
        ArchSku.SM90A,
        "wgmma",
        SM90A,
        form,
        pipeline=pipeline,
        not_32="head_dim up to 32 is faster on mma.sync: 238 TFLOP/s at 4096 keys on an H200; half of 64's is 214",
    )


def sm80_row(form: Form) -> Variant:
    """The row of mma.sync with small blocks."""
    return _row("mma", ArchSku.SM80, "mma", SM80, form)


def sm89_row(form: Form) -> Variant:
    """The row of mma.sync with wide blocks."""
    return _row("mma_wide", ArchSku.SM89, "mma", SM89, form)


# ---- without tensor cores -------------------------------------------------------------------------------------------


def _three(d: int, kind: ElementKind) -> bool:
    """Whether a block's registers leave room for three on a multiprocessor; else two."""
    return d <= 64 and kind is not ElementKind.F64


def _axes(three: bool) -> Any:
    return lambda kind: {"D": tuple(d for d in FORWARD_DIMS if _three(d, kind) == three)}


def rows_of_values(d: int, size: int) -> int:
    """Rows of d accumulators that fit 16 KB, a power of two up to 64 (`value_rows` in attention.cuh)."""
    return min(64, 1 << ((16384 // (d * size)).bit_length() - 1))


def simt_row(form: Form) -> Variant:
    """The row without tensor cores."""

    def geometry(p: Problem) -> Geometry | str:
        desc, d = p.desc, head_dim(p.desc, FORWARD_DIMS)
        if isinstance(d, str):
            return d
        double, columns = desc.element is ElementKind.F64, min(d, COLUMNS)
        rows, stage = (32, 32) if double else (64, 32 if d % 64 else 64)
        rows //= 2 if d > COLUMNS else 1
        size, pad = (8, 2) if double else (4, 4)
        values = rows_of_values(columns, size)
        smem = size * (rows * (d + pad) + max(TILE_KEYS * (stage + pad), rows * (TILE_KEYS + pad)) + values * columns)
        name = "simt" if _three(d, desc.element) else "simt_wide"
        return form.launch(p, name, {"D": d}, rows, THREADS, smem)

    kernels = [
        Kernel(
            name,
            f"flash_sdpa<{{T}}, {{D}}, {form.work}, {more}>",
            form.of_level(more),
            _axes(three),
            threads=THREADS,
            min_blocks=(3 if three else 2) - bool(more),
        )
        for more in form.levels
        for three in (True, False)
        for name in (f"simt{'' if three else '_wide'}{LEVELS.get(more, '')}",)
    ]
    return Variant(
        "simt",
        geometry,
        source="attention/dense/flash_sdpa.cu",
        elements=SINGLES,
        kernels=(*kernels, *form.before),
        may_spill=True,
        guarantee=Guarantee(Chained(2, piece=FORWARD_DIMS[-1]), batch_invariant=True),  # scores are one chain
    )


SM90A_ROW, SM80_ROW, SM89_ROW, SIMT_ROW = (make(DENSE) for make in (sm90a_row, sm80_row, sm89_row, simt_row))
