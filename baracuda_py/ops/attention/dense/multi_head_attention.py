"""multi_head_attention_forward: projections, attention of their heads, and a projection of what they gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core import Array, ElementKind as E
from ....core.checked import whole
from ....core.errors import InvalidProblemError, UnsupportedError
from ....calls.entries import entry
from ....core.outputs import beside, each_of
from ....core.views import broadcast, cut, permuted, reshaped, shape_of, transposed, with_axis, without_axes
from ....core.arrays import read
from ....calls.streams import stream_of
from ...elementwise.binary_functions import add, logical_and
from ...elementwise.ternary_functions import where
from ...elementwise.unary import logical_not  # type: ignore[attr-defined]
from ...gemm.linear import linear
from ...gemm.matmul import matmul
from ...layout.concat import cat
from ...layout.creation import zeros
from ...layout.moves import copy
from ...layout.pad import pad
from ...random.dropout import dropout
from ...reduce.reduce import mean  # type: ignore[attr-defined]
from ...softmax.masked_softmax import masked_softmax
from .dot_product_attention import one_element
from .flash_sdpa import FlashSdpaPlan, flash_sdpa

_HIDDEN = float("-inf")
_Options = Mapping[str, Any]


def _part(x: Any, i: int, count: int, name: str) -> Any:
    """Rows i · count : (i + 1) · count, or None of None."""
    return None if x is None else cut(x, (slice(i * count, (i + 1) * count, 1),), name)


def _projected(
    operands: tuple[Any, Any, Any], width: int, weight: Any, apart: tuple[Any, Any, Any] | None, bias: Any,
    options: _Options,
) -> list[Any]:  # fmt: skip
    """Queries, keys and values [tokens, N, width]; one product where operands are one array."""
    if apart is not None:
        return [linear(x, w, _part(bias, i, width, "in_proj_bias"), **options)
                for i, (x, w) in enumerate(zip(operands, apart, strict=True))]  # fmt: skip
    query, key, value = operands
    groups = [3] if query is key and key is value else [1, 2] if key is value else [1, 1, 1]
    made: list[Any] = []
    for count in groups:
        first, last = len(made) * width, (len(made) + count) * width
        w, b = (None if x is None else cut(x, (slice(first, last, 1),), "in_proj") for x in (weight, bias))
        packed = linear(operands[len(made)], w, b, **options)
        steps = (slice(None),) * 2
        made += [cut(packed, (*steps, slice(i * width, (i + 1) * width, 1)), "packed") for i in range(count)]
    return made


def _split(x: Any, heads: int) -> Any:
    """[tokens, N, heads · d] as [N, tokens, heads, d]."""
    tokens, batch, width = shape_of(x, "x")
    return permuted(reshaped(x, (tokens, batch, heads, width // heads), "x"), (1, 0, 2, 3), "x")


def _mask(name: str, x: Any, shape: tuple[int, int, int, int], element: E, options: _Options) -> Any:
    """x, [N, S] or [L, S] or [N · heads, L, S], as what broadcasts to [N, heads, L, S]; raises where it does not."""
    own, kind = shape_of(x, name), read(x, name).element
    batch, heads, queries, keys = shape
    if name == "key_padding_mask":
        fits, told, whole_shape = own in ((batch, keys), (keys,)), f"({batch}, {keys})", (batch, 1, 1, keys)
    else:
        full = (batch * heads, queries, keys)
        fits = own in ((queries, keys), full)
        told = f"({queries}, {keys}) or {full}"
        whole_shape = shape if len(own) == 3 else (1, 1, queries, keys)
    if not fits or (name == "key_padding_mask" and len(own) == 1 and batch != 1):
        raise InvalidProblemError(f"{name} must have shape {told}, got {own}")
    floats = (E.F32, E.F16, E.BF16, *((E.F64,) if element is E.F64 else ()))
    if kind is not E.BOOL and kind not in floats:
        raise InvalidProblemError(
            f"{name} must hold bool (True is hidden) or {', '.join(map(str, floats))}, which are added, got {kind}"
        )
    seen = reshaped(x, whole_shape, name)
    return reshaped(copy(x, **options), whole_shape, name) if seen is None else seen


def _masks(masks: list[Any], extra: int, options: _Options) -> tuple[Any, Any]:
    """(True where a key is seen, what is added), each None or of the masks; keys behind the given ones are seen."""
    seen = added = None
    for mask in masks:
        padded = pad(mask, (0, extra), **options) if extra else mask
        if read(mask, "mask").element is E.BOOL:
            shown = logical_not(padded, **options)
            seen = shown if seen is None else logical_and(seen, shown, **options)
        else:
            added = padded if added is None else add(added, padded, **options)
    return seen, added


def _checked(operands: tuple[Any, Any, Any], width: int, heads: int, told: Mapping[str, Any]) -> None:
    """Raises where shapes do not fit; operands are [tokens, N, features]."""
    (_, batch, own), key, value = (shape_of(x, n) for x, n in zip(operands, ("query", "key", "value"), strict=True))
    if own != width:
        raise InvalidProblemError(f"query must have {width} features (embed_dim_to_check), got {own}")
    if heads < 1 or width % heads:
        raise InvalidProblemError(f"num_heads must divide the {width} features, got {heads}")
    if key[:2] != value[:2] or key[1] != batch:
        raise InvalidProblemError(
            f"key and value [S, N, …] must have one length and the batch {batch} of query, got {key} and {value}"
        )
    wanted = {
        "in_proj_weight": (3 * width, width), "q_proj_weight": (width, width), "k_proj_weight": (width, key[2]),
        "v_proj_weight": (width, value[2]), "in_proj_bias": (3 * width,), "bias_k": (1, 1, width),
        "bias_v": (1, 1, width), "out_proj_weight": (width, width), "out_proj_bias": (width,),
    }  # fmt: skip
    held = {name: x for name, x in told.items() if x is not None}
    one_element([*zip(("query", "key", "value"), operands, strict=True), *held.items()])
    for name, x in held.items():
        if shape_of(x, name) != wanted[name]:
            raise InvalidProblemError(f"{name} must have shape {wanted[name]}, got {shape_of(x, name)}")
    if told.get("in_proj_weight") is not None and not key[2] == value[2] == width:
        raise InvalidProblemError(
            f"with in_proj_weight key and value must have {width} features, got {key[2]} and {value[2]}; give "
            "q_proj_weight, k_proj_weight and v_proj_weight, and use_separate_proj_weight=True"
        )


@entry(FlashSdpaPlan)
def multi_head_attention_forward(
    query: Array, key: Array, value: Array, embed_dim_to_check: int, num_heads: int, in_proj_weight: Array | None,
    in_proj_bias: Array | None, bias_k: Array | None, bias_v: Array | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Array, out_proj_bias: Array | None, training: bool = True, key_padding_mask: Array | None = None,
    need_weights: bool = True, attn_mask: Array | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Array | None = None, k_proj_weight: Array | None = None, v_proj_weight: Array | None = None,
    static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True, is_causal: bool = False, *,
    seed: Any = None, offset: Any = 0, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y [L, N, E], weights or None), torch.nn.functional.multi_head_attention_forward with its order of parameters.

    query [L, N, E], key and value [S, N, …], or all without N. in_proj_weight [3 E, E], or with
    use_separate_proj_weight q_proj_weight, k_proj_weight and v_proj_weight [E, …]; in_proj_bias [3 E]. bias_k and
    bias_v [1, 1, E] are one more key and value, add_zero_attn another of zeros. Masks are torch's: of bool True is
    hidden, floats are added; attn_mask [L, S] or [N · num_heads, L, S], key_padding_mask [N, S]. is_causal says of
    attn_mask that it is causal, and is refused without one. Dropout of the weights, where training, is by the Philox
    stream (seed, offset), which is drawn from torch's generator where it is not given.

    need_weights=False: by `flash_sdpa`, no scores in memory; weights are None. need_weights=True: products and a
    softmax, and the weights [N, L, S], their mean over the heads, or with average_attn_weights=False
    [N, num_heads, L, S]. A query that sees no key has weights of zero, where torch has NaN. Gradients by those of the
    parts. static_k and static_v are refused: give `flash_sdpa` keys and values that are projected already.
    """
    options = {"stream": stream, "preference": preference}
    if static_k is not None or static_v is not None:
        raise UnsupportedError("static_k and static_v must be None; call flash_sdpa with keys and values of your own")
    if is_causal and attn_mask is None:
        raise InvalidProblemError("is_causal says what attn_mask is, which is None; give the mask as well")
    if (bias_k is None) != (bias_v is None):
        raise InvalidProblemError("bias_k and bias_v are given together or not at all")
    ranks = {len(shape_of(x, n)) for x, n in ((query, "query"), (key, "key"), (value, "value"))}
    if ranks not in ({2}, {3}):
        raise InvalidProblemError("query, key and value must have 3 axes each, or 2 without a batch")
    width, heads = whole("embed_dim_to_check", embed_dim_to_check, 1), whole("num_heads", num_heads, 1)
    apart = ranks == {2}
    given = (query, key, value)
    seen_once = {id(x): with_axis(x, 1, "query") if apart else x for x in given}
    operands = seen_once[id(query)], seen_once[id(key)], seen_once[id(value)]
    weights_in = {"in_proj_weight": in_proj_weight}
    if use_separate_proj_weight:
        weights_in = {"q_proj_weight": q_proj_weight, "k_proj_weight": k_proj_weight, "v_proj_weight": v_proj_weight}
    if missing := [name for name, x in weights_in.items() if x is None]:
        raise InvalidProblemError(f"{missing[0]} is None, with use_separate_proj_weight={use_separate_proj_weight}")
    others = {
        "in_proj_bias": in_proj_bias, "bias_k": bias_k, "bias_v": bias_v, "out_proj_weight": out_proj_weight,
        "out_proj_bias": out_proj_bias,
    }  # fmt: skip
    _checked(operands, width, heads, weights_in | others)
    p = float(dropout_p) if training else 0.0
    if p and seed is None:
        seed = stream_of("multi_head_attention_forward", p, (query,), stream)
    queries, batch, _ = shape_of(operands[0], "query")
    keys = shape_of(operands[1], "key")[0]
    shape, element = (batch, heads, queries, keys), read(query, "query").element
    named = (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask))
    masks = [_mask(name, x, shape, element, options) for name, x in named if x is not None]

    separate = tuple(weights_in.values()) if use_separate_proj_weight else None
    q, k, v = _projected(operands, width, in_proj_weight, separate, in_proj_bias, options)  # type: ignore[arg-type]
    ends = (1, batch, width)
    more = [[] if one is None else [broadcast(one, ends, "bias")] for one in (bias_k, bias_v)]
    if add_zero_attn:
        with beside(k, stream):
            none = zeros(ends, element, like=k)
        more = [[*one, none] for one in more]
    extra = len(more[0])
    k, v = (cat([x, *one], axis=0, **options) if one else x for x, one in zip((k, v), more, strict=True))
    q, k, v = (_split(x, heads) for x in (q, k, v))

    to = _places(out, need_weights, (queries, batch, width), apart)
    if need_weights:
        seen, added = _masks(masks, extra, options)
        y, weights = _weighted(q, k, v, seen, added, p, seed, offset, None if average_attn_weights else to[1], options)
        if average_attn_weights:
            weights = mean(weights, axis=1, out=to[1], **options)
        weights = without_axes(weights, [0], "weights") if apart else weights
    else:
        known = is_causal and key_padding_mask is None and not extra
        seen, added = (None, None) if known else _masks(masks, extra, options)
        joined = seen if added is None else added if seen is None else where(seen, added, _HIDDEN, **options)
        draws = {"dropout_p": p, "seed": seed, "offset": offset} if p else {}
        y, weights = flash_sdpa(q, k, v, joined, is_causal=known, layout="bshd", **draws, **options), None
    y = linear(reshaped(y, (batch, queries, width), "y"), out_proj_weight, out_proj_bias, out=to[0], **options)
    made = (without_axes(y, [0], "y") if apart else permuted(y, (1, 0, 2), "y")), weights
    if out is None:
        return made
    given = each_of(out, 2 if need_weights else 1)
    return given[0], (given[1] if need_weights else None)


def _places(out: Any, need_weights: bool, shape: tuple[int, int, int], apart: bool) -> tuple[Any, Any]:
    """Where y [N, L, E] and the weights go, with a batch axis."""
    y, *rest = each_of(out, 2 if need_weights else 1)
    wanted = shape if not apart else (shape[0], shape[2])
    if y is not None:
        if shape_of(y, "out") != wanted:
            raise InvalidProblemError(f"out must have shape {wanted}, got {shape_of(y, 'out')}")
        y = with_axis(y, 0, "out") if apart else permuted(y, (1, 0, 2), "out")
    weights = rest[0] if rest else None
    return y, with_axis(weights, 0, "out") if apart and weights is not None else weights


def _weighted(
    q: Any, k: Any, v: Any, seen: Any, added: Any, p: float, seed: Any, offset: Any, to: Any, options: _Options
) -> tuple[Any, Any]:
    """y [N, L, heads, d] and the weights [N, heads, L, S], in `to` if given, of which dropout has taken some."""
    q, k, v = (permuted(x, (0, 2, 1, 3), "x") for x in (q, k, v))
    scores = matmul(q, transposed(k, "k"), alpha=shape_of(q, "q")[-1] ** -0.5, **options)
    if added is not None:
        scores = add(scores, added, **options)
    weights = masked_softmax(scores, seen, safe=True, out=None if p else to, **options)
    if p:
        weights = dropout(weights, p, seed=seed, offset=offset, out=to, **options)
    y = permuted(matmul(weights, v, **options), (0, 2, 1, 3), "y")
    return copy(y, **options), weights
