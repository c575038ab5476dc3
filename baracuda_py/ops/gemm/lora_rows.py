"""The rows of `LoraMatmulPlan` and of its gradient: two launches, of tensor cores for many tokens, or without them."""

from __future__ import annotations

from typing import NamedTuple

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...core.variant import aligned
from .mma import HALVES, k_first, pieces_of, ring_bytes

THREADS, _MMA_THREADS = 256, 128
_TILE, _CHUNK, _MMA_TILE = 8, 512, 64  # tokens of a block, elements of k of a piece; kernels/gemm/lora_matmul.cu, too
_MANY = 128  # tokens from which on tensor cores take them
__all__ = ["BACKWARD", "FORWARD", "HALVES", "KERNELS", "MMA_KERNELS", "launches", "tensor_cores"]

FIELDS = {
    **dict.fromkeys(("ids", "offsets", "ranks"), "ptr"),
    **dict.fromkeys(
        ("tokens", "k", "n", "adapters", "rank", "segments", "chunks", "each", "splits", "ids_step", "offsets_step",
         "ranks_step"), "i64"),
    **dict.fromkeys(("tile", "wide", "wide_ids", "wide_offsets", "wide_ranks"), "i32"),
    "parts": "workspace",
}  # fmt: skip
SHRINK = Params(
    "LoraShrinkParams", x="ptr", a="ptr", copy="ptr", x_step="i64[2]", a_step="i64[3]", copy_step="i64[2]", **FIELDS
)
EXPAND = Params(
    "LoraExpandParams", b="ptr", scale="ptr", base="ptr", y="ptr", b_step="i64[3]", base_step="i64[2]",
    y_step="i64[2]", scale_step="i64", **FIELDS,
)  # fmt: skip
KERNELS = (
    Kernel("shrink", "lora_shrink<{T}>", SHRINK, threads=THREADS),
    Kernel("expand", "lora_expand<{T}>", EXPAND, threads=THREADS),
)


SHRINK_MMA = Params(
    "LoraShrinkMmaParams", x="ptr", a="ptr", copy="ptr", x_step="i64[2]", a_step="i64[3]", copy_step="i64[2]",
    piece="i32", **FIELDS,
)  # fmt: skip
EXPAND_MMA = Params(
    "LoraExpandMmaParams", b="ptr", scale="ptr", base="ptr", y="ptr", b_step="i64[3]", base_step="i64[2]",
    y_step="i64[2]", scale_step="i64", **FIELDS,
)  # fmt: skip
_MAJORS = {"B_K": (True, False)}
_MMA_SOURCE = "gemm/lora_mma.cu"
MMA_KERNELS = (
    Kernel("shrink_mma", "lora_shrink_mma<{T}, {B_K}>", SHRINK_MMA, _MAJORS, _MMA_THREADS, 2, source=_MMA_SOURCE),
    Kernel("expand_mma", "lora_expand_mma<{T}, {B_K}>", EXPAND_MMA, _MAJORS, _MMA_THREADS, 2, source=_MMA_SOURCE),
)


def _swapped(view: View) -> View:
    """Matrices with their two axes in turn."""
    (count, m, n), (s, t, u) = view.shape, view.strides
    return View(view.ptr, (count, n, m), (s, u, t), view.element)


class Names(NamedTuple):
    """What both products read and write, by the operands' names. copy: where x goes, too; of the gradient the matrices
    are transposed, and change places."""

    x: str
    y: str
    copy: str = ""
    backward: bool = False


FORWARD, BACKWARD = Names("x", "y"), Names("dy", "dx", "dbase", True)


class _Products:
    """The matrices [adapters, rank, k] and [adapters, n, rank] of a problem, and the values of the kernels' fields."""

    def __init__(self, p: Problem, names: Names) -> None:
        desc = p.desc
        self.p, self.names = p, names
        first, second = ("b", "a") if names.backward else ("a", "b")
        self.a, self.b = p.views[first], p.views[second]
        self.k, self.n = desc.in_features, desc.out_features
        if names.backward:
            self.a, self.b, self.k, self.n = _swapped(self.a), _swapped(self.b), self.n, self.k
        self.x, self.y, self.copy = p.views[names.x], p.views[names.y], p.views.get(names.copy)
        self.base = None if names.backward else p.base
        facts = {
            "tokens": desc.tokens, "k": self.k, "n": self.n, "adapters": desc.adapters, "rank": desc.max_rank,
            "parts": 0, "segments": desc.num_ids, **dict.fromkeys(("chunks", "each", "splits"), 1),
        }  # fmt: skip
        for name in ("ids", "offsets", "ranks"):
            view = p.views[name]
            facts[f"wide_{name}"] = int(view is not None and view.element is ElementKind.I64)
            facts[f"{name}_step"] = 0 if view is None else view.strides[0]
        self.shrink = {
            **facts, "x": names.x, "a": first, "copy": "@null" if self.copy is None else names.copy,
            "x_step": self.x.strides, "a_step": self.a.strides, "copy_step": _steps(self.copy),
        }  # fmt: skip
        self.expand = {
            **facts, "b": second, "y": names.y, "base": "@null" if self.base is None else "base",
            "base_step": _steps(self.base), "y_step": _steps(self.y), "b_step": self.b.strides,
            "scale_step": 0 if p.scale is None else p.scale.strides[0],
        }  # fmt: skip

    def geometry(self, shrink: Step, expand: Step, nbytes: int) -> Geometry | str:
        """Both launches, but those of nothing."""
        blocks = max(shrink.grid[0], expand.grid[0])
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        steps = [step for step, to in ((shrink, self.x), (expand, self.y)) if to is not None and step.grid[0]]
        layout = "contiguous" if all(v.dense for v in self.p.flat()) else "strided"
        return Geometry(tuple(steps), aligned(nbytes), layout)


def _steps(view: View | None) -> tuple[int, ...]:
    return (0, 0) if view is None else view.strides


def _wide(*views: View | None) -> int:
    """A bit for each view whose rows can be accessed 16 bytes at a time."""
    return sum(1 << i for i, v in enumerate(views) if v is not None and v.strides[-1] == 1 and v.aligned(16))


def launches(p: Problem, names: Names) -> Geometry | str:
    """A block for eight tokens, or for one of few, and all of k or one piece of it; then for 256 columns."""
    desc, own = p.desc, _Products(p, names)
    tile = _TILE if desc.tokens > 64 else 1
    tiles, chunks = -(-desc.tokens // tile), -(-own.k // _CHUNK)
    each = max(chunks, 1) if tiles >= 2 * p.device.sms else 1
    splits, columns = -(-chunks // each), -(-own.n // THREADS)
    more = {"chunks": chunks, "each": each, "splits": splits, "tile": tile}
    shrink = {**own.shrink, **more, "wide": _wide(own.x, own.a, own.copy)}
    expand = {**own.expand, **more, "wide": _wide(own.b)}
    held = tile * -(-desc.max_rank // 8) * 8 * desc.acc.itemsize
    return own.geometry(
        Step("shrink", (tiles * splits, 1, 1), shrink, {}, THREADS),
        Step("expand", (tiles * columns, 1, 1), expand, {}, THREADS, held),
        splits * desc.tokens * desc.max_rank * desc.acc.itemsize,
    )


def tensor_cores(p: Problem, names: Names) -> Geometry | str:
    """A block for 64 tokens and 64 of the rank, then for 64 columns; for many tokens."""
    desc, own = p.desc, _Products(p, names)
    if desc.tokens < _MANY:
        return f"{desc.tokens} tokens are fewer than {_MANY}"
    if own.x.strides[-1] != 1 and own.k > 1:
        return f"needs rows of {names.x} along memory, got strides {own.x.strides}"
    majors = k_first(own.a, -1), k_first(own.b, -1)
    if None in majors:
        return f"needs a stride of 1 in a and b, got strides {p.a.strides} and {p.b.strides}"
    a, b = (v if major else _swapped(v) for v, major in zip((own.a, own.b), majors, strict=True))
    bits = [int(v.aligned(16)) for v in (a, b)]  # of rows in memory
    tiles, columns, ranks = (-(-size // _MMA_TILE) for size in (desc.tokens, own.n, desc.max_rank))
    piece = pieces_of(desc.max_rank, own.k, desc.element)[1]
    shrink = {**own.shrink, "tile": _MMA_TILE, "piece": piece, "wide": _wide(own.x, None, own.copy) | bits[0] << 1}
    expand = {**own.expand, "tile": _MMA_TILE, "wide": _wide(None, own.base, own.y) | bits[1]}
    smem = ring_bytes(_MMA_TILE, False)
    copies = max(ranks, int(own.copy is not None))  # a rank of 0 has no products
    return own.geometry(
        Step("shrink_mma", (tiles * copies, 1, 1), shrink, {"B_K": majors[0]}, _MMA_THREADS, smem),
        Step("expand_mma", (tiles * columns, 1, 1), expand, {"B_K": majors[1]}, _MMA_THREADS, smem),
        2 * desc.tokens * -(-desc.max_rank // 8) * 8 * desc.element.itemsize,
    )
