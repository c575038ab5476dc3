"""The backward of block-sparse attention on tensor cores.

dk and dv by blocks of keys, as in the dense backward; dq by blocks of queries. Both walk the tiles with a set block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....core import Geometry, Kernel, Params, Problem, Step, Variant
from ..dense.backward import Arrangement, Cut, dense_cut, gradient_kernels, gradient_steps
from ..dense.backward_blocks import NARROW, Blocks
from ..dense.backward_simt import simt_row
from ..dense.forward import HALVES, TENSOR_CORES, chunk, head_dim, strides, wide
from ..score_terms import WINDOW, window
from . import forward as block_sparse


def _cut(p: Problem, queries: int, keys: int, sorted_: bool) -> Cut | str:
    cut, more = dense_cut(p, queries, keys, sorted_), block_sparse.constants(p)
    if isinstance(more, str):
        return more
    return replace(cut, sizes={**cut.sizes, **more})


def _form(cuts: str) -> Arrangement:
    work = block_sparse.WORK.format(cuts)
    return Arrangement("BlockSparse", work, strides, _cut, block_sparse.FIELDS, apart=True)


WHOLE, CUT = _form("false"), _form("true")
_DQ = WINDOW | dict.fromkeys(("q", "k", "v", "dy", "lse", "dq"), "ptr")
_DQ |= {"stats": "workspace", "stride": "i64[5][3]"}
_DQ |= dict.fromkeys(("query_len", "key_len", "shift", "left", "right", "tiles", "padded", "chunk"), "i64")
_DQ |= {"scale": "f64"} | dict.fromkeys(("num_heads", "group", "d_k", "d_v", "causal", "wide"), "i32")
# Tiles of up to 64 keys by 64 queries, so that with blocks of 64 each is wanted whole or not at all.
KEYS = {
    32: Blocks(4, 1, 1, 64, 32, 2, 2, 2),
    64: Blocks(4, 1, 1, 64, 32, 2, 2, 2),
    **{d: t for d, t in NARROW.items() if d <= 256},
}


@dataclass(frozen=True)
class QueryTiling:
    """A block of `sdpa_block_sparse_dq` for one head_dim: 16 queries a warp, keys a tile, blocks a multiprocessor."""

    keys: int
    blocks: int
    warps: int = 4

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return 16 * self.warps

    def smem(self, d: int) -> int:
        """Bytes: queries and their dy, keys and values."""
        return 4 * d * (self.rows + self.keys)


QUERIES = {
    32: QueryTiling(64, 3), 64: QueryTiling(64, 2), 96: QueryTiling(64, 2), 128: QueryTiling(64, 2),
    192: QueryTiling(32, 2), 256: QueryTiling(32, 2),
}  # fmt: skip
SHORT = QueryTiling(32, 2)  # where blocks end within tiles of 64 keys


def _geometry(p: Problem) -> Geometry | str:
    d, more = head_dim(p.desc, KEYS), block_sparse.constants(p)
    if isinstance(d, str):
        return d
    if isinstance(more, str):
        return more
    t, own = KEYS[d], QUERIES[d]
    whole, whole_dq = _whole(more, t.queries, t.keys), _whole(more, own.rows, own.keys)
    return _steps(p, d, "whole" if whole else "cut", WHOLE if whole else CUT, whole_dq)


def _steps(p: Problem, d: int, name: str, form: Arrangement, whole_dq: bool) -> Geometry | str:
    """The launches of dk and dv, and that of dq."""
    desc, t = p.desc, KEYS[d]
    cut = form.cut(p, t.queries, t.keys, False)
    others = gradient_steps(p, d, name, t, form, False)
    if isinstance(others, str) or isinstance(cut, str) or p.dq is None or not p.dq.size:
        return others
    name, own = (f"dq_whole_{d}", QUERIES[d]) if whole_dq else (f"dq_cut_{d}", SHORT)
    tiles, views = -(-desc.query_len // own.rows), (p.q, p.k, p.v, p.dy, p.dq)
    params = {
        **cut.sizes, "stats": cut.start, "stride": strides(*views), **window(desc), "tiles": tiles,
        "padded": cut.tiles * t.queries, "chunk": chunk(desc), "scale": desc.scale, "num_heads": desc.num_heads,
        "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v, "causal": int(desc.is_causal), "wide": wide(*views),
    }  # fmt: skip
    step = Step(name, (tiles * desc.batch_size * desc.num_heads, 1, 1), params, {}, 32 * own.warps, own.smem(d))
    return replace(others, steps=(*others.steps, step))


def _whole(constants: dict[str, Any], queries: int, keys: int) -> bool:
    return bool(constants["query_block"] % queries == 0 and constants["key_block"] % keys == 0)


def _dq_kernel(name: str, d: int, t: QueryTiling, params: Params) -> Kernel:
    call = f"sdpa_block_sparse_dq<{{T}}, {d}, {t.warps}, {t.keys}, {str(name == 'cut').lower()}>"
    return Kernel(f"dq_{name}_{d}", call, params, threads=32 * t.warps, min_blocks=t.blocks)


DQ = Params("SdpaBlockSparseDqParams", **_DQ, **block_sparse.FIELDS)
MMA_ROW = Variant(
    "mma",
    _geometry,
    source="attention/sparse/sdpa_block_sparse_backward_mma.cu",
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=(
        *gradient_kernels("whole", KEYS, WHOLE),
        *gradient_kernels("cut", KEYS, CUT),
        *(_dq_kernel("whole", d, t, DQ) for d, t in QUERIES.items()),
        *(_dq_kernel("cut", d, SHORT, DQ) for d in QUERIES),
    ),
    may_spill=True,
)
SIMT_ROW = simt_row(CUT)


def mma_row(form: Arrangement, fields: Mapping[str, Any]) -> Variant:
    """A row whose blocks may end anywhere, by a form of its own and the fields of its pattern."""
    params = Params(f"{form.name}DqParams", **_DQ, **fields)

    def geometry(p: Problem) -> Geometry | str:
        d = head_dim(p.desc, KEYS)
        return d if isinstance(d, str) else _steps(p, d, "cut", form, False)

    kernels = (*gradient_kernels("cut", KEYS, form), *(_dq_kernel("cut", d, SHORT, params) for d in QUERIES))
    return replace(MMA_ROW, geometry=geometry, kernels=(*kernels, *form.before))
