"""Recurrent layers over packed rows in torch, step by step, for tests and for derivatives of gradients."""

from __future__ import annotations

from typing import Any

from ...schedules.packed_steps import Place, places
from . import gru_cell, lstm_cell
from .recurrent import GruCellDescriptor, LstmCellDescriptor


def _cell(desc: Any, n: int) -> Any:
    kind: Any = LstmCellDescriptor if desc.kind.value == "lstm" else GruCellDescriptor
    return kind(batch=n, hidden=desc.hidden, order=desc.order, element="float64")


def forward(
    torch: Any, desc: Any, *, gates: Any, h0: Any, weight: Any, bias: Any = None, c0: Any = None, wanted: Any = ()
) -> Any:
    """h and c of all steps, put together without writing in place; of 16-bit tensors, which round otherwise, none."""
    if gates.dtype.itemsize == 2:
        return NotImplemented
    kind, f = desc.kind.value, torch.nn.functional
    before = {"h": h0, "c": c0}
    done: dict[int, Any] = {}
    for at in places(desc.sizes, desc.reverse):
        rows, n = slice(at.start, at.start + at.rows), at.rows
        starts = zip(before.values(), (h0, c0), strict=True)
        h, c = (None if s is None else torch.cat([s[:n], first[len(s) : n]]) for s, first in starts)
        m = f.linear(h, weight, bias)
        if kind == "lstm":
            made = lstm_cell.in_torch(torch, _cell(desc, n), gates=gates[rows], c=c, gates_h=m, wanted=set())
            before = {"h": made["h"], "c": made["c_next"]}
        elif kind == "gru":
            made = gru_cell.in_torch(torch, _cell(desc, n), gates=gates[rows], gates_h=m, h=h)
            before = {"h": made, "c": None}
        else:
            before = {"h": (torch.tanh if kind == "rnn_tanh" else torch.relu)(gates[rows] + m), "c": None}
        done[at.start] = before
    each = [done[start] for start in sorted(done)]
    names = ("h", "c") if kind == "lstm" else ("h",)
    none = gates.new_zeros((0, desc.hidden))
    return {name: torch.cat([none, *(one[name] for one in each)]) for name in names}


def backward(
    torch: Any, desc: Any, *, dh: Any, weight: Any, gates: Any = None, gates_h: Any = None, h: Any = None,
    h0: Any = None, c: Any = None, c0: Any = None, dc: Any = None, wanted: Any = (),
) -> Any:  # fmt: skip
    """The gradients of gates, of the state's parts of them and of the first states, likewise."""
    if dh.dtype.itemsize == 2:
        return NotImplemented
    kind = desc.kind.value

    def before(at: Place, states: Any, first: Any) -> Any:
        known = min(at.known, at.rows)
        return torch.cat([states[at.before : at.before + known], first[known : at.rows]])

    def slopes(at: Place, slope: Any, kept: Any) -> tuple[Any, Any, Any]:
        """Those of the gates and of the state's parts, and what goes on past the weights."""
        rows = slice(at.start, at.start + at.rows)
        if kind == "lstm":
            pull = torch.func.vjp(
                lambda x, s: lstm_cell.in_torch(
                    torch, _cell(desc, at.rows), gates=x, c=s, gates_h=gates_h[rows], wanted=set()
                ),
                gates[rows], before(at, c, c0),
            )[1]  # fmt: skip
            dx, ds = pull({"h": slope, "c_next": kept if dc is None else kept + dc[rows]})
            return dx, dx, ds
        if kind == "gru":
            pull = torch.func.vjp(
                lambda x, m, s: gru_cell.in_torch(torch, _cell(desc, at.rows), gates=x, gates_h=m, h=s),
                gates[rows], gates_h[rows], before(at, h, h0),
            )[1]  # fmt: skip
            return pull(slope)  # type: ignore[no-any-return]
        y = h[rows]
        dx = slope * (1 - y * y) if kind == "rnn_tanh" else torch.where(y > 0, slope, 0 * y)
        return dx, dx, torch.zeros_like(slope)

    none = dh.new_zeros((0, desc.hidden))
    last, carry = dh.new_zeros((0, desc.gates_size)), none
    firsts, firsts_c = [none], [none]  # of rows that begin later
    done: dict[int, tuple[Any, Any]] = {}
    taken = places(desc.sizes, desc.reverse)
    for at in [*reversed(taken), Place(0, 0)] if taken else []:
        back = last @ weight if kind == "lstm" else last @ weight + carry
        n, none_yet = at.rows, dh.new_zeros((max(0, at.rows - len(carry)), desc.hidden))
        firsts.insert(0, back[n:])
        firsts_c.insert(0, carry[n:])
        if n:
            slope = dh[at.start : at.start + n] + torch.cat([back[:n], none_yet])
            dx, last, carry = slopes(at, slope, torch.cat([carry[:n], none_yet]))
            done[at.start] = dx, last
    each = [done[start] for start in sorted(done)]
    wide = dh.new_zeros((0, desc.gates_size))
    return {
        "dgates": torch.cat([wide, *(one[0] for one in each)]),
        "dgates_h": torch.cat([wide, *(one[1] for one in each)]), "dh0": torch.cat(firsts), "dc0": torch.cat(firsts_c),
    }  # fmt: skip
