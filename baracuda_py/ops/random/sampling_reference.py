"""The reference of `SamplingPlan`: cut-offs by sorting, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.element import cast, decode
from .philox import philox_bits


def reference(
    desc: Any, *, logits: Any, tokens: Any, temperatures: Any, top_ks: Any, top_ps: Any, min_ps: Any, typical_ps: Any,
    epsilons: Any, etas: Any, sigmas: Any, seeds: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any,
    typical_p: Any, epsilon: Any, eta: Any, top_n_sigma: Any, seed: Any, offset: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: weights in the dtype of the logits, their sums in float64 at least."""
    batch = logits.shape[0]

    def of_rows(rows: Any, value: Any) -> Any:
        return np.broadcast_to(np.asarray(float(value) if rows is None else rows, np.float64), batch)[:, None]

    t, p = of_rows(temperatures, temperature), of_rows(top_ps, top_p)
    most = min(int(top_k), logits.shape[1])
    k = np.broadcast_to(np.asarray(most if top_ks is None else top_ks, np.int64), batch)[:, None]
    if desc.probabilities:
        t = np.ones_like(t)
    greedy = ~(t > 0) | (p <= 0)
    k, t = np.where(greedy, 1, k), np.where(greedy, 1, t)
    p = np.where((p < 1) & (k != 1), p, 1)
    with np.errstate(all="ignore"):
        row = _Row(desc, logits, t)
        if not desc.probabilities:
            row.cut_deviation(of_rows(sigmas, top_n_sigma))
        row.cut_below(of_rows(min_ps, min_p))
        row.cut_ranks(k, p)
        row.cut_entropy(of_rows(epsilons, epsilon), of_rows(etas, eta))
        row.cut_typical(of_rows(typical_ps, typical_p))
        drawn = row.draw(_uniforms(batch, seeds, seed, offset))
        return row.results(drawn if tokens is None else np.asarray(tokens, np.int64))


def _uniforms(batch: int, seeds: Any, seed: Any, offset: Any) -> Any:
    """24 bits of element b of the stream, or of element 0 of the row's own."""
    if seeds is None:
        words = philox_bits(seed, offset, batch)
    else:
        words = np.array([philox_bits(s, offset, 1)[0] for s in seeds], np.uint32).reshape(batch)
    return (words >> np.uint32(8)) * 2.0**-24


def _share(p: Any, mass: Any) -> Any:
    """The mass at which a prefix stops, p of all, rounded to float64 in every precision.

    0.8 is no float: of ten equal weights it is eight once the product is rounded, and a hair more before.
    """
    return p.astype(np.float64) * mass.astype(np.float64)


class _Row:
    """The rows, what is kept of them, and weights relative to the largest."""

    def __init__(self, desc: Any, logits: Any, temperature: Any) -> None:
        self.desc, self.t = desc, temperature
        self.likely = desc.probabilities
        none = logits.dtype.type(0 if self.likely else -np.inf)
        self.x = np.where(np.isnan(logits) | (self.likely & (logits < 0)), none, logits)
        self.kept = self.x > none
        self.none = ~self.kept.any(axis=1)
        self.top = self.x.max(axis=1, keepdims=True)
        kind = self.x.dtype.type
        below = np.log(self.x / self.top) if self.likely else (self.x - self.top) / self.t.astype(kind)
        self.logarithm = np.where(self.x == self.top, kind(0), below)
        weight = np.exp(self.logarithm) if not self.likely else np.where(self.x == self.top, 1, self.x / self.top)
        self.weight = np.where(self.kept & ~np.isnan(weight), weight, 0).astype(kind)

    @property
    def wide(self) -> Any:
        """Weights of what is kept, for sums."""
        return np.where(self.kept, self.weight, 0).astype(np.promote_types(self.x.dtype, np.float64))

    def _number(self, weight: Any) -> Any:
        """The logit, or probability, of a weight relative to the largest."""
        top = self.top.astype(np.float64)
        return top * weight if self.likely else top + self.t * np.log(weight)

    def _keep(self, condition: Any, on: Any) -> None:
        self.kept &= condition | (self.x == self.top) | ~on

    def cut_deviation(self, n: Any) -> None:
        finite = np.isfinite(self.x)
        count = np.maximum(finite.sum(axis=1, keepdims=True), 1)
        held = np.where(finite, self.x, 0).astype(np.float64)
        mean = held.sum(axis=1, keepdims=True) / count
        deviation = np.sqrt((np.where(finite, held - mean, 0) ** 2).sum(axis=1, keepdims=True) / count)
        self._keep(self.x >= self.top - n * deviation, n > 0)

    def cut_below(self, share: Any) -> None:
        self._keep(self.x >= self._number(np.where(share > 0, share, 1)), share > 0)

    def cut_ranks(self, k: Any, p: Any) -> None:
        order = np.argsort(np.where(self.kept, -self.x, np.inf), axis=1, kind="stable")
        kept = np.take_along_axis(self.kept, order, axis=1)
        at = np.arange(self.x.shape[1])
        kept &= (at < k) | (k <= 0)
        weight = np.where(kept, np.take_along_axis(self.wide, order, axis=1), 0)
        before = np.cumsum(weight, axis=1) - weight
        before[:, 0] = 0
        kept &= (before < _share(p, weight.sum(axis=1, keepdims=True))) | (at == 0) | (p >= 1)
        np.put_along_axis(self.kept, order, kept & ~self.none[:, None], axis=1)

    def _spread(self) -> tuple[Any, Any]:
        """The mass of what is kept and its entropy."""
        weight = self.wide
        mass = weight.sum(axis=1, keepdims=True)
        moment = np.where(weight > 0, weight * self.logarithm, 0).sum(axis=1, keepdims=True)
        return mass, np.log(mass) - moment / mass

    def cut_entropy(self, epsilon: Any, eta: Any) -> None:
        mass, entropy = self._spread()
        by_entropy = np.where(eta > 0, np.minimum(eta, np.sqrt(np.maximum(eta, 0)) * np.exp(-entropy)), 0)
        share = np.maximum(epsilon, by_entropy)
        self._keep(self.x >= self._number(np.where(share > 0, share * mass, 1)), share > 0)

    def cut_typical(self, p: Any) -> None:
        mass, entropy = self._spread()
        far = np.abs((np.log(mass) - entropy).astype(self.x.dtype) - self.logarithm)
        order = np.argsort(np.where(self.kept, far, np.inf), axis=1, kind="stable")
        weight = np.take_along_axis(self.wide, order, axis=1)
        before = np.cumsum(weight, axis=1) - weight
        before[:, 0] = 0
        near = np.zeros_like(self.kept)
        np.put_along_axis(near, order, before < _share(np.maximum(p, 2.0**-62), mass), axis=1)
        self.kept &= near | ~(p < 1)

    def draw(self, uniform: Any) -> Any:
        mass = np.cumsum(self.wide, axis=1)
        ids = np.argmax(mass > uniform[:, None] * mass[:, -1:], axis=1)
        return np.where(self.none, -1, ids).astype(np.int64)

    def results(self, ids: Any) -> dict[str, Any]:
        vocab, kind = self.x.shape[1], self.x.dtype.type
        mass = self.wide.sum(axis=1, keepdims=True)
        logarithms = np.where(self.kept, self.logarithm - np.log(mass), -np.inf).astype(kind)
        known = (ids >= 0) & (ids < vocab)
        at = np.where(known, ids, 0)[:, None]
        logprob = np.where(known, np.take_along_axis(logarithms, at, axis=1)[:, 0], -np.inf)
        order = np.argsort(np.where(self.kept, -self.x, np.inf), axis=1, kind="stable")[:, : self.desc.top_n]
        there = np.take_along_axis(self.kept, order, axis=1)
        top = np.full((ids.size, self.desc.top_n), -1, np.int64)
        top[:, : order.shape[1]] = np.where(there, order, -1)
        best = np.full(top.shape, -np.inf, kind)
        best[:, : order.shape[1]] = np.take_along_axis(logarithms, order, axis=1)
        nothing = kind(0 if self.likely else -np.inf)
        kept = self.kept & ~self.none[:, None]
        return {
            "ids": np.where(self.none, -1, ids), "logprob": np.where(self.none, np.nan, logprob).astype(kind),
            "top_ids": top, "top_logprobs": best,
            "probs": np.where(kept, self.wide / np.where(mass > 0, mass, 1), 0).astype(kind),
            "masked": np.where(kept, self.x, nothing),
        }  # fmt: skip


def likely_rows(desc: Any, logits: Any) -> Any:
    """Tests: probabilities in the place of logits."""
    with np.errstate(all="ignore"):
        p = np.exp(np.asarray(decode(logits, desc.element), np.float64))
        return cast(p / np.nansum(np.where(np.isfinite(p), p, 0), axis=1, keepdims=True), desc.element)


def check_rows(desc: Any, logits: Any) -> str | None:
    """What BARACUDA_CHECK=1 says of rows of which nothing can be drawn."""
    rows = np.asarray(logits).astype(np.float64)
    bad = ~(rows > (0 if desc.probabilities else -np.inf)).any(axis=1)
    what = "probability above 0" if desc.probabilities else "logit above -inf"
    return f"row {int(np.argmax(bad))} has no {what}" if bad.any() else None
