"""What `GemmBackwardPlan` launches: one pass over dy (kernels/gemm/gemm_backward.cu), then rows of `GemmPlan`.

The pass is left out where products read dy itself and nothing else is wanted. What products read besides, and their
partial results, lies in the workspace in rows that start 16-byte aligned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.args import Args
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, LibraryStep, Problem, Step, Variant, aligned
from .gemm import ACTIVATIONS, Operand, mixed_order, product_steps
from .products import Place

_THREADS = 256
_GATED_BYTES = 8  # of a chunk of 16-bit elements that has two sums of each column
_CONSTANTS = {"gemm_gradient_threads": _THREADS, "gated_half_bytes": _GATED_BYTES}
_CHUNKS = 8  # of a block's thread at least, so that partial sums are few beside what is read
_SPLITS = 1024  # partial sums of a column at most
_MATRICES = ("dy", "pre", "up_pre", "g", "h", "dc", "dresidual")

GRADIENTS = Params(
    "GemmGradientParams", dy="ptr", pre="ptr", up_pre="ptr", scale_a="ptr", scale_b="ptr", g="ptr", h="ptr", dc="ptr",
    dresidual="ptr", row_bias="ptr", sums="ptr", up_sums="ptr", beta="scalar", rows="i64", cols="i64", m="i64",
    part_rows="i64", row_shape=f"i64[{AXES}]", row_strides=f"i64[{len(_MATRICES)}][{AXES}]",
    col_strides=f"i64[{len(_MATRICES)}]", vectors="i64[3]", row_rank="i32", activation="i32", wide="i32", lanes="i32",
    Activation=ACTIVATIONS, GemmGradientMatrix=_MATRICES, **_CONSTANTS,
)  # fmt: skip
BIAS = Params("GemmBiasParams", bias="ptr", sums="ptr", cols="i64", parts="i64", stride="i64", **_CONSTANTS)
ADD = Params(
    "GemmAddParams", first="ptr", second="ptr", y="ptr", rows="i64", cols="i64", pitch="i64", stride="i64",
    row_shape=f"i64[{AXES}]", row_strides=f"i64[{AXES}]", row_rank="i32", wide="i32",
    **_CONSTANTS,
)  # fmt: skip


class Launches:
    """Collects the steps and the workspace of a problem. rows: of `GemmPlan`, those that products are asked of."""

    def __init__(self, p: Problem, args: type[Args], gemm: type[Args], rows: Sequence[Variant]) -> None:
        self.p, self.desc = p, p.desc
        self._args, self._gemm, self._rows = args, gemm, rows
        self._row_shape = (*p.desc.batch_shape, p.desc.m)
        self._count = math.prod(self._row_shape)
        self._steps: list[Step | LibraryStep] = []
        self._used = self._scratch = 0  # of the workspace; of products, which run one after another
        self._served: list[str] = []

    def geometry(self) -> Geometry | str:
        """All launches, or why there are none."""
        p, desc = self.p, self.desc
        gated = p.up is not None
        direct = not gated and desc.activation == "none" and p.dy.element is desc.element
        direct = direct and p.scale_a is None and p.scale_b is None
        wants_g, wants_h = p.da is not None or p.db is not None, gated and (p.da is not None or p.dup is not None)
        g = Operand(Place("dy"), p.dy) if direct else self._held(desc.n, desc.element) if wants_g else None
        h = self._held(desc.n, desc.element) if wants_h else None
        failed = self._pass(None if direct else g, h) or self._products(g, h)
        if failed:
            return failed
        if self._rows[0].name not in self._served and len(self._rows) > 1:
            return f"{self._rows[0].name} takes none of the products"
        dense = all(view.dense for view in p.flat())
        layout = "contiguous" if dense else "strided"
        return Geometry(tuple(self._steps), self._used + self._scratch, layout, mixed_order(self._served))

    def _reserve(self, nbytes: int) -> Place:
        place = Place("@workspace", self._used)
        self._used += aligned(nbytes)
        return place

    def _held(self, cols: int, kind: ElementKind) -> Operand:
        """Room for [*batch_shape, m, cols]."""
        width = 16 // kind.itemsize
        pitch = max(-(-cols // width), 1) * width
        strides, step = [1], pitch
        for extent in reversed(self._row_shape):
            strides.append(step)
            step *= max(extent, 1)
        place = self._reserve(self._count * pitch * kind.itemsize)
        return Operand(place, View(0, (*self._row_shape, cols), tuple(reversed(strides)), kind))

    # -- the pass over dy ---------------------------------------------------------------------------------------------

    def _pass(self, g: Operand | None, h: Operand | None) -> str | None:
        p, desc = self.p, self.desc
        held = {"g": None if g is None else g.view, "h": None if h is None else h.view}
        views: list[View | None] = [held[name] if name in held else p.views[name] for name in _MATRICES]
        rank = len(self._row_shape)
        shape, strides = merge_axes(self._row_shape, [v.strides[:rank] if v else (0,) * rank for v in views])
        if len(shape) > AXES:
            return f"more than {AXES} axes of rows remain after merging"
        gated = p.up is not None
        width = _GATED_BYTES if gated and desc.element.itemsize == 2 else 16  # bytes of a chunk
        chunks = -(-desc.n * desc.element.itemsize // width)
        lanes = min(32, 1 << max(chunks - 1, 0).bit_length())
        step = _THREADS // lanes
        part_rows = step * max(_CHUNKS, -(-self._count // (_SPLITS * step)))
        splits = -(-self._count // part_rows) if desc.n else 0
        sums = {n: p.views[n] for n in ("dbias", "dup_bias") if p.views[n] is not None}
        size = splits * desc.n * desc.acc.itemsize
        places = {n: self._reserve(size).slot if size else "@null" for n in sums}
        params: dict[str, Any] = {
            "g": g.place.slot if g else "@null", "h": h.place.slot if h else "@null",
            "row_bias": "drow_bias", "sums": places.get("dbias", "@null"), "up_sums": places.get("dup_bias", "@null"),
            "rows": self._count, "cols": desc.n, "m": desc.m, "part_rows": part_rows, "row_shape": pad(shape),
            "row_strides": [pad(s) for s in strides], "col_strides": [v.strides[-1] if v else 0 for v in views],
            "vectors": [v.strides[0] if v else 0 for v in (p.scale_a, p.scale_b, p.drow_bias)],
            "row_rank": len(shape), "activation": ACTIVATIONS.index(desc.activation), "lanes": lanes,
            "wide": sum(1 << n for n, v in enumerate(views) if v is not None and v.strides[-1] == 1 and v.aligned(16)),
        }  # fmt: skip
        axes = {"OUT": desc.out_element, "GATED": gated}
        wanted = g or h or sums or p.dc is not None or p.dresidual is not None
        if wanted and splits:
            blocks = -(-chunks // lanes) * splits
            if blocks >= 2**31:
                return f"needs {blocks} blocks, a grid has 2**31 - 1"
            self._steps.append(Step("gradients", (blocks, 1, 1), params, axes, _THREADS))
        for name, view in sums.items():
            if desc.n:
                given = {"bias": name, "sums": places[name], "cols": desc.n, "parts": splits, "stride": view.strides[0]}
                self._steps.append(Step("bias", (-(-desc.n // 32), 1, 1), given, {}, _THREADS))
        if p.drow_bias is not None and desc.m:
            self._steps.append(Step("row_bias", (desc.m, 1, 1), params, axes, _THREADS))
        return None

    # -- products -----------------------------------------------------------------------------------------------------

    def _products(self, g: Operand | None, h: Operand | None) -> str | None:
        p = self.p
        a, b = Operand(Place("a"), p.a), Operand(Place("b"), p.b)
        up = None if p.up is None else Operand(Place("up"), p.up)
        failed = None
        if p.da is not None:
            failed = self._add(g, b, h, up) if up is not None else self._multiply(g, b.t, "da")
        if p.db is not None:
            failed = failed or self._multiply(a.t, g, "db")
        if p.dup is not None:
            failed = failed or self._multiply(a.t, h, "dup")
        return failed

    def _multiply(self, left: Operand | None, right: Operand | None, to: str | Operand) -> str | None:
        """to = alpha · left right."""
        assert left is not None and right is not None
        y = Operand(Place(to), self.p.views[to]) if isinstance(to, str) else to
        if not y.view.size:
            return None
        (*_, m, k), (*_, n) = left.view.shape, right.view.shape
        desc = self.desc.product(m, n, k, y.view.element)
        found = product_steps(
            self.p, self._args, self._rows, self._gemm, desc, {"a": left, "b": right, "y": y}, self._used
        )
        if isinstance(found, str):
            return found
        steps, nbytes, name = found
        self._steps.extend(steps)
        self._scratch = max(self._scratch, nbytes)
        self._served.append(name)
        return None

    def _add(self, g: Operand | None, b: Operand, h: Operand | None, up: Operand) -> str | None:
        """da = alpha (g bᵀ + h upᵀ), rounded once."""
        p, desc = self.p, self.desc
        da: View = p.da
        if not da.size:
            return None
        held = [self._held(desc.k, desc.acc) for _ in range(2)]
        failed = self._multiply(g, b.t, held[0]) or self._multiply(h, up.t, held[1])
        if failed:
            return failed
        shape, (strides,) = merge_axes(self._row_shape, [da.strides[:-1]])
        if len(shape) > AXES:
            return f"more than {AXES} axes of rows remain after merging"
        params = {
            "first": held[0].place.slot, "second": held[1].place.slot, "y": "da", "rows": self._count, "cols": desc.k,
            "pitch": held[0].view.strides[-2], "stride": da.strides[-1], "row_shape": pad(shape),
            "row_strides": pad(strides), "row_rank": len(shape), "wide": da.strides[-1] == 1 and da.aligned(16),
        }  # fmt: skip
        pieces = self._count * -(-desc.k * desc.element.itemsize // 16)
        self._steps.append(Step("add", (-(-pieces // _THREADS), 1, 1), params, {}, _THREADS))
        return None
