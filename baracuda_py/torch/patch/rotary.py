"""Rotary positions: functions of a modelling file, which turn queries and keys by tables of cosines and sines.

They are names of a file and not of a module, so a patched model's file has ours for every model of the process, with
the results of the original; what ours does not take goes to the original.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import baracuda_py.torch as bct

from ..untyped import torch

Function = Callable[..., Any]


def _layout(unsqueeze_dim: int) -> str | None:
    """Where the heads are, by the axis that the table gets for them."""
    return {1: "bhsd", 2: "bshd"}.get(unsqueeze_dim)


def of_both(rule: Rotary, original: Function) -> Function:
    """Of queries and keys (Llama)."""

    def apply_rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        layout = _layout(unsqueeze_dim)
        if layout is None or k.dim() != 4 or not rule.serves(q, k, cos):
            return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return rule.turn(q, k, cos, sin, layout)

    return apply_rotary_pos_emb


def of_one(rule: Rotary, original: Function) -> Function:
    """Of one operand (Gemma 4)."""

    def apply_rotary_pos_emb(x: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        layout = _layout(unsqueeze_dim)
        if layout is None or not rule.serves(x, x, cos):
            return original(x, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return rule.turn(x, None, cos, sin, layout)

    return apply_rotary_pos_emb


def of_patches(rule: Rotary, original: Function) -> Function:
    """Of [tokens, heads, columns], the patches of all images end to end (Qwen-VL)."""

    def apply_rotary_pos_emb_vision(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        if q.dim() != 3 or k.dim() != 3 or cos.dim() != 2 or not rule.serves(q[None], k[None], cos[None]):
            return original(q, k, cos, sin)
        return tuple(y[0] for y in rule.turn(q[None], k[None], cos[None], sin[None], "bshd"))

    return apply_rotary_pos_emb_vision


def of_complex_table(rule: Rotary, original: Function) -> Function:
    """With a table of cos t + i sin t (DeepSeek-V2)."""

    def apply_rotary_emb(xq: Any, xk: Any, freqs_cis: Any) -> Any:
        if xk.dim() != 4 or not rule.serves(xq, xk, freqs_cis.real):
            return original(xq, xk, freqs_cis)
        return rule.turn(xq, xk, freqs_cis.real, freqs_cis.imag, "bhsd")

    return apply_rotary_emb


def to_halves(rule: Rotary, original: Function) -> Function:
    """Pairs come one after the other and leave as two halves (DeepSeek-V3)."""

    def apply_rotary_pos_emb_interleave(
        q: Any, k: Any, cos: Any, sin: Any, position_ids: Any = None, unsqueeze_dim: int = 1
    ) -> Any:
        layout = _layout(unsqueeze_dim)
        if layout is None or k.dim() != 4 or not rule.serves(q, k, cos):
            return original(q, k, cos, sin, position_ids=position_ids, unsqueeze_dim=unsqueeze_dim)
        return tuple(_halves(y) for y in rule.turn(q, k, cos, sin, layout))

    return apply_rotary_pos_emb_interleave


def _halves(y: Any) -> Any:
    return y.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


@dataclass(frozen=True)
class Rotary:
    """Convention of a file's function: the columns that make a pair, those of the table it takes, and its operands.

    columns: "first", the first half of a table that repeats its angles; "even", every second one, of a table that has
    each angle twice in a row; "all", a table of one column a pair. keeps: the result has the operand's element, also
    where the table has a wider one; else such a call is the original's, whose result has both's. form: the operands.
    """

    pairing: Literal["half", "interleaved"] = "half"
    columns: str = "first"
    keeps: bool = False
    form: Callable[[Rotary, Function], Function] = of_both

    @property
    def name(self) -> str:
        """What reports show."""
        return f"rope({self.pairing}, {self.columns})"

    def make(self, original: Function) -> Function:
        """The function in its place."""
        return functools.wraps(original)(self.form(self, original))

    def serves(self, q: Any, k: Any, cos: Any) -> bool:
        """Whether ours has the original's result; under autocast what follows casts it anyway."""
        same = cos.dtype == q.dtype or self.keeps or torch.is_autocast_enabled(q.device.type)
        wide = cos.dtype in (q.dtype, torch.promote_types(q.dtype, torch.float32))
        return q.dim() == 4 and cos.dim() == 3 and same and wide and q.dtype == k.dtype and not cos.requires_grad

    def turn(self, q: Any, k: Any, cos: Any, sin: Any, layout: str) -> Any:
        """Both turned, or q alone where there is no k."""
        cos, sin = self._columns(cos), self._columns(sin)
        y = bct.rope(q, x2=k, cos=cos, sin=sin, rotary_dim=2 * cos.shape[-1], pairing=self.pairing, layout=layout)
        if not self.keeps:
            return y
        return y.to(q.dtype) if k is None else tuple(one.to(q.dtype) for one in y)

    def _columns(self, table: Any) -> Any:
        """The columns of a table, one a pair."""
        if self.columns == "all":
            return table
        return table[..., : table.shape[-1] // 2] if self.columns == "first" else table[..., ::2]
