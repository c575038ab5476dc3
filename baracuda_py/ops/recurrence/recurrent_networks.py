"""rnn_tanh, rnn_relu, lstm and gru: recurrent networks of several layers and both directions, as torch has them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...calls.entries import entry
from ...core import Array, InvalidProblemError, Scalar
from ...core.arrays import read
from ...core.checked import shown, truth, whole
from ...core.outputs import beside, each_of
from ...core.views import cut, permuted, reshaped, shape_of, without_axes
from ..gemm.gemm import GemmPlan
from ..gemm.linear import linear
from ..layout.concat import concat
from ..layout.creation import zeros
from ..layout.moves import copy
from ..layout.views import seen_as
from ..random.dropout import dropout as dropped
from .gru_cell import GruCellPlan
from .lstm_cell import LstmCellPlan
from .recurrent_steps import Walk, cell, recurrent_steps

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_OF_LAYERS = 1 << 40  # numbers of one layer's dropout stand so far from those of the next


# ---- a step --------------------------------------------------------------------------------------------------------


def _step(
    kind: str, x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, order: str | None, out: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    """The states after one step, written to `out` where it is given."""
    shape = shape_of(h, "hx")
    if len(shape) != 2 or len(shape_of(x, "input")) != 2:
        raise InvalidProblemError(f"input and hx must be [batch, size], got {shape_of(x, 'input')} and {shape}")
    _expect("w_hh", w_hh, (_GATES[kind] * shape[1], shape[1]))
    _expect("w_ih", w_ih, (_GATES[kind] * shape[1], shape_of(x, "input")[1]))
    made = cell(kind, order, linear(x, w_ih, b_ih, **options), linear(h, w_hh, b_hh, **options), h, c, options)
    results = made if kind == "lstm" else made[:1]
    if out is None:
        return results if kind == "lstm" else results[0]
    for one, to in zip(results, each_of(out, len(results)), strict=True):
        copy(one, out=to, **options)
    return out


def _expect(name: str, x: Any, wanted: tuple[int, ...]) -> None:
    found = shape_of(x, name)
    if found != wanted:
        raise InvalidProblemError(f"{name} must have shape {wanted}, got {found}")


@entry(LstmCellPlan)
def lstm_cell(
    input: Array, hx: Sequence[Array], w_ih: Array, w_hh: Array, b_ih: Array | None = None,
    b_hh: Array | None = None, *, order: str = "ifgo", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(h, c) after one step of an LSTM (torch.lstm_cell): two products and `lstm_gates`.

    input: [batch, features]; hx: (h, c), each [batch, hidden]; w_ih: [4 hidden, features], w_hh: [4 hidden, hidden],
    b_ih, b_hh: [4 hidden], gates in `order`: "ifgo" of torch and Keras, or "iofg" of ONNX.
    """
    h, c = _pair(hx)
    return _step("lstm", input, h, c, w_ih, w_hh, b_ih, b_hh, order, out, {"stream": stream, "preference": preference})


@entry(GruCellPlan)
def gru_cell(
    input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array | None = None, b_hh: Array | None = None, *,
    order: str = "rzn", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """h after one step of a GRU (torch.gru_cell): two products and `gru_gates`.

    input: [batch, features]; hx: [batch, hidden]; w_ih: [3 hidden, features], w_hh: [3 hidden, hidden], b_ih, b_hh:
    [3 hidden], gates in `order`: "rzn" of torch, or "zrn" of Keras (reset_after=True) and ONNX (linear_before_reset=1).
    """
    options = {"stream": stream, "preference": preference}
    return _step("gru", input, hx, None, w_ih, w_hh, b_ih, b_hh, order, out, options)


@entry(GemmPlan)
def rnn_tanh_cell(
    input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array | None = None, b_hh: Array | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """tanh(input w_ihᵀ + b_ih + hx w_hhᵀ + b_hh) (torch.rnn_tanh_cell).

    input: [batch, features]; hx: [batch, hidden]; w_ih: [hidden, features]; w_hh: [hidden, hidden]; biases: [hidden].
    """
    options = {"stream": stream, "preference": preference}
    return _step("rnn_tanh", input, hx, None, w_ih, w_hh, b_ih, b_hh, None, out, options)


@entry(GemmPlan)
def rnn_relu_cell(
    input: Array, hx: Array, w_ih: Array, w_hh: Array, b_ih: Array | None = None, b_hh: Array | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """relu(input w_ihᵀ + b_ih + hx w_hhᵀ + b_hh) (torch.rnn_relu_cell); operands as in `rnn_tanh_cell`."""
    options = {"stream": stream, "preference": preference}
    return _step("rnn_relu", input, hx, None, w_ih, w_hh, b_ih, b_hh, None, out, options)


def _pair(hx: Any) -> tuple[Any, Any]:
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        raise InvalidProblemError(f"hx must be (h, c), got {shown(hx)}")
    return hx[0], hx[1]


# ---- layers --------------------------------------------------------------------------------------------------------


def _packed_sizes(batch_sizes: Any, total: int) -> tuple[int, ...]:
    """The rows of each step, on the host."""
    found = batch_sizes.tolist() if hasattr(batch_sizes, "tolist") else batch_sizes
    try:
        sizes = tuple(whole("batch_sizes", n, 0) for n in found)
    except TypeError as error:
        raise InvalidProblemError(f"batch_sizes must be integers of the host, got {shown(batch_sizes)}") from error
    if sum(sizes) != total or any(a < b for a, b in pairwise(sizes)) or 0 in sizes:
        raise InvalidProblemError(
            f"batch_sizes must be positive, not grow, and sum to the {total} rows of input, got {shown(sizes)}"
        )
    return sizes


def _layers(kind: str, params: Any, count: int, has_biases: bool) -> list[dict[str, Any]]:
    """The parameters of each layer and direction, by torch's names."""
    given = list(params)
    each, rest = divmod(len(given), count) if count else (0, 1)
    names = ["w_ih", "w_hh", *(("b_ih", "b_hh") if has_biases else ())]
    if kind == "lstm" and each == len(names) + 1:
        names.append("w_hr")
    if rest or each != len(names):
        raise InvalidProblemError(
            f"params must have {', '.join(names)} of each of {count} layers and directions, got {len(given)} arrays"
        )
    return [dict(zip(names, given[i : i + each], strict=True)) for i in range(0, len(given), each)]


def _network(
    kind: str, x: Any, hx: Any, params: Any, batch_sizes: Any, has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, order: str | None, draws: tuple[Any, Any],
    out: Any, options: dict[str, Any],
) -> Any:  # fmt: skip
    """(output, h) or of an LSTM (output, h, c)."""
    states = _pair(hx) if kind == "lstm" else (hx,)
    layers, directions = whole("num_layers", num_layers, 1), 1 + truth("bidirectional", bidirectional)
    weights = _layers(kind, params, layers * directions, truth("has_biases", has_biases))
    shape = shape_of(x, "input")
    rank = 3 if batch_sizes is None else 2
    if len(shape) != rank:
        said = "[steps, batch, features]" if rank == 3 else "[rows, features] with batch_sizes"
        raise InvalidProblemError(f"input must be {said}, got shape {shape}")
    first = truth("batch_first", batch_first) and batch_sizes is None
    if first:
        x = permuted(x, (1, 0, 2), "input")
        shape = shape_of(x, "input")
    batch = shape_of(states[0], "hx")[1:2]
    for state, name in zip(states, ("hx", "c of hx"), strict=False):
        found = shape_of(state, name)
        if len(found) != 3 or found[0] != layers * directions or found[1:2] != batch:
            raise InvalidProblemError(f"{name} must be [{layers * directions}, batch, size], got shape {found}")
    if batch_sizes is None:
        if batch != shape[1:2]:
            raise InvalidProblemError(f"hx must have the batch of input, {shape[1]}, got {batch[0]}")
        sizes = (shape[1],) * shape[0]
        flat = x if 0 in shape else seen_as(x, (shape[0] * shape[1], shape[2]), **options)
    else:
        sizes, flat = _packed_sizes(batch_sizes, shape[0]), x
        if sizes and sizes[0] != batch[0]:
            raise InvalidProblemError(f"hx must have a batch of {sizes[0]}, the first of batch_sizes, got {batch[0]}")
    outs = each_of(out, 1 + len(states))
    if not sum(sizes):
        return _empty(x, shape, states, directions, first, outs, out, options)
    finals: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        made = []
        for direction in range(directions):
            at = layer * directions + direction
            results = _direction(kind, flat, weights[at], states, at, sizes, direction == 1, order, options)
            made.append(results[0])
            walk = Walk(sizes, direction == 1)
            for kept, one in zip(finals, results, strict=True):
                kept.append(walk.last(one, options))
        flat = made[0] if directions == 1 else concat(made, axis=1, **options)
        if layer + 1 < layers and dropout and truth("train", train):
            seed, offset = draws
            offset = offset + layer * _OF_LAYERS if layer else offset
            flat = dropped(flat, dropout, seed=seed, offset=offset, **options)
    y = flat if batch_sizes is not None else reshaped(flat, (*shape[:2], shape_of(flat, "y")[1]), "y")
    y = permuted(y, (1, 0, 2), "y") if first else y
    if outs[0] is not None:
        copy(y, out=outs[0], **options)
    lasts = []
    for kept, into in zip(finals, outs[1:], strict=True):
        width = shape_of(kept[0], "h")
        made_h = concat(kept, axis=0, out=None, **options) if len(kept) > 1 else kept[0]
        made_h = reshaped(made_h, (layers * directions, *width), "h")
        lasts.append(made_h if into is None else copy(made_h, out=into, **options))
    return out if out is not None else (y, *lasts)


def _direction(
    kind: str, x: Any, w: dict[str, Any], states: Sequence[Any], at: int, sizes: tuple[int, ...], reverse: bool,
    order: str | None, options: dict[str, Any],
) -> tuple[Any, ...]:  # fmt: skip
    """The states of all steps of one layer in one direction."""
    h, *c = (without_axes(cut(s, (slice(at, at + 1),), "hx"), {0}, "hx") for s in states)
    hidden = shape_of(c[0] if c else h, "hx")[1]
    rows = _GATES[kind] * hidden
    _expect("w_ih", w["w_ih"], (rows, shape_of(x, "input")[1]))
    _expect("w_hh", w["w_hh"], (rows, shape_of(h, "hx")[1]))
    if "w_hr" in w:
        _expect("w_hr", w["w_hr"], (shape_of(h, "hx")[1], hidden))
    gates = linear(x, w["w_ih"], w.get("b_ih"), **options)
    made = recurrent_steps(
        gates, h, c[0] if c else None, w["w_hh"], w.get("b_hh"), w.get("w_hr"), kind, sizes, reverse, order, **options
    )
    return made if isinstance(made, tuple) else (made,)


def _empty(
    x: Any, shape: tuple[int, ...], states: Sequence[Any], directions: int, first: bool, outs: Any, out: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    """Of no rows: no output, and the states as they came."""
    size = shape_of(states[0], "hx")[2] * directions
    lead = (shape[1], shape[0]) if first else shape[:-1]
    if out is None:
        with beside(x, options["stream"]):
            y = zeros((*lead, size), read(x, "input").element, like=x)
        return (y, *(copy(s, **options) for s in states))
    for state, to in zip(states, outs[1:], strict=True):
        copy(state, out=to, **options)
    return out


@entry(LstmCellPlan)
def lstm(
    input: Array, hx: Sequence[Array], params: Sequence[Array], *, batch_sizes: Any = None, has_biases: bool = True,
    num_layers: int = 1, dropout: float = 0.0, train: bool = False, bidirectional: bool = False,
    batch_first: bool = False, order: str = "ifgo", seed: Scalar = None, offset: Scalar = 0,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(output, h, c) of an LSTM of several layers and one or both directions (torch.lstm).

    input: [steps, batch, features], with batch_first [batch, steps, features], or with batch_sizes, integers of the
    host, the rows of torch's PackedSequence, [rows, features]. hx: (h, c), [layers · directions, batch, size], the size
    of h being that of the projection where there is one. params: of each layer and direction w_ih, w_hh, with
    has_biases b_ih and b_hh, and where states are projected w_hr, in torch's shapes; gates in `order`: "ifgo" of torch
    and Keras, "iofg" of ONNX. dropout: between layers, where train; seed and offset as in `dropout`. The products
    of the input of all steps are one; then come all steps in one launch (`recurrent_layer`) with up to 256 units and
    batches of one size, else a launch for each (`recurrent_packed`), or with a projection some calls for each. The
    gradient makes the states' products of all steps anew in one, goes back by a launch for each step, and has one
    product for each gradient of a weight. Of no steps the states come back.
    """
    options = {"stream": stream, "preference": preference}
    return _network("lstm", input, hx, params, batch_sizes, has_biases, num_layers, dropout, train, bidirectional,
                    batch_first, order, (seed, offset), out, options)  # fmt: skip


@entry(GruCellPlan)
def gru(
    input: Array, hx: Array, params: Sequence[Array], *, batch_sizes: Any = None, has_biases: bool = True,
    num_layers: int = 1, dropout: float = 0.0, train: bool = False, bidirectional: bool = False,
    batch_first: bool = False, order: str = "rzn", seed: Scalar = None, offset: Scalar = 0,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(output, h) of a GRU of several layers and one or both directions (torch.gru).

    hx: [layers · directions, batch, hidden]; gates in `order`: "rzn" of torch, "zrn" of Keras (reset_after=True) and
    ONNX (linear_before_reset=1). Everything else is that of `lstm`, without projections.
    """
    options = {"stream": stream, "preference": preference}
    return _network("gru", input, hx, params, batch_sizes, has_biases, num_layers, dropout, train, bidirectional,
                    batch_first, order, (seed, offset), out, options)  # fmt: skip


@entry(GemmPlan)
def rnn_tanh(
    input: Array, hx: Array, params: Sequence[Array], *, batch_sizes: Any = None, has_biases: bool = True,
    num_layers: int = 1, dropout: float = 0.0, train: bool = False, bidirectional: bool = False,
    batch_first: bool = False, seed: Scalar = None, offset: Scalar = 0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(output, h) of an Elman network with tanh (torch.rnn_tanh).

    hx: [layers · directions, batch, hidden]; everything else is that of `lstm`, without projections.
    """
    options = {"stream": stream, "preference": preference}
    return _network("rnn_tanh", input, hx, params, batch_sizes, has_biases, num_layers, dropout, train, bidirectional,
                    batch_first, None, (seed, offset), out, options)  # fmt: skip


@entry(GemmPlan)
def rnn_relu(
    input: Array, hx: Array, params: Sequence[Array], *, batch_sizes: Any = None, has_biases: bool = True,
    num_layers: int = 1, dropout: float = 0.0, train: bool = False, bidirectional: bool = False,
    batch_first: bool = False, seed: Scalar = None, offset: Scalar = 0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(output, h) of an Elman network with relu (torch.rnn_relu).

    hx: [layers · directions, batch, hidden]; everything else is that of `lstm`, without projections.
    """
    options = {"stream": stream, "preference": preference}
    return _network("rnn_relu", input, hx, params, batch_sizes, has_biases, num_layers, dropout, train, bidirectional,
                    batch_first, None, (seed, offset), out, options)  # fmt: skip
