"""conv: y = act(x * w + bias + z), a convolution over one to three axes, of groups, spread and transposed ones too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Forward, Guarantee, Plan, Variant, Vjp, choice, element, extents,
    flag, integer, operand, output, pairs, per_axis,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.errors import InvalidProblemError
from ...core.memo import cached_property
from ...schedules.conv import forward
from ...schedules.conv_kernels import MMA_KERNELS, SIMT_KERNELS, WGMMA_KERNELS
from ...schedules.gemm import ACTIVATIONS, for_precision
from ..gemm.gemm import activated
from ..gemm.mma import HALVES, TF32
from .layers import PROBLEMS


@dataclass(frozen=True, kw_only=True)
class ConvDescriptor(Descriptor):
    """x has `shape`, [*batch, in_channels, *spatial], w `filter_shape`, [out_channels, in_channels / groups, *kernel].

    There are one to three spatial axes and at most one batch axis. transposed: w is [in_channels, out_channels /
    groups, *kernel], and is read backwards along the axes of the window: the gradient of a convolution. padding:
    (before, after) of each axis, around what input_dilation has spread; negative numbers cut. math_precision: "element"
    (float32 strict) or "tf32", for float32. activation: none, relu, gelu, gelu_tanh or silu.
    """

    shape: tuple[int, ...] = extents()
    filter_shape: tuple[int, ...] = extents()
    stride: Any = per_axis(1, minimum=1, of="kernel_size")
    padding: Any = pairs(0, minimum=-(2**31) + 1, of="kernel_size")
    dilation: Any = per_axis(1, minimum=1, of="kernel_size")
    input_dilation: Any = per_axis(1, minimum=1, of="kernel_size")
    groups: int = integer(1, minimum=1)
    transposed: bool = flag(False)
    activation: str = choice(ACTIVATIONS, "none")
    math_precision: str = choice(("element", "tf32"), "element")
    element: ElementKind = element()

    def validate(self) -> None:
        rank = len(self.filter_shape) - 2
        if not 1 <= rank <= 3 or not rank < len(self.shape) <= rank + 2:
            raise InvalidProblemError(
                f"filter_shape must be (channels, channels, one to three axes), and shape (batch, channels, the same "
                f"number of axes) or without batch; got filter_shape {self.filter_shape} and shape {self.shape}"
            )
        if 0 in self.filter_shape[2:]:
            raise InvalidProblemError(f"filter_shape must have windows of at least 1 place, got {self.filter_shape}")
        first, second = self.filter_shape[:2]
        read, name = (first, 0) if self.transposed else (second * self.groups, 1)
        if read != self.in_channels or first % self.groups:
            raise InvalidProblemError(
                f"w of filter_shape {self.filter_shape} does not fit x of shape {self.shape} in {self.groups} groups: "
                f"its axis {name} must have {self.in_channels} channels{'' if self.transposed else ' / groups'}, and "
                "groups must divide its first axis"
            )
        if self.math_precision == "tf32" and self.element is not ElementKind.F32:
            raise InvalidProblemError(f"math_precision='tf32' is for float32 operands, got {self.element}")

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """The extents of a window."""
        return self.filter_shape[2:]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The batch axis, if any."""
        return self.shape[: len(self.shape) - len(self.kernel_size) - 1]

    @property
    def in_channels(self) -> int:
        """Channels of x."""
        return self.shape[-len(self.kernel_size) - 1]

    @property
    def out_channels(self) -> int:
        """Channels of y."""
        return self.filter_shape[1] * self.groups if self.transposed else self.filter_shape[0]

    @property
    def in_shape(self) -> tuple[int, ...]:
        """The spatial axes of x."""
        return self.shape[-len(self.kernel_size) :]

    @cached_property
    def spatial_shape(self) -> tuple[int, ...]:
        """The spatial axes of y; 0 where a window does not fit."""
        found = []
        axes = (self.in_shape, self.kernel_size, self.stride, self.padding, self.dilation, self.input_dilation)
        for n, k, s, pair, d, e in zip(*axes, strict=True):
            room = max((n - 1) * e + 1, 0) + sum(pair) - ((k - 1) * d + 1)
            found.append(room // s + 1 if room >= 0 else 0)
        return tuple(found)

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        return (*self.batch_shape, self.out_channels, *self.spatial_shape)


@dataclass(slots=True, kw_only=True)
class ConvArgs(Args):
    """Any strides, channels first or last alike. z is added before the activation; pre: what that is given, rounded."""

    x: Array = operand("*shape")
    w: Array = operand("*filter_shape")
    bias: Array | None = operand("out_channels", optional=True)
    z: Array | None = operand("*out_shape", optional=True)
    y: Array = output("*out_shape", inplace=("z",))
    pre: Array | None = output("*out_shape", optional=True)


def apart_places(desc: Any) -> Any:
    """An index of the elements of x in what it is spread to."""
    return (..., *(slice(None, None, e) for e in desc.input_dilation))


def backwards(desc: Any) -> Any:
    """An index that turns a filter around along the axes of its window."""
    return (..., *(slice(None, None, -1),) * len(desc.kernel_size))


def spread(desc: Any, x: Any) -> Any:
    """x [batch, channels, …] with zeros between and around its elements, or cut."""
    rank = len(desc.kernel_size)
    lead = x.shape[:2]
    wide = [max((n - 1) * e + 1, 0) for n, e in zip(x.shape[2:], desc.input_dilation, strict=True)]
    inside = np.zeros((*lead, *wide), x.dtype)
    inside[apart_places(desc)] = x
    full = [max(n + sum(pair), 0) for n, pair in zip(wide, desc.padding, strict=True)]
    made = np.zeros((*lead, *full), x.dtype)
    to: list[Any] = [...]
    own: list[Any] = [...]
    for axis in range(rank):
        before = desc.padding[axis][0]
        low, high = max(before, 0), min(before + wide[axis], full[axis])
        to.append(slice(low, max(low, high)))
        own.append(slice(low - before, max(low, high) - before))
    made[tuple(to)] = inside[tuple(own)]
    return made


def windows(desc: Any, padded: Any) -> Any:
    """What windows see of x as `spread` has it: [batch, groups, channels, *kernel, *spatial]."""
    groups = desc.groups
    batch, channels, *step = padded.strides
    strides = [d * s for d, s in zip(desc.dilation, step, strict=True)]
    moves = [d * s for d, s in zip(desc.stride, step, strict=True)]
    each = padded.shape[1] // groups
    shape = (padded.shape[0], groups, each, *desc.kernel_size, *desc.spatial_shape)
    if 0 in shape:
        return np.zeros(shape, padded.dtype)
    return np.lib.stride_tricks.as_strided(padded, shape, (batch, channels * each, channels, *strides, *moves))


def grouped(desc: Any, w: Any) -> Any:
    """A filter as [groups, outputs, channels, *kernel], forwards."""
    if not desc.transposed:
        return w.reshape(desc.groups, desc.out_channels // desc.groups, *w.shape[1:])
    w = w[backwards(desc)]
    return np.swapaxes(w.reshape(desc.groups, desc.in_channels // desc.groups, *w.shape[1:]), 1, 2)


def spread_sums(desc: Any, x: Any, w: Any, apart: bool) -> Any:
    """Those of a spread x: tap by tap, of the outputs that find an element there or a zero around x."""
    groups, each = desc.groups, desc.in_channels // desc.groups
    own = x.reshape(x.shape[0], groups, each, *desc.in_shape)
    if not own.size:
        own = np.zeros((x.shape[0], groups, each, *(1,) * len(desc.in_shape)), x.dtype)
    filters = grouped(desc, w)
    made = np.zeros((x.shape[0], groups, filters.shape[1], *desc.spatial_shape), x.dtype)
    for tap in np.ndindex(*desc.kernel_size):
        outputs, elements = [], []
        for axis, (extent, spread) in enumerate(zip(desc.spatial_shape, desc.input_dilation, strict=True)):
            at = np.arange(extent) * desc.stride[axis] - desc.padding[axis][0] + tap[axis] * desc.dilation[axis]
            outputs.append(np.flatnonzero(at % spread == 0))
            elements.append(at[outputs[-1]] // spread)
        inside = [(e >= 0) & (e < n) for e, n in zip(elements, desc.in_shape, strict=True)]
        near = [np.clip(e, 0, n - 1) for e, n in zip(elements, own.shape[3:], strict=True)]
        there = np.logical_and.reduce(np.meshgrid(*inside, indexing="ij"))
        source: Any = (..., *np.ix_(*near))
        found = np.where(there, own[source], x.dtype.type(0))
        place: Any = (..., *tap)
        by = filters[place]
        to: Any = (..., *np.ix_(*outputs))
        if not apart:
            made[to] += np.einsum("bgc...,goc->bgo...", found, by)
            continue
        for c in range(each):
            made[to] += found[:, :, None, c] * by[:, :, c].reshape(1, groups, -1, *(1,) * len(tap))
    return made.reshape(x.shape[0], desc.out_channels, *desc.spatial_shape)


def sums(desc: Any, x: Any, w: Any, apart: bool = False) -> Any:
    """The convolution alone, of x [batch, channels, …]: a product of matrices, or apart sums in the order of k."""
    if any(n != 1 for n in desc.input_dilation):
        return spread_sums(desc, x, w, apart)
    seen, rank = windows(desc, spread(desc, x)), len(desc.kernel_size)
    rows = (seen.shape[0], math.prod(desc.spatial_shape))
    filters = np.moveaxis(grouped(desc, w), 2, -1).reshape(desc.groups, desc.out_channels // desc.groups, terms(desc))
    seen = np.moveaxis(seen, 2, 2 + rank)  # [batch, groups, *kernel, channels, *spatial]
    if apart:
        made = np.zeros((rows[0], desc.groups, filters.shape[1], *desc.spatial_shape), x.dtype)
        shape = (*desc.kernel_size, desc.in_channels // desc.groups)
        for k, at in enumerate(np.ndindex(shape)):
            place: Any = (slice(None), slice(None), *at)
            own = seen[place]
            made += own[:, :, None] * filters[:, :, k].reshape(1, *filters.shape[:2], *(1,) * rank)
        return made.reshape(rows[0], desc.out_channels, *desc.spatial_shape)
    matrix = seen.reshape(rows[0], desc.groups, filters.shape[2], rows[1])
    return np.matmul(filters, matrix).reshape(rows[0], desc.out_channels, *desc.spatial_shape)


def reference(
    desc: ConvDescriptor, *, x: Any, w: Any, bias: Any, z: Any, wanted: set[str], apart: bool = False
) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in: a product of the filter and the windows."""
    del wanted
    with np.errstate(all="ignore"):
        batched = x.reshape(math.prod(desc.batch_shape), *x.shape[len(desc.batch_shape) :])
        pre = sums(desc, batched, w, apart).reshape(desc.out_shape)
        if bias is not None:
            pre = pre + bias.reshape(-1, *(1,) * len(desc.kernel_size))
        pre = pre if z is None else pre + z
        return {"pre": pre, "y": activated(desc.activation, pre)}


def in_torch_sums(torch: Any, desc: Any, x: Any, w: Any) -> Any:
    """The convolution by torch's, of a padded tensor."""
    f, rank = torch.nn.functional, len(desc.kernel_size)
    x = x.reshape(math.prod(desc.batch_shape), *x.shape[len(desc.batch_shape) :])
    wide = [(n - 1) * e + 1 for n, e in zip(desc.in_shape, desc.input_dilation, strict=True)]
    if desc.input_dilation != (1,) * rank:
        inside = x.new_zeros((*x.shape[:2], *wide))
        inside[apart_places(desc)] = x
        x = inside
    if desc.transposed:
        w = w.reshape(desc.groups, -1, *w.shape[1:]).transpose(1, 2).reshape(desc.out_channels, -1, *desc.kernel_size)
        w = w.flip(tuple(range(2, 2 + rank)))
    x = f.pad(x, [side for pair in reversed(desc.padding) for side in pair])
    return getattr(f, f"conv{rank}d")(x, w, None, desc.stride, 0, desc.dilation, desc.groups).reshape(desc.out_shape)


def torch_serves(desc: Any) -> bool:
    """Whether there is anything: torch refuses empty windows and channels, and padding that cuts all."""
    return 0 not in (*desc.shape, *desc.filter_shape, *desc.out_shape)


def in_torch(torch: Any, desc: ConvDescriptor, *, x: Any, w: Any, bias: Any, z: Any, wanted: set[str]) -> Any:
    """torch's convolution, padded and spread by hand."""
    del wanted
    if not torch_serves(desc):
        return NotImplemented
    pre = in_torch_sums(torch, desc, x, w)
    pre = pre if bias is None else pre + bias.reshape(-1, *(1,) * len(desc.kernel_size))
    pre = pre if z is None else pre + z
    f = torch.nn.functional
    act = {
        "none": lambda x: x, "relu": torch.relu, "gelu": f.gelu, "silu": f.silu,
        "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
    }[desc.activation]  # fmt: skip
    return {"pre": pre, "y": act(pre)}


def channels_last(torch: Any, tensor: Any) -> Any:
    """The same numbers, channels last."""
    form = {4: "channels_last", 5: "channels_last_3d"}[tensor.dim()]
    return tensor.contiguous(memory_format=getattr(torch, form))


def _laid(torch: Any, desc: Any) -> dict[str, Any]:
    dtype = getattr(torch, str(desc.element))
    w = torch.randn(desc.filter_shape) / math.sqrt(math.prod(desc.filter_shape[1:]))
    return {
        "x": channels_last(torch, torch.randn(desc.shape).to(dtype)), "w": channels_last(torch, w.to(dtype)),
        "y": channels_last(torch, torch.empty(desc.out_shape, dtype=dtype)),
    }  # fmt: skip


def _block(torch: Any, desc: Any) -> dict[str, Any]:
    """Those of the end of a residual block."""
    z = torch.randn(desc.out_shape).to(getattr(torch, str(desc.element)))
    return _laid(torch, desc) | {"z": channels_last(torch, z)}


def conv_case(
    draw: Any, descriptor: Callable[..., Any], many: tuple[int, int] = (8, 72), slices: int = 64, **facts: Any
) -> Any:  # fmt: skip
    """Random convolutions: groups, padding that cuts, spread inputs, transposed filters; few channels and many.

    many: outputs of those with whole slices of channels, of `slices` each.
    """
    rank = draw.integer(1, 3)
    groups = draw.choice((1, 1, 1, 2, 3))
    channels, outputs = draw.choice((1, 3, 8, 8, 16)), draw.choice((1, 3, 8, 16))
    if draw.rarely():
        groups, channels, outputs = draw.choice((1, 2)), draw.choice((0, 8)), draw.choice((8, 72, 136))
    transposed = draw.flag()
    axes: list[Any] = []
    for axis in range(rank):
        kernel, dilation = draw.integer(1, 3), draw.integer(1, 2)
        low, high = draw.integer(-1, 2), draw.integer(0, 2)
        apart = draw.choice((1, 1, 1, 2, 3))
        extent = draw.integer(0 if draw.rarely() else 1, 6) + (draw.choice((0, 11)) if axis + 1 == rank else 0)
        axes.append((extent, kernel, draw.integer(1, 3), (low, high), dilation, apart))
    extent, kernel, stride, padding, dilation, apart = zip(*axes, strict=True)
    if draw.rarely():  # depthwise, in whole pieces of channels
        groups, channels, outputs, transposed, apart = 16, 1, 1, False, (1,) * rank
    if draw.rarely():  # whole slices of channels, and of 64 places that fill the axes
        groups, channels, outputs = draw.choice((1, 2)), slices, draw.choice(many)
        span, step = {1: 64, 2: 8, 3: 4}[rank], 1 if rank == 3 else draw.choice((1, 2))
        extent, stride, apart, dilation = (span * step,) * rank, (step,) * rank, (1,) * rank, (1,) * rank
        padding = tuple(((k - 1) // 2, k // 2) for k in kernel)
    pair = (groups * channels, outputs) if transposed else (groups * outputs, channels)
    kind = draw.element
    return descriptor(
        shape=(*draw.choice(((2,), (1,), (), (3,), (0,))), groups * channels, *extent), filter_shape=(*pair, *kernel),
        stride=stride, padding=padding, dilation=dilation, input_dilation=apart, groups=groups, transposed=transposed,
        activation=draw.choice(ACTIVATIONS), element=kind,
        math_precision=draw.choice(("element", "tf32")) if kind is ElementKind.F32 else "element", **facts,
    )  # fmt: skip


def terms(desc: Any) -> int:
    """Terms of a sum of the forward."""
    return int(math.prod(desc.kernel_size) * desc.in_channels // desc.groups)


WGMMA_GUARANTEE = Guarantee(Forward(128), batch_invariant=True, order="wgmma", roundings=terms)
MMA_GUARANTEE = Guarantee(Forward(128), batch_invariant=True, order="mma", roundings=terms)


class ConvPlan(Plan):
    """y[n, o, p] = act(bias[o] + z[n, o, p] + Σ_k Σ_c x̂[n, c, stride p - padding + dilation k] w[o, c, k]).

    x [*batch, in_channels, *spatial], w [out_channels, in_channels / groups, *kernel] (transposed: [in_channels,
    out_channels / groups, *kernel], backwards), one to three spatial axes; x̂ is x with input_dilation - 1 zeros between
    its elements, whose terms are left out, and padding around it, which is multiplied as numbers are. f16, bf16, f32
    (strict, or TF32 where it is asked for), f64; sums in float32, or float64. Channels last (by strides) is read as it
    is; on tensor cores other layouts are packed into the workspace. A window that fits nowhere gives an axis of 0
    places; without channels y is bias and z.
    """

    op = "conv.conv"
    descriptor = ConvDescriptor
    args = ConvArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant("wgmma", forward(True, True), source="conv/conv_wgmma.cu", kernels=WGMMA_KERNELS, elements=HALVES,
                design=ArchSku.SM90A, guarantee=WGMMA_GUARANTEE),
        Variant("mma", forward(True), source="conv/implicit.cu", kernels=MMA_KERNELS, elements=HALVES,
                guarantee=MMA_GUARANTEE),
        Variant("mma_tf32", forward(True), source="conv/implicit.cu", kernels=MMA_KERNELS, elements=TF32,
                guarantee=replace(MMA_GUARANTEE, error=Forward(2.0**14), math="tf32"), refuses=for_precision("tf32")),
        Variant("simt", forward(False), source="conv/implicit.cu", kernels=SIMT_KERNELS,
                guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=terms)),
    )  # fmt: skip
    vjp = Vjp("ConvBackwardPlan", grads={"x": "dx", "w": "dw", "bias": "dbias"})
    torch = staticmethod(in_torch)
    benchmarks = (
        *(
            Benchmark(f"{name} bf16", element="bfloat16", work=FLOPS, target=None, make=_laid, **facts)
            for name, facts in PROBLEMS
        ),
        Benchmark(
            "ResNet-50 3 × 3, bias, residual and relu bf16", also=("bias", "z"), activation="relu", element="bfloat16",
            work=FLOPS, target=None, make=_block, **PROBLEMS[0][1],
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ConvDescriptor:
        return conv_case(draw, ConvDescriptor)  # type: ignore[no-any-return]

    @classmethod
    def flops(cls, desc: ConvDescriptor) -> int:
        return 2 * math.prod(desc.out_shape) * terms(desc)


conv_nd = functional(ConvPlan, "conv_nd", follows="x")
