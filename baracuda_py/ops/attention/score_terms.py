"""What attention adds to its scores or hides of them: window, soft cap, ALiBi, mask, sinks, dropout; in NumPy.

s[i, j] = scale · q[i] k[j];   softcap > 0: s = softcap · tanh(s / softcap)      (Gemma 2)
s += -slopes[h] · |i + shift - j|                                                (ALiBi, Press et al. 2021)
s += mask[i, j]; -inf where a boolean mask is False, or out of the window        (Beltagy et al. 2020)
p = exp(s) / (exp(sinks[h]) + Σ exp(s))                                          (Xiao et al. 2023)
y = (p · keep / (1 - dropout_p)) v;   lse = log(exp(sinks[h]) + Σ exp(s))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...core import Descriptor, ElementKind, choice, element, extent, flag, integer, number
from ...core.args import finite_only
from ...core.element import cast, unrounded
from ...schedules.attention.score_terms import dropout
from ..random.philox import philox_uniform
from .grouped_heads import GroupedHeads, kv_heads, score_scale

ALIGNMENTS = ("top_left", "bottom_right")
Spread: TypeAlias = "Callable[[np.ndarray, np.ndarray | None], None]"
_CHUNK = 2**23  # scores the reference holds at a time


@dataclass(frozen=True, kw_only=True)
class AttentionDescriptor(GroupedHeads, Descriptor):
    """Attention of `query_len` queries to `key_len` keys; `scale` None is 1 / √d_k.

    `num_kv_heads` None is `num_heads`; fewer are shared by consecutive query heads (GQA, MQA). Query i stands at key
    position i + shift: shift is 0 ("top_left", as torch) or key_len - query_len ("bottom_right", as FlashAttention).
    Causal, it sees the keys up to there.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    query_len: int = extent()
    key_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    scale: float = score_scale()
    is_causal: bool = flag(False)
    causal_alignment: str = choice(ALIGNMENTS, "top_left")
    num_kv_heads: int = kv_heads()
    element: ElementKind = element()

    @property
    def shift(self) -> int:
        """The key position of query 0."""
        return self.key_len - self.query_len if self.causal_alignment == "bottom_right" else 0

    @property
    def reach(self) -> tuple[int, int]:
        """Query i sees the keys i + reach[0] <= j < i + reach[1], if they exist; unbounded sides lie far off."""
        far = self.key_len + self.query_len
        return self.shift - far, self.shift + (0 if self.is_causal else far) + 1

    @property
    def pairs(self) -> int:
        """(query, key) pairs within reach, of one head."""
        low, high = self.reach
        rows = np.arange(self.query_len)
        seen = np.minimum(rows + high, self.key_len) - np.maximum(rows + low, 0)
        return int(np.maximum(seen, 0).sum())


@dataclass(frozen=True, kw_only=True)
class ScoreTerms(AttentionDescriptor):
    """Query i also sees no key before window_left from its position, nor after window_right; None is no bound.

    is_causal is window_right 0. softcap 0 is none; dropout_p of the weights are dropped.
    """

    window_left: int = integer(None, minimum=0)
    window_right: int = integer(None, minimum=0)
    softcap: float = number(0.0, minimum=0.0)
    dropout_p: float = number(0.0, minimum=0.0, maximum=1.0)

    @property
    def reach(self) -> tuple[int, int]:
        low, high = super().reach
        if self.window_left is not None:
            low = max(low, self.shift - self.window_left)
        if self.window_right is not None:
            high = min(high, self.shift + self.window_right + 1)
        return low, high

    @property
    def mask_elements(self) -> tuple[ElementKind, ...]:
        """What a mask may be: True where a key is seen, or numbers added to the scores."""
        wide = (ElementKind.F64,) if self.element is ElementKind.F64 else ()
        return ElementKind.F32, ElementKind.BOOL, ElementKind.F16, ElementKind.BF16, *wide


@finite_only
def finite(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Contents for tests of gradients: what infinities and NaN reach depends on tiles."""
    return rng.standard_normal(shape)


@finite_only
def biases(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The same for masks: numbers and zeros, which as booleans hide, and some of -inf."""
    return np.where(rng.random(shape) < 0.3, rng.choice((0.0, -np.inf), shape, p=(0.7, 0.3)), finite(rng, desc, shape))


def visible(desc: Any) -> np.ndarray | None:
    """[query_len, key_len], True where causality and window let a key be seen; None where all are."""
    low, high = desc.reach
    if high >= desc.key_len and low + desc.query_len - 1 <= 0:
        return None
    ahead = np.arange(desc.key_len) - np.arange(desc.query_len)[:, None]
    seen: np.ndarray = (ahead >= low) & (ahead < high)
    return seen


def give_forward(desc: Any, forward: Any, arrays: dict[str, Any], names: Iterable[str]) -> None:
    """Into `arrays`: y and lse as the forward gives them of the operands `names`, rounded to their elements."""
    compute = np.longdouble if desc.element is ElementKind.F64 else np.float64
    given = {name: arrays.get(name) for name in names}
    floats = {n: a.astype(compute) for n, a in given.items() if isinstance(a, np.ndarray) and a.dtype.kind not in "biu"}
    made = forward(desc, **given | floats, wanted={"y", "lse"})
    arrays["y"], arrays["lse"] = cast(made["y"], desc.element), cast(made["lse"], desc.acc)


def batches(desc: Any) -> Iterator[slice]:
    """Slices of the batch whose scores fit the reference's working set."""
    step = max(1, _CHUNK // max(1, desc.num_heads * desc.query_len * desc.key_len))
    for start in range(0, desc.batch_size, step):
        yield slice(start, min(start + step, desc.batch_size))


def grouped(x: np.ndarray, desc: Any) -> np.ndarray:
    """[b, num_heads, rows, d] as [b, num_kv_heads, group · rows, d]: one matrix a key head."""
    if desc.group == 1:
        return x
    return x.reshape(x.shape[0], desc.num_kv_heads, desc.group * x.shape[2], x.shape[3])


@dataclass
class Scores:
    """The scores of some batches, [b, num_heads, query_len, key_len], -inf where hidden.

    `seen` is None or False where hidden; `slope` is None or the soft cap's derivative. `spread` is None or takes ds and
    what is seen, and adds to the gradients of tables of a formula.
    """

    s: np.ndarray
    seen: np.ndarray | None
    slope: np.ndarray | None = None
    spread: Spread | None = None


@dataclass
class Changed:
    """Scores that a formula has changed: its derivative, if it was asked for, and False where it hides a key.

    spread: as in `Scores`.
    """

    s: np.ndarray
    slope: np.ndarray | None = None
    seen: np.ndarray | None = None
    spread: Spread | None = None


def scores(
    desc: Any, b: slice, q: np.ndarray, k: np.ndarray, mask: Any = None, slopes: Any = None, store: Any = unrounded,
    change: Callable[[slice, np.ndarray], Changed] | None = None,
) -> Scores:  # fmt: skip
    """All terms; q and k are those of the batches b, mask and slopes whole. store: what a kernel makes of tanh.

    change: a formula of the scores of the batches b, which stands behind the soft cap.
    """
    shape = (q.shape[0], desc.num_heads, desc.query_len, desc.key_len)
    every = (desc.batch_size, *shape[1:])
    s: np.ndarray = (grouped(q * q.dtype.type(desc.scale), desc) @ k.swapaxes(-1, -2)).reshape(shape)
    made = Scores(s, visible(desc))
    if desc.softcap:
        cap = s.dtype.type(desc.softcap)
        tanh = store(np.tanh(s / cap))
        np.multiply(tanh, cap, out=s)
        made.slope = 1 - tanh * tanh
    if change is not None:
        made = _changed(made, change(b, s))
        s = made.s
    if slopes is not None:
        s -= np.broadcast_to(slopes, every[:2])[b][..., None, None] * distance(desc).astype(s.dtype)
    if mask is not None:
        mask = np.broadcast_to(mask, every)[b]
        kept = mask if mask.dtype == np.bool_ else mask != -np.inf
        if mask.dtype != np.bool_:
            s += mask
        made.seen = np.broadcast_to(kept, shape) if made.seen is None else kept & made.seen
    if made.seen is not None:
        np.copyto(s, -np.inf, where=~made.seen)
    return made


def _changed(made: Scores, by: Changed) -> Scores:
    """Scores behind a formula: derivatives multiply, and a key is seen where both say so."""
    slope = made.slope if by.slope is None else by.slope if made.slope is None else made.slope * by.slope
    seen = made.seen if by.seen is None else by.seen if made.seen is None else made.seen & by.seen
    return Scores(by.s, seen, slope, by.spread)


def distance(desc: Any) -> np.ndarray:
    """|i + shift - j|, [query_len, key_len]."""
    apart: np.ndarray = np.abs(np.arange(desc.query_len)[:, None] + desc.shift - np.arange(desc.key_len))
    return apart


def kept(desc: Any, b: slice, seed: Any, offset: Any) -> np.ndarray | None:
    """Which weights of the batches b dropout leaves; the stream runs over [batch, heads, queries, keys]."""
    if not desc.dropout_p:
        return None
    shape = (b.stop - b.start, desc.num_heads, desc.query_len, desc.key_len)
    each = desc.num_heads * desc.query_len * desc.key_len
    uniform: np.ndarray = philox_uniform(seed, offset, shape[0] * each, b.start * each).astype(np.float64)
    return uniform.reshape(shape) >= float(desc.dropout_p)


def restored(desc: Any) -> float:
    """What dropout multiplies the weights it keeps by."""
    return dropout(desc.dropout_p)[1]


def rests(s: np.ndarray, lse: np.ndarray, sinks: Any = None) -> np.ndarray | None:
    """What saved lse, [..., 1], lack of the log of their rows' sums, where they are far from 0; None where none is.

    Masks and formulas add numbers of any size: of a row of the lowest float the lse is that, however many keys share
    it. So it is found again from the scores (`flash_lse_rests.cuh`).
    """
    far = np.isfinite(lse) & is_far(lse)
    if not far.any():
        return None
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    logits = np.full_like(lse, -np.inf) if sinks is None else np.broadcast_to(sinks[:, None, None], lse.shape)
    top = np.maximum(top, logits)
    total = np.exp(s - top).sum(axis=-1, keepdims=True) + np.exp(logits - top)
    return np.where(far, (top - lse) + np.log(total), 0)


def is_far(lse: np.ndarray) -> Any:
    """Rows whose lse has so many digits before the point that few are left behind it (`is_far_base`)."""
    return np.abs(lse) >= 2.0**10 * np.log(2)


def replayed(s: np.ndarray, lse: np.ndarray, acc: ElementKind, rest: np.ndarray | None = None) -> np.ndarray:
    """The weights exp(s - lse) of scores, in their place, of a saved lse in `acc`, [..., 1]; 0 where it is -inf.

    Both are rounded, so that what should be 0 may lie above it, the larger they are the further: no weight is above 1.
    From where neighbouring numbers of `acc` are 2 apart, a score that may have been rounded to below its row's lse
    counts as that lse (`replay_base` in attention.cuh). With `rest` (`rests`) exp(s - lse - rest) of far rows.
    """
    coarse, room = (2.0**53, 2.0**-48) if acc is ElementKind.F64 else (2.0**24, 2.0**-19)
    size, most = np.abs(lse), np.finfo(lse.dtype).max
    base = np.where((size >= coarse) & (size <= most), np.maximum(lse - size * lse.dtype.type(room), -most), lse)
    if rest is not None:
        base = np.where(np.isfinite(lse) & is_far(lse), lse, base)
    s -= np.where(lse == -np.inf, np.inf, base)
    if rest is not None:
        s -= rest
    np.minimum(s, 0, out=s)
    np.exp(s, out=s)
    return s


def shared(desc: Any, p: np.ndarray, lse: np.ndarray, rest: np.ndarray | None = None) -> np.ndarray:
    """Replayed weights as ds = p (dy v - delta) takes them: 0 for a key that has all of its row.

    Its ds is 0 whatever dropout left of it, which dy v less dy y, of a y that was rounded, would say only nearly; so it
    is said where that shows, under dropout and in rows whose lse is far from 0 (`is_far_base` in attention.cuh).
    """
    far = is_far(lse)
    if not (desc.dropout_p or far.any()):
        return p
    if desc.element.itemsize == 2:
        nearly: Any = 2.0**-12 if desc.element is ElementKind.F16 else 2.0**-9
    else:
        size = np.abs(lse) if rest is None else np.where(np.isfinite(lse) & far, 0, np.abs(lse))
        nearly = (2.0**-49 if desc.element is ElementKind.F64 else 2.0**-20) * (1 + 2 * size)
    return np.where((p >= 1 - nearly) & (bool(desc.dropout_p) | far), 0, p)


def weighted(desc: Any, p: np.ndarray, v: np.ndarray, seen: np.ndarray | None) -> np.ndarray:
    """p v. A hidden key adds nothing, be its v infinite or NaN."""
    odd = None if seen is None or np.isfinite(v).all() else ~np.isfinite(v)
    y: np.ndarray = (grouped(p, desc) @ (v if odd is None else np.where(odd, 0, v))).reshape(*p.shape[:3], v.shape[-1])
    if odd is not None and seen is not None:
        for key in np.flatnonzero(odd.any(axis=(0, 1, 3))):
            value = np.repeat(np.where(odd[:, :, key], v[:, :, key], 0), desc.group, axis=1)[:, :, None]
            y += np.where(seen[..., key, None] & (value != 0), p[..., key, None] * value, 0)
    return y
