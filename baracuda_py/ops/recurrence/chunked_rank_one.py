"""A chunk of linear attention whose steps add b aᵀ to what the state keeps, and its gradients, as kernels round."""

from __future__ import annotations

from typing import Any

import numpy as np

from .chunked_channels import ChannelChunk, products, slopes_of, turned
from .kinds import Steps


class RankOneChunk(ChannelChunk):
    """As `ChannelChunk`; what is written under b is what a reads of the state before."""

    def __init__(self, desc: Any, steps: Steps, rows: slice, dtype: Any, store: Any) -> None:
        super().__init__(desc, steps, rows, dtype, store)
        self.a, self.b = (x[rows].swapaxes(0, 1) for x in (steps.a, steps.b))
        self.read_logs = np.concatenate((np.zeros_like(self.logs[:, :1]), self.logs[:, :-1]), axis=1)
        self.of_reads = store(np.tril(products(self.q, self.b, self.logs, self.logs, store)))
        self.known = store(np.tril(products(self.a, self.k, self.read_logs, self.logs, store), -1))
        system = np.tril(products(self.a, self.b, self.read_logs, self.logs, store), -1).astype(np.float64)
        self.inverse = np.linalg.inv(np.eye(system.shape[1]) - system).astype(dtype)
        self.kept_b = store(self.b * np.exp(self.end - self.logs))

    def written(self, state: Any, store: Any) -> Any:
        """What a reads, and what it reads of a state."""
        w = store(self.inverse @ store(self.a * np.exp(self.read_logs)))
        return store(store(store(self.inverse @ self.known) @ self.v) + w @ store(state)), w

    def after(self, state: Any, u: Any, store: Any) -> Any:
        """The state after the chunk."""
        return super().after(state, self.v, store) + turned(self.kept_b) @ u

    def outputs(self, state: Any, u: Any, store: Any) -> Any:
        """What q reads."""
        return super().outputs(state, self.v, store) + self.of_reads @ u

    def gradients(self, s: Any, u: Any, w: Any, dy: Any, slope: Any, h: Any, store: Any) -> tuple[Any, Any]:
        """Gradients of the operands and of the state before; slope, h: of that after, and as it is kept."""
        total = turned(np.exp(self.end))
        du = store(store(turned(self.of_reads) @ dy) + self.kept_b @ h)
        x = store(turned(self.inverse) @ du)
        before = total * slope + turned(store(self.q * np.exp(self.logs))) @ dy + turned(w) @ du
        found: dict[str, Any] = {"v": turned(self.weights) @ dy + self.kept @ h + turned(self.known) @ x}
        fades, of_end = np.zeros_like(self.logs), total[..., 0] * (s * h).sum(2)
        for reader, logs, seen, strict in (("q", self.logs, dy, False), ("a", self.read_logs, x, True)):
            for writer, value in (("k", self.v), ("b", u)):
                one, other = getattr(self, reader), getattr(self, writer)
                pairs = store(np.tril(seen @ turned(value), -int(strict)))
                of_one, of_other = slopes_of(pairs, one, other, logs, self.logs, store)
                if writer == "k":  # the state counts once, as its gradient does
                    of_one = of_one + np.exp(logs) * (seen @ turned(s))
                if not strict:
                    kept = np.exp(self.end - self.logs) * (value @ turned(h))
                    of_other, of_end = of_other + kept, of_end + (other * kept).sum(1)
                reads = one * of_one
                fades = fades - other * of_other
                fades = fades + (np.roll(reads, -1, 1) if strict else reads)  # the first step's is of no decay here
                if strict:
                    fades[:, -1] -= reads[:, 0]
                found[reader] = found.get(reader, 0) + of_one
                found[writer] = found.get(writer, 0) + of_other
        found["g_channel"] = np.cumsum(fades[:, ::-1], axis=1)[:, ::-1] + of_end[:, None]
        return found, before
