"""sinkhorn: a matrix of positive numbers whose rows and columns sum to 1 (Sinkhorn and Knopp 1967), from its logs."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...core.views import shape_of
from .softmax import SoftmaxPlan
from .softmax_functions import log_softmax, softmax


@entry(SoftmaxPlan)
def sinkhorn(
    x: Array, iterations: int = 20, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """exp(x) of matrices [..., n, m], `iterations` times its columns and then its rows divided by their sums.

    Rows of the result sum to 1, and columns nearly so, to m / n where x is not square: the doubly stochastic mixing of
    residual streams of Manifold-constrained Hyper-Connections (arXiv:2512.24880, 20 iterations). Each division is a
    log_softmax, in logs and so for x of any size, but the last, which is a softmax: 2 · iterations launches. A column
    or row of -inf alone becomes NaN. Of 16-bit x each step is rounded: give float32. The gradient is that of the
    steps.
    """
    count = whole("iterations", iterations, 1)
    if len(shape := shape_of(x, "x")) < 2:
        raise InvalidProblemError(f"x must have shape [..., n, m], got {shape}")
    options = {"stream": stream, "preference": preference}
    for _ in range(count - 1):
        x = log_softmax(log_softmax(x, axis=-2, **options), axis=-1, **options)
    return softmax(log_softmax(x, axis=-2, **options), axis=-1, out=out, **options)
