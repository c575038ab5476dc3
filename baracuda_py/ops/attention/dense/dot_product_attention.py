"""dot_product_attention: attention as jax.nn spells it, by `flash_sdpa`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....core import Array, ElementKind as E
from ....core.checked import shown, whole
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....core.outputs import beside, each_of
from ....core.tensor import broadcast_shape
from ....core.views import reshaped, shape_of, with_axis, without_axes
from ....core.arrays import read
from ...elementwise.binary_functions import less, logical_and
from ...elementwise.ternary_functions import where
from ...layout.creation import arange
from .flash_sdpa import FlashSdpaPlan, flash_sdpa

_HIDDEN = float("-inf")
_SCORES = "the scores [B, N, T, S]"


def one_element(named: Iterable[tuple[str, Any]]) -> None:
    """Raises unless arrays hold what the first does."""
    (first, x), *others = named
    wanted = read(x, first).element
    for name, other in others:
        if (found := read(other, name).element) is not wanted:
            raise InvalidProblemError(f"{name} must hold {wanted} as {first} does, got {found}; cast it first")


def _operands(query: Any, key: Any, value: Any) -> tuple[tuple[int, int, int, int], bool, list[Any]]:
    """([B, N, T, S], whether the batch axis is made here, the operands of four axes)."""
    named = (("query", query), ("key", key), ("value", value))
    q, k, v = shapes = [shape_of(x, name) for name, x in named]
    if {*map(len, shapes)} not in ({3}, {4}):
        raise InvalidProblemError(
            f"query, key and value must be [B, T, N, H], [B, S, K, H], [B, S, K, H], or without B, got {q}, {k} and {v}"
        )
    if k[:-1] != v[:-1] or q[:-3] != k[:-3] or q[-1] != k[-1]:
        raise InvalidProblemError(
            f"query [B, T, N, H], key [B, S, K, H] and value [B, S, K, D] do not fit together, got {q}, {k} and {v}"
        )
    if q[-2] % max(k[-2], 1) or (not k[-2] and q[-2]):
        raise InvalidProblemError(f"the {k[-2]} heads of key and value must divide the {q[-2]} of query")
    one_element(named)
    apart = len(q) == 3
    held = [with_axis(x, 0, name) if apart else x for name, x in named]
    return (1 if apart else q[0], q[-2], q[-3], k[-3]), apart, held


def _added(name: str, x: Any, shape: tuple[int, ...], kinds: tuple[E, ...]) -> None:
    """Raises unless x broadcasts to the scores and has an element of those."""
    own, kind = shape_of(x, name), read(x, name).element
    if broadcast_shape({name: own, _SCORES: shape}, (name, _SCORES)) != shape:
        raise InvalidProblemError(f"{name} must broadcast to {_SCORES} {shape}, got {own}")
    if kind not in kinds:
        raise InvalidProblemError(f"{name} must hold {' or '.join(map(str, kinds))}, got {kind}")


def _within(name: str, lengths: Any, batch: int, extent: int, shape: tuple[int, ...], options: dict[str, Any]) -> Any:
    """True in the first lengths[b] places, of `shape`."""
    own, kind = shape_of(lengths, name), read(lengths, name).element
    if own != (batch,) or kind not in (E.I32, E.I64):
        raise InvalidProblemError(f"{name} must be int32 or int64 [{batch}], got {kind} {own}")
    with beside(lengths, options["stream"]):
        places = reshaped(arange(extent, element=kind, like=lengths), shape, name)
    return less(places, reshaped(lengths, (batch, 1, 1, 1), name), **options)


def _window(local_window_size: Any) -> tuple[int | None, int | None]:
    """The keys seen before and behind a query's own place."""
    if local_window_size is None:
        return None, None
    pair = local_window_size if isinstance(local_window_size, (tuple, list)) else (local_window_size,) * 2
    if len(pair) != 2:
        raise InvalidProblemError(f"local_window_size must be a width or (left, right), got {shown(local_window_size)}")
    left, right = (whole("local_window_size", one, 0) for one in pair)
    return left, right


@entry(FlashSdpaPlan)
def dot_product_attention(
    query: Array, key: Array, value: Array, bias: Array | None = None, mask: Array | None = None, *,
    scale: float | None = None, is_causal: bool = False, query_seq_lengths: Array | None = None,
    key_value_seq_lengths: Array | None = None, local_window_size: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · query keyᵀ + bias) value of the keys that are seen, [B, T, N, H] (jax.nn.dot_product_attention).

    query [B, T, N, H], key and value [B, S, K, H], K a divisor of N; or all without B. bias is added and mask (bool,
    True is seen) hides; both broadcast to [B, N, T, S]. scale: default 1 / √H. is_causal: query i sees the keys up to
    i; local_window_size: a width or (left, right), those from i - left to i + right. Of int32 or int64 [B]:
    key_value_seq_lengths, keys from there on are hidden; query_seq_lengths, queries from there on give zeros.

    By `flash_sdpa` in its layout "bshd": no array is copied, no scores are in memory. A query that sees no key gives
    zeros, as in `flash_sdpa`, where JAX's XLA path has the mean of all values. Bias and mask together are one more
    launch, as are query_seq_lengths. Gradients of query, key, value and bias.
    """
    options = {"stream": stream, "preference": preference}
    shape, apart, (q, k, v) = _operands(query, key, value)
    wide = read(query, "query").element
    if bias is not None:
        _added("bias", bias, shape, (E.F32, E.F16, E.BF16, *((E.F64,) if wide is E.F64 else ())))
    if mask is not None:
        _added("mask", mask, shape, (E.BOOL,))
    seen = mask
    if key_value_seq_lengths is not None:
        ends = ("key_value_seq_lengths", key_value_seq_lengths, shape[0], shape[3], (1, 1, 1, shape[3]))
        inside = _within(*ends, options)
        seen = inside if seen is None else logical_and(seen, inside, **options)
    added = bias if seen is None else seen if bias is None else where(seen, bias, _HIDDEN, **options)
    live = None
    if query_seq_lengths is not None:
        ends = ("query_seq_lengths", query_seq_lengths, shape[0], shape[2], (1, shape[2], 1, 1))
        live = _within(*ends, options)
    (out,) = each_of(out, 1)
    if out is not None and shape_of(out, "out") != (*shape_of(query, "query")[:-1], shape_of(value, "value")[-1]):
        raise InvalidProblemError(f"out must have the shape of query, got {shape_of(out, 'out')}")
    given = out if out is None or not apart else with_axis(out, 0, "out")
    left, right = _window(local_window_size)
    y = flash_sdpa(
        q, k, v, added, scale=scale, is_causal=is_causal, window_left=left, window_right=right, layout="bshd",
        out=given if live is None else None, **options,
    )  # fmt: skip
    if live is not None:
        y = where(live, y, 0.0, out=given, **options)
    if out is not None:
        return out
    return without_axes(y, [0], "y") if apart else y
