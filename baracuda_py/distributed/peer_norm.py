"""The kernels that sum over ranks, add a residual and normalise in one launch: which there are, and a call of one."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.element import ElementKind
from ..core.tensor import View
from ..core.variant import Kernel, Step, Variant
from ..schedules.norms import FORWARD_OPERANDS, HALVES, LADDER, Rung, affine_elements, forward_params
from ..schedules.rows import merge_rows
from . import peer_kernels as kernels
from .peers import PeerRanks

OP = "distributed.all_reduce_residual_rms_norm"
PHASES = {"one_shot": (1, 4), "two_shot": (1, 2, 4)}
RUNGS = tuple(rung for rung in LADDER if rung.chunks <= 4)

ELEMENTS = (*HALVES, ElementKind.F32)
PARAMS = forward_params(
    "PeerNormParams", x="ptr", residual="ptr", weight="ptr", y="ptr", h="ptr", rstd="ptr", weight_offset="f64",
    **kernels.FIELDS,  # type: ignore[arg-type]
)  # fmt: skip


def _kernel(rung: Rung, two: bool) -> Kernel:
    name = f"{'two_shot' if two else 'one_shot'}_{rung.lanes * rung.chunks}"
    sizes = f"{rung.threads}, {rung.lanes}, {rung.chunks}"
    call = f"all_reduce_norm<{{T}}, {{W}}, {sizes}, {{RANKS}}, {str(two).lower()}>"

    def axes(kind: ElementKind) -> dict[str, Any]:
        return {"W": affine_elements(kind), "RANKS": tuple(range(2, kernels.RANKS + 1))}

    return Kernel(name, call, PARAMS, axes, rung.threads, min_blocks=1)


NORM = Variant(
    "peers_norm", lambda p: "runs on a communicator", source="distributed/all_reduce_norm.cu",
    elements=ELEMENTS,
    kernels=tuple(_kernel(rung, two) for two in (False, True) for rung in RUNGS),
)  # fmt: skip


class Shape(NamedTuple):
    """A call's problem: rows of so many columns, all dense."""

    rows: int
    cols: int
    element: ElementKind
    weight_element: ElementKind
    eps: float
    weight_offset: float

    @property
    def nbytes(self) -> int:
        return self.rows * self.cols * self.element.itemsize

    @property
    def rung(self) -> Rung | None:
        """The rung of rms_norm's ladder for such rows, where it is one of these kernels'."""
        width = kernels.CHUNK // self.element.itemsize
        if self.cols % width or not 0 < self.nbytes <= kernels.HALF:
            return None
        return next((rung for rung in RUNGS if self.cols <= rung.lanes * rung.chunks * width), None)


def _step(shape: Shape, ranks: int, multiprocessors: int) -> Step:
    rung = shape.rung
    assert rung is not None
    two = shape.nbytes > kernels.ONE_SHOT[ranks]
    groups = rung.threads // rung.lanes
    work = -(-shape.rows // (groups * (ranks if two else 1)))
    axes = {"W": shape.weight_element, "RANKS": ranks}
    name = f"{'two_shot' if two else 'one_shot'}_{rung.lanes * rung.chunks}"
    return Step(name, (kernels.blocks(work, multiprocessors), 1, 1), {}, axes, rung.threads)


def prepare(peers: PeerRanks, shape: Shape) -> None:
    """Load what a call launches."""
    peers.function(NORM, OP, shape.element, _step(shape, peers.size, peers.multiprocessors))


def launch(peers: PeerRanks, shape: Shape, pointers: tuple[int, ...], stream: int) -> None:
    """y, h of a shape that has a rung. pointers: x, residual, weight, y, h, rstd, dense and aligned; 0 for none."""
    step = _step(shape, peers.size, peers.multiprocessors)

    def made(phases: int) -> Any:
        extents, whole = (shape.rows, shape.cols), shape.element
        dense = View(1 << 20, extents, (shape.cols, 1), whole)
        at = View(1 << 20, extents, (0, 1), shape.weight_element)
        views = tuple({"weight": at, "bias": None}.get(name, dense) for name in FORWARD_OPERANDS)
        rows = merge_rows(views, 1)
        assert not isinstance(rows, str)
        numbers = {"eps": shape.eps, "weight_offset": shape.weight_offset, **peers.fields(phases)}
        image = PARAMS.template({**rows.params(), **numbers})
        return peers.packed(NORM, OP, shape.element, step, PARAMS, image)

    phases = PHASES[step.kernel.rpartition("_")[0]]
    peers.launch(step.kernel, phases, shape, made, pointers, stream)
