"""all_reduce_residual_rms_norm: what follows a row-parallel layer in a transformer, one launch where peers reach."""

from __future__ import annotations

from typing import Any

from ..backends.cuda.intake import current_stream
from ..core.arrays import read, read_only
from ..core.checked import shown
from ..core.device import CPU
from ..core.element import FLOATS, ElementKind
from ..core.errors import InvalidProblemError
from ..core.intake import stream_pointer
from ..core.outputs import allocating, each_of, handed, maker
from ..core.preference import PlanPreference, preferred
from ..core.sku import BackendKind
from ..core.views import shape_of
from ..expressions.elementwise import elementwise
from ..interop.dynamo import uncompiled
from ..interop.packages import package_name
from ..jit.launch import runtime_for
from ..ops.norm.rms_norm import rms_norm
from ..schedules.norms import affine_elements
from . import gradients, peer_norm
from .agreement import agree, checked_communicator
from .collectives import all_reduce
from .communicator import Communicator
from .peers import PeerRanks

Array = Any


@uncompiled(gradients.GRAPH)
def all_reduce_residual_rms_norm(
    x: Array, residual: Array, weight: Array | None, comm: Communicator, *, eps: float = 1e-6,
    weight_offset: float = 0.0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, h): h = the sum of x over the ranks + residual, y = rms_norm(h) · weight, over the last axis.

    x, residual: [*, columns], the same element and shape on every rank; weight: [columns] of x's element, or float32
    beside 16 bits, or None; weight_offset is added to it. The sum is rounded to the element, then h, as by `all_reduce`
    and `rms_norm` one after another, whose bits these are. out=(y, h); y may be x, and h the residual. Where the ranks'
    GPUs reach one another's memory it is one launch, for 16-bit floats and float32 of up to 16 MB whose rows are whole
    16 bytes and hold up to 32 KB; else those two calls, and so where a gradient is followed. (TensorRT-LLM's and
    vLLM's fused all-reduce, residual addition and RMSNorm.)
    """
    comm = checked_communicator(comm)
    shape = _checked(x, residual, weight)
    outs = each_of(out, 2)
    _checked_outputs(x, outs)
    wanted = preferred(preference)
    problem = _problem(x, weight, shape, eps, weight_offset)
    if problem is not None and _fuses(comm, problem, (x, residual, weight), wanted):
        return _launched(comm, problem, x, residual, weight, outs, stream)
    total = all_reduce(x, comm, stream=stream, preference=preference)
    given = {} if out is None else {"out": outs}
    return rms_norm(
        total, weight, residual, normalized_shape=shape[-1:], eps=eps, weight_offset=weight_offset, return_h=True,
        stream=stream, **given,
    )  # fmt: skip


def _checked(x: Any, residual: Any, weight: Any) -> tuple[int, ...]:
    """x's shape; raises where operands do not fit."""
    shape, kind = shape_of(x, "x"), read(x, "x").element
    if not shape or kind not in FLOATS:
        raise InvalidProblemError(f"x must be [*, columns] of floats, got {kind} of shape {shape}")
    for name, one, extents, kinds in (
        ("residual", residual, shape, (kind,)), ("weight", weight, shape[-1:], affine_elements(kind)),
    ):  # fmt: skip
        if one is None and name == "weight":
            continue
        if one is None:
            raise InvalidProblemError("residual is None; give an array, or call all_reduce and rms_norm")
        if shape_of(one, name) != extents:
            raise InvalidProblemError(f"{name} must have shape {extents}, as x has {shape}, got {shape_of(one, name)}")
        if (found := read(one, name).element) not in kinds:
            raise InvalidProblemError(f"{name} must be {' or '.join(map(str, kinds))}, got {found}")
    return shape


def _checked_outputs(x: Any, outs: tuple[Any, ...]) -> None:
    """Raises where an output is not what is written to it."""
    at = read(x, "x")
    for name, one in zip(("y", "h"), outs, strict=True):
        if one is None:
            continue
        got = read(one, name)
        if got.readonly:
            raise read_only(one, f"out ({name})")
        if (got.shape, got.element, got.device) != (at.shape, at.element, at.device):
            raise InvalidProblemError(
                f"out ({name}) must be {at.element} of shape {at.shape} where x is, got {got.element} of {got.shape}"
            )


def _problem(x: Any, weight: Any, shape: tuple[int, ...], eps: Any, offset: Any) -> peer_norm.Shape | None:
    for name, value in (("eps", eps), ("weight_offset", offset)):
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not value >= (0 if name == "eps" else -1e300)
        ):
            raise InvalidProblemError(
                f"{name} must be a number{' from 0 on' if name == 'eps' else ''}, got {shown(value)}"
            )
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    kind: ElementKind = read(x, "x").element
    held = kind if weight is None else read(weight, "weight").element
    made = peer_norm.Shape(rows, shape[-1], kind, held, float(eps), float(offset))
    return made if kind in peer_norm.ELEMENTS and made.rung is not None else None


def _fuses(comm: Communicator, problem: peer_norm.Shape, operands: tuple[Any, ...], wanted: PlanPreference) -> bool:
    """Whether this is one launch: the same on every rank, as their operands are alike."""
    if not isinstance(comm.peers, PeerRanks) or wanted.prefer_backend not in (None, BackendKind.BESPOKE):
        return False
    given = [one for one in operands if one is not None]
    if wanted.same_bits or any(read(one).device != comm.device for one in given):
        return False
    return not any(package_name(type(one)) == "torch" and gradients.grows(one) for one in given)


def _launched(
    comm: Communicator, problem: peer_norm.Shape, x: Any, residual: Any, weight: Any, outs: tuple[Any, ...], stream: Any
) -> Any:
    """The kernel on the stream, or the current one of the operands' package."""
    device = comm.place or CPU
    given = [one for one in (x, residual, weight, *outs) if one is not None]
    current = current_stream(given, runtime_for(device), device.ordinal)
    at = current() if stream is None else stream_pointer(stream)
    comm.check()
    peer_norm.prepare(comm.peers, problem)
    agree(comm, "all_reduce_residual_rms_norm", **problem._asdict())
    shape, kind = shape_of(x, "x"), problem.element
    with allocating(package_name(type(x)), device.ordinal, stream):
        make = maker(x, shape, kind, device.ordinal)
        results = [make() if one is None else one for one in outs]
        inputs = [_held(one, make, stream) for one in (x, residual)]
        beside = weight if weight is None else _held(
            weight, maker(weight, shape[-1:], problem.weight_element, device.ordinal), stream
        )  # fmt: skip
        targets = [one if _fits(one) and _apart(one, place, inputs) else make() for place, one in enumerate(results)]
    if not _apart(results[0], -1, results[1:]):
        raise InvalidProblemError("out: y and h share memory; give two arrays")
    pointers = *(0 if one is None else read(one).ptr for one in (*inputs, beside, *targets)), 0
    peer_norm.launch(comm.peers, problem, pointers, at)
    for made, wanted in zip(targets, results, strict=True):
        if made is not wanted:
            elementwise("x")(made, out=wanted, stream=stream)
    return tuple(handed(one, kind, x) for one in results)


def _fits(array: Any) -> bool:
    """Whether it lies as the kernel takes it."""
    at = read(array)
    step, dense = 1, True
    for extent, stride in zip(reversed(at.shape), reversed(at.strides), strict=True):
        dense = dense and (extent == 1 or stride == step)
        step *= extent
    return dense and at.ptr % 16 == 0


def _held(array: Any, make: Any, stream: Any) -> Any:
    if _fits(array):
        return array
    return elementwise("x")(array, out=make(), stream=stream)


def _apart(out: Any, place: int, inputs: list[Any]) -> bool:
    """Whether an output meets no input, but the one that it may replace."""
    at = read(out)
    size = at.element.itemsize
    for n, one in enumerate(inputs):
        other = read(one)
        count = 1
        for extent in at.shape:
            count *= extent
        meets = at.ptr < other.ptr + count * size and other.ptr < at.ptr + count * size
        if meets and not (n == place and at.ptr == other.ptr):
            return False
    return True
