"""Linear attention and its gradients in chunks of 64 steps, as kernels round: what they keep goes through `store`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schedules.recurrence import CHUNK
from .chunked_channels import LEAST_LOG, ChannelChunk, turned
from .chunked_rank_one import RankOneChunk
from .kinds import Steps


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

    def gradients(self, s: Any, u: Any, w: Any, dy: Any, slope: Any, h: Any, store: Any) -> tuple[Any, Any]:
        """Gradients of the operands and of the state before; slope, h: of that after, and as it is kept."""
        weights, dweights = self.q @ turned(self.k) * self.fades, dy @ turned(u) * self.lower
        f = store(dweights * self.fades)
        dq, dk = self.since * (dy @ turned(s)), self.until * (u @ turned(h))
        before = self.total * slope + turned(self.q) @ store(self.since * dy)
        fades = (self.q * dq).sum(-1) - (self.k * dk).sum(-1)
        last = (self.k * dk).sum((1, 2)) + self.total[:, 0, 0] * (s * h).sum((1, 2))
        pairs, found = dweights * weights, {}
        dv = turned(store(weights)) @ dy + self.until * (self.k @ h)
        if self.beta is not None:
            du = store(store(turned(store(weights)) @ dy) + self.until * (self.k @ h))
            x = turned(self.inverse) @ du
            before = before + turned(w) @ du
            dv, x = self.beta * x, store(x)
            seen, xu = self.since * (x @ turned(s)), x @ turned(u)
            found["beta"] = (x * self.v).sum(-1) - (self.k * seen).sum(-1) - (self.alike * xu).sum(-1)
            fades, pairs = fades - (self.k * self.beta * seen).sum(-1), pairs - self.beta * xu * self.alike
            m = store(np.tril(-self.beta * xu * self.fades, -1))
            dk = dk - self.beta * seen + m @ self.k + turned(m) @ self.k
        fades = fades + pairs.sum(2) - pairs.sum(1)
        fades[:, -1] += last
        found["g"] = np.cumsum(fades[:, ::-1], axis=1)[:, ::-1]
        return found | {"q": dq + f @ self.k, "k": dk + turned(f) @ self.q, "v": dv}, before


def chunks_of(desc: Any, steps: Steps, dtype: Any, store: Any) -> list[Any]:
    """A sequence's chunks."""
    rows = [slice(n, n + CHUNK) for n in range(0, len(steps.q), CHUNK)]
    if steps.g_channel is not None:
        kind = ChannelChunk if steps.a is None else RankOneChunk
        return [kind(desc, steps, some, dtype, store) for some in rows]
    return [Chunk(desc, steps, some, dtype) for some in rows]


def run_in_chunks(desc: Any, steps: Steps, state: Any, store: Any) -> tuple[Any, Any]:
    """y and the last state."""
    pieces = [np.zeros((0, desc.num_heads, desc.d_v), state.dtype)]
    for chunk in chunks_of(desc, steps, state.dtype, store):
        u, _ = chunk.written(state, store)
        pieces.append(chunk.outputs(state, u, store).swapaxes(0, 1))
        state = chunk.after(state, u, store)
    return np.concatenate(pieces), state


def gradients_in_chunks(desc: Any, steps: Steps, state: Any, dy: Any, slope: Any, store: Any) -> tuple[Any, Any]:
    """Gradients as `gradients` gives them, from the first state; `slope` is of the last one."""
    chunks, states, made = chunks_of(desc, steps, state.dtype, store), [], []
    for chunk in chunks:
        u, w = chunk.written(state, store)
        states.append((store(state), store(u), w))
        state = chunk.after(state, u, store)
    for n in reversed(range(len(chunks))):
        one, slopes = dy[n * CHUNK : (n + 1) * CHUNK].swapaxes(0, 1), store(slope)
        found, slope = chunks[n].gradients(*states[n], one, slope, slopes, store)
        made.append({name: x.swapaxes(0, 1) for name, x in found.items()})
    whole = {name: np.concatenate([one[name] for one in reversed(made)]) for name in made[0]} if made else {}
    if whole:
        whole["q"] = whole["q"] * dy.dtype.type(desc.scale)
    return whole, slope
