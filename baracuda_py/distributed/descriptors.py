"""What a collective is, as a value: shape and element of this rank's part, the number of ranks, the attributes.

`output_shape(rank)` is the shape that a rank gets, and `call()` what the ranks of an exchange must agree on.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ..core.checked import checked, shown, whole, wholes
from ..core.descriptor import Descriptor, axis, choice, element, extent, extents
from ..core.element import FP8, REALS, ElementKind
from ..core.errors import InvalidProblemError, UnsupportedError


class ReduceOp(enum.Enum):
    """How parts of several ranks become one; `mean` is the sum over the number of ranks, rounded once."""

    SUM = "sum"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


ELEMENTS = tuple(ElementKind)  # every kind moves; packed ones as their bytes
_SUMMED = {*REALS, *FP8, ElementKind.C64, ElementKind.C128}
_ORDERED = {*REALS, *FP8, ElementKind.BOOL}


def _rank(default: Any = 0) -> Any:
    """A rank's number; negative ones are no rank."""

    def settle(desc: Any, name: str, value: int | None) -> int | None:
        if value is not None and not 0 <= value < desc.ranks:
            raise InvalidProblemError(f"{name} must be a rank from 0 to {desc.ranks - 1}, got {value}")
        return value

    return checked(lambda name, value: whole(name, value), default, settle, "int")


@dataclass(frozen=True, kw_only=True)
class CollectiveDescriptor(Descriptor):
    """shape: of this rank's x. ranks: how many there are."""

    collective = ""

    shape: tuple[int, ...] = extents()
    element: ElementKind = element(ELEMENTS)
    ranks: int = extent(minimum=1)

    def output_shape(self, rank: int) -> tuple[int, ...] | None:
        """What a rank gets; None: nothing."""
        return self.shape

    def call(self) -> dict[str, Any]:
        """The collective and all that ranks must agree on, as JSON has it."""
        said = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("ranks", "element")}
        named = {name: value.value if isinstance(value, enum.Enum) else value for name, value in said.items()}
        return {"collective": self.collective, "dtype": str(self.element), **named}


@dataclass(frozen=True, kw_only=True)
class _Reducing(CollectiveDescriptor):
    op: ReduceOp = choice(ReduceOp, ReduceOp.SUM)

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = _ORDERED if self.op in (ReduceOp.MIN, ReduceOp.MAX) else _SUMMED
        if self.element not in taken:
            raise UnsupportedError(f"{self.collective}: no {self.op.value} of {self.element}")
        if self.op is ReduceOp.MEAN and self.element.is_integer:
            raise UnsupportedError(f"{self.collective}: the mean of {self.element} is no {self.element}; take the sum")


@dataclass(frozen=True, kw_only=True)
class AllReduceDescriptor(_Reducing):
    """y, of x's shape, is the reduction over ranks, on every rank."""

    collective = "all_reduce"


@dataclass(frozen=True, kw_only=True)
class ReduceDescriptor(_Reducing):
    """y, of x's shape, is the reduction over ranks, on rank `root`; others get nothing."""

    collective = "reduce"

    root: int = _rank()

    def output_shape(self, rank: int) -> tuple[int, ...] | None:
        return self.shape if rank == self.root else None


@dataclass(frozen=True, kw_only=True)
class ReduceScatterDescriptor(_Reducing):
    """y is this rank's piece, along `axis`, of the reduction over ranks; the axis divides into pieces of equal size."""

    collective = "reduce_scatter"

    axis: int = axis(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _divides(self, "axis", self.axis)

    def output_shape(self, rank: int) -> tuple[int, ...]:
        return _scaled(self.shape, self.axis, 1, self.ranks)


@dataclass(frozen=True, kw_only=True)
class AllGatherDescriptor(CollectiveDescriptor):
    """y is every rank's x, one after another along `axis`."""

    collective = "all_gather"

    axis: int = axis(0)

    def output_shape(self, rank: int) -> tuple[int, ...]:
        return _scaled(self.shape, self.axis, self.ranks, 1)


@dataclass(frozen=True, kw_only=True)
class BroadcastDescriptor(CollectiveDescriptor):
    """y is the x of rank `root`; of the others' x only shape and element are read."""

    collective = "broadcast"

    root: int = _rank()


@dataclass(frozen=True, kw_only=True)
class AllToAllDescriptor(CollectiveDescriptor):
    """Piece r of x along `split_axis` goes to rank r; y is what came, by rank along `concat_axis`."""

    collective = "all_to_all"

    split_axis: int = axis(0)
    concat_axis: int = axis(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _divides(self, "split_axis", self.split_axis)

    def output_shape(self, rank: int) -> tuple[int, ...]:
        return _scaled(_scaled(self.shape, self.split_axis, 1, self.ranks), self.concat_axis, self.ranks, 1)


def _counts() -> Any:
    def check(name: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, Iterable):
            raise InvalidProblemError(f"{name} must be a count of rows for each rank, got {shown(value)}")
        return tuple(whole(f"{name}[{i}]", count, 0) for i, count in enumerate(value))

    return checked(check, accepts="Sequence[int]")


@dataclass(frozen=True, kw_only=True)
class AllToAllVDescriptor(CollectiveDescriptor):
    """send_counts[r] rows of x go to rank r, one rank after another; y has receive_counts[r] rows of rank r."""

    collective = "all_to_all_v"

    send_counts: tuple[int, ...] = _counts()
    receive_counts: tuple[int, ...] = _counts()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("send_counts", "receive_counts"):
            if len(getattr(self, name)) != self.ranks:
                raise InvalidProblemError(
                    f"{name} must have a count for each of {self.ranks} ranks, got {len(getattr(self, name))}"
                )
        if not self.shape or sum(self.send_counts) != self.shape[0]:
            raise InvalidProblemError(
                f"send_counts must add up to the rows of x, of shape {self.shape}, got {sum(self.send_counts)}"
            )

    def output_shape(self, rank: int) -> tuple[int, ...]:
        return sum(self.receive_counts), *self.shape[1:]

    def call(self) -> dict[str, Any]:
        """Ranks have rows of one shape; how many differs, see `detail`."""
        return {"collective": self.collective, "dtype": str(self.element), "row": self.shape[1:]}


@dataclass(frozen=True, kw_only=True)
class PermuteDescriptor(CollectiveDescriptor):
    """y is the x of the rank that `pairs` (source, destination) name for this one, 0 where they name none."""

    collective = "permute"

    pairs: tuple[tuple[int, int], ...] = checked(lambda name, value: _pairs(name, value), accepts="Sequence[tuple]")

    def __post_init__(self) -> None:
        super().__post_init__()
        for place, what in ((0, "sends"), (1, "receives")):
            ends = Counter(pair[place] for pair in self.pairs)
            if wrong := [rank for rank in ends if rank >= self.ranks]:
                raise InvalidProblemError(f"pairs name rank {wrong[0]}, of {self.ranks} ranks")
            if twice := [rank for rank, count in ends.items() if count > 1]:
                raise InvalidProblemError(f"rank {twice[0]} {what} twice in pairs {self.pairs}; once is all it can")

    @property
    def inverse(self) -> tuple[tuple[int, int], ...]:
        """The pairs that send everything back."""
        return tuple((to, source) for source, to in self.pairs)


def _pairs(name: str, value: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, Iterable):
        raise InvalidProblemError(f"{name} must be pairs (source, destination), got {shown(value)}")
    held = tuple(wholes(name, pair, 0) for pair in value)
    if wrong := [pair for pair in held if len(pair) != 2]:
        raise InvalidProblemError(f"{name} must be pairs (source, destination), got {wrong[0]}")
    return held  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class SendReceiveDescriptor(CollectiveDescriptor):
    """x goes to rank `to`, y comes from rank `source`; one of them may be None, and is then not done."""

    collective = "send_receive"

    to: int | None = _rank(None)
    source: int | None = _rank(None)

    def output_shape(self, rank: int) -> tuple[int, ...] | None:
        return None if self.source is None else self.shape

    def call(self) -> dict[str, Any]:
        """What both ends must agree on."""
        return {"collective": "send_receive", "shape": self.shape, "dtype": str(self.element)}


def _divides(desc: Any, name: str, at: int) -> None:
    if desc.shape[at] % desc.ranks:
        raise InvalidProblemError(
            f"{desc.collective}: {name} {at} of shape {desc.shape} must be a multiple of the {desc.ranks} ranks"
        )


def _scaled(shape: tuple[int, ...], at: int, by: int, over: int) -> tuple[int, ...]:
    return (*shape[:at], shape[at] * by // over, *shape[at + 1 :])
