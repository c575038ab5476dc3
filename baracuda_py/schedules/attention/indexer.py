"""The lightning indexer: logits of all keys of a query, and the best of them (docs/design/indexer.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...core import ArchSku, ElementKind, Geometry, Guarantee, Kernel, Params, Problem, Relative, Step, Variant
from ...core.variant import aligned
from ..geometry import MOST_BLOCKS
from .dense.forward import SINGLES, TENSOR_CORES, layout, wide

DEPTH = 128  # columns that tensor-core kernels hold
KEYS = 256  # of a block, and its threads
HEADS = 64  # that a block multiplies at a time
GROUP = 32  # queries of a block, at most
WARPS = 8  # of a block of the simt row
SELECT_THREADS = 512
LOGITS = 2**28  # bytes of logits that a launch of the selection leaves in the workspace, where a query has no more
CODED = (ElementKind.FP8E4M3, ElementKind.BF16, ElementKind.F16)


def fields(**own: str) -> dict[str, Any]:
    """Of the kernels that make logits; `logits` and the lists' fields are the page's."""
    return {
        "q": "ptr", "k": "ptr", "w": "ptr", "k_scale": "ptr", "q_stride": "i64[2]", "k_stride": "i64[2]",
        "w_stride": "i64[2]", "scale_stride": "i64[2]", "logits_stride": "i64", "keys": "i64", "queries": "i64",
        "group": "i64", "first_query": "i64", "heads": "i32", "d": "i32", "wide": "i32", "fill": "i32",
        "indexer_keys": KEYS, "step_heads": HEADS, **own,
    }  # fmt: skip


def bounds(desc: Any) -> str | None:
    """Why no kernel takes a problem."""
    if max(desc.num_keys, desc.page_size, desc.num_pages) >= 2**31 - 2**20:
        return "2^31 - 2^20 keys or pages or more"
    return None


def logits_step(
    p: Problem, kernel: str, values: Mapping[str, Any], first: int, queries: int, pitch: int, fill: bool
) -> Step:
    """The launch that makes the logits of some queries."""
    desc = p.desc
    none = [0, 0]
    given = {
        **values, "q_stride": p.q.strides[:-1], "k_stride": p.k.strides[:-1], "w_stride": p.w.strides,
        "scale_stride": none if p.k_scale is None else p.k_scale.strides, "logits_stride": pitch,
        "keys": desc.num_keys, "queries": queries, "first_query": first, "heads": desc.num_heads, "d": desc.d,
        "wide": wide(p.q, p.k), "fill": fill,
    }  # fmt: skip
    if kernel == "simt":
        return Step("simt", (queries * -(-desc.num_keys // WARPS), 1, 1), {**given, "group": 1}, {}, 32 * WARPS)
    blocks = -(-desc.num_keys // KEYS)
    group = max(1, min(GROUP, queries * blocks // (4 * p.device.sms)))
    smem = 2 * DEPTH * (KEYS // 2 + 2 * HEADS) + (DEPTH * HEADS if desc.element is ElementKind.FP8E4M3 else 0)
    return Step("mma", (blocks * -(-queries // group), 1, 1), {**given, "group": group}, {}, KEYS, smem)


def launchable(step: Step) -> str | None:
    """Why a grid is too large."""
    return "more than 2^31 blocks" if step.grid[0] > MOST_BLOCKS else None


Make = Callable[[Problem, str], Geometry | str]


def simt(make: Make, params: Params, others: Callable[[str], tuple[Kernel, ...]], guarantee: Any) -> Variant:
    """The row of float32 and float64; `others`: the page's other kernels, for the type of logits."""
    call = Kernel("simt", "indexer_simt<{T}>", params, threads=32 * WARPS)
    return Variant(
        "simt", lambda p: make(p, "simt"), source="attention/indexer/indexer.cu", elements=SINGLES,
        kernels=(call, *others("acc_t<{T}>")), guarantee=guarantee or Guarantee(Relative(2), batch_invariant=True),
    )  # fmt: skip


def mma(make: Make, params: Params, others: Callable[[str], tuple[Kernel, ...]], guarantee: Any) -> Variant:
    """The row of the tensor cores."""

    def geometry(p: Problem) -> Geometry | str:
        return f"d {p.desc.d} is beyond {DEPTH}" if p.desc.d > DEPTH else make(p, "mma")

    call = Kernel("mma", "indexer_mma<{T}>", params, threads=KEYS, min_blocks=2)
    return Variant(
        "mma", geometry, source="attention/indexer/indexer_mma.cu", elements=CODED, design=ArchSku.SM80,
        kernels=(call, *others("float")), guarantee=guarantee or replace(TENSOR_CORES, order="mma"),
    )  # fmt: skip


def layout_of(p: Problem) -> str:
    """The layout that a problem's SKU names."""
    return layout(p.q, p.k, p.k)


def chunks(desc: Any, size: int) -> tuple[int, int]:
    """Elements from one query's logits to the next, and queries whose logits the workspace holds."""
    pitch = -(-desc.num_keys // 8) * 8
    return pitch, min(desc.num_queries, max(1, LOGITS // max(pitch * size, 1)))


def workspace(pitch: int, queries: int, size: int) -> int:
    """Bytes of those."""
    return int(aligned(pitch * queries * size))
