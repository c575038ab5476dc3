"""Gradients of the tables of a score's formula (kernels/attention/dense/flash_table_gradients.cu)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import ElementKind, Kernel, Params, Problem, Step
from ....core.params import Field
from ....core.variant import aligned
from ..score_terms import KINDS, RESTS, TERMS, TILE_KEYS, WINDOW, terms, window
from .backward_tile import BACKWARD_TILE
from .bias_gradients import DELTA, DELTA_THREADS, block, delta_step
from .forward import THREADS, split_scale, strides, wide

_SOURCE = "attention/dense/flash_table_gradients.cu"
_WORDS = {4: 13, 8: 90}  # of an element's sum, by the accumulator's bytes (kernels/include/baracuda/exact_sum.cuh)
_GRADIENT: dict[str, Field] = {
    **dict.fromkeys(("q", "k", "v", "dy", "lse"), "ptr"), "delta": "workspace", **TERMS, **RESTS, "own": "i64[4]",
    "stride": "i64[4][3]", "loops": "i64[4]",
    **dict.fromkeys(("steps", "each", "splits", "query_len", "key_len", "shift", "left", "right"), "i64"),
    "scale": "f64", "sign": "f64", "signed_scale": "f64", **WINDOW,
    "exact_single_words": _WORDS[4], "exact_double_words": _WORDS[8], **BACKWARD_TILE,
    **dict.fromkeys(("num_heads", "group", "d_k", "d_v", "wide"), "i32"),
}  # fmt: skip
_CLEAR = Params("FlashTableClearParams", sums="workspace", words="i64")
_FINISH = Params(
    "FlashTableFinishParams", out="ptr", sums="workspace", shape="i64[4]", out_stride="i64[4]", elements="i64",
    out_kind="i32",
)  # fmt: skip
_BLOCKS = 1024  # that fill a device: the keys of a tile of queries are shared by several where there are fewer tiles


@dataclass(frozen=True)
class Tables:
    """The tables that may have a gradient, by their operands' names, each with its number in the formula.

    fields: the formula's parameters and those of the gradients; values: what a launch gives for the former. name: part
    of their struct's.
    """

    numbers: Mapping[str, int]
    fields: Mapping[str, str]
    values: Any
    name: str = ""

    def kernels(self) -> tuple[Kernel, ...]:
        """Theirs, none without such tables."""
        if not self.numbers:
            return ()
        params = Params(f"FlashTable{self.name}Params", **_GRADIENT, **self.fields)
        return (
            Kernel("table_delta", "flash_delta<{T}>", DELTA, {}, threads=DELTA_THREADS, source=_SOURCE),
            Kernel("table_clear", "flash_table_clear", _CLEAR, {}, threads=256, source=_SOURCE),
            Kernel("table_gradient", "flash_table_gradient<{T}>", params, {}, threads=THREADS, source=_SOURCE),
            Kernel("table_finish", "flash_table_finish<{T}>", _FINISH, {}, threads=256, source=_SOURCE),
        )

    def steps(self, p: Problem, workspace: int, rests: Mapping[str, int]) -> tuple[list[Step], int]:
        """The steps that write those that are wanted, after others that use `workspace` bytes; and the bytes in all.

        rests: what those know of them (lse_rests.py).
        """
        wanted = {name: v for name in self.numbers if (v := p.views.get(f"d{name}")) is not None and v.size}
        if not wanted:
            return [], workspace
        desc = p.desc
        size = desc.element.acc.itemsize
        words = {name: math.prod(view.shape) * _WORDS[size] for name, view in wanted.items()}
        first, sums = workspace, {}
        for name, count in words.items():
            sums[name] = workspace
            workspace += 8 * count
        total = sum(words.values())
        steps = [Step("table_clear", (min(-(-total // 256), 4096), 1, 1), {"sums": first, "words": total}, {}, 256)]
        workspace = aligned(workspace)
        heads = desc.batch_size * desc.num_heads
        if heads * desc.query_len * desc.key_len:
            steps.append(delta_step(p, "table_delta", workspace, strides(p.y, p.dy), heads, desc.query_len))
            steps.append(self._gradient(p, workspace, sums, rests))
            workspace += aligned(heads * desc.query_len * size)
        for name, view in wanted.items():
            more = 4 - len(view.shape)
            params = {
                "out": f"d{name}", "sums": sums[name], "shape": (*(1,) * more, *view.shape),
                "out_stride": (*(0,) * more, *view.strides), "elements": view.size, "out_kind": KINDS[view.element],
            }  # fmt: skip
            steps.append(Step("table_finish", (-(-view.size // 256), 1, 1), params, {}, 256))
        return steps, workspace

    def _gradient(self, p: Problem, delta: int, sums: Mapping[str, int], rests: Mapping[str, int]) -> Step:
        desc, views = p.desc, (p.q, p.k, p.v, p.dy)
        tile = block(ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32)
        own = (desc.batch_size, desc.num_heads, -(-desc.query_len // tile.rows), 1)
        count = -(-desc.key_len // TILE_KEYS)
        each = max(1, -(-count // max(1, _BLOCKS // math.prod(own))))
        params = {
            "delta": delta, "stride": strides(*views), "own": own, "loops": (1, 1, 1, count), "steps": count,
            "each": each, "splits": -(-count // each), "query_len": desc.query_len, "key_len": desc.key_len,
            "shift": desc.shift, **split_scale(desc), "signed_scale": desc.scale, "num_heads": desc.num_heads,
            "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v, "wide": wide(*views), **window(desc),
            **terms(p, split_scale(desc)["scale"]), **self.values(p),
            **rests,
        }  # fmt: skip
        for name, number in self.numbers.items():
            params |= {f"dt{number}": f"d{name}", f"dt{number}_sums": sums.get(name, 0)}
        return Step("table_gradient", (math.prod(own) * params["splits"], 1, 1), params, {}, THREADS, tile.smem)
