"""Plans of collectives: a descriptor and a communicator choose a row; what it promises is the row's guarantee.

    desc = AllReduceDescriptor(shape=(4096,), element="bfloat16", ranks=comm.size)
    plan = AllReducePlan.select(desc, comm)
    plan.sku, plan.precision_guarantee, plan.workspace_size()
    plan.run(plan.args(x=x, y=y))

Every rank selects and runs the same. They stand outside the registry of plans of one device, whose tests and tools
take a descriptor alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ..backends.nccl import NCCL, TYPES
from ..core.arrays import Reading, located, read_only
from ..core.checked import shown
from ..core.dispatch import Verdict
from ..core.element import REALS, ElementKind
from ..core.error_bound import Forward
from ..core.errors import (
    BaracudaError,
    DeviceMismatchError,
    InvalidProblemError,
    UnsupportedError,
    WorkspaceTooSmallError,
)  # fmt: skip
from ..core.preference import PlanPreference, preferred
from ..core.sku import ArchSku, BackendKind, KernelSku, PrecisionGuarantee
from ..core.tensor import TensorRef
from . import descriptors as d
from . import launching
from .communicator import Communicator
from .peer_kernels import ONE_SHOT
from .refs import viewed


@dataclass(slots=True, kw_only=True)
class CollectiveArgs:
    """x: this rank's part; None where it only receives. y: what it gets; None where it gets nothing. Any strides."""

    x: Any = None
    y: Any = None


class Row(NamedTuple):
    """A way to do a collective. place: "cpu" or "cuda", where its arrays are. fixed: its sums have one order.

    peers: by kernels that read the memory of the other ranks' GPUs.
    """

    name: str
    place: str
    backend: BackendKind
    engines: tuple[str, ...]
    fixed: bool = True
    peers: bool = False


ANY = ("threads", "processes", "torch", "nccl", "peers")
RANKS = Row("ranks", "cpu", BackendKind.NUMPY, ANY)
MOVES = (RANKS, Row("nccl", "cuda", BackendKind.NCCL, ("nccl",)))
SUMS = (
    RANKS,
    Row("nccl_tree", "cuda", BackendKind.NCCL, ("nccl",)),
    Row("nccl", "cuda", BackendKind.NCCL, ("nccl",), False),
)
ALL_REDUCES = (
    RANKS,
    Row("peers_one_shot", "cuda", BackendKind.BESPOKE, ("nccl", "peers"), peers=True),
    Row("peers_two_shot", "cuda", BackendKind.BESPOKE, ("nccl", "peers"), peers=True),
    *SUMS[1:],
)


class CollectivePlan:
    """A descriptor's row on a communicator. Thread-safe as the communicator is: one thread at a time."""

    op: ClassVar[str] = ""
    descriptor: ClassVar[type[d.CollectiveDescriptor]]
    args = CollectiveArgs
    variants: ClassVar[tuple[Row, ...]] = MOVES

    def __init__(self, desc: d.CollectiveDescriptor, comm: Communicator, preference: PlanPreference) -> None:
        self.desc, self.comm, self.preference = desc, comm, preference
        self._refused = {row.name: self._why_not(row) for row in self.variants}
        self.rows = tuple(row for row in self.variants if not self._refused[row.name])
        if not self.rows:
            raise UnsupportedError(f"no row of {type(self).__name__} serves this descriptor", self.explain())

    @classmethod
    def select(
        cls, desc: d.CollectiveDescriptor, comm: Communicator, preference: PlanPreference | None = None
    ) -> CollectivePlan:
        """The plan for a descriptor on a communicator. Asks no other rank; raises `UnsupportedError` with the table."""
        if type(desc) is not cls.descriptor:
            raise InvalidProblemError(f"{cls.__name__} takes {cls.descriptor.__name__}, got {type(desc).__name__}")
        if not isinstance(comm, Communicator):
            raise InvalidProblemError(f"comm must be a Communicator, got {shown(comm)}")
        if desc.ranks != comm.size:
            raise InvalidProblemError(f"ranks is {desc.ranks}, the communicator has {comm.size}")
        return cls(desc, comm, preferred(preference))

    def _why_not(self, row: Row) -> str:
        wanted, desc = self.preference, self.desc
        if self.comm.engine not in row.engines:
            return f"is for engine {', '.join(row.engines)}, this is {self.comm.engine}"
        if wanted.prefer_backend not in (None, row.backend):
            return f"is {row.backend.value}, {wanted.prefer_backend.value} is asked for"
        if wanted.same_bits:
            return "shares its bits with no family of ops"
        if row.place == "cpu":
            return ""
        op = getattr(desc, "op", None)
        if op is not None and not row.fixed:
            if wanted.deterministic or wanted.batch_invariant:
                return "the order of sums is NCCL's; PlanPreference(deterministic=False) takes it"
            if desc.element not in TYPES:
                return f"NCCL sums no {desc.element}"
        if op is not None and row.fixed and desc.element not in REALS:
            return f"no kernel sums {desc.element} over ranks"
        if row.peers:
            return self._why_no_peers(row)
        if desc.element.bits < 8:
            return f"{desc.element} moves as its bytes, uint8"
        return NCCL.unavailable()

    def _why_no_peers(self, row: Row) -> str:
        if isinstance(self.comm.peers, str):
            return self.comm.peers
        most = ONE_SHOT[self.desc.ranks]
        nbytes = math.prod(self.desc.shape) * self.desc.element.itemsize
        if row.name == "peers_one_shot":
            return "" if nbytes <= most else f"is for messages up to {most} bytes, this has {nbytes}"
        return "" if nbytes > most else f"is for messages above {most} bytes, this has {nbytes}"

    # --- what it is --------------------------------------------------------------------------------------------------

    def _row(self, place: str) -> Row:
        fits = [row for row in self.rows if row.place == place]
        if not fits:
            raise UnsupportedError(f"no row of {type(self).__name__} takes arrays of {place}", self.explain())
        if not self.preference.deterministic:
            fits.sort(key=lambda row: row.fixed and not row.peers)
        return fits[0]

    def _first(self) -> Row:
        return self._row("cuda" if any(row.place == "cuda" for row in self.rows) else "cpu")

    def guarantee(self, row: Row) -> PrecisionGuarantee:
        """What a row promises of this descriptor."""
        desc = self.desc
        op = getattr(desc, "op", None)
        element = desc.element
        if op is None or op in (d.ReduceOp.MIN, d.ReduceOp.MAX) or not element.is_inexact:
            return PrecisionGuarantee(str(element), str(element), batch_invariant=True)
        if not row.fixed:
            return PrecisionGuarantee(
                str(element), str(element), False, False, False, error=Forward(desc.ranks), order="NCCL's"
            )
        acc = str(element.acc)
        depth = math.ceil(math.log2(desc.ranks)) + (op is d.ReduceOp.MEAN)
        return PrecisionGuarantee(
            acc, acc, batch_invariant=True, error=Forward(max(depth / 2, 0.5)), order="tree of ranks"
        )

    @property
    def sku(self) -> KernelSku:
        """The row that dense operands take: on a device where the engine has rows for one."""
        return self._sku(self._first())

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What is promised of every row that this plan may take."""
        promises = [self.guarantee(self._row(place)) for place in dict.fromkeys(row.place for row in self.rows)]
        weakest = promises[0]
        for one in promises[1:]:
            weakest = weakest.weakest(one)
        return weakest

    def _sku(self, row: Row) -> KernelSku:
        kind = getattr(self.desc, "op", None)
        return KernelSku(
            self.op, row.name, self.desc.element, "any", ArchSku.ANY, row.backend, self.guarantee(row),
            None if kind is None else kind.value,
        )  # fmt: skip

    def explain(self) -> str:
        """The rows, each with why it is not taken."""
        lines = [f"{self.op}  {self.desc}  rank {self.comm.rank} of {self.comm.size}, engine {self.comm.engine}"]
        lines += [
            f"  {row.name:<14} {row.place:<5} {row.backend.value:<8} {self._refused[row.name] or 'would do'}"
            for row in self.variants
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.desc}>"

    # --- the call ----------------------------------------------------------------------------------------------------

    def checked(self, args: CollectiveArgs) -> tuple[Row, Reading | None, Reading | None]:
        """The row for these operands, which are what the descriptor says; raises."""
        if type(args) is not CollectiveArgs:
            raise InvalidProblemError(f"{type(self).__name__} takes CollectiveArgs, got {type(args).__name__}")
        desc, shape = self.desc, self.desc.output_shape(self.comm.rank)
        sends = not isinstance(desc, d.SendReceiveDescriptor) or desc.to is not None
        x = self._operand("x", args.x, desc.shape) if sends else None
        y = None if shape is None else self._operand("y", args.y, shape)
        if y is not None and y.readonly:
            raise read_only(args.y, "out")
        if y is not None and _repeats(y):
            raise InvalidProblemError(
                f"out has places that share memory (strides {y.strides}); give an array of its own"
            )
        devices = {one.device for one in (x, y) if one is not None}
        if len(devices) > 1:
            raise DeviceMismatchError("x and out are on different devices; both must be on one")
        device = devices.pop() if devices else -1
        row = self._row("cuda" if device >= 0 else "cpu")
        if row.place == "cuda" and device != self.comm.device:
            raise DeviceMismatchError(f"x is on cuda:{device}, the communicator is of cuda:{self.comm.device}")
        return row, x, y

    def _operand(self, name: str, array: Any, shape: tuple[int, ...]) -> Reading:
        called = "out" if name == "y" else name
        if array is None:
            raise InvalidProblemError(f"{called} is None; rank {self.comm.rank} needs it")
        at = located(array, called)
        if at.element is not self.desc.element and at.element is not _CARRIED.get(self.desc.element):
            raise InvalidProblemError(f"{called} must be {self.desc.element}, got {at.element}")
        if at.shape != shape:
            raise InvalidProblemError(f"{called} must have shape {shape}, got {at.shape}")
        return at

    def can_implement(self, args: CollectiveArgs) -> Verdict:
        """Whether `run(args)` works on this rank, and by which row. Asks no other rank, never raises."""
        try:
            row, *_ = self.checked(args)
        except BaracudaError as error:
            return Verdict(error=error)
        return Verdict(self._sku(row))

    def workspace_size(self, args: CollectiveArgs | None = None) -> int:
        """Bytes of device memory that `run` needs: what other ranks' parts and copies of strided operands take.

        Without args: of dense operands. Rows of the host need none.
        """
        if args is not None:
            row, x, y = self.checked(args)
            refs = [None if one is None else _ref(one, self.desc.element) for one in (x, y)]
        else:
            row, shape = self._first(), self.desc.output_shape(self.comm.rank)
            far = 1 << 40  # no operand meets another
            refs = [
                None if one is None else TensorRef(at, one, element=self.desc.element, device=0)
                for at, one in ((far, self.desc.shape), (2 * far, shape))
            ]
        return launching.counted(self.desc, self.comm, row, *refs) if row.place == "cuda" else 0

    def run(self, args: CollectiveArgs, workspace: Any = None, stream: Any = None) -> None:
        """The call, with all other ranks'. On the host it returns when y is written; on a device it is in the stream.

        workspace: bytes on the device, made where it is not given.
        """
        row, x, y = self.checked(args)
        if row.place == "cpu":
            launching.on_host(self.desc, self.comm, args.x, args.y)
            return
        refs = [None if one is None else _ref(one, self.desc.element) for one in (x, y)]
        needed = launching.counted(self.desc, self.comm, row, *refs)
        if workspace is not None and (got := viewed_bytes(workspace)) < needed:
            raise WorkspaceTooSmallError(needed, got)
        launching.on_device(self.desc, self.comm, row, args, refs, needed, workspace, stream)

    def bind(self, args: CollectiveArgs, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        """`run` of these operands as a callable with everything fixed, which all ranks call in turn.

        It holds the operands, and a workspace where none is given. Without `stream` it is the current one of each call.
        """
        row, x, y = self.checked(args)
        if row.place == "cpu":
            return partial(self.run, args)
        refs = [None if one is None else _ref(one, self.desc.element) for one in (x, y)]
        needed = launching.counted(self.desc, self.comm, row, *refs)
        if workspace is not None and (got := viewed_bytes(workspace)) < needed:
            raise WorkspaceTooSmallError(needed, got)
        return launching.bound(self.desc, self.comm, row, args, refs, needed, workspace, stream)  # type: ignore[no-any-return]

    def __call__(self, *, x: Any = None, y: Any = None, workspace: Any = None, stream: Any = None) -> None:
        """`run` with the operands as keywords."""
        self.run(CollectiveArgs(x=x, y=y), workspace, stream)


_CARRIED = {kind: ElementKind.U8 for kind in ElementKind if kind.carrier != kind.dtype}
"""Elements that packages without them carry as bytes."""


def _repeats(at: Reading) -> bool:
    """Whether two places have one address."""
    axes = sorted((abs(step), extent) for step, extent in zip(at.strides, at.shape, strict=True) if extent > 1)
    reach = 0
    for step, extent in axes:
        if step <= reach:
            return 0 not in at.shape
        reach += step * (extent - 1)
    return False


def _ref(at: Reading, element: ElementKind) -> TensorRef:
    return TensorRef.of_checked(at.ptr, at.shape, at.strides, element, at.device)


def viewed_bytes(workspace: Any) -> int:
    """How many bytes a workspace has."""
    at = located(workspace, "workspace")
    view = viewed(_ref(at, at.element))
    if not view.dense:
        raise InvalidProblemError("workspace has gaps; give a dense array")
    return view.nbytes


class AllReducePlan(CollectivePlan):
    """y, on every rank, is the reduction of all ranks' x."""

    op, descriptor, variants = "distributed.all_reduce", d.AllReduceDescriptor, ALL_REDUCES


class ReducePlan(CollectivePlan):
    """y, on one rank, is the reduction of all ranks' x."""

    op, descriptor, variants = "distributed.reduce", d.ReduceDescriptor, SUMS


class ReduceScatterPlan(CollectivePlan):
    """y is this rank's piece of the reduction of all ranks' x."""

    op, descriptor, variants = "distributed.reduce_scatter", d.ReduceScatterDescriptor, SUMS


class AllGatherPlan(CollectivePlan):
    """y is all ranks' x, along an axis."""

    op, descriptor = "distributed.all_gather", d.AllGatherDescriptor


class BroadcastPlan(CollectivePlan):
    """y is one rank's x."""

    op, descriptor = "distributed.broadcast", d.BroadcastDescriptor


class AllToAllPlan(CollectivePlan):
    """y is the piece for this rank of every x."""

    op, descriptor = "distributed.all_to_all", d.AllToAllDescriptor


class AllToAllVPlan(CollectivePlan):
    """y is the rows for this rank of every x, as many as the counts say."""

    op, descriptor = "distributed.all_to_all_v", d.AllToAllVDescriptor


class PermutePlan(CollectivePlan):
    """y is the x of the rank that sends here, or 0."""

    op, descriptor = "distributed.permute", d.PermuteDescriptor


class SendReceivePlan(CollectivePlan):
    """x to one rank, y from one."""

    op, descriptor = "distributed.send_receive", d.SendReceiveDescriptor


PLANS: dict[type[d.CollectiveDescriptor], type[CollectivePlan]] = {
    plan.descriptor: plan for plan in CollectivePlan.__subclasses__()
}
