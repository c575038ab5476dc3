"""The launch of a filter's gradient where groups have few channels (kernels/conv/pairs.cu).

Threads stand along what is nearest in memory: pairs of an output and a channel where channels are last, lines of places
otherwise, of which the axes are exchanged so that a line's places lie one behind another on the axis before the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..core.element import ElementKind
from .conv_kernels import PAIR_PLACES, PAIR_THREADS, pair_vector, register_rows
from .conv_problem import Convolution, Field, Filter, Six
from .map import divider

_WARP = 32
_BLOCKS, _LINES, _MOST = 512, 4, 1024  # of a launch; lines of a thread at least; splits at most


@dataclass(frozen=True)
class Pairs:
    """The launch, the convolution and the filter as it has their axes, and how many pairs and splits there are."""

    values: dict[str, Any]
    axes: dict[str, Any]
    blocks: int
    threads: int
    conv: Convolution
    to: Filter
    pairs: int
    splits: int


def _exchanged(conv: Convolution) -> Convolution:
    """With the last two axes exchanged."""
    names = ("in_extent", "out_extent", "kernel", "stride", "padding", "dilation")
    return replace(conv, **{name: _last_two(getattr(conv, name)) for name in names})


def _last_two(values: Any) -> Any:
    return (*values[:-2], values[-1], values[-2])


def along_channels(conv: Convolution, steps: Six) -> bool:
    """Whether outputs lie closer together than places."""
    step = abs(steps[2] if conv.cols > 1 else steps[1])
    return all(step <= abs(s) for s, n in zip(steps[3:], conv.out_extent, strict=True) if n > 1)


def pairs_of(conv: Convolution, x: Field, dy: Field, to: Filter, kind: ElementKind, pieces: bool) -> Pairs:
    """The launch; pieces: neighbouring groups of x and dy lie together in whole pieces of 16 bytes.

    What the order of sums follows from (lanes, splits) is told by the extents and by which axes are nearest in memory.
    """
    inner = along_channels(conv, dy.steps)
    x_steps, y_steps = x.steps, dy.steps
    if not inner and conv.out_extent[1] > 1:
        conv, x_steps, y_steps = _exchanged(conv), _last_two(x_steps), _last_two(y_steps)
        to = replace(to, steps=_last_two(to.steps))
    plain = conv.stride[2] == conv.dilation[2] == 1 and conv.kernel[2] in register_rows(kind)
    run = conv.kernel[2] if plain else 1
    vector = pair_vector(kind) if inner and pieces and conv.cols == conv.channels == 1 else 1
    pairs, runs = conv.groups * conv.cols * conv.channels, conv.taps // run
    most = PAIR_THREADS // _WARP
    block_runs = -(-runs // max(1, -(-runs // most)))
    lanes = (1 << (most // block_runs).bit_length() - 1) * (1 if inner else _WARP)
    width = min(_WARP, -(-pairs // vector)) if inner else 1
    chunks = -(-conv.out_extent[2] // PAIR_PLACES)
    lines = conv.batch * conv.out_extent[0] * chunks * conv.out_extent[1]
    per_split = (-(-pairs // (4 * _WARP)) if inner else pairs) * -(-runs // block_runs)
    splits = max(1, min(-(-_BLOCKS // per_split), lines // (lanes * _LINES), _MOST))
    each = max(1, -(-lines // splits))
    splits = -(-lines // each)
    names = ("cols", "channels", "taps", "in_extent", "out_extent", "kernel", "stride", "padding", "dilation")
    values = {name: getattr(conv, name) for name in names} | {
        "x": x.place.slot, "y": dy.place.slot, "x_steps": x_steps, "y_steps": y_steps, "pairs": pairs, "runs": runs,
        "lines": lines, "split_lines": each, "chunks": chunks, "width": width, "lanes": lanes, "block_runs": block_runs,
        "narrow": lines < 2**31,
        "dividers": [divider(n) if lines else (0, 0, 0) for n in (conv.out_extent[1], chunks, conv.out_extent[0])],
    }  # fmt: skip
    blocks = splits * -(-pairs // (width * vector)) * -(-runs // block_runs)
    threads = -(-width * lanes * block_runs // _WARP) * _WARP
    return Pairs(values, {"N": vector, "K": run}, blocks, threads, conv, to, pairs, splits)
