"""deform_conv2d and ms_deformable_attention: what a network reads at places that it finds itself."""

from __future__ import annotations

import math
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import sequence, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of, with_axis
from ..gemm.einsum import einsum
from ..layout.concat import concat
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.parts import unbind
from ..layout.views import movedim, reshape
from ..segment.gather_scatter import GatherScatterPlan
from .resizing import numbers_of
from .sampling import float_like, formula, places, shaped, summed


@entry(GatherScatterPlan)
def ms_deformable_attention(
    value: Array, spatial_shapes: Any, sampling_locations: Array, attention_weights: Array, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Attention of queries to a few places of several images (Zhu et al. 2021, Deformable DETR).

    value: [B, Σ H·W, heads, D], the levels' places one behind the other; spatial_shapes: (H, W) of every level, on the
    host; sampling_locations: [B, Q, heads, levels, points, 2], (x, y) in [0, 1] of a level; attention_weights: [B, Q,
    heads, levels, points]. Returns [B, Q, heads · D], the sum of weights times what is read bilinearly, with 0 outside.
    Locations and weights are in value's element or its accumulator. Gradients for all three are sums in a fixed order.
    """
    options = {"stream": stream, "preference": preference}
    shape, at = shape_of(value, "value"), shape_of(sampling_locations, "sampling_locations")
    levels = [wholes("spatial_shapes", one, 1) for one in sequence("spatial_shapes", spatial_shapes, "(H, W)")]
    count = sum(math.prod(one) for one in levels)
    if len(shape) != 4 or any(len(one) != 2 for one in levels) or shape[1] != count:
        raise InvalidProblemError(
            f"value must be [B, {count}, heads, D] for spatial_shapes {levels}, pairs (H, W), got shape {shape}"
        )
    batch, _, heads, width = shape
    if len(at) != 6 or (at[0], at[2], at[3], at[5]) != (batch, heads, len(levels), 2):
        raise InvalidProblemError(
            f"sampling_locations must be [{batch}, Q, {heads}, {len(levels)}, points, 2], got shape {at}"
        )
    if shape_of(attention_weights, "attention_weights") != at[:5]:
        raise InvalidProblemError(
            f"attention_weights must be {at[:5]}, got shape {shape_of(attention_weights, 'attention_weights')}"
        )
    kind = float_like(value, "value")
    for one, name in ((sampling_locations, "sampling_locations"), (attention_weights, "attention_weights")):
        if read(one, name).element not in (kind, kind.acc):
            raise InvalidProblemError(f"{name} must be {kind} or {kind.acc}, got {read(one, name).element}")
    with beside(value, stream):
        images = reshape(arange(batch, like=value), (batch, 1, 1, 1, 1))
        head = reshape(arange(heads, like=value), (heads, 1, 1))
    rows, weights, start = [], [], 0
    spots, shares = unbind(sampling_locations, 3), unbind(attention_weights, 3)
    for (height, wide), spot, share in zip(levels, spots, shares, strict=True):
        c, r = unbind(spot, -1)
        grid = [formula("2 * x - 1")(x=one, **options) for one in (r, c)]
        src, weight = places(grid, (height, wide), "bilinear", "zeros", False, 0, options, grid=True)
        placed = formula("(b * n + s + r) * g + h if r >= 0 else -1")
        rows.append(placed(r=src, b=images, n=count, s=start, g=heads, h=head, **options))
        text = f"{kind.acc}(w) * a" if kind.acc is not kind else "w * a"
        weights.append(formula(text)(w=weight, a=with_axis(share, 4, "a"), **options))
        start += height * wide
    tokens = (batch * at[1] * heads, -1)
    src = concat([shaped(one, tokens, options) for one in rows], axis=1, **options)
    weight = concat([shaped(one, tokens, options) for one in weights], axis=1, **options)
    cells = shaped(value, (batch * count * heads, width), options)
    y = summed(cells, src, weight, batch * at[1] * heads, options)
    made = reshape(y, (batch, at[1], heads * width))
    return made if out is None else copy(made, out=out, **options)


@entry(GatherScatterPlan)
def deform_conv2d(
    x: Array, offset: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, mask: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A convolution whose taps are moved (torchvision.ops.deform_conv2d): v1, and v2 with a mask (Zhu et al. 2019).

    x: [N, C, H, W]; weight: [O, C / groups, kh, kw]; offset: [N, 2 · G · kh · kw, oh, ow], (row, column) of every tap
    of G groups of channels; mask: [N, G · kh · kw, oh, ow], what is read times it; bias: [O]. Taps are read bilinearly,
    with 0 outside. What the taps read is written once, [N, oh, ow, kh · kw, C], and multiplied by weight. Gradients for
    all operands are sums in a fixed order.
    """
    options = {"stream": stream, "preference": preference}
    shape, taps = shape_of(x, "x"), shape_of(weight, "weight")
    if len(shape) != 4 or len(taps) != 4 or min(shape[1:]) < 1 or min(taps) < 1 or shape[1] % taps[1]:
        raise InvalidProblemError(
            f"x must be [N, C, H, W] and weight [O, C / groups, kh, kw], got shapes {shape} and {taps}"
        )
    n, channels, *own = shape
    steps, pads, apart = (
        wholes(name, numbers_of(name, value, 2), least)
        for name, value, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    )
    groups, kernel = channels // taps[1], taps[2:]
    if taps[0] % groups:
        raise InvalidProblemError(f"weight must have outputs for each of {groups} groups, got shape {taps}")
    size = tuple(
        (m + 2 * p - d * (k - 1) - 1) // s + 1 for m, p, d, k, s in zip(own, pads, apart, kernel, steps, strict=True)
    )
    count, given = math.prod(kernel), shape_of(offset, "offset")
    parts = given[1] // (2 * count) if len(given) == 4 else 0
    if min(size) < 1 or parts < 1 or given != (n, 2 * parts * count, *size) or channels % parts:
        raise InvalidProblemError(
            f"offset must be [{n}, 2 · G · {count}, {size[0]}, {size[1]}] with G dividing {channels}, got shape {given}"
        )
    kind = float_like(x)
    if mask is not None and shape_of(mask, "mask") != (n, parts * count, *size):
        raise InvalidProblemError(f"mask must be {(n, parts * count, *size)}, got shape {shape_of(mask, 'mask')}")
    if bias is not None and shape_of(bias, "bias") != taps[:1]:
        raise InvalidProblemError(f"bias must be {taps[:1]}, got shape {shape_of(bias, 'bias')}")
    for name, one in (("offset", offset), ("weight", weight), ("mask", mask), ("bias", bias)):
        if one is not None and read(one, name).element is not kind:
            raise InvalidProblemError(f"{name} must have x's element, {kind}, got {read(one, name).element}")
    both = unbind(shaped(offset, (n, parts, count, 2, *size), options), 3)
    moved = [movedim(movedim(one, 1, -1), 1, -2) for one in both]
    with beside(x, stream):
        number = reshape(arange(count, like=x), (count, 1))
        rows, columns = (arange(m, like=x) for m in size)
        group = reshape(arange(parts, like=x), (parts, 1))
        images = reshape(arange(n, like=x), (n, 1, 1, 1, 1))
    rows, columns = reshape(rows, (size[0], 1, 1, 1)), reshape(columns, (size[1], 1, 1))
    wide = str(kind.acc)
    found = []
    for a, (one, place, tap) in enumerate(
        zip(moved, (rows, columns), (f"k // {kernel[1]}", f"k % {kernel[1]}"), strict=True)
    ):
        text = f"{wide}(d) + (i * {steps[a]} - {pads[a]} + ({tap}) * {apart[a]})"
        found.append(formula(text)(d=one, i=place, k=number, **options))
    src, share = places(found, own, "bilinear", "zeros", False, images, options)
    src = formula("r * g + h if r >= 0 else -1")(r=src, g=parts, h=group, **options)
    if mask is not None:
        given_mask = movedim(movedim(shaped(mask, (n, parts, count, *size), options), 1, -1), 1, -2)
        share = formula("w * m")(w=share, m=with_axis(given_mask, 5, "mask"), **options)
    cells = shaped(movedim(x, 1, -1), (n * math.prod(own) * parts, channels // parts), options)
    read_there = summed(cells, src, share, n * math.prod(size) * count * parts, options)
    columns_of = reshape(read_there, (n, math.prod(size), count, groups, channels // groups))
    filters = shaped(weight, (groups, taps[0] // groups, taps[1], count), options)
    y = shaped(einsum("npkgc,gock->ngop", columns_of, filters, **options), (n, taps[0], *size), options)
    if bias is not None:
        y = formula("y + b")(y=y, b=reshape(bias, (taps[0], 1, 1)), **options)
    return y if out is None else copy(y, out=out, **options)
