"""gated_rms_norm: the output norm of Mamba-2 and of gated delta networks, an RMS norm and a SiLU gate in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, Vjp, element, extent, extents, flag, number, operand, output,
)  # fmt: skip
from ...calls.entries import entry
from ...calls.functional import functional
from ...core.arrays import read
from ...core.benchmark import Benchmark
from ...core.checked import truth, whole
from ...core.views import reshaped, shape_of
from ...schedules.geometry import grid
from ...schedules.norms import Affine, _wide, affine_element, affine_elements, range_scale
from ...schedules.rows import Rows, merge_rows, row_params
from ..elementwise.unary_formulas import sigmoid

X = "*batch_shape groups cols"
WEIGHT = "groups cols"
# (lanes of a row, chunks of a lane, threads): the first that holds a row; 0 chunks hold any.
RUNGS = ((8, 1, 128), (16, 1, 128), (32, 1, 128), (32, 4, 128), (128, 4, 128), (512, 4, 512), (512, 0, 512))


@dataclass(frozen=True, kw_only=True)
class GatedRMSNormDescriptor(Affine, Descriptor):
    """x has shape (*batch_shape, groups, cols); the mean is over cols.

    norm_before_gate: rms_norm(x) · weight · silu(z), else rms_norm(x · silu(z)) · weight. weight_element: the element
    (default), or float32 beside float16 and bfloat16 activations.
    """

    batch_shape: tuple[int, ...] = extents()
    groups: int = extent(1)
    cols: int = extent()
    eps: float = number(1e-6, minimum=0.0)
    norm_before_gate: bool = flag(True)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class GatedRMSNormArgs(Args):
    """Any strides; z is the gate before its SiLU."""

    x: Array = operand(X)
    z: Array = operand(X)
    weight: Array | None = operand(WEIGHT, element="weight_element", optional=True)
    y: Array = output(X)


@dataclass
class Gated:
    """What is normalised, and the scale and rstd of its rows, in the dtype of x."""

    a: Any
    n: Any
    rstd: Any

    @classmethod
    def of(cls, desc: Any, x: Any, z: Any) -> Gated:
        a = x if desc.norm_before_gate else x * (z * sigmoid(z))
        scale = range_scale(a, (-1,), desc.eps)
        scaled = a * scale
        eps = x.dtype.type(desc.eps) * scale * scale
        count = x.dtype.type(max(desc.cols, 1))
        rstd = 1 / np.sqrt(np.sum(scaled * scaled, axis=-1, keepdims=True) / count + eps)
        return cls(a, scaled * rstd, rstd * scale)


def reference(desc: GatedRMSNormDescriptor, *, x: Any, z: Any, weight: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        y = Gated.of(desc, x, z).n
        y = y if weight is None else y * weight
        return {"y": y * (z * sigmoid(z)) if desc.norm_before_gate else y}


PARAMS = Params(
    "GatedRMSNormParams", **dict.fromkeys(("x", "z", "weight", "y"), "ptr"), eps="f64", before="i32", **row_params(4)
)


def rows_of(p: Problem, names: tuple[str, ...]) -> Rows | str:
    """The rows of operands by name, the weight seen by all of them."""
    weight = None if p.weight is None else p.weight.broadcast_to(p.x.shape)
    return merge_rows([weight if n == "weight" else p.views[n] for n in names], len(p.x.shape) - 1)


def rung_of(desc: Any, rungs: tuple[tuple[int, int, int], ...]) -> tuple[int, int, int]:
    """The lanes and chunks for a row."""
    chunks = -(-desc.cols * desc.element.itemsize // 16)
    return next(rung for rung in rungs if chunks <= rung[0] * rung[1] or not rung[1])


def rung_kernels(
    name: str, call: str, params: Params, rungs: tuple[tuple[int, int, int], ...], resident: Mapping[int, int] = {}
) -> tuple[Kernel, ...]:  # fmt: skip
    """A kernel for every rung; resident: blocks that a multiprocessor is to hold, by their threads."""
    return tuple(
        Kernel(
            f"{name}_{lanes}_{chunks}", f"{call}<{{T}}, {{W}}, {threads}, {lanes}, {chunks}, {{WIDE}}>", params,
            lambda kind: {"W": affine_elements(kind), "WIDE": (True, False)}, threads=threads,
            min_blocks=resident.get(threads, 0),
        )
        for lanes, chunks, threads in rungs
    )  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    rows = rows_of(p, ("x", "z", "weight", "y"))
    if isinstance(rows, str):
        return rows
    lanes, chunks, threads = rung_of(desc, RUNGS)
    values = {**rows.params(), "eps": desc.eps, "before": desc.norm_before_gate}
    axes = {"W": desc.weight_element, "WIDE": _wide(rows, desc)}
    step = Step(f"row_{lanes}_{chunks}", grid(-(-rows.rows // (threads // lanes))), values, axes, threads)
    return Geometry((step,), layout=rows.layout_class)


def in_torch(torch: Any, desc: GatedRMSNormDescriptor, *, x: Any, z: Any, weight: Any) -> Any:
    """torch's rms_norm and silu, in the accumulator's type."""
    wide = torch.promote_types(x.dtype, torch.float32)
    a, gate = x.to(wide), torch.nn.functional.silu(z.to(wide))
    a = a if desc.norm_before_gate else a * gate
    n = a * torch.rsqrt(a.square().mean(-1, keepdim=True) + desc.eps)
    n = n if weight is None else n * weight.to(wide)
    return (n * gate if desc.norm_before_gate else n).to(x.dtype)


def gated_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """Heads of 128 of a gated delta network, and a Mamba-2 row."""
    return tuple(
        Benchmark(
            f"[{rows}, {cols}] bf16", also=also, batch_shape=rows, groups=1, cols=cols, element="bfloat16",
            weight_element="float32",
        )
        for rows, cols in ((1 << 20, 128), (32768, 4096))
    )  # fmt: skip


def gated_case(draw: Any, descriptor: Any) -> Any:
    """Tests: every rung, tails, groups and empty extents."""
    cols = draw.sizes(1, 7, 8, 64, 100, 128, 256, 300, 1024, 0, rare=(24, 1500, 2049, 4096, 5000, 20011))
    return descriptor(
        batch_shape=draw.shape(0, 2, 0, 3) if cols < 2000 else (draw.integer(0, 2),),
        groups=draw.sizes(1, 2, 3) if cols < 2000 else 1, cols=cols, eps=draw.number(1e-8, 1e-2),
        norm_before_gate=draw.flag(), element=draw.element,
        weight_element=draw.choice(affine_elements(draw.element)),
    )  # fmt: skip


class GatedRMSNormPlan(Plan):
    """y = rms_norm(x) · weight · silu(z), or with norm_before_gate=False rms_norm(x · silu(z)) · weight.

    x, z, y (*batch_shape, groups, cols); weight (groups, cols), of float32 also beside float16 and bfloat16 rows; the
    mean is over cols. mamba-ssm's `rmsnorm_fn`, flash-linear-attention's FusedRMSNormGated. Statistics and the product
    with the gate are in the accumulator's type.
    """

    op = "norm.gated_rms_norm"
    descriptor = GatedRMSNormDescriptor
    args = GatedRMSNormArgs
    autocast = "widest"
    reference = staticmethod(reference)
    variants = (
        Variant(
            "rows", _geometry, source="norm/gated_rms_norm.cu",
            kernels=rung_kernels("row", "gated_rms_norm_row", PARAMS, RUNGS),
            guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp("GatedRMSNormBackwardPlan", grads={"x": "dx", "z": "dz", "weight": "dweight"})
    torch = staticmethod(in_torch)
    benchmarks = gated_benchmarks("weight")

    @staticmethod
    def case(draw: Any) -> GatedRMSNormDescriptor:
        made: GatedRMSNormDescriptor = gated_case(draw, GatedRMSNormDescriptor)
        return made


_gated: Any = functional(GatedRMSNormPlan, "gated_rms_norm")


@entry(GatedRMSNormPlan)
def gated_rms_norm(
    x: Array, gate: Array, weight: Array | None = None, *, norm_before_gate: bool = True, eps: float = 1e-6,
    group_size: int | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """rms_norm(x) · weight · silu(gate), or (norm_before_gate=False) rms_norm(x · silu(gate)) · weight, in one launch.

    The output norm of Mamba-2 and of gated delta networks: mamba-ssm's `rmsnorm_fn`, flash-linear-attention's
    FusedRMSNormGated. x, gate: [..., columns]; weight: [columns]. The mean is over the last axis, or with group_size
    over each run of so many of its columns. What passes between is in the accumulator's type. Gradients of x, gate and
    weight.
    """
    shape = shape_of(x, "x")
    if not shape:
        raise InvalidProblemError("x must have an axis to normalise over, got shape ()")
    if shape_of(gate, "gate") != shape:
        raise InvalidProblemError(f"gate must have the shape of x, {shape}, got {shape_of(gate, 'gate')}")
    if read(gate, "gate").element is not read(x, "x").element:
        raise InvalidProblemError(
            f"gate must hold {read(x, 'x').element} as x does, got {read(gate, 'gate').element}; cast it first"
        )
    if weight is not None and shape_of(weight, "weight") != shape[-1:]:
        raise InvalidProblemError(f"weight must have shape {shape[-1:]}, got {shape_of(weight, 'weight')}")
    if out is not None and shape_of(out, "out") != shape:
        raise InvalidProblemError(f"out must have the shape of x, {shape}, got {shape_of(out, 'out')}")
    size = shape[-1] if group_size is None else whole("group_size", group_size, 1)
    if group_size is not None and shape[-1] % size:
        raise InvalidProblemError(f"group_size must divide the {shape[-1]} columns of x, got {size}")
    groups = shape[-1] // size if group_size is not None else 1
    apart = (*shape[:-1], groups, size)
    made = _gated(
        reshaped(x, apart, "x"), reshaped(gate, apart, "gate"),
        None if weight is None else reshaped(weight, (groups, size), "weight"), eps=eps,
        norm_before_gate=truth("norm_before_gate", norm_before_gate),
        out=None if out is None else reshaped(out, apart, "out"), stream=stream, preference=preference,
    )  # fmt: skip
    return reshaped(made, shape, "y") if out is None else out
