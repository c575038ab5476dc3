"""rope_varlen: the rotary embedding of packed sequences, whose positions begin anew with each (other libraries' "thd").

A composition: the bounds give each token its position (`batch_indices_positions`), and `rope` turns all tokens in one
launch, as rows of one sequence. All that comes before is a number a token or sequence, or, with tables, a row a token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....calls.entries import entry
from ....core import Array, ElementKind as E, Scalar
from ....core.arrays import read
from ....core.checked import whole
from ....core.element import INDICES
from ....core.errors import InvalidProblemError
from ....core.outputs import each_of
from ....core.views import cut, shape_of, with_axis, without_axes
from ...elementwise.binary_functions import add, lt, subtract
from ...elementwise.cast import cast
from ...elementwise.ternary_functions import clip, where
from ...indexing.take import take
from ...scan.scan_extreme import cummax
from ..cache.batch_indices_positions import batch_indices_positions
from .rope import RopePlan, rope
from .rope_backward import RopeBackwardPlan, rope_backward


def _checked(cu_seqlens: Any, offsets: Any) -> dict[str, Any]:
    """The bounds, and the offsets where they are an array or a number but 0, both of one kind of integers."""
    given = {"cu_seqlens": cu_seqlens} | ({} if _is_number(offsets) else {"offsets": offsets})
    for name, array in given.items():
        view, wanted = read(array, name), "[sequences + 1]" if name == "cu_seqlens" else "[sequences]"
        if view.element not in INDICES:
            raise InvalidProblemError(f"{name} must be int32 or int64, got {view.element}")
        if len(view.shape) != 1 or view.shape[0] < (name == "cu_seqlens"):
            raise InvalidProblemError(f"{name} must have shape {wanted}, got {view.shape}")
    count = shape_of(cu_seqlens, "cu_seqlens")[0] - 1
    if "offsets" in given and (found := shape_of(offsets, "offsets")) != (count,):
        raise InvalidProblemError(f"offsets must have shape ({count},), one a sequence of cu_seqlens, got {found}")
    number = 0 if "offsets" in given else whole("offsets", offsets, -(2**63), 2**63 - 1)
    return given | ({"offsets": number} if number else {})


def _is_number(offsets: Any) -> bool:
    """Whether all sequences have one offset."""
    return isinstance(offsets, (int, float, np.number))


def token_positions(cu_seqlens: Any, offsets: Any, total: int, options: dict[str, Any]) -> Any:
    """The position of each of `total` packed tokens in its sequence, whose first is at its offset."""
    given = _checked(cu_seqlens, offsets)
    arrays = {name: read(array, name).element for name, array in given.items() if not _is_number(array)}
    number = given["offsets"] if "offsets" in given and "offsets" not in arrays else 0
    if E.I64 in arrays.values() or not -(2**31) <= number < 2**31 or total >= 2**31:
        given |= {name: cast(given[name], E.I64, **options) for name, held in arrays.items() if held is not E.I64}
    bounds = cummax(clip(given["cu_seqlens"], 0, total, **options), **options)[0]
    count = shape_of(cu_seqlens, "cu_seqlens")[0] - 1
    starts, ends = (cut(bounds, (part,), "cu_seqlens") for part in (slice(0, count), slice(1, count + 1)))
    reached = subtract(ends, starts, **options)
    if "offsets" in given:
        reached = add(reached, given["offsets"], **options)
    sequence, positions = batch_indices_positions(bounds, reached, num_tokens=total, **options)
    return where(lt(sequence, 0, **options), 0, positions, **options)


def _tokens(x: Any, name: str) -> int:
    """The length of packed x."""
    shape = shape_of(x, name)
    if len(shape) != 3:
        raise InvalidProblemError(f"{name} must be packed, [total, heads, head_dim], got shape {shape}")
    return shape[0]


def _turned(
    turn: Callable[..., Any], names: tuple[str, str], x: Any, x2: Any, cu_seqlens: Any, offsets: Any, cos: Any,
    sin: Any, out: Any, attributes: dict[str, Any], options: dict[str, Any],
) -> Any:  # fmt: skip
    """x, or x and x2, turned by the angles of their tokens' positions."""
    given = [(n, a) for n, a in zip(names, (x, x2), strict=True) if a is not None]
    totals = [_tokens(a, n) for n, a in given]
    if totals[0] != totals[-1]:
        raise InvalidProblemError(f"{names[1]} has {totals[-1]} tokens, {names[0]} has {totals[0]}: they go together")
    tables = {name: table for name, table in (("cos", cos), ("sin", sin)) if table is not None}
    if len(tables) == 1:
        raise InvalidProblemError("cos and sin go together: give both or neither")
    if tables and attributes["inv_freq"] is not None:
        raise InvalidProblemError("cos and sin replace inv_freq; give the ones or the other")
    for name, table in tables.items():
        if len(shape_of(table, name)) != 2:
            found = shape_of(table, name)
            raise InvalidProblemError(f"{name} must have a row for each position, [positions, columns], got {found}")
    positions = token_positions(cu_seqlens, offsets, totals[0], options)
    angles = {name: take(table, positions, axis=0, **options) for name, table in tables.items()}
    angles = angles or {"positions": positions}
    outs = [None if one is None else with_axis(one, 0, "out") for one in each_of(out, len(given))]
    batches = {name: with_axis(array, 0, name) for name, array in given}
    into = None if out is None else outs[0] if len(outs) == 1 else tuple(outs)
    made = turn(**batches, **angles, **attributes, layout="bshd", out=into, **options)
    if out is not None:
        return out
    results = [without_axes(one, {0}, "y") for one in (made if len(given) > 1 else (made,))]
    return tuple(results) if len(results) > 1 else results[0]


@entry(RopePlan)
def rope_varlen(
    x: Array, cu_seqlens: Array, x2: Array | None = None, *, offsets: Array | int = 0,
    inv_freq: Array | None = None, cos: Array | None = None, sin: Array | None = None, rotary_dim: int | None = None,
    pairing: str = "half", base: float = 10000.0, scale: Scalar = 1.0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`rope` of packed sequences: row t of x, in sequence b, is turned as position t - cu_seqlens[b] + offsets[b].

    x [total, heads, head_dim], x2 the same with heads of its own; cu_seqlens [sequences + 1], int32 or int64, has where
    each sequence begins and where the last ends, offsets [sequences] the position of each sequence's first token; a
    number is that of all. Given x2 the result is (y, y2). cos and sin, [positions, pairs] or
    [positions, rotary_dim], have a row for each position; beyond the last row y is 0, and a negative position counts
    from the end. Everything else is that of `rope`. This is tensor_format="thd" of NVIDIA's Transformer Engine and
    cu_seqlens of flash-attn's apply_rotary_emb, where every token of q or k has its place in a sequence. Bounds are
    clamped to [0, total] and to the largest bound before them; rows before the first and after the last bound belong to
    no sequence, at position 0 whatever the offsets. Gradients of x and x2 come by torch's autograd and JAX, or
    by `rope_varlen_backward`.
    """
    attributes = {
        "inv_freq": inv_freq, "rotary_dim": rotary_dim, "pairing": pairing, "base": base, "scale": scale,
    }  # fmt: skip
    options = {"stream": stream, "preference": preference}
    return _turned(rope, ("x", "x2"), x, x2, cu_seqlens, offsets, cos, sin, out, attributes, options)


@entry(RopeBackwardPlan)
def rope_varlen_backward(
    dy: Array, cu_seqlens: Array, dy2: Array | None = None, *, offsets: Array | int = 0,
    inv_freq: Array | None = None, cos: Array | None = None, sin: Array | None = None, rotary_dim: int | None = None,
    pairing: str = "half", base: float = 10000.0, scale: Scalar = 1.0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradient of `rope_varlen`: dy, and dy2 beside it, turned back by the angles of the forward call.

    Everything but dy and dy2, [total, heads, head_dim], is that of the forward call.
    """
    attributes = {
        "inv_freq": inv_freq, "rotary_dim": rotary_dim, "pairing": pairing, "base": base, "scale": scale,
    }  # fmt: skip
    options = {"stream": stream, "preference": preference}
    return _turned(rope_backward, ("dy", "dy2"), dy, dy2, cu_seqlens, offsets, cos, sin, out, attributes, options)
