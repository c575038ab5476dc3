"""The kernels of convolutions (kernels/conv), their parameters and the shared memory of a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.element import ElementKind
from ..core.params import Field, Params
from ..core.tensor import AXES
from ..core.variant import Kernel
from . import gemm_wgmma
from .gemm import ACTIVATIONS, EPILOGUE, MMA_SLAB, MMA_SLICE, MMA_STAGES, MMA_THREADS, MMA_TILE

THREADS, SIMT = 256, 64
PLACES = {False: 4, True: 8}  # places of a thread of a depthwise convolution, where it has one group or several
# A tile on sm_90a: threads of a block, rows, columns by preference, of k in a stage, stages.
WGMMA_THREADS, WGMMA_ROWS, WGMMA_COLS, WGMMA_DEPTH, WGMMA_STAGES = 256, 128, (128, 64), 64, 3
# Tiles whose operands TMA copies: threads of a block, columns.
BOX_THREADS, BOX_COLS = gemm_wgmma.THREADS, (256, 192, 128, 64)
PARAMS = Params(
    "ConvParams", x="ptr", w="ptr", bias="ptr", z="ptr", y="ptr", pre="ptr", parts="ptr", rows="i64", cols="i64",
    channels="i64", taps="i64", groups="i64", split_rows="i64", in_extent="i64[3]", out_extent="i64[3]",
    kernel="i64[3]", stride="i64[3]", padding="i64[3]", dilation="i64[3]", x_steps="i64[6]",
    w_steps="i64[6]", y_steps="i64[3][6]", w_start="i64", bias_step="i64", activation="i32", wide="i32",
    apart="i64[3]", full_extent="i64[3]", phase_cols="i64",
    channels_inner="i32", narrow="i32", dividers="u32[3][3]", **EPILOGUE, **MMA_TILE,
    conv_wgmma_threads=WGMMA_THREADS, conv_wgmma_stages=WGMMA_STAGES,
    conv_places_alone=PLACES[False], conv_places_together=PLACES[True],
)  # fmt: skip
# What TMA copies: boxes of places along w, h, d and the batch (kernels/conv/boxes.cuh).
BOX_FIELDS: dict[str, Field] = {
    "x_map": "map", "y_map": "map", "w_map": "map", "box": "i32[4]", "boxes": "i32[4]", "box_dividers": "u32[3][3]",
    "box_count": "i64", "box_bytes": "i32", "split_boxes": "i32", "total": "i32", "between": "i32", "k": "i32",
    "kept": "i64", "batch": "i32",
}  # fmt: skip
BOX_PARAMS = Params("ConvParams", **PARAMS.fields, **BOX_FIELDS)
PACK_PARAMS = Params(
    "ConvPackParams", **{"from": "ptr"}, pre="ptr", to="ptr", count="i64", pitch="i64", channels="i64", start="i64",
    shape=f"i64[{AXES}]", steps=f"i64[2][{AXES}]", channel_step="i64[2]", rank="i32", activation="i32", down="i32",
    Activation=ACTIVATIONS,
)  # fmt: skip
MERGE_PARAMS = Params(
    "ConvMergeParams", parts="ptr", to="ptr", groups="i64", cols="i64", taps="i64", channels="i64", kept="i64",
    splits="i64", kernel="i64[3]", w_steps="i64[6]", w_start="i64", run="i64", taps_first="i32",
)  # fmt: skip
# Threads of a block, and places that a thread takes at once, of the gradient of a filter of few channels.
PAIR_THREADS, PAIR_PLACES = 256, 8
PAIRS_PARAMS = Params(
    "ConvPairsParams", x="ptr", y="ptr", parts="ptr", pairs="i64", cols="i64", channels="i64", taps="i64", runs="i64",
    lines="i64", split_lines="i64", chunks="i64", in_extent="i64[3]", out_extent="i64[3]", kernel="i64[3]",
    stride="i64[3]", padding="i64[3]", dilation="i64[3]", x_steps="i64[6]", y_steps="i64[6]", width="i32", lanes="i32",
    block_runs="i32", narrow="i32", dividers="u32[3][3]", conv_pair_threads=PAIR_THREADS, conv_pair_places=PAIR_PLACES,
)  # fmt: skip


PACK_RUNS_PARAMS = Params(
    "ConvPackRunsParams", x="ptr", to="ptr", count="i64", pitch="i64", places="i64", stride="i64", padding="i64",
    dilation="i64", extent="i64", taps="i64", channels="i64", place_step="i64", channel_step="i64", start="i64",
    shape=f"i64[{AXES}]", steps=f"i64[{AXES}]", rank="i32",
)  # fmt: skip
BLOCK_FILTER_PARAMS = Params(
    "ConvBlockFilterParams", w="ptr", to="ptr", groups="i64", phases="i64", cols="i64", taps="i64", pitch="i64",
    channels="i64", start="i64", steps="i64[6]", window="i64[3]", window_dilation="i64[3]", window_padding="i64[3]",
    apart="i64[3]", spread="i64[3]", stride="i64[3]", padding="i64[3]", dilation="i64[3]", kernel="i64[3]",
)  # fmt: skip


PACK = Kernel("pack", "conv_pack<{T}>", PACK_PARAMS, source="conv/pack.cu", shared="conv")
PACK_RUNS = Kernel("pack_runs", "conv_pack_runs<{T}>", PACK_RUNS_PARAMS, source="conv/pack_runs.cu", shared="conv")
BLOCK_FILTER = Kernel(
    "block_filter", "conv_block_filter<{T}>", BLOCK_FILTER_PARAMS, source="conv/block_filter.cu", shared="conv"
)
MERGE = Kernel(
    "merge", "conv_merge<{T}, {LINES}>", MERGE_PARAMS, {"LINES": (1, 8)}, source="conv/merge.cu", shared="conv"
)
_SOURCE = "conv/implicit.cu"
MMA = Kernel(
    "mma", "conv_mma<{T}, {SIZE}, {BLOCKS}>", PARAMS, {"SIZE": (128, 64), "BLOCKS": (False, True)}, threads=MMA_THREADS,
    min_blocks=2, source=_SOURCE, shared="conv",
)  # fmt: skip


def register_rows(kind: ElementKind) -> tuple[int, ...]:
    """Extents of a window whose filter a thread has in registers."""
    return (3, 5) if kind.itemsize == 8 else (3, 5, 7)


def pair_vector(kind: ElementKind) -> int:
    """Neighbouring pairs of a thread."""
    return max(1, 8 // kind.itemsize)


def depthwise_vector(kind: ElementKind) -> int:
    """Neighbouring groups of a thread, of a result or a gradient by x."""
    return max(2, pair_vector(kind))


def _depthwise_axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"N": (depthwise_vector(kind), 1), "K": (0, *register_rows(kind))}


DEPTHWISE = Kernel("depthwise", "conv_depthwise<{T}, {N}, {K}>", PARAMS, _depthwise_axes, source=_SOURCE, shared="conv")
SIMT_KERNEL = Kernel("simt", "conv_simt<{T}>", PARAMS, min_blocks=2, source=_SOURCE, shared="conv")
DIRECT = Kernel("direct", "conv_direct<{T}>", PARAMS, source=_SOURCE, shared="conv")
WGMMA = Kernel(
    "wgmma", "conv_wgmma<{T}, {COLS}, {BLOCKS}>", PARAMS, {"COLS": WGMMA_COLS, "BLOCKS": (False, True)},
    threads=WGMMA_THREADS, min_blocks=2, source="conv/conv_wgmma.cu", shared="conv",
)  # fmt: skip
_BOXES: dict[str, Any] = {"threads": BOX_THREADS, "min_blocks": 1, "source": "conv/conv_boxes.cu", "shared": "conv"}
BOXES = Kernel("boxes", "conv_boxes<{T}, {COLS}>", BOX_PARAMS, {"COLS": BOX_COLS}, **_BOXES)
WGMMA_KERNELS, MMA_KERNELS = (BOXES, WGMMA, PACK, PACK_RUNS, BLOCK_FILTER), (MMA, PACK, PACK_RUNS, BLOCK_FILTER)
SIMT_KERNELS = (SIMT_KERNEL, DIRECT, DEPTHWISE, PACK)


def ring_bytes(size: int) -> int:
    """Bytes of a block's ring, or of what warps put the sums in at the end, where that is more."""
    return max(MMA_STAGES[size] * 2 * size * MMA_SLICE, MMA_THREADS // 32 * MMA_SLAB * (size // 2 + 8) * 4)


def wgmma_bytes(cols: int) -> int:
    """Bytes of a block's ring on sm_90a, which sums go out through."""
    return WGMMA_STAGES * (WGMMA_ROWS + cols) * WGMMA_DEPTH * 2


# ---- gradients of filters -------------------------------------------------------------------------------------------

_FILTER_SOURCE = "conv/filter.cu"
_FILTER = Kernel(
    "filter_mma", "conv_filter_mma<{T}, {SIZE}>", PARAMS, {"SIZE": (128, 64)},
    threads=MMA_THREADS, min_blocks=2, source=_FILTER_SOURCE, shared="conv",
)  # fmt: skip
_FILTER_SIMT = Kernel(
    "filter_simt", "conv_filter_simt<{T}>", PARAMS, min_blocks=2, source=_FILTER_SOURCE, shared="conv"
)
_BIAS = Kernel("bias", "conv_bias<{T}>", PARAMS, source=_FILTER_SOURCE, shared="conv")
_PAIRS = Kernel(
    "filter_pairs", "conv_filter_pairs<{T}, {N}, {K}>", PAIRS_PARAMS,
    lambda kind: {"N": tuple(dict.fromkeys((pair_vector(kind), 1))), "K": (1, *register_rows(kind))},
    source="conv/pairs.cu", shared="conv",
)  # fmt: skip
_FILTER_WGMMA = Kernel(
    "filter_wgmma", "conv_filter_wgmma<{T}, {COLS}>", PARAMS, {"COLS": WGMMA_COLS},
    threads=WGMMA_THREADS, min_blocks=2, source="conv/conv_wgmma.cu", shared="conv",
)  # fmt: skip
_FILTER_BOXES = Kernel(
    "filter_boxes", "conv_filter_boxes<{T}, {COLS}>", BOX_PARAMS, {"COLS": BOX_COLS}, **_BOXES
)  # fmt: skip
_SUMS = (_BIAS, MERGE)
WGMMA_BACKWARD = (*WGMMA_KERNELS, _FILTER_BOXES, _FILTER_WGMMA, *_SUMS)
MMA_BACKWARD = (*MMA_KERNELS, _FILTER, *_SUMS)
SIMT_BACKWARD = (*SIMT_KERNELS, _FILTER_SIMT, _PAIRS, *_SUMS)
