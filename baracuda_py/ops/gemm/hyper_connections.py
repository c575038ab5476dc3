"""Hyper-connections: n residual streams that a layer reads and writes by weights (Zhu et al. 2024; DeepSeek's mHC).

`hyper_connection_pre` makes a layer's input of the streams, `hyper_connection_post` the next streams of its output;
each is one launch of a formula and its gradient some. `hyper_connection_weights` and `mhc_weights` are the two papers'
weights that depend on the streams.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array, ElementKind as E
from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import permuted, reshaped, shape_of, transposed, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce
from ..elementwise.cast import cast
from ..layout.moves import copy
from ..layout.views import part, reshape
from ..softmax.sinkhorn import sinkhorn
from .gemm import GemmPlan
from .matmul import matmul

Options = dict[str, Any]
_STREAMS = 8


# ---- sums of streams -----------------------------------------------------------------------------------------------


@cache
def _formula(terms: int, more: bool, element: E) -> Any:
    each = [f"w{i} * x{i}" for i in range(terms)] + ["p * y"] * more
    return elementwise(f"{element}({' + '.join(each)})")


@cache
def _products(axes: tuple[int, ...], kind: E) -> Any:
    return reduce(f"{kind}(a) * b", "sum", axis=axes)


def _sums(weights: Any, x: Any, y: Any, p: Any, element: E, out: Any, options: Options) -> Any:
    """Σ_m weights[..., i, m] x[..., m, :] + p[..., i] y, rounded to the element: [..., i, d]."""
    along, down = len(shape_of(weights, "weights")) - 1, len(shape_of(x, "x")) - 2
    count = shape_of(x, "x")[down]
    held = {f"w{m}": part(weights, along, m, m + 1) for m in range(count)}
    held |= {f"x{m}": part(x, down, m, m + 1) for m in range(count)}
    if y is not None:
        held |= {"p": with_axis(p, -1, "post"), "y": with_axis(y, -2, "y")}
    return _formula(count, y is not None, element)(**held, out=out, **options)


def _scores(a: Any, b: Any, like: Any, kept: int, options: Options) -> Any:
    """Σ a b over the last axis, and over those that the weights `like`, whose own are the last `kept`, have not."""
    kind, axes = read(like, "weights").element, len(shape_of(a, "a")) - 1
    summed = tuple(range(axes - kept)) if len(shape_of(like, "weights")) == kept else ()
    made = _products((*summed, axes), kind.acc)(a, b, **options)
    return made if kind is kind.acc else elementwise(f"{kind}(x)")(x=made, **options)


def _streams(name: str, x: Any) -> tuple[tuple[int, ...], int, int]:
    """(leading axes, n, d) of streams [..., n, d]."""
    shape = shape_of(x, name)
    if len(shape) < 2 or not 1 <= shape[-2] <= _STREAMS:
        raise InvalidProblemError(f"{name} must have shape [..., n, d] of n = 1 to {_STREAMS} streams, got {shape}")
    return shape[:-2], shape[-2], shape[-1]


def _either(kind: E) -> str:
    return " or ".join(dict.fromkeys(map(str, (kind, kind.acc))))


def _fits(name: str, w: Any, x: Any, lead: tuple[int, ...], own: tuple[int, ...]) -> None:
    kind, found = read(x, "x").element, read(w, name).element
    if shape_of(w, name) not in ((*lead, *own), own):
        raise InvalidProblemError(f"{name} must have shape {(*lead, *own)} or {own}, got {shape_of(w, name)}")
    if found not in (kind, kind.acc):
        raise InvalidProblemError(f"{name} must hold {_either(kind)}, got {found}; cast it first")


def _pre_slopes(dy: Any, x: Any, pre: Any, preference: Any) -> tuple[Any, Any]:
    options, kind = {"preference": preference}, read(x, "x").element
    row = with_axis(dy, -2, "dy")
    dx = elementwise(f"{kind}(w * y)")(w=with_axis(pre, -1, "pre"), y=row, **options)
    return dx, _scores(x, row, pre, 1, options)


@composed(_pre_slopes, "x", "pre")
@entry(GemmPlan)
def hyper_connection_pre(
    x: Array, pre: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = Σ_m pre[..., m] x[..., m, :], a layer's input of n streams x [..., n, d]: [..., d].

    pre [..., n], or [n] for all, of x's element or its accumulator's; sums are in the accumulator, rounded once; n up
    to 8. Hyper-Connections' width connection (arXiv:2409.19606), mHC's H_pre x (arXiv:2512.24880). Gradients of both.
    """
    lead, n, d = _streams("x", x)
    _fits("pre", pre, x, lead, (n,))
    (out,) = each_of(out, 1)
    if out is not None and shape_of(out, "out") != (*lead, d):
        raise InvalidProblemError(f"out must have shape {(*lead, d)}, got {shape_of(out, 'out')}")
    to = None if out is None else with_axis(out, -2, "out")
    options = {"stream": stream, "preference": preference}
    y = _sums(with_axis(pre, -2, "pre"), x, None, None, read(x, "x").element, to, options)
    return without_axes(y, [len(lead)], "y") if out is None else out


def _post_slopes(dout: Any, y: Any, x: Any, post: Any, res: Any, preference: Any) -> tuple[Any, ...]:
    options, kind = {"preference": preference}, read(x, "x").element
    lead = len(shape_of(x, "x")) - 2
    dx = _sums(transposed(res, "res"), dout, None, None, kind, None, options)
    dy = _sums(with_axis(post, -2, "post"), dout, None, None, kind, None, options)
    dpost = _scores(dout, with_axis(y, -2, "y"), post, 1, options)
    dres = _scores(with_axis(dout, -2, "dy"), with_axis(x, lead, "x"), res, 2, options)
    return without_axes(dy, [lead], "dy"), dx, dpost, dres


@composed(_post_slopes, "y", "x", "post", "res")
@entry(GemmPlan)
def hyper_connection_post(
    y: Array, x: Array, post: Array, res: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x'[..., i, :] = Σ_m res[..., i, m] x[..., m, :] + post[..., i] y, the next streams of a layer's output y.

    y [..., d] and x [..., n, d] have one element, post [..., n] and res [..., n, n], or [n] and [n, n] for all, that or
    its accumulator's; sums are in the accumulator, rounded once; n up to 8. mHC's H_res x + H_postᵀ y
    (arXiv:2512.24880), whose `comb` of DeepSeek's and vLLM's `mhc_post` is res transposed; the depth connection of
    Hyper-Connections (arXiv:2409.19606), where res is A_rᵀ. Gradients of all.
    """
    lead, n, d = _streams("x", x)
    if shape_of(y, "y") != (*lead, d) or read(y, "y").element is not read(x, "x").element:
        raise InvalidProblemError(
            f"y must have shape {(*lead, d)} and hold {read(x, 'x').element} as x does, got {shape_of(y, 'y')} of "
            f"{read(y, 'y').element}"
        )
    _fits("post", post, x, lead, (n,))
    _fits("res", res, x, lead, (n, n))
    (out,) = each_of(out, 1)
    options = {"stream": stream, "preference": preference}
    return _sums(res, x, y, post, read(x, "x").element, out, options)


# ---- weights that depend on the streams ----------------------------------------------------------------------------


def _outs(out: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
    outs = each_of(out, 3)
    for one, shape in zip(outs, shapes, strict=True):
        if one is not None and shape_of(one, "out") != shape:
            raise InvalidProblemError(f"out must have shapes {shapes}, got {shape_of(one, 'out')}")
    return outs


def _shaped(name: str, x: Any, *shapes: tuple[int, ...]) -> None:
    if shape_of(x, name) not in shapes:
        raise InvalidProblemError(f"{name} must have shape {' or '.join(map(str, shapes))}, got {shape_of(x, name)}")


@entry(GemmPlan)
def hyper_connection_weights(
    x: Array, static_alpha: Array, static_beta: Array, dynamic_alpha_fn: Array, dynamic_beta_fn: Array,
    dynamic_alpha_scale: Array, dynamic_beta_scale: Array, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(pre, post, res) of dynamic Hyper-Connections of n normed streams x [..., n, d] (arXiv:2409.19606).

    α = tanh(x dynamic_alpha_fn) · dynamic_alpha_scale + static_alpha, [..., n, n + 1]: its first column is pre, the
    rest, transposed, res; post = tanh(x dynamic_beta_fn) · dynamic_beta_scale + static_beta. dynamic_alpha_fn
    [d, n + 1] and dynamic_beta_fn [d] of x's element, static_alpha [n, n + 1] and static_beta [n] of it or of the
    accumulator's, which the results have; scales are arrays of one element, or numbers. x is what a norm made of each
    stream, `layer_norm` in the paper; the streams go to `hyper_connection_pre` and `_post` as they are. Without the
    dynamic part these are static_alpha and static_beta themselves. Gradients of all arrays by torch's autograd and JAX.
    """
    lead, n, d = _streams("x", x)
    _shaped("static_alpha", static_alpha, (n, n + 1))
    _shaped("static_beta", static_beta, (n,))
    _shaped("dynamic_alpha_fn", dynamic_alpha_fn, (d, n + 1))
    _shaped("dynamic_beta_fn", dynamic_beta_fn, (d,))
    options, wide = {"stream": stream, "preference": preference}, read(x, "x").element.acc
    outs = _outs(out, ((*lead, n), (*lead, n), (*lead, n, n)))
    alpha = matmul(x, dynamic_alpha_fn, out_element=wide, **options)
    beta = matmul(x, dynamic_beta_fn, out_element=wide, **options)
    last, f = len(lead) + 1, elementwise(f"{wide}(tanh(x) * scale + fixed)")

    def column(x: Any, axis: int) -> Any:
        return without_axes(part(x, axis, 0, 1), [axis], "alpha")

    pre = f(column(alpha, last), dynamic_alpha_scale, column(static_alpha, 1), out=outs[0], **options)
    post = f(beta, dynamic_beta_scale, static_beta, out=outs[1], **options)
    rest, fixed = (transposed(part(x, axis, 1, n + 1), "alpha") for x, axis in ((alpha, last), (static_alpha, 1)))
    return pre, post, f(rest, dynamic_alpha_scale, fixed, out=outs[2], **options)


@cache
def _inverse_rms(wide: E) -> Any:
    return reduce(f"rsqrt(mean({wide}(x) * x) + eps)", axis=(-2, -1))


@entry(GemmPlan)
def mhc_weights(
    x: Array, weight: Array, scale: Array, bias: Array, *, iterations: int = 20, eps: float = 1e-6, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(pre, post, res) of Manifold-constrained Hyper-Connections of n streams x [..., n, d] (mHC, arXiv:2512.24880).

    c = x̂ weightᵀ with x̂ = rms_norm of all n d numbers of a token; pre = sigmoid(scale[0] c + bias) of the first n of
    c and bias, post = 2 sigmoid(scale[1] c + bias) of the next n, res = sinkhorn(scale[2] c + bias, iterations) of the
    other n², row by row: res[i, m] is what the next stream i takes of stream m. weight [n (n + 2), n d] of x's element
    or its accumulator's (to which x is then cast), scale [3] and bias [n (n + 2)] of any float. Results have the
    accumulator's element; `hyper_connection_pre` and `_post` take them. Gradients of all by torch's autograd and JAX.
    """
    lead, n, d = _streams("x", x)
    count, kind = n * (n + 2), read(x, "x").element
    _shaped("weight", weight, (count, n * d))
    _shaped("scale", scale, (3,))
    _shaped("bias", bias, (count,))
    if (found := read(weight, "weight").element) not in (kind, kind.acc):
        raise InvalidProblemError(f"weight must hold {_either(kind)}, got {found}; cast it first")
    options, wide = {"stream": stream, "preference": preference}, kind.acc
    outs = _outs(out, ((*lead, n), (*lead, n), (*lead, n, n)))
    rows = x if found is kind else cast(x, wide, **options)
    if reshaped(rows, (*lead, n * d), "x") is None:
        rows = copy(rows, **options)
    rows = reshape(rows, (*lead, n * d))
    c = matmul(rows, permuted(weight, (1, 0), "weight"), out_element=wide, **options)
    r = with_axis(_inverse_rms(wide)(x, eps=eps, **options), -1, "rms")

    def made(form: str, at: int, start: int, stop: int, out: Any) -> Any:
        parts = (part(c, len(lead), start, stop), r, part(scale, 0, at, at + 1), part(bias, 0, start, stop))
        return elementwise(f"{wide}({form})")(*parts, out=out, **options)

    pre = made("sigmoid(c * r * scale + bias)", 0, 0, n, outs[0])
    post = made("2 * sigmoid(c * r * scale + bias)", 1, n, 2 * n, outs[1])
    logits = reshape(made("c * r * scale + bias", 2, 2 * n, count, None), (*lead, n, n))
    return pre, post, sinkhorn(logits, iterations, out=outs[2], **options)
