"""Recurrent layers in NumPy, step by step over packed rows: what the pages of all steps compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...schedules.packed_steps import places
from ..elementwise.unary_formulas import sigmoid
from . import gru_cell, lstm_cell
from .recurrent import GRU_ORDERS, LSTM_ORDERS, GruCellDescriptor, LstmCellDescriptor

LSTM, GRU, RNN_TANH = "lstm", "gru", "rnn_tanh"


def walked(
    kind: str, order: str, sizes: tuple[int, ...], reverse: bool, gates: Any, h0: Any, c0: Any, weight: Any, bias: Any,
    store: Any,
) -> dict[str, Any]:  # fmt: skip
    """h, and of an LSTM c, of all steps, in the dtype gates come in; states pass through `store` from step to step."""
    size = h0.shape[1]
    hs = np.zeros((sum(sizes), size), gates.dtype)
    cs = np.zeros_like(hs)
    usual = {LSTM: LSTM_ORDERS, GRU: GRU_ORDERS}.get(kind, ("h",))[0]

    def parts(x: Any) -> list[Any]:
        return [x[:, order.index(g) * size :][:, :size] for g in usual]

    with np.errstate(all="ignore"):
        for at in places(sizes, reverse):
            rows, h = slice(at.start, at.start + at.rows), _before(at, hs, h0)
            made = h @ weight.T
            x, m = parts(gates[rows]), parts(made if bias is None else made + bias)
            if kind == LSTM:
                i, f, g, o = (a + b for a, b in zip(x, m, strict=True))
                c = sigmoid(f) * _before(at, cs, c0) + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                cs[rows] = store(c)
            elif kind == GRU:
                r, z = sigmoid(x[0] + m[0]), sigmoid(x[1] + m[1])
                n = np.tanh(x[2] + r * m[2])
                h = n + z * (h - n)
            else:
                h = np.tanh(x[0] + m[0]) if kind == RNN_TANH else np.maximum(x[0] + m[0], 0)
            hs[rows] = store(h)
    return {"h": hs, "c": cs} if kind == LSTM else {"h": hs}


def _before(at: Any, states: Any, first: Any) -> Any:
    """The states before a step's rows."""
    known = min(at.known, at.rows)
    return np.concatenate([states[at.before : at.before + known], first[known : at.rows]])


def walked_back(
    kind: str, order: str, sizes: tuple[int, ...], reverse: bool, given: Mapping[str, Any], store: Any
) -> dict[str, Any]:
    """Slopes of gates, of the state's parts of them and of the first states; those of gates pass through `store`."""
    dhs, weight, h, c = (given.get(n) for n in ("dh", "weight", "h", "c"))
    assert dhs is not None and weight is not None
    size, batch = weight.shape[1], sizes[0] if sizes else 0
    dgates = np.zeros((sum(sizes), weight.shape[0]), dhs.dtype)
    dgates_h = np.zeros_like(dgates)
    carry = np.zeros((batch, size), dhs.dtype)  # what goes back to states without the weights
    firsts, firsts_c = np.zeros_like(carry), np.zeros_like(carry)
    later = slice(0, 0)
    for at in reversed(places(sizes, reverse)):
        rows, n, after = slice(at.start, at.start + at.rows), at.rows, at.later_rows
        later = slice(at.later, at.later + after)
        back = np.zeros((max(n, after), size), dhs.dtype)
        back[:after] = dgates_h[later] @ weight
        kept = np.zeros_like(back)
        kept[:after] = carry[:after]
        if kind != LSTM:
            back = back + kept
        firsts[n:after], firsts_c[n:after] = back[n:], kept[n:]
        carry[:n], slopes = _slopes(kind, order, at, given, dhs[rows] + back[:n], kept[:n], h, c)
        dgates[rows], dgates_h[rows] = store(slopes[0]), store(slopes[1])
    if sizes:
        last = places(sizes, reverse)[0]
        n = last.rows
        firsts[:n] = dgates_h[last.start : last.start + n] @ weight + (0 if kind == LSTM else carry[:n])
        firsts_c[:n] = carry[:n]
    return {"dgates": dgates, "dgates_h": dgates_h, "dh0": firsts, "dc0": firsts_c}


def _slopes(
    kind: str, order: str, at: Any, given: Mapping[str, Any], dh: Any, kept: Any, h: Any, c: Any
) -> tuple[Any, tuple[Any, Any]]:
    """What goes on to the state before, and the slopes of a step's gates."""
    rows = slice(at.start, at.start + at.rows)
    facts = {"batch": at.rows, "hidden": dh.shape[1], "order": order, "element": "float64"}
    if kind == LSTM:
        dc = kept if given.get("dc") is None else kept + given["dc"][rows]
        made = lstm_cell.backward_reference(
            LstmCellDescriptor(**facts), gates=given["gates"][rows], c=_before(at, c, given["c0"]),
            gates_h=given["gates_h"][rows], dh=dh, dc_next=dc, wanted=None,
        )  # fmt: skip
        return made["dc"], (made["dgates"], made["dgates"])
    if kind == GRU:
        made = gru_cell.backward_reference(
            GruCellDescriptor(**facts), dh_next=dh, gates=given["gates"][rows], gates_h=given["gates_h"][rows],
            h=_before(at, h, given["h0"]), wanted=None,
        )  # fmt: skip
        return made["dh"], (made["dgates"], made["dgates_h"])
    one = dh * (1 - h[rows] * h[rows]) if kind == RNN_TANH else np.where(h[rows] > 0, dh, 0 * h[rows])
    return np.zeros_like(dh), (one, one)
