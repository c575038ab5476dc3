"""Norms beside what models do before and after them: dropout and a residual, a shift and a scale."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, Scalar
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import permuted, shape_of
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..random.dropout import dropout
from ..layout.axes import places
from .layer_norm import LayerNormPlan, layer_norm
from .rms_norm import RMSNormPlan, rms_norm


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _in_element(x: Any, text: str) -> Any:
    return _formula(f"{read(x, 'x').element}({text})")


@entry(RMSNormPlan)
def dropout_add_rms_norm(
    x: Array, residual: Array, weight: Array | None = None, p: float = 0.5, *, seed: Scalar = None, offset: Scalar = 0,
    training: bool = True, eps: float = 1e-6, weight_offset: float = 0.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y, h): h = dropout(x, p) + residual, y = rms_norm(h) · weight. Two launches, `dropout` and `rms_norm`."""
    options = {"stream": stream, "preference": preference}
    kept = dropout(x, p, seed=seed, offset=offset, training=training, **options)
    made: tuple[Any, Any] = rms_norm(
        kept, weight, residual, eps=eps, weight_offset=weight_offset, return_h=True, out=out, **options
    )
    return made


@entry(LayerNormPlan)
def dropout_add_layer_norm(
    x: Array, residual: Array, weight: Array | None = None, bias: Array | None = None, p: float = 0.5, *,
    seed: Scalar = None, offset: Scalar = 0, training: bool = True, eps: float = 1e-5, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y, h): h = dropout(x, p) + residual, y = layer_norm(h) · weight + bias. Two launches."""
    options = {"stream": stream, "preference": preference}
    kept = dropout(x, p, seed=seed, offset=offset, training=training, **options)
    made: tuple[Any, Any] = layer_norm(kept, weight, bias, residual, eps=eps, return_h=True, out=out, **options)
    return made


@entry(LayerNormPlan)
def modulated_layer_norm(
    x: Array, shift: Array, scale: Array, *, eps: float = 1e-6, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """layer_norm(x) · (1 + scale) + shift over the last axis, shift and scale broadcast: adaptive layer norm.

    Two launches. Peebles and Xie 2022 (DiT), where shift and scale have shape (batch, 1, columns).
    """
    options = {"stream": stream, "preference": preference}
    return _in_element(x, "x * (1 + scale) + shift")(
        x=layer_norm(x, normalized_shape=read(x, "x").shape[-1:], eps=eps, **options), scale=scale, shift=shift,
        out=out, **options,
    )  # fmt: skip


@entry(LayerNormPlan)
def standardize(
    x: Array, axis: Any = -1, *, eps: float = 1e-5, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(var + eps) along one axis or several (jax.nn.standardize): layer norm of a view."""
    shape = shape_of(x, "x")
    rank = len(shape)
    axes = sorted(places(axis, rank))
    if not axes:
        raise InvalidProblemError("axis must name one axis or several, got ()")
    order = [*(n for n in range(rank) if n not in axes), *axes]
    options = {"normalized_shape": tuple(shape[n] for n in axes), "stream": stream, "preference": preference}
    view = None if out is None else permuted(out, order, "out")
    made = layer_norm(permuted(x, order, "x"), eps=eps, out=view, **options)
    return permuted(made, [order.index(n) for n in range(rank)], "x") if out is None else out
