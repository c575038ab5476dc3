"""Kernels that read peers' memory: their parameters, the region that they share, and how many blocks a call has."""

from __future__ import annotations

from ..core.element import REALS
from ..core.params import Params
from ..core.variant import Kernel, Variant

RANKS = 8
"""A host has no more GPUs that all reach one another's memory."""
BLOCKS, THREADS = 128, 512
AWAKE, NAP = 1 << 16, 20_000
"""A wait's polls before it naps between them, and nanoseconds of a nap."""
HEADER = 1 << 15
HALF = 1 << 24
"""Bytes of a call's data; what is longer is several calls."""
LEFT = 8 * (BLOCKS + 1)
"""Where, in a region, ranks say that they read it no more."""
CHUNK = 16
ONE_SHOT = {2: HALF, 3: 1 << 20, 4: 1 << 19, 5: 3 << 17, 6: 1 << 18, 7: 1 << 18, 8: 1 << 18}
"""The longest message, in bytes, that every rank reads whole of every other (docs/design/distributed.md)."""

PHASES = {"one_shot": (1, 2), "two_shot": (1, 2, 4)}

FIELDS = {
    "region": f"ptr[{RANKS}]", "word": "ptr", "half": "i64", "polls": "i64", "awake": "i64", "rank": "i32",
    "phases": "i32", "peer_ranks": RANKS, "peer_blocks": BLOCKS, "peer_data": HEADER, "peer_nap": NAP,
    "peer_chunk": CHUNK, "PeerOp": ("sum", "prod", "min", "max", "mean"),
}  # fmt: skip
"""What every kernel of peers has among its parameters."""

PARAMS = Params("PeerParams", x="ptr", y="ptr", count="i64", **FIELDS)  # type: ignore[arg-type]
_AXES = {"OP": PARAMS.fields["PeerOp"], "RANKS": tuple(range(2, RANKS + 1)), "WIDE": (True, False)}


def _kernel(name: str) -> Kernel:
    return Kernel(name, name + "<{T}, PeerOp::{OP}, {RANKS}, {WIDE}>", PARAMS, _AXES, threads=THREADS)  # type: ignore[arg-type]


ALL_REDUCE = Variant(
    "peers", lambda p: "runs on a communicator", source="distributed/all_reduce.cu", elements=REALS,
    kernels=(_kernel("one_shot"), _kernel("two_shot")),
)  # fmt: skip


def blocks(work: int, multiprocessors: int) -> int:
    """One for each part of the work, as far as blocks fit the device at once."""
    return max(1, min(BLOCKS, multiprocessors, work))
