"""Triangle attention and multiplication, which update the pair representation of AlphaFold 2's Evoformer.

Jumper et al. 2021, supplementary algorithms 11 to 14; operands and names are those of NVIDIA's cuEquivariance, and
attention is DeepSpeed's DS4Sci_EvoformerAttention with heads before queries. Compositions of `flash_sdpa`, `einsum`,
`layer_norm` and `linear`, differentiated call by call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ....core import Array, ElementKind as E
from ....core.checked import shown
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....core.outputs import each_of
from ....core.tensor import Shape
from ....core.views import reshaped, shape_of, with_axis, without_axes
from ....expressions.elementwise import elementwise
from ....core.arrays import read
from ...gemm.einsum import einsum
from ...gemm.gemm import GemmPlan
from ...gemm.linear import linear
from ...layout.views import part, reshape
from ...norm.layer_norm import layer_norm
from .dot_product_attention import one_element
from .flash_sdpa import FlashSdpaPlan, flash_sdpa

_SHAPES = "[B, N, H, Q, D], [B, N, H, K, D], [B, N, H, K, D]"
_EQUATIONS = {"outgoing": "...ikc,...jkc->...ijc", "incoming": "...kic,...kjc->...ijc"}


# ---- attention -----------------------------------------------------------------------------------------------------


def _operands(q: Any, k: Any, v: Any) -> tuple[Shape, bool, list[Any]]:
    """((B, N, H, Q, K), whether the batch axis is made here, the operands of five axes)."""
    named = (("q", q), ("k", k), ("v", v))
    shapes = [shape_of(x, name) for name, x in named]
    if {*map(len, shapes)} not in ({4}, {5}):
        raise InvalidProblemError(f"q, k and v must be {_SHAPES}, or all without B, got {', '.join(map(str, shapes))}")
    first, second, third = shapes
    if second[:-1] != third[:-1] or first[:-2] != second[:-2] or first[-1] != second[-1]:
        raise InvalidProblemError(f"q, k and v, {_SHAPES}, do not fit together, got {', '.join(map(str, shapes))}")
    one_element(named)
    apart = len(first) == 4
    held = [with_axis(x, 0, name) if apart else x for name, x in named]
    return (*((1,) if apart else ()), *first[:-1], second[-2]), apart, held


def _of_rows(name: str, x: Any, apart: bool, wanted: Shape, kinds: tuple[E, ...]) -> Any:
    """x with the batch axis, of exactly these extents and one of these elements."""
    shape, kind = shape_of(x, name), read(x, name).element
    if shape != wanted[apart:]:
        raise InvalidProblemError(f"{name} must have shape {wanted[apart:]}, got {shape}")
    if kind not in kinds:
        raise InvalidProblemError(f"{name} must hold {' or '.join(map(str, kinds))}, got {kind}")
    return with_axis(x, 0, name) if apart else x


def _rows(x: Any, name: str) -> Any:
    """The axes B and N as one: a view where B is 1 or lies evenly over N, else a copy."""
    shape = shape_of(x, name)
    return without_axes(x, [0], name) if shape[0] == 1 else reshape(x, (shape[0] * shape[1], *shape[2:]))


@entry(FlashSdpaPlan)
def triangle_attention(
    q: Array, k: Array, v: Array, bias: Array | None = None, mask: Array | None = None, *, scale: float | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ + bias) v of every row n of a pair representation, [B, N, H, Q, D] (cuEquivariance's name).

    q [B, N, H, Q, D], k and v [B, N, H, K, D]; bias [B, 1, H, Q, K], the third edge of each triangle, the same for all
    rows; mask [B, N, 1, 1, K] bool, True where a key is seen; or all of them without B. scale: default 1 / √D. That is
    attention around the starting node (Jumper et al. 2021, algorithm 13) of the projections of z[i, j], and around the
    ending node (14) of those of z[j, i].

    By `flash_sdpa` of B N batches: no scores [N, H, Q, K] are in memory, and bias is read where it lies, by a formula
    where B is above 1 or there is a mask; q, k and v are copied where B and N are not evenly spaced as one axis, as
    slices are. A query that sees no key gives zeros, where cuEquivariance has the mean of v.
    16-bit q take a float32 bias, too. Gradients of q, k, v and bias, which is summed over the rows.
    """
    options = {"stream": stream, "preference": preference}
    (batch, rows, heads, queries, keys), apart, held = _operands(q, k, v)
    kind = read(q, "q").element
    if bias is not None:
        of = tuple(dict.fromkeys((kind, kind.acc)))
        bias = without_axes(_of_rows("bias", bias, apart, (batch, 1, heads, queries, keys), of), [1], "bias")
    if mask is not None:
        mask = _rows(_of_rows("mask", mask, apart, (batch, rows, 1, 1, keys), (E.BOOL,)), "mask")
    (out,) = each_of(out, 1)
    shape = (*shape_of(q, "q")[:-1], shape_of(v, "v")[-1])
    if out is not None and shape_of(out, "out") != shape:
        raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(out, 'out')}")
    facts: dict[str, Any] = {"scale": scale, **options}
    if out is not None:
        facts["out"] = reshaped(out, (batch * rows, *shape[-3:]), "out")
        if facts["out"] is None:
            raise InvalidProblemError("out must have its axes B and N evenly spaced as one, as a dense array has them")
    first, second, third = (_rows(x, name) for x, name in zip(held, "qkv", strict=True))
    if bias is None or (batch == 1 and mask is None):
        y = flash_sdpa(first, second, third, mask if bias is None else bias, **facts)
    else:
        facts |= {"score": "s + bias[b // rows, h, q, k]", "bias": bias, "rows": max(rows, 1)}
        y = flash_sdpa(first, second, third, mask, **facts)
    return reshaped(y, shape, "y") if out is None else out


# ---- multiplication ------------------------------------------------------------------------------------------------


def _equation(direction: Any) -> str:
    if not isinstance(direction, str) or direction not in _EQUATIONS:
        raise InvalidProblemError(f'direction must be "outgoing" or "incoming", got {shown(direction)}')
    return _EQUATIONS[direction]


@entry(GemmPlan)
def triangle_multiplication(
    a: Array, b: Array, direction: str = "outgoing", *, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """z[i, j, c] = Σ_k a[i, k, c] b[j, k, c], or "incoming" Σ_k a[k, i, c] b[k, j, c], of edges of pairs [*, N, N, C].

    The product in the triangle updates of Jumper et al. 2021, algorithms 11 and 12, a matrix product for each channel:
    by `einsum`, which says what is copied. `triangle_multiplicative_update` is the whole update. Gradients of both.
    """
    equation = _equation(direction)
    for name, x in (("a", a), ("b", b)):
        if len(shape_of(x, name)) < 3:
            raise InvalidProblemError(f"{name} must have shape [*, N, N, C], got {shape_of(x, name)}")
    return einsum(equation, a, b, math_precision=math_precision, out=out, stream=stream, preference=preference)


@cache
def _gated(masked: bool) -> Any:
    return elementwise("sigmoid(g) * p * m" if masked else "sigmoid(g) * p")


@entry(GemmPlan)
def triangle_multiplicative_update(
    x: Array, p_in_weight: Array, g_in_weight: Array, p_out_weight: Array, g_out_weight: Array,
    direction: str = "outgoing", *, mask: Array | None = None, norm_in_weight: Array | None = None,
    norm_in_bias: Array | None = None, norm_out_weight: Array | None = None, norm_out_bias: Array | None = None,
    p_in_bias: Array | None = None, g_in_bias: Array | None = None, p_out_bias: Array | None = None,
    g_out_bias: Array | None = None, eps: float = 1e-5, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The triangle update of pairs x [*, N, N, C] by multiplication (Jumper et al. 2021, algorithms 11 and 12).

    x' = layer_norm(x); (a, b) = mask · sigmoid(x' G_inᵀ) · (x' P_inᵀ), halves of 2 H channels; z is the
    `triangle_multiplication` of a and b; y = sigmoid(x' G_outᵀ) · (layer_norm(z) P_outᵀ). p_in_weight and g_in_weight
    [2 H, C], p_out_weight [C', H], g_out_weight [C', C], biases to match; weights and biases of the norms [C] and [H],
    none by default; mask [*, N, N] of x's element. The residual is the caller's. Nine launches and what `einsum`
    copies; gradients of all. cuEquivariance has the same weights and names them so.
    """
    options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    if len(shape) < 3 or shape[-2] != shape[-3]:
        raise InvalidProblemError(f"x must have shape [*, N, N, C], got {shape}")
    _equation(direction)
    if len(sizes := shape_of(p_in_weight, "p_in_weight")) != 2 or sizes[0] % 2:
        raise InvalidProblemError(f"p_in_weight must have shape [2 H, C], got {sizes}")
    if mask is not None:
        if shape_of(mask, "mask") != shape[:-1]:
            raise InvalidProblemError(f"mask must have shape {shape[:-1]}, got {shape_of(mask, 'mask')}")
        mask = with_axis(mask, len(shape) - 1, "mask")
    normed = layer_norm(x, norm_in_weight, norm_in_bias, normalized_shape=shape[-1:], eps=eps, **options)
    p, g = linear(normed, p_in_weight, p_in_bias, **options), linear(normed, g_in_weight, g_in_bias, **options)
    edges = _gated(mask is not None)(p=p, g=g, **({} if mask is None else {"m": mask}), **options)
    last, half = len(shape) - 1, sizes[0] // 2
    a, b = part(edges, last, 0, half), part(edges, last, half, 2 * half)
    z = triangle_multiplication(a, b, direction, **options)
    z = layer_norm(z, norm_out_weight, norm_out_bias, normalized_shape=(half,), eps=eps, **options)
    p, g = linear(z, p_out_weight, p_out_bias, **options), linear(normed, g_out_weight, g_out_bias, **options)
    return _gated(False)(p=p, g=g, out=out, **options)
