"""What a page says for its measurement: the problems that benchmarks time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

OPERANDS, BYTES, FLOPS = "operands", "bytes", "flops"
EAGER, COMPILED, IN_ORDER = "torch", "torch.compile", "torch deterministic"


class Benchmark:
    """A problem to time, `label` being its name in results, of which an op has no two alike.

    fields: those of the descriptor. Operands are random on the device, without the optional ones; `also` names optional
    inputs and outputs that are given, and `make(torch, desc)` returns those operands and scalars that are not random
    (torch makes tensors on the device by default). Of a backward op what the forward saves is made by the forward.
    work: what the rate counts: every operand once, in-outs twice (`OPERANDS`), or the plan's own `bytes` or `flops`
    (`BYTES`, `FLOPS`), of which the operands leave a `share`. target: the fraction of the ceiling aimed at.
    peers: which forms of the page's `torch` are timed beside it; `IN_ORDER` is with torch's deterministic algorithms.
    any_order: whether ours is the row that is not deterministic, by atomics. checked: fields that make the problem a
    shorter one, which is compared with the page's torch in its place: a torch that goes step by step takes long.
    """

    def __init__(
        self, label: str, /, *, also: tuple[str, ...] = (),
        make: Callable[[Any, Any], Mapping[str, Any]] | None = None, work: str = OPERANDS, share: float = 1.0,
        target: float | None = 0.92, peers: tuple[str, ...] = (EAGER, COMPILED), any_order: bool = False,
        checked: Mapping[str, Any] | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        if work not in (OPERANDS, BYTES, FLOPS):
            raise ValueError(f"work must be {OPERANDS!r}, {BYTES!r} or {FLOPS!r}, got {work!r}")
        if not set(peers) <= {EAGER, COMPILED, IN_ORDER}:
            raise ValueError(f"peers must be of {EAGER!r}, {COMPILED!r} and {IN_ORDER!r}, got {peers!r}")
        self.label = label
        self.also = also
        self.make = make
        self.work = work
        self.share = share
        self.target = target
        self.peers = peers
        self.any_order = any_order
        self.checked = dict(checked or {})
        self.fields = fields

    def __repr__(self) -> str:
        return f"<Benchmark {self.label}>"
