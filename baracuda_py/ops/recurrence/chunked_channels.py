"""A chunk of linear attention where every channel has its decay, and its gradients, as kernels round."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kinds import Steps

LEAST_LOG, BLOCK = -110, 16


def turned(x: Any) -> Any:
    """Matrices transposed."""
    return x.swapaxes(-1, -2)


class ChannelChunk:
    """Some steps of one sequence, [heads, steps, …]; q with the scale. What kernels keep goes through `store`."""

    def __init__(self, desc: Any, steps: Steps, rows: slice, dtype: Any, store: Any) -> None:
        self.q, self.k, self.v, logs = (
            x[rows].swapaxes(0, 1) for x in (steps.q * dtype.type(desc.scale), steps.k, steps.v, steps.g_channel)
        )  # fmt: skip
        self.logs = self.q_logs = np.cumsum(np.maximum(logs, LEAST_LOG), axis=1).astype(dtype)
        self.bonus, count = steps.bonus, self.logs.shape[1]
        if self.bonus is not None:
            self.q_logs = np.concatenate((np.zeros_like(logs[:, :1]), self.logs[:, :-1]), axis=1)
        weights = np.tril(products(self.q, self.k, self.q_logs, self.logs, store))
        if self.bonus is not None:
            at = np.arange(count)
            weights[:, at, at] = np.einsum("hid,hid,hd->hi", self.q, self.k, self.bonus)
        self.weights = store(weights)
        self.end = self.logs[:, -1:]
        self.kept = store(self.k * np.exp(self.end - self.logs))
        self.beta = None if steps.beta is None else steps.beta[rows].T[..., None].astype(dtype)
        if self.beta is not None:
            self.alike = np.tril(products(self.k, self.k, self.logs, self.logs, store), -1)
            system = (self.beta * self.alike).astype(np.float64) + np.eye(count)
            self.inverse = np.linalg.inv(system).astype(dtype)

    def written(self, state: Any, store: Any) -> Any:
        """What is added under k after a state, and w of the delta rule."""
        if self.beta is None:
            return self.v, None
        w = store(-self.inverse @ (self.beta * store(self.k * np.exp(self.logs))))
        return store(store(self.inverse @ (self.beta * self.v)) + w @ store(state)), w

    def after(self, state: Any, u: Any, store: Any) -> Any:
        """The state after the chunk."""
        return turned(np.exp(self.end)) * state + turned(self.kept) @ u

    def outputs(self, state: Any, u: Any, store: Any) -> Any:
        """What q reads."""
        return store(self.q * np.exp(self.q_logs)) @ store(state) + self.weights @ u

    def gradients(self, s: Any, u: Any, w: Any, dy: Any, slope: Any, h: Any, store: Any) -> tuple[Any, Any]:
        """Gradients of the operands and of the state before; slope, h: of that after, and as it is kept."""
        found, total = {}, turned(np.exp(self.end))
        before = total * slope + turned(store(self.q * np.exp(self.q_logs))) @ dy
        dq = np.exp(self.q_logs) * (dy @ turned(s))
        dk = np.exp(self.end - self.logs) * (u @ turned(h))
        of_end = (self.k * dk).sum(1) + total[..., 0] * (s * h).sum(2)
        dv, f = turned(self.weights) @ dy + self.kept @ h, store(np.tril(dy @ turned(u)))
        pairs = np.tril(f, -1) if self.bonus is not None else f
        of_query, of_key = slopes_of(pairs, self.q, self.k, self.q_logs, self.logs, store)
        dq, dk, later = dq + of_query, dk + of_key, 0
        if self.beta is not None:
            du = store(store(turned(self.weights) @ dy) + self.kept @ h)
            x = turned(self.inverse) @ du
            before = before + turned(w) @ du
            dv, x = self.beta * x, store(x)
            seen, xu = np.exp(self.logs) * (x @ turned(s)), x @ turned(u)
            found["beta"] = (x * self.v).sum(-1) - (self.k * seen).sum(-1) - (self.alike * xu).sum(-1)
            m = store(np.tril(-self.beta * xu, -1))
            later, earlier = slopes_of(m, self.k, self.k, self.logs, self.logs, store)
            later, dk = later - self.beta * seen, dk + earlier
        fades, reads = -self.k * dk + self.k * later, self.q * dq
        if self.bonus is None:
            fades = fades + reads
        else:
            fades[:, :-1] += reads[:, 1:]
            own = np.diagonal(f, axis1=1, axis2=2)[..., None]
            found["bonus"] = own * self.q * self.k
            dq, dk = dq + own * self.bonus[:, None] * self.k, dk + own * self.bonus[:, None] * self.q
        found["g_channel"] = np.cumsum(fades[:, ::-1], axis=1)[:, ::-1] + of_end[:, None]
        return found | {"q": dq, "k": dk + later, "v": dv}, before


def products(x: Any, k: Any, x_logs: Any, logs: Any, store: Any) -> Any:
    """x[i] k[j] with exp(x_logs[i] - logs[j]), right for j <= i: exact differences within blocks of 16 steps."""
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


def slopes_of(f: Any, x: Any, k: Any, x_logs: Any, logs: Any, store: Any) -> tuple[Any, Any]:
    """Gradients of x and k where f is that of `products`."""
    of_x, of_k, count = np.zeros_like(x), np.zeros_like(k), x.shape[1]
    for first in range(0, count, BLOCK):
        own = slice(first, min(first + BLOCK, count))
        fades = f[:, own, own, None] * np.exp(np.minimum(x_logs[:, own, None] - logs[:, None, own], 0))
        of_x[:, own] += np.einsum("hijd,hjd->hid", fades, k[:, own])
        of_k[:, own] += np.einsum("hijd,hid->hjd", fades, x[:, own])
        if first:
            last = logs[:, first - 1 : first]
            since, until = np.exp(x_logs[:, own] - last), np.exp(last - logs[:, :first])
            of_x[:, own] += since * (f[:, own, :first] @ store(k[:, :first] * until))
            of_k[:, :first] += until * (turned(f[:, own, :first]) @ store(x[:, own] * since))
    return of_x, of_k
