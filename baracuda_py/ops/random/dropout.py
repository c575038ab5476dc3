"""dropout: elements of x set to zero at random, the others scaled; alpha_dropout; one draw for whole channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Forward, Geometry, Guarantee, Params, Plan, Problem, Scalar, Ulp,
    Variant, View, Vjp, axes, element, extents, flag, number, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import truth
from ...core.element import HALVES
from ...core.error_bound import ErrorBound
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.arrays import read
from ...schedules.attention.score_terms import dropout as keeping
from ...schedules.map import map_geometry, map_kernels, map_params
from .draws import numbered, streams
from .philox import philox_uniform

ALPHA = -1.7580993408473766
"""What selu tends to below 0 (Klambauer, Unterthiner, Mayr, Hochreiter 2017): alpha_dropout drops to it."""


@dataclass(frozen=True, kw_only=True)
class DropoutDescriptor(Descriptor):
    """x and y have shape `shape`. p: the probability that an element is dropped.

    axis: each element along these axes has a draw of its own (None: along all); along the others they share it. alpha:
    to selu's lower limit instead of 0, and scaled so that mean 0 and variance 1 stay.
    """

    shape: tuple[int, ...] = extents()
    p: float = number(0.5, minimum=0, maximum=1)
    axis: Any = axes(None)
    alpha: bool = flag(False)
    element: ElementKind = element()

    @property
    def draws(self) -> int:
        """Elements of the stream that are used."""
        return math.prod(self.shape[a] for a in self.axis)

    @property
    def affine(self) -> tuple[float, float, float]:
        """(scale, shift) of what is kept, and what the others become."""
        if not self.alpha or self.p == 1:
            return keeping(self.p)[1], -0.0, 0.0  # adding -0 changes nothing, +0 would change -0
        if self.p == 0:
            return 1.0, -0.0, 0.0
        scale = 1 / math.sqrt((1 - self.p) * (1 + self.p * ALPHA**2))
        return scale, -scale * self.p * ALPHA, scale * (ALPHA - self.p * ALPHA)


@dataclass(slots=True, kw_only=True)
class DropoutArgs(Args):
    """Any strides; y may be x itself. `mask` tells what was kept. seed and offset are 64-bit, see `DropoutPlan`."""

    x: Array = operand("*shape", values=Everywhere())
    y: Array = output("*shape", inplace=("x",))
    mask: Array | None = output("*shape", element=ElementKind.BOOL, optional=True)
    seed: Scalar = scalar(integer=True, drawn="p")
    offset: Scalar = scalar(0, integer=True)


def kept(desc: Any, seed: Any, offset: Any) -> Any:
    """Which elements are kept: bool, of a shape that broadcasts to `shape`."""
    uniform = philox_uniform(seed, offset, desc.draws).astype(np.float64)
    return uniform.reshape([n if a in desc.axis else 1 for a, n in enumerate(desc.shape)]) >= desc.p


def _rounded(desc: Any, dtype: Any, value: float) -> Any:
    """A coefficient as the kernels have it, in the dtype that x comes in."""
    return dtype.type(desc.element.acc.dtype.type(value))


def reference(desc: DropoutDescriptor, *, x: Any, seed: Any, offset: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    keep = np.broadcast_to(kept(desc, seed, offset), desc.shape)
    scale, shift, fill = (_rounded(desc, x.dtype, value) for value in desc.affine)
    with np.errstate(all="ignore"):
        return {"y": np.where(keep, x * scale + shift, fill), "mask": np.array(keep)}


PARAMS = Params(
    "DropoutParams", y="ptr", x="ptr", mask="ptr", seed="iscalar", offset="iscalar", scale="f64", shift="f64",
    fill="f64", keep_from="u32", **map_params(4),
)  # fmt: skip
_KERNELS = map_kernels("dropout<{T}, {LAYOUT}>", PARAMS)


def _draws(desc: Any) -> View:
    return numbered(desc.shape, desc.element, desc.axis)


def _geometry(p: Problem) -> Geometry | str:
    scale, shift, fill = p.desc.affine
    values = {"scale": scale, "shift": shift, "fill": fill, "keep_from": keeping(p.desc.p)[0]}
    return map_geometry(p, (p.y, p.x, p.mask, _draws(p.desc)), values)


def _bound(kind: ElementKind, _: Any) -> ErrorBound:
    if kind is ElementKind.F64:  # the truth has 64 bits itself, of which a difference may leave few
        return Forward(1)
    return Ulp(0.51 if kind in HALVES else 0.501)


def in_torch(torch: Any, desc: Any, *, x: Any, seed: Any, offset: Any, wanted: set[str]) -> Any:
    """torch draws by no Philox of ours: where all are dropped or kept, its results are ours."""
    if 0 < desc.p < 1:
        return NotImplemented
    function = torch.nn.functional.alpha_dropout if desc.alpha else torch.nn.functional.dropout
    return {"y": function(x, desc.p, True), "mask": torch.full(desc.shape, desc.p == 0)}


_BENCHMARK = Benchmark(
    "134M bf16", shape=1 << 27, p=0.1, element="bfloat16", make=lambda torch, desc: {"seed": 1}, peers=()
)


class DropoutPlan(Plan):
    """y = x / (1 - p) where kept, else 0 (torch.nn.functional.dropout); with `alpha` as alpha_dropout.

    `seed` names a stream of Philox4x32-10 and `offset` a place in it far from all others: an element, the n-th in
    row-major order among those with draws of their own, is kept where the uniform of element n of the stream, a
    multiple of 2⁻²⁴ in [0, 1), is at least p. So results depend on p, seed, offset and the shape alone, on every
    device; give every call another offset. The backward draws again: nothing is saved.

    What is dropped is 0 whatever it was, where in PyTorch NaN and infinity times 0 are NaN. p = 1 drops everything,
    p = 0 copies.
    """

    op = "random.dropout"
    descriptor = DropoutDescriptor
    args = DropoutArgs
    reference = staticmethod(reference)
    vjp = Vjp("DropoutBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant("map", _geometry, source="random/dropout.cu", kernels=_KERNELS,
                guarantee=Guarantee(_bound)),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (_BENCHMARK,)

    @staticmethod
    def case(draw: Any) -> DropoutDescriptor:
        return _case(draw)

    @classmethod
    def complete(cls, desc: DropoutDescriptor, arrays: dict[str, Any]) -> None:
        streams(desc.shape, arrays)


def _case(draw: Any) -> DropoutDescriptor:
    """All axes have draws, or some, or none."""
    shape = draw.shape(0, 4, 0, 17)
    axis = draw.choice((None, None, tuple(a for a in range(len(shape)) if draw.flag())))
    p = draw.choice((0.5, 0.1, 0.0, 1.0, 0.75))
    return DropoutDescriptor(shape=shape, axis=axis, p=p, alpha=draw.flag(), element=draw.element)


@dataclass(slots=True, kw_only=True)
class DropoutBackwardArgs(Args):
    """Any strides; dx may be dy itself. seed and offset are those of the forward call."""

    dy: Array = operand("*shape", values=Everywhere())
    dx: Array = output("*shape", inplace=("dy",))
    seed: Scalar = scalar(integer=True, drawn="p")
    offset: Scalar = scalar(0, integer=True)


def backward_reference(desc: DropoutDescriptor, *, dy: Any, seed: Any, offset: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    scale = _rounded(desc, dy.dtype, desc.affine[0])
    with np.errstate(all="ignore"):
        return {"dx": np.where(kept(desc, seed, offset), dy * scale, dy.dtype.type(0))}


def _backward_geometry(p: Problem) -> Geometry | str:
    names = {"y": "dx", "x": "dy", "mask": "@null"}
    values = {"scale": p.desc.affine[0], "shift": -0.0, "fill": 0.0, "keep_from": keeping(p.desc.p)[0]}
    return map_geometry(p, (p.dx, p.dy, None, _draws(p.desc)), {**names, **values})


class DropoutBackwardPlan(Plan):
    """dx = the forward's scale times dy where it kept x, else 0; which that was is drawn again from seed and offset."""

    op = "random.dropout_backward"
    direction = "backward"
    descriptor = DropoutDescriptor
    args = DropoutBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant("map", _backward_geometry, source="random/dropout.cu", kernels=_KERNELS,
                guarantee=Guarantee(_bound)),
    )  # fmt: skip
    benchmarks = (_BENCHMARK,)

    @staticmethod
    def case(draw: Any) -> DropoutDescriptor:
        return _case(draw)

    @classmethod
    def complete(cls, desc: DropoutDescriptor, arrays: dict[str, Any]) -> None:
        streams(desc.shape, arrays)


_forward = functional(DropoutPlan, "dropout")
dropout_backward = functional(DropoutBackwardPlan)


def _call(
    x: Array, p: float, axis: Any, alpha: bool, training: Any, seed: Any, offset: Any, return_mask: Any, rest: Any
) -> Any:
    if not truth("training", training):
        p, seed = 0.0, 0
    return _forward(x, p=p, axis=axis, alpha=alpha, seed=seed, offset=offset, return_mask=return_mask, **rest)


@entry(DropoutPlan, alpha=False)
def dropout(
    x: Array, p: float = 0.5, *, seed: Scalar = None, offset: Scalar = 0, axis: Any = None, training: bool = True,
    return_mask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x / (1 - p), each element set to 0 with probability p (torch.nn.functional.dropout); see `DropoutPlan`.

    seed, offset: integers or 0-d device arrays, so that a captured graph can vary them; without a seed torch tensors
    draw one from torch's generator of their device, JAX arrays take a key of jax.random, key=. axis: those along which
    elements have draws of their own. training=False: a copy of x. return_mask: also what was kept.
    """
    rest = {"out": out, "stream": stream, "preference": preference}
    return _call(x, p, axis, False, training, seed, offset, return_mask, rest)


@entry(DropoutPlan, alpha=False)
def native_dropout(
    x: Array, p: float = 0.5, training: bool = True, *, seed: Scalar = None, offset: Scalar = 0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`dropout` of every element, and what was kept (torch.native_dropout)."""
    rest = {"out": out, "stream": stream, "preference": preference}
    return _call(x, p, None, False, training, seed, offset, True, rest)


@entry(DropoutPlan, alpha=True)
def alpha_dropout(
    x: Array, p: float = 0.5, *, seed: Scalar = None, offset: Scalar = 0, axis: Any = None, training: bool = True,
    return_mask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Dropout that keeps mean 0 and variance 1, for layers of selu (torch.nn.functional.alpha_dropout).

    Dropped elements become selu's lower limit, -1.758…, then all are scaled and shifted. Keywords as of `dropout`.
    """
    rest = {"out": out, "stream": stream, "preference": preference}
    return _call(x, p, axis, True, training, seed, offset, return_mask, rest)


def _channels(x: Array, name: str) -> tuple[int, int]:
    """The axes of batch and channel."""
    if len(shape := read(x, "x").shape) < 2:
        raise InvalidProblemError(f"{name} needs x of shape [batch, channel, …], got {shape}; dropout takes axis=")
    return 0, 1


@entry(DropoutPlan, alpha=False)
def feature_dropout(
    x: Array, p: float = 0.5, *, seed: Scalar = None, offset: Scalar = 0, training: bool = True,
    return_mask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Dropout of whole channels of x [batch, channel, …] (torch.feature_dropout, nn.functional.dropout1d to 3d)."""
    rest = {"out": out, "stream": stream, "preference": preference}
    return _call(x, p, _channels(x, "feature_dropout"), False, training, seed, offset, return_mask, rest)


def _of_images(name: str, spatial: int) -> Any:
    """Dropout of the channels of signals, images or volumes, of a batch or of one."""

    def call(
        x: Array, p: float = 0.5, *, seed: Scalar = None, offset: Scalar = 0, training: bool = True,
        return_mask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
    ) -> Any:  # fmt: skip
        rank = len(shape := read(x, "x").shape)
        if rank not in (spatial + 1, spatial + 2):
            raise InvalidProblemError(f"{name} needs x of {spatial + 1} or {spatial + 2} axes, got {shape}")
        rest = {"out": out, "stream": stream, "preference": preference}
        return _call(x, p, tuple(range(rank - spatial)), False, training, seed, offset, return_mask, rest)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"Dropout of whole channels of x [batch, channel, …] or [channel, …] with {spatial} axes after the channels "
        f"(torch.nn.functional.{name}). Keywords as of `dropout`."
    )
    return entry(DropoutPlan, alpha=False)(call)


dropout1d = _of_images("dropout1d", 1)
dropout2d = _of_images("dropout2d", 2)
dropout3d = _of_images("dropout3d", 3)


@entry(DropoutPlan, alpha=True)
def feature_alpha_dropout(
    x: Array, p: float = 0.5, *, seed: Scalar = None, offset: Scalar = 0, training: bool = True,
    return_mask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`alpha_dropout` of whole channels of x [batch, channel, …] (torch.nn.functional.feature_alpha_dropout)."""
    rest = {"out": out, "stream": stream, "preference": preference}
    return _call(x, p, _channels(x, "feature_alpha_dropout"), True, training, seed, offset, return_mask, rest)


@entry(DropoutPlan, alpha=False)
def stochastic_depth(
    x: Array, p: float = 0.5, mode: str = "row", *, seed: Scalar = None, offset: Scalar = 0, training: bool = True,
    return_mask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Dropout of whole samples of x [batch, …] (Huang et al. 2016; torchvision's stochastic_depth, timm's DropPath).

    mode "row": each sample draws for itself; "batch": all or none. Keywords as of `dropout`.
    """
    if mode not in ("row", "batch"):
        raise InvalidProblemError(f"mode must be 'row' or 'batch', got {mode!r}")
    if not read(x, "x").shape:
        raise InvalidProblemError("stochastic_depth needs x of shape [batch, …], got ()")
    rest = {"out": out, "stream": stream, "preference": preference}
    return _call(x, p, (0,) if mode == "row" else (), False, training, seed, offset, return_mask, rest)
