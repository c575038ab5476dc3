"""Linear attention and the selective scan over steps in shards: states pass on as `context_states` says."""

from __future__ import annotations

from typing import Any

from ..calls.composed import composed
from ..core import Array
from ..core.arrays import read
from ..core.checked import truth
from ..core.errors import InvalidProblemError
from ..core.outputs import each_of
from ..core.views import shape_of, with_axis
from ..ops.elementwise.binary_functions import add, mul
from ..ops.elementwise.cast import cast
from ..ops.elementwise.unary import exp, softplus  # type: ignore[attr-defined]  # made from a table
from ..ops.layout.creation import zeros_like
from ..ops.layout.moves import copy
from ..ops.recurrence.attend import call as attend
from ..ops.recurrence.attend import heads_of, in_acc
from ..ops.recurrence.kinds import BONUS, CHANNELLED, DELTAS, RANK_ONES, SCALARS, RecurrenceKind
from ..ops.recurrence.linear_attention_backward import linear_attention_backward
from ..ops.recurrence.selective_functions import _scan as scan
from ..ops.recurrence.selective_functions import of_inputs
from ..ops.recurrence.selective_scan_backward import selective_scan_backward
from ..ops.reduce.reduce import sum as total  # type: ignore[attr-defined]  # made from a table
from . import context_states as states
from .agreement import agree
from .context_states import Options, Recurrence, method_of

_DIAGONAL = (RecurrenceKind.NONE, RecurrenceKind.SCALAR, RecurrenceKind.CHANNEL, RecurrenceKind.CHANNEL_BONUS)
_TAKEN = {"g": (*SCALARS, *CHANNELLED), "beta": DELTAS, "a": RANK_ONES, "b": RANK_ONES, "bonus": BONUS}


def _given(made: Any, names: list[str]) -> dict[str, Any]:
    """Results by name; a single one comes alone."""
    return dict(zip(names, made if isinstance(made, (tuple, list)) else (made,), strict=True))


# ---- linear attention ------------------------------------------------------------------------------------------------


def _linear(
    q: Any, k: Any, v: Any, g: Any, beta: Any, a: Any, b: Any, bonus: Any, kind: RecurrenceKind, facts: Options,
    dy: Any, stepwise: bool, options: Options,
) -> Recurrence:  # fmt: skip
    channels = kind in CHANNELLED
    gates = {"g": None if channels else g, "g_channel": g if channels else None, "beta": beta, "a": a, "b": b}
    operands = gates | {"bonus": bonus}
    shape = shape_of(q, "q")
    heads = heads_of(("q", q), ("k", k), ("v", v), ("g", g))

    def run(first: Any) -> tuple[Any, Any]:
        y, last = attend(
            q, k, v, **operands, initial_state=first, kind=kind, stepwise=stepwise, return_final_state=True, **facts,
            **options,
        )  # fmt: skip
        return y, last

    def back(first: Any, dlast: Any, alone: bool) -> dict[str, Any]:
        names = ["q", "k", "v", *(n for n, x in operands.items() if x is not None)]
        wanted = [] if alone else names
        flags = {f"return_d{name}": name in wanted for name in ("q", "k", "v", *operands)}
        made = linear_attention_backward(
            q, k, v, dy, **operands, initial_state=first, dfinal_state=dlast, kind=kind, **flags, **facts, **options
        )
        found = _given(made, [*wanted, "first"])
        return {("g" if name == "g_channel" else name): x for name, x in found.items()}

    def decay() -> Any:
        if g is None:
            return None
        product = exp(total(g, axis=1, **options), **options)  # [batch, heads] or [batch, heads, d_k]
        return with_axis(product if channels else with_axis(product, 2, "g"), 3, "g")

    sizes = (shape[0], heads, shape[3], shape_of(v, "v")[3])
    return Recurrence(sizes, states.element_of(q), q, run, back, decay)


def _slope(dy: Any, y: Any, options: Options) -> Any:
    """The slope of this rank's y, zeros where it has no part in what is differentiated."""
    return zeros_like(y[0]) if dy[0] is None else copy(dy[0], **options)


def _gradients(
    one: Recurrence, dy: Any, y: Any, begun: bool, comm: Any, method: str, final: bool, options: Options
) -> dict[str, Any]:
    """Those of the operands by name; of the initial state, where there is one (`begun`), on rank 0, zeros elsewhere."""
    dlast = states.to_last(one, dy[1], comm, options) if final else None
    made = states.back(one, comm, y[2], dlast, method, options)
    if begun:
        made["initial_state"] = made["first"] if comm.rank == 0 else states.zeros_of(one, options)
    return made


def _linear_back(
    dy: Any, q: Any, k: Any, v: Any, g: Any, beta: Any, a: Any, b: Any, bonus: Any, initial_state: Any, comm: Any,
    kind: RecurrenceKind, facts: Options, method: str, stepwise: bool, final: bool, y: Any, preference: Any = None,
) -> Any:  # fmt: skip
    options = {"stream": None, "preference": preference}
    one = _linear(q, k, v, g, beta, a, b, bonus, kind, facts, _slope(dy, y, options), stepwise, options)
    made = _gradients(one, dy, y, initial_state is not None, comm, method, final, options)
    return tuple(made.get(name) for name in ("q", "k", "v", "g", "beta", "a", "b", "bonus", "initial_state"))


@composed(_linear_back, "q", "k", "v", "g", "beta", "a", "b", "bonus", "initial_state", result=True)
def _linear_forward(
    q: Any, k: Any, v: Any, g: Any, beta: Any, a: Any, b: Any, bonus: Any, initial_state: Any, comm: Any,
    kind: RecurrenceKind, facts: Options, method: str, stepwise: bool, final: bool, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(y, final state or None, the state that this rank's steps began with)."""
    options = {"stream": stream, "preference": preference}
    one = _linear(q, k, v, g, beta, a, b, bonus, kind, facts, None, stepwise, options)
    y, last, first = states.run(one, comm, initial_state, method, options)
    return y, (states.from_last(last, comm, options) if final else last), first


def context_linear_attention(
    q: Array, k: Array, v: Array, comm: Any, *, kind: RecurrenceKind | str = "none", g: Array | None = None,
    beta: Array | None = None, a: Array | None = None, b: Array | None = None, bonus: Array | None = None,
    scale: float | None = None, initial_state: Array | None = None, output_final_state: bool = False,
    use_qk_l2norm: bool = False, stepwise: bool = False, method: str | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Linear attention of every kind over a sequence of which each rank has some steps, rank r's behind rank r - 1's.

    q, k [batch, n, heads, d_k], v [batch, n, heads, d_v] and the gates are this rank's n steps, any number; kind names
    them as `RecurrenceKind` does ("scalar": g [batch, n, heads], Mamba-2, RetNet; "channel": g [batch, n, heads, d_k],
    GLA; "delta" kinds: beta, gated DeltaNet, KDA; "rank_one": a and b, RWKV-7), else as in `linear_attention`.
    initial_state [batch, heads, d_k, d_v] is rank 0's, of others it is not read; with output_final_state every rank
    also gets the state after the last step of all.

    method "prefix", for kinds whose decay is diagonal (none, scalar, channel, channel_bonus) and their default: all
    ranks run at once, twice, and hand on one state each; the order of sums follows from where ranks begin.
    "sequential", the default of the others: a rank waits for the state of the one before it, and its bits are those of
    one rank, in chunks where each rank's steps are a multiple of 64. Gradients of all arrays; those of bonus are each
    rank's part.

    Raises `InvalidProblemError` for "prefix" where no diagonal decay is, `MismatchError` where ranks differ.
    """
    found = kind if isinstance(kind, RecurrenceKind) else _kind(kind)
    way = method_of(method, comm, found in _DIAGONAL, f"kind {found.value}")
    options = {"stream": stream, "preference": preference}
    gates = {"g": g, "beta": beta, "a": a, "b": b, "bonus": bonus}
    for name, x in gates.items():
        if (x is not None) != (found in _TAKEN[name]):
            raise InvalidProblemError(f"kind {found.value} takes {'no' if x is not None else 'the operand'} {name}")
    for name in ("g", "beta", "bonus"):
        gates[name] = in_acc(gates[name], q, name, options)
    final = truth("output_final_state", output_final_state)
    facts = {"scale": scale, "use_qk_l2norm": truth("use_qk_l2norm", use_qk_l2norm)}
    sizes = {name: shape_of(x, name)[:1] + shape_of(x, name)[2:] for name, x in (("q", q), ("k", k), ("v", v))}
    agree(comm, "context_linear_attention", kind=found.value, method=way, final=final, **facts, **sizes)
    made = _linear_forward(
        q, k, v, gates["g"], gates["beta"], a, b, gates["bonus"], initial_state, comm, found, facts, way,
        truth("stepwise", stepwise), final, **options,
    )  # fmt: skip
    return _handed(made, final, out, options)


def _kind(kind: Any) -> RecurrenceKind:
    names = [one.value for one in RecurrenceKind]
    if kind not in names:
        raise InvalidProblemError(f"kind must be one of {names}, got {kind!r}")
    return RecurrenceKind(kind)


def _handed(made: Any, final: bool, out: Any, options: Options) -> Any:
    """y, or (y, final state), where they are wanted."""
    outs = each_of(out, 2 if final else 1)
    kept = [x if to is None else copy(x, out=to, **options) for x, to in zip(made, outs, strict=False)]
    return tuple(kept) if final else kept[0]


# ---- selective scan --------------------------------------------------------------------------------------------------


def _selective(
    u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, delta_bias: Any, plus: bool, dy: Any, options: Options
) -> Recurrence:
    def run(first: Any) -> tuple[Any, Any]:
        y, last = scan(
            u, delta, a, b, c, d, z, delta_bias, first, softplus=plus, return_last_state=True, **options
        )  # fmt: skip
        return y, last

    def back(first: Any, dlast: Any, alone: bool) -> dict[str, Any]:
        given = {"u": u, "delta": delta, "a": a, "b": b, "c": c, "d": d, "z": z, "delta_bias": delta_bias}
        names = [] if alone else [n for n, x in given.items() if x is not None]
        flags = {f"return_d{name}": name in names for name in given}
        made = selective_scan_backward(
            dy, u, delta, a, b, c, d, z, delta_bias, first, None, dlast, softplus=plus, **flags, **options
        )  # fmt: skip
        return _given(made, [*names, "first"])

    def decay() -> Any:
        step = delta if read(delta, "delta").element is element else cast(delta, element, **options)
        if delta_bias is not None:
            step = add(step, with_axis(delta_bias, 1, "delta_bias"), **options)
        step = total(softplus(step, **options) if plus else step, axis=2, **options)
        return exp(mul(with_axis(step, 2, "delta"), a, **options), **options)

    element = states.element_of(u)
    shape = (*shape_of(u, "u")[:2], shape_of(a, "A")[1])
    return Recurrence(shape, element, u, run, back, decay)


def _selective_back(
    dy: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, delta_bias: Any, initial_state: Any, comm: Any,
    plus: bool, method: str, final: bool, y: Any, preference: Any = None,
) -> Any:  # fmt: skip
    options = {"stream": None, "preference": preference}
    one = _selective(u, delta, a, b, c, d, z, delta_bias, plus, _slope(dy, y, options), options)
    made = _gradients(one, dy, y, initial_state is not None, comm, method, final, options)
    return tuple(made.get(name) for name in ("u", "delta", "a", "b", "c", "d", "z", "delta_bias", "initial_state"))


@composed(_selective_back, "u", "delta", "a", "b", "c", "d", "z", "delta_bias", "initial_state", result=True)
def _selective_forward(
    u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, delta_bias: Any, initial_state: Any, comm: Any,
    plus: bool, method: str, final: bool, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, last state, the state that this rank's steps began with)."""
    options = {"stream": stream, "preference": preference}
    one = _selective(u, delta, a, b, c, d, z, delta_bias, plus, None, options)
    y, last, first = states.run(one, comm, initial_state, method, options)
    return y, (states.from_last(last, comm, options) if final else last), first


def context_selective_scan(
    u: Array, delta: Array, A: Array, B: Array, C: Array, comm: Any, D: Array | None = None, z: Array | None = None,
    delta_bias: Array | None = None, delta_softplus: bool = False, return_last_state: bool = False, *,
    initial_state: Array | None = None, method: str | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`selective_scan` (Mamba) over a sequence of which each rank has some steps, rank r's behind rank r - 1's.

    u, delta, z [batch, dim, n], B and C [batch, groups, states, n] or [batch, states, n] are this rank's n steps, any
    number; A [dim, states], D and delta_bias [dim] are the same on every rank. initial_state [batch, dim, states] is
    rank 0's, of others it is not read; with return_last_state every rank also gets the state after the last step of
    all. method as in `context_linear_attention`, "prefix" by default; "sequential" has the bits of one rank. Gradients
    of all arrays; those of A, D and delta_bias are each rank's part, which an all_reduce adds up.
    """
    way = method_of(method, comm, True, "it")
    options = {"stream": stream, "preference": preference}
    shape = shape_of(u, "u")
    if len(shape) != 3:
        raise InvalidProblemError(f"u must be [batch, dim, n], got shape {shape}")
    b, c = (of_inputs(x, name, shape[0], shape[2]) for x, name in ((B, "B"), (C, "C")))
    final = truth("return_last_state", return_last_state)
    said = {"u": shape[:2], "A": shape_of(A, "A"), "delta_softplus": delta_softplus, "method": way, "final": final}
    agree(comm, "context_selective_scan", **said)
    made = _selective_forward(
        u, delta, A, b, c, D, z, delta_bias, initial_state, comm, truth("delta_softplus", delta_softplus), way, final,
        **options,
    )  # fmt: skip
    return _handed(made, final, out, options)
