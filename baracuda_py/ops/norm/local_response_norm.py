"""local_response_norm: x over a power of the mean of squares of neighbouring channels (Krizhevsky et al. 2012)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import real, whole
from ...calls.composed import composed
from ...core.errors import UnsupportedError
from ...calls.entries import entry
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..pooling.reduce_window import ReduceWindowPlan, reduce_window
from ..pooling.reduce_window_backward import ReduceWindowBackwardPlan
from .batch_norm import planes


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _window(z: Any, rank: int, before: int, after: int, options: Any) -> Any:
    """The sum over channels c - before … c + after, those beyond the ends being 0."""
    sizes, pads = [1] * rank, [(0, 0)] * rank
    sizes[1], pads[1] = before + after + 1, (before, after)
    return reduce_window(z, "sum", window_dimensions=sizes, padding=pads, **options)


def _spread(x: Any, size: int, alpha: float, k: float, options: Any) -> Any:
    """k + alpha · the mean of squares, in the accumulator's element."""
    rank, view = len(planes(x, "local_response_norm")), read(x, "x")
    if not view.element.is_float:
        raise UnsupportedError(f"local_response_norm is of floats, got {view.element}; cast to one first")
    size = whole("size", size, 1)
    squares = _formula(f"square({view.element.acc}(x))")(x=x, **options)
    sums = _window(squares, rank, size // 2, (size - 1) // 2, options)
    return _formula("k + a * s")(s=sums, k=real("k", k), a=real("alpha", alpha) / size, **options)


@composed("local_response_norm_backward", "x")
@entry(ReduceWindowPlan)
def local_response_norm(
    x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x / (k + alpha · mean of x² over `size` neighbouring channels)^beta, of x (batch, channels, …); zeros beyond.

    torch.nn.functional.local_response_norm: the window of channel c is c - size // 2 … c + (size - 1) // 2. Four
    launches, and two arrays like x in float32 (float64).
    """
    options = {"stream": stream, "preference": preference}
    spread = _spread(x, size, alpha, k, options)
    element = read(x, "x").element
    return _formula(f"{element}(x * s ** b)")(x=x, s=spread, b=-real("beta", beta), out=out, **options)


@entry(ReduceWindowBackwardPlan)
def local_response_norm_backward(
    dy: Array, x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `local_response_norm`: dy / s^beta - 2 alpha beta / size · x · t, s being k + alpha · mean.

    t is the sum of dy x / s^(beta + 1) at the channels whose windows x is in. Six launches, and three arrays like x in
    float32 (float64).
    """
    options = {"stream": stream, "preference": preference}
    spread, b = _spread(x, size, alpha, k, options), -real("beta", beta)
    element, rank = read(x, "x").element, len(read(x, "x").shape)
    shares = _formula(f"{element.acc}(g) * x * s ** (b - 1)")(g=dy, x=x, s=spread, b=b, **options)
    sums = _window(shares, rank, (size - 1) // 2, size // 2, options)
    text = f"{element}(g * s ** b + c * x * t)"
    factor = 2 * real("alpha", alpha) * b / size
    return _formula(text)(g=dy, x=x, s=spread, t=sums, b=b, c=factor, out=out, **options)
