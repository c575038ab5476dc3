"""Experts in shards: tokens go to the rank that has their experts, and come back to be added where they are from.

Rank r has experts r · experts / size and those behind it. Rows travel in the order of experts, and an expert takes them
in the order of ranks and of tokens, which is that of tokens over all ranks: it sees the rows that it would see on one
rank, in that order. What comes back is weighted and added by the token's own rank in the order of its k choices. So a
token's bits depend neither on the number of ranks nor on other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calls.composed import composed
from ..core import Array
from ..core.arrays import read
from ..core.checked import shown, whole
from ..core.element import INDICES
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import cut, shape_of
from ..ops.layout.creation import ones
from ..ops.layout.made import from_host
from ..ops.layout.moves import copy
from ..ops.moe.experts import moe
from ..ops.segment.experts import moe_permute, moe_unpermute
from .agreement import agree, checked_communicator
from .collectives import all_gather, all_to_all_v
from .communicator import Communicator

Options = dict[str, Any]


@dataclass(frozen=True)
class ExpertRoute:
    """Where the rows of a dispatch are from: counts by rank, of this one's and of those that came, and their places."""

    comm: Communicator
    sent: tuple[int, ...]
    received: tuple[int, ...]
    places: Any  # [tokens, k], among the rows that this rank sent


def _back(
    dy: Any, x: Any, sent: tuple[int, ...], received: tuple[int, ...], comm: Any
) -> Any:  # fmt: skip
    return _exchanged(copy(dy), received, sent, comm)


@composed(_back, "x", reads=())
def _exchanged(x: Any, sent: tuple[int, ...], received: tuple[int, ...], comm: Any, stream: Any = None) -> Any:
    """Rows of x to each rank, and what they send."""
    return x if comm.size == 1 else all_to_all_v(x, sent, received, comm, stream=stream)


def _checked(x: Any, indices: Any, comm: Any, experts: Any) -> int:
    """The number of all experts."""
    checked_communicator(comm)
    tokens, chosen, count = shape_of(x, "x"), shape_of(indices, "indices"), whole("experts", experts, 1, 2**31 - 1)
    if len(tokens) != 2:
        raise InvalidProblemError(f"x must be [tokens, d], got shape {tokens}")
    if len(chosen) != 2 or chosen[0] != tokens[0]:
        raise InvalidProblemError(f"indices must be [{tokens[0]}, k], got shape {chosen}")
    if (element := read(indices, "indices").element) not in INDICES:
        raise InvalidProblemError(f"indices must be int64 or int32, got {element}")
    if count % comm.size:
        raise InvalidProblemError(f"experts must be a multiple of the {comm.size} ranks, got {count}")
    agree(comm, "expert_dispatch", experts=count, d=tokens[1], element=read(x, "x").element, indices=element)
    return count


def expert_dispatch(
    x: Array, indices: Array, comm: Any, experts: int, *, stream: Any = None, preference: Any = None
) -> tuple[Any, Any, ExpertRoute]:
    """(rows, own, route): the rows of all ranks that this rank's experts are to see.

    x [tokens, d] and indices [tokens, k], int32 or int64, are this rank's tokens, as many as it has, and their experts
    among all `experts`, of which rank r has experts / size from r · experts / size. rows [n, d] came from rank 0, then
    rank 1 and so on; own [n, 1], int32, are their experts, the first of this rank being 0: what `moe`, `moe_permute`
    and `grouped_gemm` take. Tokens whose expert is outside [0, experts) are sent to nobody. `expert_combine` takes what
    is made of the rows, and the route.

    Counts go round first, and are read on the host: one wait for the device. The gradient of x is a sum in a fixed
    order of the rows' gradients, which go the way back. Raises `InvalidProblemError` where the ranks do not divide the
    experts, `MismatchError` on every rank where ranks differ in d, element or experts.
    """
    count = _checked(x, indices, comm, experts)
    options = {"stream": stream, "preference": preference}
    rows, offsets, places = moe_permute(x, indices, num_experts=count, **options)
    every = all_gather(offsets, comm, stream=stream) if comm.size > 1 else offsets
    with beside(offsets, stream):
        bounds = np.array(every.tolist()).reshape(comm.size, count + 1)
    each, own = np.diff(bounds).reshape(comm.size, comm.size, -1), comm.rank  # [from, to, expert]
    sent, received = (tuple(int(n) for n in counts.sum(-1)) for counts in (each[own], each[:, own]))
    rows = _exchanged(cut(rows, (slice(0, sum(sent)),), "rows"), sent, received, comm, stream=stream)
    numbers = np.tile(np.arange(count // comm.size, dtype=np.int32), comm.size)
    held = from_host(np.repeat(numbers, each[:, own].reshape(-1))[:, None], x, stream)
    return rows, held, ExpertRoute(comm, sent, received, places)


def expert_combine(
    y: Array, route: ExpertRoute, weights: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Σ_j weights[t, j] · (what the expert indices[t, j] made of token t): rows back to where their tokens are.

    y [n, d_out]: made of the rows of `expert_dispatch`, in their order; weights [tokens, k] of y's element or its
    accumulator's, None for 1. The result [tokens, d_out] is added in the order of a token's k choices, so that its
    bits are those of one rank. Gradients of y and weights.
    """
    if not isinstance(route, ExpertRoute):
        raise InvalidProblemError(f"route must be what expert_dispatch gave, got {shown(route)}")
    shape = shape_of(y, "y")
    if len(shape) != 2 or shape[0] != sum(route.received):
        raise InvalidProblemError(f"y must be [{sum(route.received)}, d_out], a row for each that came, got {shape}")
    options = {"stream": stream, "preference": preference}
    rows = _exchanged(y, route.received, route.sent, route.comm, stream=stream)
    return moe_unpermute(rows, route.places, weights, out=out, **options)


def expert_parallel_moe(
    x: Array, indices: Array, weights: Array, gate_up: Array, down: Array, comm: Any, gate_up_bias: Array | None = None,
    down_bias: Array | None = None, *, activation: str = "swiglu", order: str = "gate_first", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`moe` of experts in shards: y[t] = Σ_j weights[t, j] down[e] unit(gate_up[e] x[t]), e = indices[t, j].

    x [tokens, d], indices and weights [tokens, k] are this rank's tokens, any number of them, with the experts' numbers
    over all ranks, as `moe_router` gives them; gate_up [experts / size, 2 f, d], down [experts / size, d_out, f] and
    the biases are this rank's experts, as many on every rank; activation and order as in `moe`. Two exchanges of rows,
    one of counts.

    A token has the bits that `moe` gives it on one rank, for any number of ranks and any other tokens. Gradients of x,
    weights, and this rank's matrices and biases: those are sums over the tokens of all ranks in their order. A rank
    without tokens, or whose experts nobody chose, makes the same calls and gets zeros.
    """
    checked_communicator(comm)
    own = shape_of(gate_up, "gate_up")
    if len(own) != 3:
        raise InvalidProblemError(f"gate_up must be [experts / size, rows, d], got shape {own}")
    options = {"stream": stream, "preference": preference}
    rows, numbers, route = expert_dispatch(x, indices, comm, own[0] * comm.size, **options)
    count = sum(route.received)
    with beside(x, stream):
        alone = ones((count, 1), read(x, "x").element.acc, like=x)
    y = moe(
        rows, numbers, alone, gate_up, down, gate_up_bias, down_bias, activation=activation, order=order, **options
    )  # fmt: skip
    return expert_combine(y, route, weights, out=out, **options)
