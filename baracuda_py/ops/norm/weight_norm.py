"""weight_norm and spectral_norm: weights as a direction and a length, and weights over their largest singular value."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import real, shown, whole
from ...calls.composed import composed
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import shape_of
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ...core.numbers import plain
from ..reduce.distances import kept_norm, normalize
from ..reduce.reduce import ReducePlan
from ..reduce.reduce_backward import ReduceBackwardPlan


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _reduced(text: str, axis: Any, keepdims: bool) -> Any:
    return reduction(text, "sum", axis=axis, keepdims=keepdims)


def _others(name: str, x: Any, axis: Any) -> tuple[int, ...]:
    """The axes of x but for one; all where it is None."""
    axis, rank = plain(axis), len(shape_of(x, name))
    if axis is None:
        return tuple(range(rank))
    if type(axis) is not int or not -rank <= axis < rank:
        raise InvalidProblemError(f"axis must be None or an integer in [{-rank}, {rank}), got {shown(axis)}")
    return tuple(a for a in range(rank) if a != axis % rank)


# ---- direction and length -------------------------------------------------------------------------------------------


@composed("weight_norm_backward", "v", "g")
@entry(ReducePlan)
def weight_norm(
    v: Array, g: Array, axis: int | None = 0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """v · g / ‖v‖, the norm of each slice of v along `axis`, of the whole where it is None.

    torch.nn.utils.weight_norm: g has one number a slice, with v's axes and extents of 1 (Salimans and Kingma 2016). Two
    launches.
    """
    options = {"stream": stream, "preference": preference}
    n = kept_norm(v, 2, _others("v", v, axis), options)
    return _formula(f"{read(v, 'v').element}(v * (g / n))")(v=v, g=g, n=n, out=out, **options)


@entry(ReduceBackwardPlan)
def weight_norm_backward(
    dy: Array, v: Array, g: Array, axis: int | None = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(dv, dg) of `weight_norm`: dg = Σ dy v / ‖v‖, dv = g / ‖v‖ (dy - v Σ dy v / ‖v‖²). Four launches."""
    options, outs = {"stream": stream, "preference": preference}, each_of(out, 2)
    along, element = _others("v", v, axis), read(v, "v").element
    n = kept_norm(v, 2, along, options)
    s = _reduced(f"{element.acc}(d) * (v / n)", along, True)(d=dy, v=v, n=n, **options)
    dv = _formula(f"{element}(g / n * (d - v / n * s))")(d=dy, v=v, g=g, n=n, s=s, out=outs[0], **options)
    dg = _formula(f"{read(g, 'g').element}(s + 0 * g)")(s=s, g=g, out=outs[1], **options)
    return dv, dg


# ---- largest singular value -----------------------------------------------------------------------------------------


def _sides(weight: Any, u: Any, v: Any, axis: int) -> tuple[int, tuple[int, ...], Any, Any]:
    """The axis, the others, and u and v to broadcast with the weight."""
    others, shape = _others("weight", weight, axis), shape_of(weight, "weight")
    if axis is None or not shape:
        raise InvalidProblemError(f"weight must have an axis for its rows, got shape {shape} and axis {axis}")
    one = axis % len(shape)
    rows, columns = shape_of(u, "u"), shape_of(v, "v")
    rest = tuple(1 if a == one else n for a, n in enumerate(shape))
    count = 1
    for n in rest:
        count *= n
    if rows != (shape[one],) or columns != (count,):
        raise InvalidProblemError(
            f"u and v must have shapes {(shape[one],)} and {(count,)} for weight {shape} and axis {axis}, got {rows} "
            f"and {columns}"
        )
    return one, others, u.reshape([n if a == one else 1 for a, n in enumerate(shape)]), v.reshape(rest)


@entry(ReducePlan)
def spectral_norm_step(
    weight: Array, u: Array, v: Array, n_power_iterations: int = 1, axis: int = 0, eps: float = 1e-12, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(u, v) after steps of power iteration, u = W v / ‖W v‖ and v = Wᵀ u / ‖Wᵀ u‖, W the weight as a matrix.

    Its rows are the slices along `axis`, its columns all other axes: u has shape (rows,), v (columns,). A step reads
    the weight twice, eight launches. torch.nn.utils.parametrizations.spectral_norm takes its steps on the detached
    weight, as u and v are constants to `spectral_norm`.
    """
    options, element = {"stream": stream, "preference": preference}, read(weight, "weight").element
    steps, outs = whole("n_power_iterations", n_power_iterations, 1), each_of(out, 2)
    text, size = f"{element.acc}(w) * z", real("eps", eps)
    for step in range(steps):
        one, others, rows, columns = _sides(weight, u, v, axis)
        last = outs if step == steps - 1 else (None, None)
        found = normalize(_reduced(text, others, False)(w=weight, z=columns, **options), 2, 0, size, **options)
        u = _formula(f"{element}(x)")(x=found, out=last[0], **options)
        rows = u.reshape(shape_of(rows, "u"))
        found = _reduced(text, (one,), False)(w=weight, z=rows, **options)
        found = normalize(found.reshape(shape_of(v, "v")), 2, 0, size, **options)
        v = _formula(f"{element}(x)")(x=found, out=last[1], **options)
    return u, v


def _sigma(weight: Any, rows: Any, columns: Any, options: Any) -> Any:
    acc = read(weight, "weight").element.acc
    return _reduced(f"{acc}(w) * u * v", None, False)(w=weight, u=rows, v=columns, **options)


@composed("spectral_norm_backward", "weight")
@entry(ReducePlan)
def spectral_norm(
    weight: Array, u: Array, v: Array, axis: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """weight / σ with σ = uᵀ W v: the weight over its largest singular value, as far as u and v are its vectors.

    u and v come from `spectral_norm_step` and are constants to the gradient (Miyato et al. 2018,
    torch.nn.utils.parametrizations.spectral_norm). Two launches.
    """
    options = {"stream": stream, "preference": preference}
    _, _, rows, columns = _sides(weight, u, v, axis)
    sigma = _sigma(weight, rows, columns, options)
    return _formula(f"{read(weight, 'weight').element}(w / s)")(w=weight, s=sigma, out=out, **options)


@entry(ReduceBackwardPlan)
def spectral_norm_backward(
    dy: Array, weight: Array, u: Array, v: Array, axis: int = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """dweight of `spectral_norm`: dy / σ - (Σ dy weight) / σ² · u vᵀ. Three launches."""
    options, element = {"stream": stream, "preference": preference}, read(weight, "weight").element
    _, _, rows, columns = _sides(weight, u, v, axis)
    sigma = _sigma(weight, rows, columns, options)
    s = _reduced(f"{element.acc}(d) * w", None, False)(d=dy, w=weight, **options)
    text = f"{element}(d / s - t / s * (u * v / s))"
    return _formula(text)(d=dy, s=sigma, t=s, u=rows, v=columns, out=out, **options)
