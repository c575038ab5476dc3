"""Rotary positions: functions of a modelling file, which turn queries and keys by tables of cosines and sines.

They are names of a file and not of a module, so a patched model's file has ours for every model of the process, with
the results of the original; what ours does not take goes to the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import baracuda_py.torch as bct

from ..untyped import torch

Function = Callable[..., Any]


@dataclass(frozen=True)
class Rotary:
    """Convention of a file's `apply_rotary_pos_emb`: which columns make a pair, and which of the table it takes.

    columns: "first", the first half of a table that repeats its angles; "even", every second one, of a table that has
    each angle twice in a row; "all", a table of one column a pair.
    """

    pairing: Literal["half", "interleaved"] = "half"
    columns: str = "first"

    def make(self, original: Function) -> Function:
        """The function in its place."""

        def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
            if not _served(q, k, cos, unsqueeze_dim):
                return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
            cos, sin = self._columns(cos), self._columns(sin)
            return bct.rope(
                q, x2=k, cos=cos, sin=sin, rotary_dim=2 * cos.shape[-1], pairing=self.pairing,
                layout="bhsd" if unsqueeze_dim == 1 else "bshd",
            )  # fmt: skip

        return apply_rotary_pos_emb

    def _columns(self, table: Any) -> Any:
        """The columns of a table, one a pair."""
        if self.columns == "all":
            return table
        return table[..., : table.shape[-1] // 2] if self.columns == "first" else table[..., ::2]


def _served(q: Any, k: Any, cos: Any, unsqueeze_dim: int) -> bool:
    """Whether a call has the form that ours takes.

    A table of another element makes the original's result that of both; under autocast what follows casts it anyway.
    """
    same = cos.dtype == q.dtype or (torch.is_autocast_enabled(q.device.type) and cos.dtype == torch.float32)
    return (
        unsqueeze_dim in (1, 2) and q.dim() == k.dim() == 4 and cos.dim() == 3 and same and q.dtype == k.dtype
        and not cos.requires_grad
    )  # fmt: skip
