"""Collectives on arrays of a device: NCCL moves, and sums are NCCL's own or, in the one order of `tree`, ours.

A `Job` is gone through twice with the same calls: without memory, to count the workspace, and to launch. What NCCL
cannot take, pieces with gaps, is copied to the workspace and from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.tensor import TensorRef
from ..expressions.elementwise import elementwise
from . import refs
from .descriptors import ReduceOp
from .refs import Room
from .tree import tree

BLOCK = 8
"""Parts that one kernel sums: a whole subtree of the order."""

SMALL = 1 << 14

_COPY = "x"
_COMBINE = {
    ReduceOp.SUM: "({} + {})", ReduceOp.MEAN: "({} + {})", ReduceOp.PROD: "({} * {})",
    ReduceOp.MIN: "minimum({}, {})", ReduceOp.MAX: "maximum({}, {})",
}  # fmt: skip


class Job:
    """One call on one rank. carrier: what moves, None to count the workspace only."""

    def __init__(
        self, desc: Any, rank: int, x: TensorRef, y: TensorRef | None, room: Room, carrier: Any, stream: Any
    ) -> None:
        self.desc, self.rank, self.ranks, self.x, self.y = desc, rank, desc.ranks, x, y
        self.room, self.carrier, self.stream = room, carrier, stream

    # --- what is launched --------------------------------------------------------------------------------------------

    def copy(self, x: TensorRef, y: TensorRef) -> None:
        if self.carrier is not None and 0 not in x.shape and (x.ptr, x.strides) != (y.ptr, y.strides):
            elementwise(_COPY)(refs.plain(x), out=refs.plain(y), stream=self.stream)

    def packed(self, x: TensorRef) -> TensorRef:
        """The operand without gaps: itself, or a copy in the workspace."""
        if refs.dense(x):
            return x
        found = self.room.take(x.shape, x.element)  # type: ignore[arg-type]
        self.copy(x, found)
        return found

    def target(self, x: TensorRef, y: TensorRef) -> TensorRef:
        """Where a result without gaps goes: y, or the workspace where y has gaps or meets x in part."""
        if refs.dense(y) and (x.ptr == y.ptr or not refs.overlap(x, y)):
            return y
        return self.room.take(y.shape, y.element)  # type: ignore[arg-type]

    def summed(self, parts: Sequence[TensorRef], y: TensorRef, op: ReduceOp) -> None:
        """y = the parts of all ranks as one, in the order of the tree."""
        element: ElementKind = y.element  # type: ignore[assignment]
        total = len(parts)
        wide = element.acc if element.is_float else element
        while len(parts) > BLOCK:
            blocks = [parts[i : i + BLOCK] for i in range(0, len(parts), BLOCK)]
            held = [self.room.take(y.shape, wide) for _ in blocks]
            for block, partial in zip(blocks, held, strict=True):
                self._kernel(block, partial, op, 1)
            parts = held
        self._kernel(parts, y, op, total if op is ReduceOp.MEAN else 1)

    def _kernel(self, parts: Sequence[TensorRef], y: TensorRef, op: ReduceOp, over: int) -> None:
        if self.carrier is None or 0 in y.shape:
            return
        names = [f"x{i}" for i in range(len(parts))]
        text = tree(names, _COMBINE[op].format)
        text = f"{text} / {over}" if over > 1 else text
        if parts[0].element is not y.element:
            text = f"{y.element}({text})"
        elementwise(text)(**dict(zip(names, parts, strict=True)), out=y, stream=self.stream)

    def exchange(self, sends: Sequence[TensorRef | None], receives: Sequence[TensorRef | None]) -> None:
        """Piece r to rank r, all without gaps; this rank's own is copied."""
        own, into = sends[self.rank], receives[self.rank]
        if own is not None and into is not None:
            self.copy(own, into)
        if self.carrier is not None and self.ranks > 1:
            out, come = (
                [None if one is None or rank == self.rank else refs.piece(one) for rank, one in enumerate(side)]
                for side in (sends, receives)
            )
            self.carrier.exchange(out, come, self.stream)

    def moved(self, sends: Sequence[TensorRef | None], receives: Sequence[TensorRef | None]) -> None:
        """The same for pieces with gaps, and where what comes would be written over what goes."""
        meets = any(
            a is not None and b is not None and refs.overlap(a, b) and not (i == j == self.rank and a.ptr == b.ptr)
            for i, a in enumerate(sends) for j, b in enumerate(receives)
        )  # fmt: skip
        out = [None if one is None else self.packed(one) for one in sends]
        into = [
            one if one is None or (refs.dense(one) and not meets) else self.room.take(one.shape, one.element)  # type: ignore[arg-type]
            for one in receives
        ]
        self.exchange(out, into)
        for came, wanted in zip(into, receives, strict=True):
            if came is not None and wanted is not None and came is not wanted:
                self.copy(came, wanted)

    # --- moves -------------------------------------------------------------------------------------------------------

    def all_gather(self) -> None:
        y = self.y
        assert y is not None
        pieces = refs.even(y, self.ranks, self.desc.axis)
        apart = self.x.ptr == pieces[self.rank].ptr or not refs.overlap(self.x, y)
        if apart and refs.dense(self.x) and refs.dense(y) and all(map(refs.dense, pieces)):
            if self.carrier is not None:
                self.carrier.all_gather(refs.piece(self.x), refs.piece(y), self.stream)
            return
        self.moved([self.x] * self.ranks, pieces)

    def broadcast(self) -> None:
        y = self.y
        assert y is not None
        root = self.rank == self.desc.root
        x = self.packed(self.x) if root else self.x
        target = self.target(x, y)
        if self.carrier is not None:
            self.carrier.broadcast(refs.piece(x if root else target), refs.piece(target), self.desc.root, self.stream)
        self.copy(target, y)

    def all_to_all(self) -> None:
        assert self.y is not None
        self.moved(
            refs.even(self.x, self.ranks, self.desc.split_axis), refs.even(self.y, self.ranks, self.desc.concat_axis)
        )

    def all_to_all_v(self) -> None:
        assert self.y is not None
        self.moved(refs.parted(self.x, self.desc.send_counts, 0), refs.parted(self.y, self.desc.receive_counts, 0))

    def permute(self) -> None:
        assert self.y is not None
        goes = dict(self.desc.pairs)
        comes = {to: source for source, to in self.desc.pairs}
        sends = [self.x if goes.get(self.rank) == rank else None for rank in range(self.ranks)]
        receives = [self.y if comes.get(self.rank) == rank else None for rank in range(self.ranks)]
        self.moved(sends, receives)
        if self.rank not in comes and self.carrier is not None and 0 not in self.y.shape:
            bits = refs.plain(self.y)
            elementwise("x ^ x")(bits, out=bits, stream=self.stream)

    def send_receive(self) -> None:
        desc = self.desc
        sends = [self.x if rank == desc.to else None for rank in range(self.ranks)]
        receives = [self.y if rank == desc.source else None for rank in range(self.ranks)]
        self.moved(sends, receives)

    # --- sums in the order of the tree -------------------------------------------------------------------------------

    def all_reduce(self) -> None:
        y, op = self.y, self.desc.op
        assert y is not None
        x = refs.flat(self.packed(self.x))
        into = self.target(x, y)
        target = refs.flat(into)
        if refs.piece(x).nbytes <= SMALL or self.ranks <= 2:
            self.summed(self._heard([x] * self.ranks), target, op)
        else:
            counts = refs.shares(x.shape[0], self.ranks)
            results = refs.parted(target, counts, 0)
            self.summed(self._heard(refs.parted(x, counts, 0)), results[self.rank], op)
            own = [results[self.rank]] * self.ranks
            self.exchange(own, results)
        self.copy(into, y)

    def _heard(self, sends: Sequence[TensorRef | None]) -> list[TensorRef]:
        """What the ranks send, in the workspace; this rank's own where it is."""
        own = sends[self.rank]
        assert own is not None
        parts = [own if rank == self.rank else self.room.take(own.shape, own.element) for rank in range(self.ranks)]  # type: ignore[arg-type]
        self.exchange(sends, parts)
        return parts

    def reduce(self) -> None:
        x = refs.flat(self.packed(self.x))
        sends = [x if rank == self.desc.root else None for rank in range(self.ranks)]
        if self.y is None:
            self.exchange(sends, [None] * self.ranks)
            return
        into = self.target(x, self.y)
        self.summed(self._heard(sends), refs.flat(into), self.desc.op)
        self.copy(into, self.y)

    def reduce_scatter(self) -> None:
        assert self.y is not None
        pieces = [self.packed(one) for one in refs.even(self.x, self.ranks, self.desc.axis)]
        y = self.y
        into = self.room.take(y.shape, y.element) if refs.overlap(self.x, y) else y  # type: ignore[arg-type]
        self.summed(self._heard(pieces), into, self.desc.op)
        self.copy(into, self.y)


class PeerJob(Job):
    """Sums by kernels that read the peers' memory; kernel: which of them."""

    kernel = "one_shot"

    def all_reduce(self) -> None:
        y = self.y
        assert y is not None
        x = refs.flat(self.packed(self.x))
        into = self.target(x, y)
        if self.carrier is not None:
            self.carrier.all_reduce(self.kernel, x, refs.flat(into), self.desc.op, self.stream)
        self.copy(into, y)


class PeerTwoShotJob(PeerJob):
    """Each rank sums a share."""

    kernel = "two_shot"


class NativeJob(Job):
    """Sums by NCCL itself, in its own order."""

    def _dense(self) -> tuple[TensorRef, TensorRef | None]:
        x = self.packed(self.x)
        return x, None if self.y is None else self.target(x, self.y)

    def all_reduce(self) -> None:
        x, y = self._dense()
        assert y is not None and self.y is not None
        if self.carrier is not None:
            op = self.desc.op.value
            self.carrier.all_reduce(refs.piece(x), refs.piece(y), self.desc.element, op, self.stream)
        self.copy(y, self.y)

    def reduce(self) -> None:
        x, y = self._dense()
        if self.carrier is not None:
            into = None if y is None else refs.piece(y)
            self.carrier.reduce(refs.piece(x), into, self.desc.element, self.desc.op.value, self.desc.root, self.stream)
        if y is not None and self.y is not None:
            self.copy(y, self.y)

    def reduce_scatter(self) -> None:
        pieces = refs.even(self.x, self.ranks, self.desc.axis)
        if not (refs.dense(self.x) and all(map(refs.dense, pieces))):
            held = self.room.take((self.ranks, *pieces[0].shape), self.desc.element)
            for one, place in zip(pieces, refs.even(held, self.ranks, 0), strict=True):
                self.copy(one, refs.made(place.ptr, one.shape, one.element, one.device))
        else:
            held = self.x
        y = self.y
        assert y is not None
        apart = refs.dense(y) and not refs.overlap(held, y)
        into = y if apart else self.room.take(y.shape, self.desc.element)
        if self.carrier is not None:
            op = self.desc.op.value
            self.carrier.reduce_scatter(refs.piece(held), refs.piece(into), self.desc.element, op, self.stream)
        self.copy(into, y)
