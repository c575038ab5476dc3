"""Collectives on arrays of the host, over the exchange of a communicator: what the rows `ranks` do.

Every function takes the communicator, the descriptor, x and y (None where this rank gets nothing). x is read before y
is written, so that they may be the same or overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .communicator import Communicator
from .descriptors import (
    AllGatherDescriptor,
    AllReduceDescriptor,
    AllToAllDescriptor,
    AllToAllVDescriptor,
    BroadcastDescriptor,
    PermuteDescriptor,
    ReduceDescriptor,
    ReduceScatterDescriptor,
    SendReceiveDescriptor,
)  # fmt: skip
from .tree import reduced

Pieces = Sequence["np.ndarray | None"]

SMALL = 1 << 14
"""Bytes up to which all ranks send all to all: one exchange in place of two. Bits are the same either way."""


def seen(data: np.ndarray, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes that came, as the array that was sent."""
    made: np.ndarray = data.view(dtype).reshape(shape)
    return made


def split(x: np.ndarray, ranks: int, axis: int) -> list[np.ndarray]:
    """The pieces for each rank, along an axis."""
    return np.split(x, ranks, axis)


def _alike(comm: Communicator, desc: Any, pieces: Pieces, shape: tuple[int, ...], part: str = "") -> list[np.ndarray]:
    """An exchange in which everybody sends arrays of one shape to everybody."""
    call = {**desc.call(), **({"part": part} if part else {})}
    got, _ = comm.exchange(call, pieces)
    return [seen(data, desc.element.dtype, shape) for data in got if data is not None]


def all_reduce(comm: Communicator, desc: AllReduceDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """All sum a share each, then all have all shares; a small array goes to all at once."""
    if x.nbytes <= SMALL or comm.size <= 2:
        y[...] = reduced(_alike(comm, desc, [x] * comm.size, x.shape), desc.op, desc.element)
        return
    flat = x.reshape(-1)  # a copy where x is a view of other strides
    shares = np.array_split(flat, comm.size)
    own = shares[comm.rank]
    share = reduced(_alike(comm, desc, shares, own.shape, "shares"), desc.op, desc.element)
    got, _ = comm.exchange({**desc.call(), "part": "result"}, [share] * comm.size)
    y[...] = np.concatenate([data.view(desc.element.dtype) for data in got if data is not None]).reshape(x.shape)


def reduce(comm: Communicator, desc: ReduceDescriptor, x: np.ndarray, y: np.ndarray | None) -> None:
    """All to root, which sums."""
    pieces = [x if rank == desc.root else None for rank in range(comm.size)]
    got = _alike(comm, desc, pieces, x.shape)
    if y is not None:
        y[...] = reduced(got, desc.op, desc.element)


def reduce_scatter(comm: Communicator, desc: ReduceScatterDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """Piece r to rank r, which sums."""
    pieces = split(x, comm.size, desc.axis)
    y[...] = reduced(_alike(comm, desc, pieces, y.shape), desc.op, desc.element)


def all_gather(comm: Communicator, desc: AllGatherDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """All to all."""
    got = _alike(comm, desc, [x] * comm.size, x.shape)
    for piece, data in zip(split(y, comm.size, desc.axis), got, strict=True):
        piece[...] = data


def broadcast(comm: Communicator, desc: BroadcastDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """Root to all."""
    got = _alike(comm, desc, [x] * comm.size if comm.rank == desc.root else (), x.shape)
    y[...] = got[0]


def all_to_all(comm: Communicator, desc: AllToAllDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """Piece r to rank r."""
    pieces = split(x, comm.size, desc.split_axis)
    got = _alike(comm, desc, pieces, pieces[0].shape)
    for piece, data in zip(split(y, comm.size, desc.concat_axis), got, strict=True):
        piece[...] = data


def fitting(comm: Communicator, counts: Sequence[Any]) -> None:
    """Raises where a rank sends more or fewer rows than another takes; counts: what each sends and receives."""
    for source, (sent, _) in enumerate(counts):
        for to, (_, received) in enumerate(counts):
            if sent[to] != received[source]:
                raise comm.mismatch(
                    f"rank {source} calls all_to_all_v with {sent[to]} rows for rank {to}, which takes "
                    f"{received[source]} of rank {source}"
                )


def all_to_all_v(comm: Communicator, desc: AllToAllVDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """Rows to each rank, whose counts are compared first."""
    pieces = np.split(x, np.cumsum(desc.send_counts)[:-1])
    got, counts = comm.exchange(desc.call(), pieces, [desc.send_counts, desc.receive_counts])
    fitting(comm, counts)
    rows = np.split(y, np.cumsum(desc.receive_counts)[:-1])
    for piece, data in zip(rows, got, strict=True):
        piece[...] = seen(data, desc.element.dtype, piece.shape)  # type: ignore[arg-type]


def permute(comm: Communicator, desc: PermuteDescriptor, x: np.ndarray, y: np.ndarray) -> None:
    """To one rank, from one; 0 from none."""
    goes = dict(desc.pairs)
    pieces = [x if goes.get(comm.rank) == rank else None for rank in range(comm.size)]
    got, _ = comm.exchange(desc.call(), pieces)
    data = next((one for one in got if one is not None), None)
    y[...] = 0 if data is None else seen(data, desc.element.dtype, x.shape)


def send_receive(comm: Communicator, desc: SendReceiveDescriptor, x: np.ndarray | None, y: np.ndarray | None) -> None:
    """To one rank and from one, of which no other hears."""
    call = desc.call()
    if desc.to is not None and x is not None:
        comm.sent(call, desc.to, x)
    if desc.source is not None and y is not None:
        y[...] = seen(comm.received(call, desc.source), desc.element.dtype, desc.shape)


RUN: dict[type, Any] = {
    AllReduceDescriptor: all_reduce, ReduceDescriptor: reduce, ReduceScatterDescriptor: reduce_scatter,
    AllGatherDescriptor: all_gather, BroadcastDescriptor: broadcast, AllToAllDescriptor: all_to_all,
    AllToAllVDescriptor: all_to_all_v, PermuteDescriptor: permute, SendReceiveDescriptor: send_receive,
}  # fmt: skip
