"""The steps of a recurrent layer in one direction, and their gradients: a product and a cell a step, forward and back,
or where `recurrent_layer` serves all steps forward in one launch.

Rows are packed as torch's PackedSequence has them: those of step t follow those of step t - 1, `sizes[t]` of them,
which do not grow. A batch of equal lengths is the case of equal sizes. The gradient makes the pre-activations of all
steps anew in one product, and the gradient of the weights is one product over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from ...calls.composed import composed
from ...core.views import cut, reshaped, shape_of, transposed
from ...expressions.elementwise import elementwise
from ..elementwise.binary_functions import add
from ..gemm.linear import linear
from ..gemm.matmul import matmul
from ..layout.concat import concat
from ..layout.creation import zeros_like
from ..reduce.reduce import sum as total  # type: ignore[attr-defined]  # made from a table
from .gru_cell import gru_gates, gru_gates_backward
from .lstm_cell import lstm_gates, lstm_gates_backward
from .recurrent_walk import MOST_UNITS, recurrent_layer

Options = dict[str, Any]
_FORMULAS = {"rnn_tanh": "tanh(a + b)", "rnn_relu": "relu(a + b)"}
_SLOPES = {"rnn_tanh": "dh * (1 - h * h)", "rnn_relu": "dh if h > 0 else 0 * h"}


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
        if len(self.sizes) == 1:
            return rows(first, 0, self.sizes[0])
        if not self.reverse:
            if len(set(self.sizes)) == 1:
                return join([first, rows(states, 0, self.starts[-2])], options)
            later = [rows(self.of(states, t - 1), 0, n) for t, n in enumerate(self.sizes) if t]
            return join([first, *later], options)
        parts = []
        for t, n in enumerate(self.sizes):
            known = self.sizes[t + 1] if t + 1 < len(self.sizes) else 0
            parts += [self.of(states, t + 1)] if known else []
            parts += [rows(first, known, n)] if known < n else []
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
    gates_h = linear(h_before, weight, bias, **options)
    c_before = None if cs is None else walk.before(cs, c0, options)
    carry: Any = None
    carry_c: Any = None
    first: list[Any] = []  # slopes of rows of h0 and c0 that begin later
    first_c: list[Any] = []
    slopes: dict[int, tuple[Any, Any, Any]] = {}
    for t in reversed(walk.steps):
        n = sizes[t]
        if carry is not None and shape_of(carry, "h")[0] > n:
            first.insert(0, rows(carry, n, shape_of(carry, "h")[0]))
            carry = rows(carry, 0, n)
            if carry_c is not None:
                first_c.insert(0, rows(carry_c, n, shape_of(carry_c, "c")[0]))
                carry_c = rows(carry_c, 0, n)
        dh = _added(walk.of(dhs, t), carry, n, options)
        dc = _added(None if dcs is None else walk.of(dcs, t), carry_c, n, options)
        whole = dh
        if projection is not None:
            dh = matmul(dh, projection, **options)
        own = (walk.of(gates, t), walk.of(gates_h, t))
        if kind == "lstm":
            dgates, carry_c = lstm_gates_backward(own[0], walk.of(c_before, t), own[1], dh, dc, **options, order=order)
            slopes[t] = (dgates, dgates, whole)
            carry = matmul(dgates, weight, **options)
        elif kind == "gru":
            dgates, dgates_h, direct = gru_gates_backward(dh, *own, walk.of(h_before, t), order=order, **options)
            slopes[t] = (dgates, dgates_h, whole)
            carry = add(matmul(dgates_h, weight, **options), direct, **options)
        else:
            dgates = formula(_SLOPES[kind])(dh=dh, h=walk.of(hs, t), **options)
            slopes[t] = (dgates, dgates, whole)
            carry = matmul(dgates, weight, **options)
    each = [slopes[t] for t in range(len(sizes))]
    dgates = join([one[0] for one in each], options)
    dgates_h = join([one[1] for one in each], options) if kind == "gru" else dgates
    dweight = matmul(transposed(dgates_h, "slopes"), h_before, **options)
    dbias = None if bias is None else total(dgates_h, axis=0, **options)
    dprojection = None
    if projection is not None:
        inner, _ = lstm_gates(gates, c_before, gates_h, order=order, return_c_next=True, **options)
        dprojection = matmul(transposed(join([one[2] for one in each], options), "slopes"), inner, **options)
    dc0 = None if c0 is None else join([carry_c, *first_c], options)
    return dgates, join([carry, *first], options), dc0, dweight, dbias, dprojection


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
    if kind in ("lstm", "gru") and projection is None and len(set(sizes)) == 1 and 0 < hidden <= MOST_UNITS:
        return _at_once(gates, h0, c0, weight, bias, kind, sizes, reverse, order, options)
    walk = Walk(sizes, reverse)
    made: dict[int, tuple[Any, Any]] = {}
    h, c = rows(h0, 0, sizes[walk.steps[0]]), None if c0 is None else rows(c0, 0, sizes[walk.steps[0]])
    for t in walk.steps:
        n, known = sizes[t], shape_of(h, "h")[0]
        if known != n:
            h = rows(h, 0, n) if known > n else join([h, rows(h0, known, n)], options)
            if c is not None:
                c = rows(c, 0, n) if known > n else join([c, rows(c0, known, n)], options)
        h, c = cell(kind, order, walk.of(gates, t), linear(h, weight, bias, **options), h, c, options)
        h = h if projection is None else linear(h, projection, **options)
        made[t] = (h, c)
    each = [made[t] for t in range(len(sizes))]
    hs = concat([one[0] for one in each], axis=0, **options)
    return hs if kind != "lstm" else (hs, concat([one[1] for one in each], axis=0, **options))
