"""moe: the experts of a mixture applied to each token's choice, in one call; routing that is made of other ops."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from ...calls.entries import entry
from ...calls.interpreters import recorder
from ...core import Array
from ...core.arrays import read
from ...core.checked import whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.memo import keep, records
from ...core.outputs import each_of
from ...core.preference import PlanPreference
from ...core.views import reshaped, shape_of, transposed
from ...expressions.elementwise import elementwise
from ...schedules.moe_decode import ROWS
from ..elementwise import unary
from ..gated import gated_functions
from ..gated.gated_functions import halves
from ..gemm.grouped_gather_gemm import grouped_gather_gemm
from ..gemm.grouped_gemm import GroupedGemmPlan, grouped_gemm
from ..gemm.grouped_gemm_epilogue import grouped_gemm_epilogue
from ..indexing.take import take
from ..quant_gemm.grouped_block_gemm import GroupedBlockGemmPlan, grouped_block_gemm
from ..segment.experts import expert_order, moe_permute, moe_unpermute
from ..softmax.softmax import SoftmaxPlan
from ..softmax.softmax_functions import log_softmax, softmax
from ..sort.topk import TopkPlan, topk
from .decode import moe_decode
from .decode_quantized import chosen_few, moe_decode_quantized
from .routes import gathers, layouts, streams

_GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
"""Gated units, by the activation that an epilogue knows."""
_PLAIN = ("silu", "gelu", "gelu_tanh", "relu")
_KEPT = 1024
_known_ways: dict[Any, bool] = records()
"""Whether calls of `moe` go by `moe_decode`, by how their operands lie."""
_within = elementwise("where(place - first < capacity, place, -1)", capacity=0)


@cache
def _units() -> dict[str, Any]:
    """What stands between the two products, by name."""
    gated = {name: getattr(gated_functions, name) for name in (*_GATED, "swiglu_oai")}
    return gated | {name: getattr(unary, name) for name in _PLAIN}


def _checked(x: Any, indices: Any, gate_up: Any, down: Any, activation: str) -> None:
    """Shapes that belong together, in the caller's words."""
    if activation not in _units():
        raise InvalidProblemError(f"activation must be one of {', '.join(map(repr, _units()))}, got {activation!r}")
    tokens, first, second = shape_of(x, "x"), shape_of(gate_up, "gate_up"), shape_of(down, "down")
    if len(tokens) != 2:
        raise InvalidProblemError(f"x must be [tokens, d], got shape {tokens}")
    if len(first) != 3 or first[2] != tokens[1]:
        raise InvalidProblemError(f"gate_up must be [experts, rows, {tokens[1]}], got shape {first}")
    width = first[1] if activation in _PLAIN else first[1] // 2
    if activation not in _PLAIN and first[1] % 2:
        raise InvalidProblemError(f"gate_up must have an even number of rows for {activation}, got shape {first}")
    if len(second) != 3 or second[0] != first[0] or second[2] != width:
        raise InvalidProblemError(f"down must be [{first[0]}, d_out, {width}], got shape {second}")
    chosen = shape_of(indices, "indices")
    if len(chosen) != 2 or chosen[0] != tokens[0]:
        raise InvalidProblemError(f"indices must be [{tokens[0]}, k], got shape {chosen}")
    if (element := read(indices, "indices").element) not in INDICES:
        raise InvalidProblemError(f"indices must be int64 or int32, got {element}")


def _hidden(
    rows: Any, ends: Any, gate_up: Any, bias: Any, activation: str, order: str, plain: bool, options: Any
) -> Any:
    """The experts' first product and its unit; in one launch where nothing is recorded."""
    first, epilogue, unit = _product(gate_up, bias, activation, order)
    if plain and unit is None:
        return grouped_gemm_epilogue(rows, **first, **epilogue, offsets=ends, **options)
    y = grouped_gemm(rows, transposed(gate_up, "gate_up"), ends, bias, **options)
    return _units()[activation](y, **({} if activation in _PLAIN else {"order": order}), **options)


def _product(gate_up: Any, bias: Any, activation: str, order: str) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The operands of the first product, what its epilogue is of them, and the unit that follows, if any."""
    if activation in _GATED:
        gate, up = (transposed(half, "gate_up") for half in halves(gate_up, order, 1))
        gate_bias, up_bias = (None, None) if bias is None else halves(bias, order, 1)
        given = {"b": gate, "bias": gate_bias, "up": up, "up_bias": up_bias}
        return given, {"activation": _GATED[activation]}, None
    given = {"b": transposed(gate_up, "gate_up"), "bias": bias}
    if activation in _PLAIN:
        return given, {"activation": activation}, None
    return given, {"activation": "none"}, _units()[activation]


def _gathered(
    x: Any, indices: Any, gate_up: Any, bias: Any, activation: str, order: str, options: Any, moves: Any
) -> tuple[Any, Any, Any] | None:
    """(h, offsets, places) by a product that reads tokens where they stand; None where its row does not take them."""
    given, epilogue, unit = _product(gate_up, bias, activation, order)
    shape = shape_of(indices, "indices")
    if not gathers(shape[0] * shape[1], epilogue["activation"], options["preference"], {"x": x, "up": None} | given):
        return None
    offsets, places, rows = expert_order(indices, shape, shape_of(gate_up, "gate_up")[0], {}, moves)
    h = grouped_gather_gemm(x, rows, offsets=offsets[1:], **given, **epilogue, **options)
    return h if unit is None else unit(h, order=order, **options), offsets, reshaped(places, shape, "places")


def _few(
    x: Any, indices: Any, weights: Any, gate_up: Any, down: Any, gate_up_bias: Any, down_bias: Any, activation: str,
    order: str,
) -> dict[str, Any]:  # fmt: skip
    """The operands of `moe_decode`: gate and up are views."""
    given = {"x": x, "indices": indices, "weights": weights, "down": down, "down_bias": down_bias}
    if activation in _PLAIN:
        given |= {"gate": gate_up, "up": None, "gate_bias": gate_up_bias, "up_bias": None}
    else:
        own = halves(gate_up, order, 1)
        biases = (None, None) if gate_up_bias is None else halves(gate_up_bias, order, 1)
        given |= dict(zip(("gate", "up", "gate_bias", "up_bias"), (*own, *biases), strict=True))
    return given


def _options(stream: Any, preference: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords of the products, and of what moves rows and adds a token's experts.

    Where a row goes depends on all tokens, and changes no bit of what is computed of it; a token's sum is in the order
    of its own experts. Those are asked for without the promise of a batch's bits, which their plans cannot give.
    """
    free = preference
    if isinstance(preference, PlanPreference):
        free = replace(preference, batch_invariant=False, same_bits=False, prefer_backend=None)
    return {"stream": stream, "preference": preference}, {"stream": stream, "preference": free}


@entry(GroupedGemmPlan)
def moe(
    x: Array, indices: Array, weights: Array, gate_up: Array, down: Array, gate_up_bias: Array | None = None,
    down_bias: Array | None = None, *, activation: str = "swiglu", order: str = "gate_first",
    capacity: int | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[t] = Σ_j weights[t, j] down[e] unit(gate_up[e] x[t]), e = indices[t, j]: the experts of each token.

    x: [tokens, d]; indices, weights: [tokens, k], as `moe_router` gives them; gate_up: [experts, 2 f, d] and down:
    [experts, d_out, f], rows being outputs as in torch.nn.Linear (of other layouts hand in transposed views); biases
    [experts, 2 f] and [experts, d_out]. activation: swiglu, geglu, geglu_tanh, reglu, swiglu_oai (gpt-oss), whose
    halves stand in gate_up's rows by `order` (see `halves`), or, of gate_up [experts, f, d], silu, gelu, gelu_tanh,
    relu. capacity: an expert takes so many tokens at most, in their order, and drops the rest (Switch Transformers).

    An expert outside [0, experts), of another device, adds nothing. Weights are of x's element or its accumulator's.
    Every sum has a fixed order, and a token's bits do not depend on the others'. The gate and its unit are the
    first product's epilogue, rounded once, but where a gradient is recorded: then h = gate_up x is rounded, too.
    Gradients of x, weights, both matrices and both biases. Eight launches, ten where a gradient is recorded. Without
    one, operands of 16 bits on sm_90a take seven, of which the first product reads tokens where they stand
    (`grouped_gather_gemm`), and up to 32 tokens two (`moe_decode`), which read each chosen expert once: the same bits.
    """
    options, moves = _options(stream, preference)
    operands = (x, weights, gate_up, down, gate_up_bias, down_bias)
    plain = recorder(operands) is None
    words = type(activation) is type(order) is str
    alike = layouts((*operands, indices), preference) if plain and words else None
    key = None if alike is None else (alike, activation, order, capacity is None)
    streamed = None if key is None else _known_ways.get(key)
    if streamed is None:
        _checked(x, indices, gate_up, down, activation)
    if streamed is not False and plain and capacity is None and shape_of(x, "x")[0] <= ROWS:
        few = _few(x, indices, weights, gate_up, down, gate_up_bias, down_bias, activation, order)
        act = _GATED.get(activation, activation)
        if streamed or streams(act, preference, few):
            if key is not None:
                keep(_known_ways, key, True, _KEPT)
            return moe_decode(**few, activation=act, out=out, **options)
    if key is not None:
        keep(_known_ways, key, False, _KEPT)
    unit = (gate_up, gate_up_bias, activation, order)
    found = _gathered(x, indices, *unit, options, moves) if plain else None
    if found is not None:
        h, offsets, places = found
    else:
        rows, offsets, places = moe_permute(x, indices, num_experts=shape_of(gate_up, "gate_up")[0], **moves)
        h = _hidden(rows, offsets[1:], *unit, plain, options)
    if capacity is not None:
        limit = whole("capacity", capacity, 0, 2**31 - 1)
        first = take(offsets, indices, axis=0, **moves)
        places = _within(place=places, first=first, capacity=limit, **moves)
    y = grouped_gemm(h, transposed(down, "down"), offsets[1:], down_bias, **options)
    return moe_unpermute(y, places, weights, out=out, **moves)


@entry(GroupedBlockGemmPlan)
def moe_quantized(
    x: Array, indices: Array, weights: Array, gate_up: Array, down: Array, gate_up_scales: Array | None = None,
    down_scales: Array | None = None, gate_up_zeros: Array | None = None, down_zeros: Array | None = None,
    gate_up_bias: Array | None = None, down_bias: Array | None = None, *, kind: Any = "mxfp4",
    activation: str = "swiglu", order: str = "gate_first", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`moe` of experts stored in few bits: gpt-oss's mxfp4, int4 and int8 groups, GGUF's formats, fp8 blocks.

    gate_up and down: codes with an axis of experts in front, their scales and zeros as `block_quantize` makes and
    `grouped_block_gemm` takes them; decoded they are [experts, 2 f, d] and [experts, d_out, f]. kind: their format. Few
    rows an expert meet the weights as they are stored, more a copy
    unpacked in the workspace; up to 16 tokens whose gradient is not recorded go by `moe_decode_quantized`, three
    launches that move no row. Gradients of x, weights and what else floats beside them, but not of what is stored.
    """
    unit = _units().get(activation)
    if unit is None:
        raise InvalidProblemError(f"activation must be one of {', '.join(map(repr, _units()))}, got {activation!r}")
    parts = (gate_up, down, gate_up_scales, down_scales, gate_up_zeros, down_zeros, gate_up_bias, down_bias)
    operands = [one for one in (x, weights, *parts) if one is not None]
    if recorder(tuple(operands)) is None and chosen_few(x, indices, preference):
        return moe_decode_quantized(
            x, indices, weights, *parts, kind=kind, activation=activation, order=order, out=out, stream=stream,
            preference=preference,
        )  # fmt: skip
    options, moves = _options(stream, preference)
    rows, offsets, places = moe_permute(x, indices, num_experts=shape_of(gate_up, "gate_up")[0], **moves)

    def product(x: Any, codes: Any, scales: Any, zeros: Any, bias: Any) -> Any:
        return grouped_block_gemm(codes, x, offsets[1:], scales, zeros, bias=bias, kind=kind, **options)

    y = product(rows, gate_up, gate_up_scales, gate_up_zeros, gate_up_bias)
    h = unit(y, **({"order": order} if activation not in _PLAIN else {}), **options)
    y = product(h, down, down_scales, down_zeros, down_bias)
    return moe_unpermute(y, places, weights, out=out, **moves)


@entry(TopkPlan)
def expert_choice(
    logits: Array, capacity: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(weights, indices) [experts, capacity]: each expert takes the tokens that want it most (Zhou et al. 2022).

    logits: [tokens, experts]. weights are softmax(logits) over the experts, of each expert the `capacity` largest
    of all tokens, in order; indices the tokens. `take(x, indices)` gives the experts' rows, `segment_sum` brings them
    back. The gradient is that of the weights.
    """
    shape = shape_of(logits, "logits")
    if len(shape) != 2:
        raise InvalidProblemError(f"logits must be [tokens, experts], got shape {shape}")
    outs = [None if one is None else transposed(one, "out") for one in each_of(out, 2)]
    options = {"stream": stream, "preference": preference}
    p = softmax(logits, axis=-1, **options)
    weights, indices = topk(p, capacity, 0, out=None if out is None else tuple(outs), **options)
    return out if out is not None else (transposed(weights, "weights"), transposed(indices, "indices"))


@entry(SoftmaxPlan)
def sinkhorn_normalize(
    x: Array, iterations: int = 20, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """exp(x) scaled to rows and columns that sum to 1, by turns (Sinkhorn and Knopp 1967); x: [..., n, m].

    `iterations` times rows, then columns, in logarithms, so that no sum overflows: 2 launches each. What routers
    (Megatron-LM's sinkhorn, BASE layers) and hyper-connections (mHC) use. The gradient goes through every step.
    """
    shape, count = shape_of(x, "x"), whole("iterations", iterations, 1, 2**31 - 1)
    if len(shape) < 2:
        raise InvalidProblemError(f"x must be [..., n, m], got shape {shape}")
    if not read(x, "x").element.is_float:
        raise InvalidProblemError(f"x must be floating, got {read(x, 'x').element}")
    options = {"stream": stream, "preference": preference}
    for n in range(count):
        x = log_softmax(x, axis=-1, **options)
        last = n == count - 1
        x = softmax(x, axis=-2, out=out, **options) if last else log_softmax(x, axis=-2, **options)
    return x
