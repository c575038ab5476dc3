"""conv, conv_general_dilated and what is made of it, as jax.lax has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core import Array
from ...core.arrays import read
from ...core.checked import shown, wholes
from ...core.errors import InvalidProblemError
from ...core.numbers import plain
from ...core.outputs import beside
from ...core.views import permuted, shape_of
from ...calls.entries import entry
from ..gemm.einsum import einsum
from ..layout.creation import eye
from ..layout.moves import copy, flip
from ..layout.views import broadcast_to, reshape
from .conv import ConvPlan, conv_nd

Spec = tuple[int, ...]


def specs(dimension_numbers: Any, rank: int, default: tuple[str, str, str]) -> tuple[Spec, Spec, Spec]:
    """Of x, the filter and the result the axes (batch or outputs, channels, spatial …); by letters or numbers."""
    given = default if dimension_numbers is None else dimension_numbers
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
        raise InvalidProblemError(f"dimension_numbers must be three specifications of axes, got {shown(given)}")
    found: list[Spec] = []
    letters = [x for x in given[1] if x not in "OI"] if isinstance(given[1], str) else []
    for name, one, ends in zip(("lhs", "rhs", "out"), given, ("NC", "OI", "NC"), strict=True):
        if not isinstance(one, str):
            found.append(wholes(f"dimension_numbers[{name}]", one, 0, rank + 1))
        else:
            wanted = [*ends, *letters]
            if sorted(one) != sorted(wanted):
                raise InvalidProblemError(
                    f"dimension_numbers must name the axes {''.join(wanted)} for {name}, in any order, got {one!r}"
                )
            found.append(tuple(one.index(letter) for letter in wanted))
        if sorted(found[-1]) != list(range(rank + 2)):
            raise InvalidProblemError(f"dimension_numbers must have each of {rank + 2} axes once, got {shown(one)}")
    return found[0], found[1], found[2]


def window_padding(
    padding: Any, extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int]
) -> list[tuple[int, int]]:
    """(before, after) of each axis; "SAME" makes ⌈n / stride⌉ windows. extents and kernel: as they reach."""
    padding = plain(padding)
    if not isinstance(padding, str):
        if not isinstance(padding, Sequence) or len(padding) != len(extents):
            raise InvalidProblemError(f"padding must be VALID, SAME, SAME_LOWER or {len(extents)} pairs, got {padding}")
        pairs = [wholes(f"padding[{i}]", pair, -(2**31) + 1) for i, pair in enumerate(padding)]
        if any(len(pair) != 2 for pair in pairs):
            raise InvalidProblemError(f"padding must have (before, after) for each axis, got {padding}")
        return [(pair[0], pair[1]) for pair in pairs]
    name = padding.upper()
    if name not in ("VALID", "SAME", "SAME_LOWER"):
        raise InvalidProblemError(f"padding must be VALID, SAME, SAME_LOWER or pairs, got {shown(padding)}")
    found = []
    for n, k, s in zip(extents, kernel, stride, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0) if name != "VALID" else 0
        halves = (total // 2, total - total // 2)
        found.append(halves if name == "SAME" else halves[::-1])
    return found


def _each(name: str, value: Any, rank: int) -> tuple[int, ...]:
    found = (1,) * rank if value is None else wholes(name, value, 1)
    if len(found) != rank:
        raise InvalidProblemError(f"{name} must have {rank} integers, one for each spatial axis, got {found}")
    return found


def _rank(lhs: Any, rhs: Any) -> int:
    axes = len(shape_of(lhs, "lhs"))
    if not 3 <= axes <= 5 or len(shape_of(rhs, "rhs")) != axes:
        raise InvalidProblemError(
            f"lhs and rhs must have one to three spatial axes, the same number, got shapes {shape_of(lhs, 'lhs')} and "
            f"{shape_of(rhs, 'rhs')}"
        )
    return axes - 2


def _reach(extents: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [max((n - 1) * d + 1, 0) for n, d in zip(extents, dilation, strict=True)]


def _batches_as_channels(x: Any, count: int, stream: Any) -> Any:
    """[count · batch, channels, …] as [batch, count · channels, …]."""
    batch, channels, *space = shape_of(x, "lhs")
    apart = reshape(x, (count, batch // count, channels, *space))
    moved = permuted(apart, (1, 0, *range(2, len(space) + 3)), "lhs")
    with beside(x, stream):
        return reshape(copy(moved, stream=stream), (batch // count, count * channels, *space))


@entry(ConvPlan)
def conv_general_dilated(
    lhs: Array, rhs: Array, window_strides: Any, padding: Any, lhs_dilation: Any = None, rhs_dilation: Any = None,
    dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1, *,
    math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The convolution of jax.lax: y[n, o, p] = Σ_k Σ_c x̂[n, c, stride p - before + rhs_dilation k] rhs[o, c, k].

    lhs and rhs have one to three spatial axes. x̂: lhs with lhs_dilation - 1 zeros between its elements and padding
    around, (before, after) of each axis, which cuts where it is negative, or "VALID", "SAME", "SAME_LOWER".
    dimension_numbers: the axes of lhs, rhs and the result, as ("NHWC", "HWIO", "NHWC") or numbers; by default batch,
    channels, spatial and outputs, channels, spatial. Axes in another order are views, so that channels last is read as
    it is. feature_group_count: groups of channels; batch_group_count: groups of the batch, each with outputs of its own
    (lhs is copied). A window that fits nowhere gives no places.
    """
    rank = _rank(lhs, rhs)
    letters = "DHW"[3 - rank :]
    of_x, of_w, of_y = specs(dimension_numbers, rank, (f"NC{letters}", f"OI{letters}", f"NC{letters}"))
    groups, batches = wholes("feature_group_count, batch_group_count", (feature_group_count, batch_group_count), 1)
    x, w = permuted(lhs, of_x, "lhs"), permuted(rhs, of_w, "rhs")
    shape, filters = shape_of(x, "lhs"), shape_of(w, "rhs")
    if batches > 1:
        if groups > 1:
            raise InvalidProblemError(
                f"feature_group_count {groups} and batch_group_count {batches} cannot both be more than 1"
            )
        if shape[0] % batches or filters[0] % batches:
            raise InvalidProblemError(
                f"batch_group_count {batches} must divide the batch, {shape[0]}, and the outputs of rhs, {filters[0]}"
            )
        x, groups = _batches_as_channels(x, batches, stream), batches
    if shape_of(x, "lhs")[1] != filters[1] * groups or filters[0] % groups:
        raise InvalidProblemError(
            f"rhs must have lhs's channels / groups and outputs that groups divide: lhs has {shape_of(x, 'lhs')[1]} "
            f"channels, rhs {filters[1]} and {filters[0]} outputs, groups are {groups}"
        )
    stride = _each("window_strides", window_strides, rank)
    apart, dilation = _each("lhs_dilation", lhs_dilation, rank), _each("rhs_dilation", rhs_dilation, rank)
    if isinstance(padding, str) and max(apart) > 1:
        raise InvalidProblemError(
            f"padding must be pairs where lhs_dilation spreads, got {padding!r}; or conv_transpose"
        )
    pads = window_padding(padding, _reach(shape[2:], apart), _reach(filters[2:], dilation), stride)
    back = sorted(range(rank + 2), key=of_y.__getitem__)
    y = conv_nd(
        x, w, stride=stride, padding=pads, dilation=dilation, input_dilation=apart, groups=groups,
        math_precision=math_precision, out=None if out is None else permuted(out, of_y, "out"), stream=stream,
        preference=preference,
    )  # fmt: skip
    return permuted(y, back, "y") if out is None else out


@entry(ConvPlan)
def conv(
    lhs: Array, rhs: Array, window_strides: Any, padding: Any, *, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`conv_general_dilated` of lhs [batch, channels, …] and rhs [outputs, channels, …] (jax.lax.conv)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, math_precision=math_precision, out=out, stream=stream, preference=preference
    )


@entry(ConvPlan)
def conv_with_general_padding(
    lhs: Array, rhs: Array, window_strides: Any, padding: Any, lhs_dilation: Any = None, rhs_dilation: Any = None, *,
    math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`conv_general_dilated` with batch and outputs first, then channels (jax.lax.conv_with_general_padding)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, math_precision=math_precision, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip


def _transpose_padding(kernel: int, stride: int, padding: str) -> tuple[int, int]:
    if padding == "SAME":
        total = kernel + stride - 2
        before = kernel - 1 if stride > kernel - 1 else -(-total // 2)
    else:
        total, before = kernel + stride - 2 + max(kernel - stride, 0), kernel - 1
    return before, total - before


@entry(ConvPlan)
def conv_transpose(
    lhs: Array, rhs: Array, strides: Any, padding: Any, rhs_dilation: Any = None, dimension_numbers: Any = None,
    transpose_kernel: bool = False, *, math_precision: str = "element", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`conv_general_dilated` of lhs spread by `strides` (jax.lax.conv_transpose); channels last by default.

    padding: "SAME", n · stride places, "VALID", or pairs around the spread lhs. transpose_kernel: rhs is that of the
    convolution whose gradient this is: it is read backwards with its channels exchanged.
    """
    rank = _rank(lhs, rhs)
    letters = ("H", "HW", "HWD")[rank - 1]
    numbers = specs(dimension_numbers, rank, (f"N{letters}C", f"{letters}IO", f"N{letters}C"))
    step, dilation = _each("strides", strides, rank), _each("rhs_dilation", rhs_dilation, rank)
    shape = shape_of(rhs, "rhs")
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise InvalidProblemError(f"padding must be SAME, VALID or pairs, got {shown(padding)}")
        reach = _reach([shape[axis] for axis in numbers[1][2:]], dilation)
        padding = [_transpose_padding(k, s, padding) for k, s in zip(reach, step, strict=True)]
    if transpose_kernel:
        first, second = numbers[1][:2]
        axes = list(range(rank + 2))
        axes[first], axes[second] = second, first
        rhs = permuted(flip(rhs, axis=numbers[1][2:], stream=stream), axes, "rhs")
    return conv_general_dilated(
        lhs, rhs, (1,) * rank, padding, step, dilation, numbers, math_precision=math_precision, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip


@entry(ConvPlan)
def conv_general_dilated_patches(
    lhs: Array, filter_shape: Any, window_strides: Any, padding: Any, lhs_dilation: Any = None,
    rhs_dilation: Any = None, dimension_numbers: Any = None, *, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """What windows see, as channels (channel, place of the window) (jax.lax.conv_general_dilated_patches).

    A convolution with ones and zeros, which are multiplied: a NaN is seen by all places of its windows.
    """
    axes = len(shape_of(lhs, "lhs"))
    if not 3 <= axes <= 5:
        raise InvalidProblemError(f"lhs must have one to three spatial axes, got shape {shape_of(lhs, 'lhs')}")
    rank, letters = axes - 2, "DHW"[5 - axes :]
    size = _each("filter_shape", filter_shape, rank)
    of_x, of_w, of_y = specs(dimension_numbers, rank, (f"NC{letters}", f"OI{letters}", f"NC{letters}"))
    channels, places = shape_of(lhs, "lhs")[of_x[1]], math.prod(size)
    with beside(lhs, stream):
        one = reshape(eye(places, element=read(lhs, "lhs").element, like=lhs), (1, places, 1, *size))
        each = copy(broadcast_to(one, (channels, places, 1, *size)), stream=stream)
        w = reshape(each, (channels * places, 1, *size))
    back = sorted(range(axes), key=of_w.__getitem__)
    return conv_general_dilated(
        lhs, permuted(w, back, "w"), window_strides, padding, lhs_dilation, rhs_dilation, (of_x, of_w, of_y), channels,
        math_precision=math_precision, out=out, stream=stream, preference=preference,
    )  # fmt: skip


@entry(ConvPlan)
def conv_general_dilated_local(
    lhs: Array, rhs: Array, window_strides: Any, padding: Any, filter_shape: Any, lhs_dilation: Any = None,
    rhs_dilation: Any = None, dimension_numbers: Any = None, *, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A convolution with another filter at every place (jax.lax.conv_general_dilated_local).

    rhs has outputs, channels · places of the window (`conv_general_dilated_patches` has their order), and the result's
    spatial axes, laid out as dimension_numbers says.
    """
    rank = _rank(lhs, rhs)
    letters = "DHW"[3 - rank :]
    of_x, of_w, of_y = specs(dimension_numbers, rank, (f"NC{letters}", f"OI{letters}", f"NC{letters}"))
    plain_y = tuple(range(rank + 2))
    seen = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, (of_x, of_w, plain_y),
        math_precision=math_precision, stream=stream, preference=preference,
    )  # fmt: skip
    w = permuted(rhs, of_w, "rhs")
    if shape_of(w, "rhs")[1:] != shape_of(seen, "patches")[1:]:
        raise InvalidProblemError(
            f"rhs must have {shape_of(seen, 'patches')[1:]} (channels · places of the window, places of the result) "
            f"behind its outputs, got {shape_of(w, 'rhs')}"
        )
    to = None if out is None else permuted(out, of_y, "out")
    space = "xyz"[:rank]
    y = einsum(
        f"nc{space},oc{space}->no{space}", seen, w, math_precision=math_precision, out=to, stream=stream,
        preference=preference,
    )  # fmt: skip
    return out if out is not None else permuted(y, sorted(range(rank + 2), key=of_y.__getitem__), "y")
