"""Collectives as functions: every rank calls the same one, in the same order, with its own part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from . import gradients
from .communicator import Communicator
from .descriptors import (
    AllGatherDescriptor,
    AllReduceDescriptor,
    AllToAllDescriptor,
    AllToAllVDescriptor,
    BroadcastDescriptor,
    CollectiveDescriptor,
    PermuteDescriptor,
    ReduceDescriptor,
    ReduceScatterDescriptor,
    SendReceiveDescriptor,
)  # fmt: skip
from .running import run

Array = Any


def _call(kind: type[CollectiveDescriptor], x: Any, comm: Communicator, options: dict[str, Any], **facts: Any) -> Any:
    if not isinstance(comm, Communicator):
        raise InvalidProblemError(f"comm must be a Communicator, got {shown(comm)}")
    at = read(x, "x")
    desc = kind(shape=at.shape, element=at.element, ranks=comm.size, **facts)
    return run(desc, comm, x, **options)


def _options(out: Any, stream: Any, preference: Any) -> dict[str, Any]:
    return {"out": out, "stream": stream, "preference": preference}


@gradients.recorded(gradients.all_reduce, "x", gradients.has_one)
def all_reduce(
    x: Array, comm: Communicator, op: Any = "sum", *, out: Any = None, stream: Any = None, preference: Any = None
) -> Array:
    """The sum (prod, min, max, mean) of x over the ranks, on every rank.

    x: any shape, the same on every rank; y has x's shape and element. Floats of 16 bits and fewer are summed in
    float32, in the order ((0 + 1) + (2 + 3)) + …, and rounded once, so that the bits are the same on every rank, in
    every run and for every size. Integers wrap. out= may be x.
    Raises `MismatchError` where ranks differ in shape, element or op. Gradient: all_reduce of the ranks' dy, for sum
    and mean (torch.distributed.all_reduce, lax.psum, lax.pmean, lax.pmax, lax.pmin).
    """
    return _call(AllReduceDescriptor, x, comm, _options(out, stream, preference), op=op)


@gradients.recorded(gradients.reduce_scatter, "x", gradients.has_one)
def reduce_scatter(
    x: Array, comm: Communicator, op: Any = "sum", axis: int = 0, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """Piece r, along an axis, of the reduction of x over the ranks, on rank r.

    x: any shape whose `axis` is a multiple of the ranks; y has that axis divided by them. Order as in `all_reduce`.
    Gradient: all_gather, for sum and mean (torch.distributed.reduce_scatter_tensor, lax.psum_scatter, tiled).
    """
    return _call(ReduceScatterDescriptor, x, comm, _options(out, stream, preference), op=op, axis=axis)


@gradients.recorded(gradients.all_gather, "x", gradients.has_one)
def all_gather(
    x: Array, comm: Communicator, axis: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Array:
    """The x of every rank, one after another along an axis, on every rank.

    x: any shape of one axis or more, the same on every rank; y has that axis times the ranks. Gradient: reduce_scatter
    (torch.distributed.all_gather_into_tensor, lax.all_gather, tiled).
    """
    return _call(AllGatherDescriptor, x, comm, _options(out, stream, preference), axis=axis)


@gradients.recorded(gradients.broadcast, "x", gradients.has_one)
def broadcast(
    x: Array, comm: Communicator, root: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Array:
    """The x of rank `root`, on every rank; of the others' x only shape and element count.

    Gradient: the sum of the ranks' dy on root, 0 on the others (torch.distributed.broadcast, lax.pbroadcast).
    """
    return _call(BroadcastDescriptor, x, comm, _options(out, stream, preference), root=root)


@gradients.recorded(gradients.none, "x", gradients.refused("reduce"))
def reduce(
    x: Array, comm: Communicator, op: Any = "sum", root: int = 0, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Array | None:  # fmt: skip
    """The reduction of x over the ranks on rank `root`; None on the others, whose out= is left alone.

    Order as in `all_reduce` (torch.distributed.reduce). No gradient: ranks without a result have nothing to begin from;
    `all_reduce` has one.
    """
    return _call(ReduceDescriptor, x, comm, _options(out, stream, preference), op=op, root=root)


@gradients.recorded(gradients.all_to_all, "x", gradients.has_one)
def all_to_all(
    x: Array, comm: Communicator, split_axis: int = 0, concat_axis: int = 0, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """Piece r of x along `split_axis` goes to rank r; y is what came, one rank after another along `concat_axis`.

    x: `split_axis` a multiple of the ranks; y has it divided by them, and `concat_axis` multiplied. Gradient:
    all_to_all with the axes swapped (torch.distributed.all_to_all_single, lax.all_to_all, tiled).
    """
    facts = {"split_axis": split_axis, "concat_axis": concat_axis}
    return _call(AllToAllDescriptor, x, comm, _options(out, stream, preference), **facts)


@gradients.recorded(gradients.all_to_all_v, "x", gradients.has_one)
def all_to_all_v(
    x: Array, send_counts: Sequence[int], receive_counts: Sequence[int], comm: Communicator, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """Rows of x to each rank, as many as each is to get.

    x: [rows, *row]; the first send_counts[0] rows go to rank 0, the next send_counts[1] to rank 1 …, and y has
    receive_counts[r] rows of rank r, by rank. Counts are integers of the host. Ranks whose counts do not fit raise
    `MismatchError`. Gradient: all_to_all_v with the counts swapped (torch.distributed.all_to_all_single with splits,
    lax.ragged_all_to_all).
    """
    facts = {"send_counts": send_counts, "receive_counts": receive_counts}
    return _call(AllToAllVDescriptor, x, comm, _options(out, stream, preference), **facts)


@gradients.recorded(gradients.permute, "x", gradients.has_one)
def permute(
    x: Array, comm: Communicator, pairs: Sequence[tuple[int, int]], *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """The x of the rank that sends to this one; zeros where none does.

    pairs: (source, destination), the same on every rank; a rank sends once at most and receives once at most. Gradient:
    permute with the pairs turned round (lax.ppermute).
    """
    return _call(PermuteDescriptor, x, comm, _options(out, stream, preference), pairs=pairs)


@gradients.recorded(gradients.none, "x", gradients.refused("send"))
def send(x: Array, comm: Communicator, to: int, *, stream: Any = None, preference: Any = None) -> None:
    """x to rank `to`, which calls `receive`. Returns when x may be written again, which may be before it came.

    Two ranks make the calls between them in the same order (torch.distributed.send, lax.psend). No gradient.
    """
    _call(SendReceiveDescriptor, x, comm, _options(None, stream, preference), to=to)


@gradients.recorded(gradients.none, "like", gradients.refused("receive"))
def receive(
    like: Array, comm: Communicator, source: int, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Array:
    """What rank `source` sends: an array of the shape, element and package of `like`, which is not read.

    out= may be `like`. Another shape or element sent raises `MismatchError` (torch.distributed.recv, lax.precv). No
    gradient.
    """
    return _call(SendReceiveDescriptor, like, comm, _options(out, stream, preference), source=source)


@gradients.recorded(gradients.none, "x", gradients.refused("send_receive"))
def send_receive(
    x: Array, comm: Communicator, to: int, source: int, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Array:  # fmt: skip
    """x to rank `to`, and what rank `source` sends, of the same shape and element: one step of a ring.

    out= may be x. Both at once, so that a ring of ranks does not wait in a circle. No gradient: `permute`
    has one (torch.distributed.batch_isend_irecv).
    """
    return _call(SendReceiveDescriptor, x, comm, _options(out, stream, preference), to=to, source=source)


def barrier(comm: Communicator) -> None:
    """Waits until every rank has called it (torch.distributed.barrier)."""
    if not isinstance(comm, Communicator):
        raise InvalidProblemError(f"comm must be a Communicator, got {shown(comm)}")
    comm.exchange({"collective": "barrier"})
