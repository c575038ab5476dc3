"""Linear attention and its gradients in chunks of 64 steps, as kernels round: what they keep goes through `store`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schedules.recurrence import CHUNK
from .kinds import Steps

LEAST_LOG, BLOCK = -110, 16


class Chunk:
    """Some steps of one sequence, [heads, steps, …]; q with the scale."""

    def __init__(self, desc: Any, steps: Steps, rows: slice, dtype: Any) -> None:
        self.q, self.k, self.v = (
            x[rows].swapaxes(0, 1) for x in (steps.q * dtype.type(desc.scale), steps.k, steps.v)
        )  # fmt: skip
        heads, count = self.q.shape[:2]
        logs = np.zeros((heads, count), dtype)
        if steps.g is not None:
            logs = np.cumsum(np.maximum(steps.g[rows].T, LEAST_LOG), axis=1).astype(dtype)
        self.lower = np.tril(np.ones((count, count), bool))
        differences = np.where(self.lower, logs[:, :, None] - logs[:, None], 0)
        self.fades = np.where(self.lower, np.exp(differences), 0).astype(dtype)
        self.since, self.until = np.exp(logs)[..., None], np.exp(logs[:, -1:] - logs)[..., None]
        self.total = np.exp(logs[:, -1])[:, None, None]
        self.beta = None if steps.beta is None else steps.beta[rows].T[..., None].astype(dtype)
        if self.beta is not None:
            self.alike = np.tril(self.k @ turned(self.k) * self.fades, -1)
            system = (self.beta * self.alike).astype(np.float64) + np.eye(count)
            self.inverse = np.linalg.inv(system).astype(dtype)

    def written(self, state: Any, store: Any) -> Any:
        """What is added under k after a state, and w of the delta rule."""
        if self.beta is None:
            return self.v, None
        w = store(-self.inverse @ (self.beta * self.since * self.k))
        return store(self.inverse @ (self.beta * self.v)) + w @ store(state), w

    def after(self, state: Any, u: Any, store: Any) -> Any:
        """The state after the chunk."""
        return self.total * state + turned(self.k) @ store(self.until * u)

    def outputs(self, state: Any, u: Any, store: Any) -> Any:
        """What q reads."""
        return self.since * (self.q @ store(state)) + store(self.q @ turned(self.k) * self.fades) @ store(u)


def turned(x: Any) -> Any:
    """Matrices transposed."""
    return x.swapaxes(-1, -2)


def chunks_of(desc: Any, steps: Steps, dtype: Any) -> list[Chunk]:
    """A sequence's chunks."""
    return [Chunk(desc, steps, slice(n, n + CHUNK), dtype) for n in range(0, len(steps.q), CHUNK)]


def run_in_chunks(desc: Any, steps: Steps, state: Any, store: Any) -> tuple[Any, Any]:
    """y and the last state."""
    pieces = [np.zeros((0, desc.num_heads, desc.d_v), state.dtype)]
    if steps.g_channel is not None:
        for n in range(0, len(steps.q), CHUNK):
            y, state = _channels(desc, steps, slice(n, n + CHUNK), state, store)
            pieces.append(y.swapaxes(0, 1))
        return np.concatenate(pieces), state
    for chunk in chunks_of(desc, steps, state.dtype):
        u, _ = chunk.written(state, store)
        pieces.append(chunk.outputs(state, u, store).swapaxes(0, 1))
        state = chunk.after(state, u, store)
    return np.concatenate(pieces), state


def _channels(desc: Any, steps: Steps, rows: slice, state: Any, store: Any) -> tuple[Any, Any]:
    """A chunk where every channel has its decay: exact differences within blocks of 16 steps."""
    dtype = state.dtype
    q, k, v, logs = (
        x[rows].swapaxes(0, 1) for x in (steps.q * dtype.type(desc.scale), steps.k, steps.v, steps.g_channel)
    )  # fmt: skip
    logs = np.cumsum(np.maximum(logs, LEAST_LOG), axis=1).astype(dtype)
    q_logs, count = logs, logs.shape[1]
    if steps.bonus is not None:
        q_logs = np.concatenate((np.zeros_like(logs[:, :1]), logs[:, :-1]), axis=1)
    weights = np.tril(_products(q, k, q_logs, logs, store))
    if steps.bonus is not None:
        at = np.arange(count)
        weights[:, at, at] = np.einsum("hid,hid,hd->hi", q, k, steps.bonus)
    if steps.beta is not None:
        beta = steps.beta[rows].T[..., None].astype(dtype)
        system = np.tril(beta * _products(k, k, logs, logs, store), -1).astype(np.float64) + np.eye(count)
        inverse = np.linalg.inv(system).astype(dtype)
        w = store(-inverse @ (beta * store(k * np.exp(logs))))
        v = store(store(inverse @ (beta * v)) + w @ store(state))
    y = store(q * np.exp(q_logs)) @ store(state) + store(weights) @ v
    kept = store(k * np.exp(logs[:, -1:] - logs))
    return y, np.exp(logs[:, -1])[..., None] * state + turned(kept) @ v


def _products(x: Any, k: Any, x_logs: Any, logs: Any, store: Any) -> Any:
    """x[i] k[j] with exp(x_logs[i] - logs[j]), right for j <= i."""
    count = x.shape[1]
    made = np.zeros((len(x), count, count), x.dtype)
    for first in range(0, count, BLOCK):
        own = slice(first, min(first + BLOCK, count))
        fades = np.exp(np.minimum(x_logs[:, own, None] - logs[:, None, own], 0))
        made[:, own, own] = np.einsum("hid,hjd,hijd->hij", x[:, own], k[:, own], fades)
        if first:
            last = logs[:, first - 1 : first]
            earlier = store(k[:, :first] * np.exp(last - logs[:, :first]))
            made[:, own, :first] = store(x[:, own] * np.exp(x_logs[:, own] - last)) @ turned(earlier)
    return made


def gradients_in_chunks(desc: Any, steps: Steps, state: Any, dy: Any, slope: Any, store: Any) -> tuple[Any, Any]:
    """Gradients as `gradients` gives them, from the first state; `slope` is of the last one."""
    chunks, states, made = chunks_of(desc, steps, state.dtype), [], []
    for chunk in chunks:
        u, w = chunk.written(state, store)
        states.append((store(state), store(u), w))
        state = chunk.after(state, u, store)
    for n in reversed(range(len(chunks))):
        one, slopes = dy[n * CHUNK : (n + 1) * CHUNK].swapaxes(0, 1), store(slope)
        found, slope = _gradients(chunks[n], *states[n], one, slope, slopes, store)
        made.append({name: x.swapaxes(0, 1) for name, x in found.items()})
    whole = {name: np.concatenate([one[name] for one in reversed(made)]) for name in made[0]} if made else {}
    if whole:
        whole["q"] = whole["q"] * dy.dtype.type(desc.scale)
    return whole, slope


def _gradients(c: Chunk, s: Any, u: Any, w: Any, dy: Any, slope: Any, h: Any, store: Any) -> tuple[Any, Any]:
    weights, dweights = c.q @ turned(c.k) * c.fades, dy @ turned(u) * c.lower
    f = store(dweights * c.fades)
    dq, dk = c.since * (dy @ turned(s)), c.until * (u @ turned(h))
    before = c.total * slope + turned(c.q) @ store(c.since * dy)
    fades = (c.q * dq).sum(-1) - (c.k * dk).sum(-1)
    last = (c.k * dk).sum((1, 2)) + c.total[:, 0, 0] * (s * h).sum((1, 2))
    pairs, found = dweights * weights, {}
    dv = turned(store(weights)) @ dy + c.until * (c.k @ h)
    if c.beta is not None:
        du = store(store(turned(store(weights)) @ dy) + c.until * (c.k @ h))
        x = turned(c.inverse) @ du
        before = before + turned(w) @ du
        dv, x = c.beta * x, store(x)
        seen, xu = c.since * (x @ turned(s)), x @ turned(u)
        found["beta"] = (x * c.v).sum(-1) - (c.k * seen).sum(-1) - (c.alike * xu).sum(-1)
        fades, pairs = fades - (c.k * c.beta * seen).sum(-1), pairs - c.beta * xu * c.alike
        m = store(np.tril(-c.beta * xu * c.fades, -1))
        dk = dk - c.beta * seen + m @ c.k + turned(m) @ c.k
    fades = fades + pairs.sum(2) - pairs.sum(1)
    fades[:, -1] += last
    found["g"] = np.cumsum(fades[:, ::-1], axis=1)[:, ::-1]
    return found | {"q": dq + f @ c.k, "k": dk + turned(f) @ c.q, "v": dv}, before
