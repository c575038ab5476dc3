"""scaled_dot_general, its gradient and its configuration, and scaled_dot: dot_general over blocks with scales."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import real, shown
from ...calls.composed import composed
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.exported import exported
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import permuted, reshaped, shape_of, transposed
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce
from ...core.arrays import read
from ...interop.torch_rules import followed
from ..elementwise.array_views import bitcast_convert_type
from ..elementwise.cast import cast
from ..gemm.einsum import dot_general, paired_axes
from ..gemm.matmul import matmul
from ..layout.moves import copy
from ..layout.views import contiguous
from ..quantize.affine import TARGETS
from ..quantize.block_quantize import SOURCES, block_quantize
from ..quantize.dequantize import DequantizePlan
from ..quantize.format_kinds import FormatKind
from ..quantize.scopes import dequantize, quantize
from ..random.draws import is_array
from .block_gemm import BlockGemmPlan
from .scaled import scaled_matmul

E = ElementKind
_MODES = {  # the format, its block, the element of codes and of scales
    "nvfp4": (FormatKind.NVFP4, 16, E.FP4E2M1, E.FP8E4M3),
    "mxfp8": (FormatKind.MXFP8_E4M3, 32, E.FP8E4M3, E.E8M0),
}
_OUT = (E.F32, E.BF16, E.F16)
_LARGEST = float(E.FP4E2M1.limits.max * E.FP8E4M3.limits.max)  # that nvfp4 holds beside its global scale


@exported
@dataclass(frozen=True)
class BlockScaleConfig:
    """How `scaled_dot_general` quantises an operand (JAX's BlockScaleConfig): `mode` is nvfp4 or mxfp8.

    global_scale: of nvfp4, what all of the operand is divided by first, a number above 0 or an array of one float32, by
    default 1. block_size, data_type and scale_type follow from the mode: 16 numbers of float4_e2m1fn with a
    float8_e4m3fn, or 32 of float8_e4m3fn with a power of two.
    """

    mode: str
    global_scale: Any = None

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise InvalidProblemError(f"mode must be one of {', '.join(_MODES)}, got {shown(self.mode)}")
        scale = self.global_scale
        if self.mode != "nvfp4":
            if scale is not None:
                raise InvalidProblemError(f"global_scale is for nvfp4; {self.mode} has none, got {shown(scale)}")
            return
        if scale is not None and is_array(scale):
            found = read(scale, "global_scale")
            if math.prod(found.shape) != 1 or found.element is not E.F32:
                raise InvalidProblemError(
                    f"global_scale must be a number or an array of one float32, got {found.element} {found.shape}"
                )
            object.__setattr__(self, "global_scale", reshaped(scale, (), "global_scale"))
        elif scale is not None and not 0 < real("global_scale", scale) < math.inf:
            raise InvalidProblemError(f"global_scale must be above 0 and finite, got {shown(scale)}")

    @property
    def format(self) -> FormatKind:
        """The format of codes and scales, as `block_quantize` names it."""
        return _MODES[self.mode][0]

    @property
    def block_size(self) -> int:
        """Neighbours along the summed axes with one scale."""
        return _MODES[self.mode][1]

    @property
    def data_type(self) -> ElementKind:
        """What numbers are rounded to."""
        return _MODES[self.mode][2]

    @property
    def scale_type(self) -> ElementKind:
        """What scales are rounded to."""
        return _MODES[self.mode][3]

    @property
    def factor(self) -> Any:
        """global_scale, 1 without one."""
        return 1.0 if self.global_scale is None else self.global_scale


@exported
def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """The configuration of an operand of `scaled_dot_general` (jax.nn.get_scaled_dot_general_config).

    mode: "nvfp4" or "mxfp8". global_scale: of nvfp4, see `BlockScaleConfig`.
    """
    return BlockScaleConfig(mode, global_scale)


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _block_ranges() -> Any:
    return reduce(f"amax(abs(float32(x))) / {float(E.FP8E4M3.limits.max)}", axis=-1)


# The bits of a float32 that is not negative as a power of two that is not below it: 255 (NaN) of NaN and infinity.
_POWERS = "_e = b >> 23; uint8(minimum(_e + int32((b & 0x7fffff) > where(_e == 0, 0x400000, 0)), 255))"


def _quantized(x: Any, config: BlockScaleConfig, name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """(codes, scales) of a matrix [batch, rows, k] in blocks along k."""
    shape, size = shape_of(x, name), config.block_size
    if shape[-1] % size or not shape[-1]:
        raise InvalidProblemError(
            f"{config.mode} takes blocks of {size} along the summed axes, which of {name} have {shape[-1]} elements; "
            f"a multiple of {size}, above 0, would do"
        )
    if config.mode == "nvfp4":
        codes, scales = block_quantize(x, kind=config.format, scale=config.factor, **options)
        return codes, scales
    blocks = reshaped(x, (*shape[:-1], shape[-1] // size, size), name)
    bits = bitcast_convert_type(_block_ranges()(blocks, **options), E.I32)
    powers = _formula(_POWERS)(bits, **options)
    to: dict[str, Any] = {"to_element": E.FP8E4M3, "scale_element": E.E8M0, "block_shape": (1, 1, size)}
    codes = quantize(x, powers, **to, **options)
    return codes if read(codes, name).element is E.U8 else bitcast_convert_type(codes, E.U8), powers


def _dense(x: Any, options: dict[str, Any]) -> Any:
    """x, or a dense copy, made in the order of the call's stream."""
    with beside(x, options["stream"]):
        return contiguous(x)


def _matrices(x: Any, *axes: Sequence[int], name: str, options: dict[str, Any]) -> Any:
    """x as [batch, rows, summed] of its axes in that order; a copy where it is not dense in it."""
    shape = shape_of(x, name)
    view = _dense(permuted(x, [axis for part in axes for axis in part], name), options)
    return reshaped(view, [math.prod(shape[axis] for axis in part) for part in axes], name)


def _multiplied(
    a: Any, b: Any, configs: Sequence[BlockScaleConfig], names: Sequence[str], element: ElementKind, out: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    """The product [batch, m, n] of [batch, m, k] and [batch, n, k], quantised, in `element`."""
    (left, sa), (right, sb) = (
        _quantized(x, c, name, options) for x, c, name in zip((a, b), configs, names, strict=True)
    )
    factors = {s: c.factor for s, c in zip("st", configs, strict=True) if c.global_scale is not None}
    plain = not factors and element is not E.F16
    made = scaled_matmul(
        left, right, sa, sb, kind=configs[0].format, out_element=element if plain else E.F32,
        out=out if plain else None, **options,
    )  # fmt: skip
    if plain:
        return made
    return _formula(f"{element}({' * '.join(('y', *factors))})")(y=made, **factors, out=out, **options)


class _Axes:
    """The axes of both operands, by what becomes of them, and the shape of the product."""

    def __init__(self, a: Any, b: Any, dimension_numbers: Any) -> None:
        summed, batch = paired_axes("scaled_dot_general", a, b, dimension_numbers)
        self.shapes = shapes = shape_of(a, "a"), shape_of(b, "b")
        for i, j in (summed | batch).items():
            if shapes[0][i] != shapes[1][j]:
                raise InvalidProblemError(
                    f"scaled_dot_general: axis {i} of a {shapes[0]} and axis {j} of b {shapes[1]} are not as long"
                )
        self.summed = tuple(summed), tuple(summed.values())
        self.batch = tuple(batch), tuple(batch.values())
        self.kept = tuple(
            tuple(i for i in range(len(shape)) if i not in (*self.summed[k], *self.batch[k]))
            for k, shape in enumerate(shapes)
        )

    def extents(self, k: int, axes: Sequence[int]) -> tuple[int, ...]:
        """Those of some axes of an operand, 0 or 1."""
        return tuple(self.shapes[k][axis] for axis in axes)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """That of the product."""
        return self.extents(0, self.batch[0]) + self.extents(0, self.kept[0]) + self.extents(1, self.kept[1])

    @property
    def flat(self) -> tuple[int, int, int]:
        """The product as [batch, rows, columns]."""
        parts = self.extents(0, self.batch[0]), self.extents(0, self.kept[0]), self.extents(1, self.kept[1])
        return math.prod(parts[0]), math.prod(parts[1]), math.prod(parts[2])

    def restored(self, made: Any, k: int) -> Any:
        """[batch, rows, summed] as the operand of whose axes in that order it is made."""
        order = (*self.batch[k], *self.kept[k], *self.summed[k])
        whole = reshaped(made, self.extents(k, order), "made")
        return permuted(whole, [order.index(axis) for axis in range(len(order))], "made")


def _checked(configs: Any) -> Sequence[BlockScaleConfig]:
    listed = isinstance(configs, (list, tuple))
    if not listed or len(configs) != 3 or not all(isinstance(c, BlockScaleConfig) for c in configs):
        raise InvalidProblemError(
            f"configs must be three BlockScaleConfig, of a, b and the gradient, or None, got {shown(configs)}"
        )
    if len({c.mode for c in configs}) > 1:
        raise InvalidProblemError(f"configs must have one mode, got {', '.join(c.mode for c in configs)}")
    return configs  # type: ignore[no-any-return]


def _wide(x: Any, name: str) -> ElementKind:
    found = read(x, name).element
    if found not in SOURCES:
        raise UnsupportedError(f"{name} must hold one of {', '.join(map(str, SOURCES))}, got {found}; cast it first")
    return found


@composed("scaled_dot_general_backward", "a", "b", where=lambda held: held["configs"] is not None)
@entry(BlockGemmPlan, kind=FormatKind.MXFP8_E4M3, element=E.BF16, out_element=E.F32)
def scaled_dot_general(
    a: Array, b: Array, dimension_numbers: Any, out_element: Any = "float32", configs: Any = None, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`dot_general` of operands that are quantised on the way, in blocks along the summed axes
    (jax.nn.scaled_dot_general).

    a, b: float32, float16 or bfloat16; dimension_numbers ((a's summed, b's summed), (a's batch, b's batch)). The result
    has the batch axes, then a's others, then b's, in out_element: float32, bfloat16 or float16. configs: three of
    `get_scaled_dot_general_config`, of a, b and the gradient, of one mode; None is `dot_general` itself.

    mxfp8: the power of two of a block is the least with max |x| / 448 not above it, so that nothing saturates (unlike
    `block_quantize`, which rounds as OCP says). nvfp4: as `block_quantize`, with the global scale. Quotients are
    rounded to nearest even, sums are in float32. An operand that is not dense in the order batch, others, summed is
    copied first; three launches an operand (nvfp4 one), and those of `scaled_matmul`.

    The gradient is straight through: products of the quantised dy with the quantised other operand, both in blocks of
    configs along the axes that they sum (of mxfp8, so that these must be multiples of 32); of nvfp4 of dy and the
    operands themselves, 0 where |x| is above 6 · 448 · global_scale. Global scales are constants.
    """
    options = {"stream": stream, "preference": preference}
    element = ElementKind.of(out_element)
    if element not in _OUT:
        raise UnsupportedError(f"out_element must be one of {', '.join(map(str, _OUT))}, got {element}")
    if configs is None:
        return dot_general(a, b, dimension_numbers, out_element=element, out=out, **options)
    configs, axes = _checked(configs), _Axes(a, b, dimension_numbers)
    _wide(a, "a"), _wide(b, "b")
    left, right = (
        _matrices(x, axes.batch[k], axes.kept[k], axes.summed[k], name="ab"[k], options=options)
        for k, x in enumerate((a, b))
    )
    (given,) = each_of(out, 1)
    if given is not None and shape_of(given, "out") != axes.out_shape:
        raise InvalidProblemError(f"out must have shape {axes.out_shape}, got {shape_of(given, 'out')}")
    to = None if given is None else reshaped(given, axes.flat, "out")
    if given is not None and to is None:
        raise UnsupportedError("out must have its rows and columns in even steps; give a contiguous array")
    made = _multiplied(left, right, configs[:2], "ab", element, to, options)
    return given if given is not None else reshaped(made, axes.out_shape, "y")


@entry(BlockGemmPlan, kind=FormatKind.MXFP8_E4M3, element=E.BF16, out_element=E.F32)
def scaled_dot_general_backward(
    dy: Array, a: Array, b: Array, dimension_numbers: Any, out_element: Any = "float32", configs: Any = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, db) of `scaled_dot_general`, straight through the quantisation, which says what is multiplied.

    dy has the shape of the result. Products are in float32 and rounded to the element of a and of b. out_element, which
    dy tells, is not looked at.
    """
    del out_element
    if followed((dy, a, b)) and sys.modules["torch"].is_grad_enabled():
        raise UnsupportedError(
            "scaled_dot_general_backward has no gradient, and an operand requires grad; give its .detach(), or call "
            "under torch.no_grad()"
        )
    options = {"stream": stream, "preference": preference}
    configs, axes = _checked(configs), _Axes(a, b, dimension_numbers)
    if shape_of(dy, "dy") != axes.out_shape:
        raise InvalidProblemError(f"dy must have shape {axes.out_shape}, got {shape_of(dy, 'dy')}")
    _wide(dy, "dy")
    slopes = reshaped(_dense(dy, options), axes.flat, "dy")
    made, to = [], each_of(out, 2)
    for k, (x, other) in enumerate(((a, b), (b, a))):
        element, dual = _wide(x, "ab"[k]), 1 - k
        rows = slopes if k == 0 else _dense(transposed(slopes, "dy"), options)
        weight = _matrices(
            other, axes.batch[dual], axes.summed[dual], axes.kept[dual], name="ab"[dual], options=options
        )
        if configs[2].mode == "nvfp4":
            wide = [x if read(x, "x").element is E.F32 else cast(x, E.F32, **options) for x in (rows, weight)]
            found = axes.restored(matmul(wide[0], transposed(wide[1], "x"), **options), k)
            text = f"{element}(where(abs(float32(x)) <= s * {_LARGEST}, d, 0))"
            made.append(_formula(text)(x=x, s=configs[k].factor, d=found, out=to[k], **options))
        else:
            pair, names = (configs[2], configs[dual]), ("dy", "ab"[dual])
            found = axes.restored(_multiplied(rows, weight, pair, names, element, None, options), k)
            made.append(found if to[k] is None else copy(found, out=to[k], **options))
    return made[0], made[1]


@entry(DequantizePlan)
def scaled_dot(
    a: Array, b: Array, scale_a: Array | None = None, scale_b: Array | None = None, *, dimension_numbers: Any = None,
    out_element: Any = "bfloat16", element: Any = None, scale_element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(a · scale_a) @ (b · scale_b): `dot_general` of operands in few bits with their scales (jax.lax.scaled_dot).

    a, b: int8, float8 or others that `dequantize` takes, or floats without a scale. A scale has its operand's axes,
    each as long, or, where it is summed, shorter by a whole factor: float32, or powers of two as float8_e8m0fnu. By
    default a is [*batch, m, k] and b [*batch, k, n]. out_element: bfloat16 or float32, what numbers times their scales
    are rounded to; sums are in float32. element, scale_element: what uint8 operands and scales hold. One launch an
    operand, then the product; where blocks lie along the last axis `scaled_matmul` reads b as it is stored.
    """
    goal, options = ElementKind.of(out_element), {"stream": stream, "preference": preference}
    if goal not in (E.BF16, E.F32):
        raise UnsupportedError(f"out_element must be bfloat16 or float32, got {goal}")
    if dimension_numbers is None:
        rank = len(shape_of(a, "a"))
        if rank < 2 or len(shape_of(b, "b")) != rank:
            raise InvalidProblemError(
                f"a and b must have the same number of axes, two at least, where dimension_numbers is None, got "
                f"{shape_of(a, 'a')} and {shape_of(b, 'b')}"
            )
        lead = tuple(range(rank - 2))
        dimension_numbers = ((rank - 1,), (rank - 2,)), (lead, lead)
    summed, _ = paired_axes("scaled_dot", a, b, dimension_numbers)
    left, right = (
        _values(x, scale, name, axes, goal, element, scale_element, options)
        for x, scale, name, axes in ((a, scale_a, "a", tuple(summed)), (b, scale_b, "b", tuple(summed.values())))
    )
    return dot_general(left, right, dimension_numbers, out=out, **options)


def _values(
    x: Any, scale: Any, name: str, summed: Sequence[int], goal: ElementKind, element: Any, scale_element: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    """An operand times its scale, in `goal`."""
    found = read(x, name).element
    held = ElementKind.of(element) if found is E.U8 and element is not None else found
    if scale is None:
        return x if held is goal else cast(x, goal, element=held, **options)
    if held not in TARGETS:
        raise UnsupportedError(
            f"{name} with a scale must hold one of {', '.join(map(str, TARGETS))}, got {held}; multiply it first"
        )
    shape, scales = shape_of(x, name), shape_of(scale, f"scale_{name}")
    fits = len(scales) == len(shape) and all(
        n == m or (axis in summed and m and n % m == 0) for axis, (n, m) in enumerate(zip(shape, scales, strict=True))
    )
    if not fits:
        raise InvalidProblemError(
            f"scale_{name} must have the shape of {name} {shape}, but for the summed axes {tuple(summed)}, which it "
            f"divides into blocks, got {scales}"
        )
    blocks = tuple(n // m if m else 1 for n, m in zip(shape, scales, strict=True))
    more = {} if scale_element is None else {"scale_element": scale_element}
    return dequantize(x, scale, block_shape=blocks, to_element=goal, element=held, **more, **options)
