"""The steps of a recurrent layer in one direction, and their gradients.

Rows are packed as torch's PackedSequence has them: those of step t follow those of step t - 1, `sizes[t]` of them,
which do not grow. A batch of equal lengths is the case of equal sizes. `recurrent_layer` and `recurrent_packed` make
all steps, `recurrent_packed_backward` all steps back, each in one call; only an LSTM with a projection goes by a
product and a cell a step, and so does the gradient of an Elman network whose gradient may be asked for. The gradient
makes the pre-activations of all steps anew in one product, and that of the weights is one product over all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, groupby
from typing import Any

from ...calls.composed import composed
from ...calls.interpreters import recorder
from ...core.views import cut, reshaped, shape_of, transposed
from ...expressions.elementwise import elementwise
from ..elementwise.binary_functions import add
from ..gemm.linear import linear
from ..gemm.matmul import matmul
from ..layout.concat import concat
from ..layout.creation import zeros_like
from ..layout.moves import copy
from ..reduce.reduce import sum as total  # type: ignore[attr-defined]  # made from a table
from .gru_cell import gru_gates
from .lstm_cell import lstm_gates, lstm_gates_backward
from .recurrent_packed import recurrent_packed
from .recurrent_packed_backward import recurrent_packed_backward
from .recurrent_walk import MOST_UNITS, recurrent_layer

Options = dict[str, Any]
_FORMULAS = {"rnn_tanh": "tanh(a + b)", "rnn_relu": "relu(a + b)"}
_SLOPES = {"rnn_tanh": "dh * (1 - h * h)", "rnn_relu": "dh if h > 0 else 0 * h"}
_GATED = ("lstm", "gru")


@cache
def formula(text: str) -> Any:
    """A kernel of a formula."""
    return elementwise(text)


def rows(x: Any, start: int, end: int) -> Any:
    """A view of some rows."""
    return x if (start, end) == (0, shape_of(x, "x")[0]) else cut(x, (slice(start, end),), "x")


def join(parts: Sequence[Any], options: Options) -> Any:
    """The parts one below the other; a single one as it is."""
    found = [one for one in parts if shape_of(one, "x")[0]] or list(parts[:1])
    return found[0] if len(found) == 1 else concat(found, axis=0, **options)


def cell(kind: str, order: str | None, gates: Any, gates_h: Any, h: Any, c: Any, options: Options) -> tuple[Any, Any]:
    """(h, c) of one step, c None but of an LSTM."""
    if kind == "lstm":
        made, after = lstm_gates(gates, c, gates_h, order=order, return_c_next=True, **options)
        return made, after
    if kind == "gru":
        return gru_gates(gates, gates_h, h, order=order, **options), None
    return formula(_FORMULAS[kind])(a=gates, b=gates_h, **options), None


class Walk:
    """Steps in the order in which they are taken, and where their rows are."""

    def __init__(self, sizes: Sequence[int], reverse: bool) -> None:
        self.sizes, self.reverse = sizes, reverse
        self.starts = [0, *accumulate(sizes)]
        self.steps = list(range(len(sizes)))[:: -1 if reverse else 1]

    def of(self, x: Any, t: int) -> Any:
        """The rows of step t."""
        return rows(x, self.starts[t], self.starts[t + 1])

    def before(self, states: Any, first: Any, options: Options) -> Any:
        """The state before each row's step: of all steps at once."""
        parts = []
        for size, run in groupby(range(len(self.sizes)), self.sizes.__getitem__):
            steps = [*run]
            begin, end = steps[0], steps[-1]
            if self.reverse:
                known = self.sizes[end + 1] if end + 1 < len(self.sizes) else 0
                parts += [rows(states, self.starts[begin + 1], self.starts[end + 1 + (known > 0)])]
                parts += [rows(first, known, size)] if known < size else []
            else:
                parts += [rows(self.of(states, begin - 1) if begin else first, 0, size)]
                parts += [rows(states, self.starts[begin], self.starts[end])]
        return join(parts, options)

    def last(self, states: Any, options: Options) -> Any:
        """The state after the last step of each row."""
        if self.reverse:
            return self.of(states, 0)
        ends = [*self.sizes[1:], 0]
        return join(
            [rows(self.of(states, t), ends[t], n) for t, n in reversed([*enumerate(self.sizes)]) if ends[t] < n],
            options,
        )


def _back(
    dy: Any, gates: Any, h0: Any, c0: Any, weight: Any, bias: Any, projection: Any, kind: str, sizes: tuple[int, ...],
    reverse: bool, order: str | None, y: Any, preference: Any = None,
) -> Any:  # fmt: skip
    """The gradients of gates, h0, c0, weight, bias and projection."""
    options = {"preference": preference}
    walk = Walk(sizes, reverse)
    (hs, cs), (dhs, dcs) = (y, dy) if kind == "lstm" else ((y, None), (dy, None))
    dhs = zeros_like(hs) if dhs is None else dhs
    h_before = walk.before(hs, h0, options)
    gates_h = linear(h_before, weight, bias, **options) if kind in _GATED else None
    dgates_h = dprojection = dc0 = None
    if projection is not None:
        c_before = walk.before(cs, c0, options)

        def gated(t: int, whole: Any, dc: Any) -> tuple[Any, Any]:
            parts = (walk.of(x, t) for x in (gates, c_before, gates_h))
            return lstm_gates_backward(  # type: ignore[no-any-return]
                *parts, matmul(whole, projection, **options), dc, **options, order=order
            )  # fmt: skip

        dgates, dh0, dc0, slopes = _back_by_calls(dhs, dcs, weight, walk, gated, options)
        inner, _ = lstm_gates(gates, c_before, gates_h, order=order, return_c_next=True, **options)
        dprojection = matmul(transposed(slopes, "slopes"), inner, **options)
    elif kind not in _GATED and recorder((dhs, weight, hs)) is not None:  # calls that have gradients themselves

        def plain(t: int, whole: Any, dc: Any) -> tuple[Any, Any]:
            return formula(_SLOPES[kind])(dh=whole, h=walk.of(hs, t), **options), None

        dgates, dh0, _, _ = _back_by_calls(dhs, None, weight, walk, plain, options)
    else:
        turned = transposed(copy(transposed(weight, "w_hh"), **options), "w_hh")  # its columns are what sums go along
        given: Options = {"kind": kind, "sizes": sizes, "reverse": reverse, **options}
        given |= {} if order is None else {"order": order}
        given |= {"gates": gates, "gates_h": gates_h} if kind in _GATED else {"h": hs}
        if kind == "gru":
            dgates, dgates_h, dh0 = recurrent_packed_backward(dhs, turned, h=hs, h0=h0, **given)
        elif kind == "lstm":
            dgates, dh0, dc0 = recurrent_packed_backward(dhs, turned, c=cs, c0=c0, dc=dcs, **given)
        else:
            dgates, dh0 = recurrent_packed_backward(dhs, turned, **given)
    dgates_h = dgates if dgates_h is None else dgates_h
    dweight = matmul(transposed(dgates_h, "slopes"), h_before, **options)
    dbias = None if bias is None else total(dgates_h, axis=0, **options)
    return dgates, dh0, dc0, dweight, dbias, dprojection


def _back_by_calls(
    dhs: Any, dcs: Any, weight: Any, walk: Walk, step: Callable[[int, Any, Any], tuple[Any, Any]], options: Options
) -> tuple[Any, Any, Any, Any]:
    """The gradients of gates, h0 and c0, and of the states of all steps, by calls for each step.

    step: the gradients of the gates of a step, and of c before it, from those of h and c after it.
    """
    carry: Any = None
    carry_c: Any = None
    first: list[Any] = []  # slopes of rows of h0 and c0 that begin later
    first_c: list[Any] = []
    slopes: dict[int, tuple[Any, Any]] = {}
    for t in reversed(walk.steps):
        n = walk.sizes[t]
        if carry is not None and (known := shape_of(carry, "h")[0]) > n:
            first.insert(0, rows(carry, n, known))
            carry = rows(carry, 0, n)
            if carry_c is not None:
                first_c.insert(0, rows(carry_c, n, known))
                carry_c = rows(carry_c, 0, n)
        whole = _added(walk.of(dhs, t), carry, n, options)
        dc = _added(None if dcs is None else walk.of(dcs, t), carry_c, n, options)
        dgates, carry_c = step(t, whole, dc)
        slopes[t] = (dgates, whole)
        carry = matmul(dgates, weight, **options)
    each = [slopes[t] for t in range(len(walk.sizes))]
    dgates, wholes = (join(one, options) for one in zip(*each, strict=True))
    dc0 = None if carry_c is None else join([carry_c, *first_c], options)
    return dgates, join([carry, *first], options), dc0, wholes


def _added(own: Any, carry: Any, n: int, options: Options) -> Any:
    """own + carry, of which the latter may have fewer rows."""
    if own is None or carry is None:
        return own if carry is None else carry
    known = shape_of(carry, "h")[0]
    if known == n:
        return add(own, carry, **options)
    return join([add(rows(own, 0, known), carry, **options), rows(own, known, n)], options)


def _at_once(
    gates: Any, h0: Any, c0: Any, weight: Any, bias: Any, kind: str, sizes: tuple[int, ...], reverse: bool,
    order: str | None, options: Options,
) -> Any:  # fmt: skip
    """The states of all steps, of batches of one size, in one launch."""
    columns = shape_of(gates, "gates")[1]
    apart = reshaped(gates, (len(sizes), sizes[0], columns), "gates")
    given: Options = {"kind": kind, "order": order, "reverse": reverse, **options}
    if kind == "lstm":
        given["return_c"] = True
    made = recurrent_layer(apart, h0, weight, bias, c0, **given)
    each = [reshaped(x, (sum(sizes), shape_of(x, "h")[2]), "h") for x in (made if kind == "lstm" else (made,))]
    return tuple(each) if kind == "lstm" else each[0]


@composed(_back, "gates", "h0", "c0", "weight", "bias", "projection", result=True)
def recurrent_steps(
    gates: Any, h0: Any, c0: Any, weight: Any, bias: Any, projection: Any, kind: str, sizes: tuple[int, ...],
    reverse: bool, order: str | None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The states of all steps, packed as gates are; of an LSTM (h, c)."""
    options = {"stream": stream, "preference": preference}
    hidden = shape_of(h0, "hx")[1]
    if projection is not None:
        return _projected(gates, h0, c0, weight, bias, projection, Walk(sizes, reverse), order, options)
    if kind in _GATED and len(set(sizes)) == 1 and 0 < hidden <= MOST_UNITS:
        return _at_once(gates, h0, c0, weight, bias, kind, sizes, reverse, order, options)
    given = {"kind": kind, "sizes": sizes, "reverse": reverse, **options} | ({} if order is None else {"order": order})
    if kind == "lstm":
        given["return_c"] = True
    return recurrent_packed(gates, h0, weight, bias, c0, **given)


def _projected(
    gates: Any, h0: Any, c0: Any, weight: Any, bias: Any, projection: Any, walk: Walk, order: str | None,
    options: Options,
) -> tuple[Any, Any]:  # fmt: skip
    """The states of all steps of an LSTM whose states are projected, step by step."""
    made: dict[int, tuple[Any, Any]] = {}
    sizes = walk.sizes
    h, c = (rows(s, 0, sizes[walk.steps[0]]) for s in (h0, c0))
    for t in walk.steps:
        n, known = sizes[t], shape_of(h, "h")[0]
        if known > n:
            h, c = rows(h, 0, n), rows(c, 0, n)
        elif known < n:
            h, c = (join([s, rows(s0, known, n)], options) for s, s0 in ((h, h0), (c, c0)))
        h, c = cell("lstm", order, walk.of(gates, t), linear(h, weight, bias, **options), h, c, options)
        h = linear(h, projection, **options)
        made[t] = (h, c)
    hs, cs = zip(*(made[t] for t in range(len(sizes))), strict=True)
    return concat(hs, axis=0, **options), concat(cs, axis=0, **options)
