"""What a saved lse lacks of the log of its row's sum (kernels/attention/dense/flash_lse_rests.cuh).

Masks and formulas add numbers of any size to scores, and of a lowest float an lse is nothing else. So where there are
some, the backward finds what it lacks again, in a step before all that replay weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....core import ElementKind, Kernel, Params, Problem, Step
from ....core.params import Field
from ....core.variant import aligned
from ..score_terms import TERMS, TILE_KEYS, WINDOW, terms, window
from .backward_tile import BACKWARD_TILE
from .bias_gradients import block
from .forward import THREADS, split_scale, strides, wide

_FIELDS: dict[str, Field] = {
    **dict.fromkeys(("q", "k", "lse"), "ptr"), "rests": "workspace", **TERMS, "own": "i64[4]", "stride": "i64[2][3]",
    "loops": "i64[4]",
    **dict.fromkeys(("steps", "each", "splits", "query_len", "key_len", "shift", "left", "right"), "i64"),
    "scale": "f64", "sign": "f64", "signed_scale": "f64", **WINDOW, **BACKWARD_TILE,
    **dict.fromkeys(("num_heads", "group", "d_k", "wide"), "i32"),
}  # fmt: skip


NO_RESTS = {"rests": 0, "resummed": 0}
"""What kernels that replay weights are given where nothing was found."""


@dataclass(frozen=True)
class Rests:
    """The kernel that finds them, under the terms of that level (terms.cuh), and its step.

    fields and values: a formula's further parameters, and what a launch gives for them. name: part of their struct's.
    """

    level: int
    source: str
    fields: Mapping[str, str] = field(default_factory=dict)
    values: Callable[[Problem], Mapping[str, Any]] | None = None
    name: str = ""

    def kernels(self) -> tuple[Kernel, ...]:
        """The one kernel."""
        params = Params(f"FlashLseRests{self.name}Params", **{**_FIELDS, **self.fields})
        call = f"flash_lse_rests<{{T}}, {self.level}>"
        return (Kernel("lse_rests", call, params, {}, threads=THREADS, source=f"attention/dense/{self.source}.cu"),)

    def steps(self, p: Problem, workspace: int) -> tuple[list[Step], dict[str, int], int]:
        """The step, after `workspace` bytes of others; what kernels that replay are given; and the bytes in all."""
        desc, given = p.desc, NO_RESTS
        heads = desc.batch_size * desc.num_heads
        adds = self.values is not None or (p.mask is not None and p.mask.element is not ElementKind.BOOL)
        if not (adds and heads * desc.query_len * desc.key_len):
            return [], given, workspace
        given = {"rests": workspace, "resummed": 1}
        tile = block(desc.element.acc)
        own = (desc.batch_size, desc.num_heads, -(-desc.query_len // tile.rows), 1)
        count = -(-desc.key_len // TILE_KEYS)
        params = {
            "rests": workspace, "own": own, "stride": strides(p.q, p.k), "loops": (1, 1, 1, count), "steps": count,
            "each": count, "splits": 1, "query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift,
            **split_scale(desc), "signed_scale": desc.scale, "num_heads": desc.num_heads, "group": desc.group,
            "d_k": desc.d_k, "wide": wide(p.q, p.k), **window(desc), **terms(p, split_scale(desc)["scale"]),
            **(self.values(p) if self.values else {}),
        }  # fmt: skip
        step = Step("lse_rests", (math.prod(own), 1, 1), params, {}, THREADS, tile.smem)
        return [step], given, workspace + aligned(heads * desc.query_len * desc.element.acc.itemsize)


DENSE_RESTS = Rests(2, "flash_lse_rests")
