"""nll_loss with its classes along any axis."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import permuted, shape_of
from .row_kinds import RowLossKind
from .row_loss import RowLossPlan, nll_of_rows

K = RowLossKind


def classes_last(x: Any, name: str, axis: int | None) -> Any:
    """x as a view whose axis of classes is the last: `axis`, by default 1, and 0 of a single one (PyTorch's)."""
    rank = len(shape_of(x, name))
    if rank == 0:
        raise InvalidProblemError(f"{name} must have an axis of classes, got shape ()")
    at = (1 if rank > 1 else 0) if axis is None else whole("axis", axis, -rank, rank - 1) % rank
    return permuted(x, [a for a in range(rank) if a != at] + [at], name)


@entry(RowLossPlan, kind=K.NLL)
def nll_loss(
    x: Array, target: Array, weight: Array | None = None, *, axis: int | None = None, ignore_index: int = -100,
    reduction: str = "mean", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """-weight[t] x[t] of log-probabilities x, 0 where t is ignore_index (torch.nn.functional.nll_loss).

    x has its classes along `axis`: by default 1, [N, C, d1, …], and 0 of x of shape [C]; target has x's other axes.
    The mean is over the sum of the weights of the rows that count. See `RowLossPlan`.
    """
    return nll_of_rows(
        classes_last(x, "x", axis), target, weight, ignore_index=ignore_index, reduction=reduction, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
