"""mesa_net: linear attention whose queries solve a least-squares problem of all keys so far, by conjugate gradients."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array, InvalidProblemError
from ...core.arrays import read
from ...core.checked import whole
from ...core.outputs import each_of
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ..elementwise.cast import cast
from ..layout.moves import copy
from ..reduce.vecdot import vecdot
from .attend import attend, in_acc
from .kinds import RecurrenceKind
from .linear_attention import LinearAttentionPlan


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(LinearAttentionPlan, kind=RecurrenceKind.SCALAR)
def mesa_net(
    q: Array, k: Array, v: Array, g: Array, beta: Array, lamb: Array, *, h_kk_init: Array | None = None,
    h_kv_init: Array | None = None, output_final_state: bool = False, max_cg_iterations: int = 30,
    cu_seqlens: Array | None = None, stepwise: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[t] = Hkv[t]ᵀ (Hkk[t] + diag λ)⁻¹ q[t], Hkk = exp(g) Hkk + β k kᵀ, Hkv = exp(g) Hkv + β k vᵀ: MesaNet.

    q, k [batch, steps, heads, d_k], v [batch, steps, heads, d_v], g (logs of decays) and beta, not below 0, [batch,
    steps, heads], lamb [heads, d_k], above 0; gates of q's element or its accumulator's. With output_final_state the
    result is (y, Hkk, Hkv), the h_kk_init, symmetric, and h_kv_init of what follows, [batch or sequences, heads, d_k,
    d_k] and […, d_k, d_v] in the accumulator's element. cu_seqlens and stepwise as in `linear_attention`.

    max_cg_iterations of conjugate gradients from 0, all steps at once, each of which multiplies its direction by its
    own Hkk: a `simple_gla` whose values are β k. Directions and products have q's element, the solution and its
    residuals the accumulator's; d_k iterations are exact but for rounding, and what has converged stays. A composition
    of launches, not fused; gradients of all array operands go through the iterations. von Oswald et al. 2025
    (arXiv:2506.05233); flash-linear-attention's `chunk_mesa_net`.
    """
    options: dict[str, Any] = {"stream": stream, "preference": preference}
    shape, values = shape_of(q, "q"), shape_of(v, "v")
    if len(shape) != 4:
        raise InvalidProblemError(f"q must be [batch, steps, heads, d_k], got shape {shape}")
    expected = {"k": (k, shape), "v": (v, (*shape[:3], *values[-1:])), "g": (g, shape[:3]), "beta": (beta, shape[:3]),
                "lamb": (lamb, shape[2:])}  # fmt: skip
    for name, (x, wanted) in expected.items():
        if shape_of(x, name) != wanted:
            raise InvalidProblemError(f"{name} must have shape {wanted}, got {shape_of(x, name)}")
    rounds = whole("max_cg_iterations", max_cg_iterations, 1)
    kind = read(q, "q").element
    rates, regular = in_acc(g, q, "g", options), in_acc(lamb, q, "lamb", options)
    gate = with_axis(in_acc(beta, q, "beta", options), 3, "beta")
    keys, written = (_formula(f"{kind}(e * x)")(e=gate, x=x, **options) for x in (k, v))

    def in_element(x: Any) -> Any:
        return x if kind is kind.acc else cast(x, kind, **options)

    def wide(x: Any) -> Any:
        return x if kind is kind.acc else cast(x, kind.acc, **options)

    def read_by(x: Any, what: Any, state: Any, final: bool, to: Any = None) -> Any:
        return attend(
            RecurrenceKind.SCALAR, x, k, what, options, g=rates, scale=1.0, initial_state=state,
            output_final_state=final, cu_seqlens=cu_seqlens, stepwise=stepwise, out=to,
        )  # fmt: skip

    def dot(x: Any, y: Any) -> Any:
        return with_axis(vecdot(x, y, **options), 3, "x")

    solution, left, way = None, wide(q), q
    square, last = dot(left, left), None
    for turn in range(rounds):
        final = output_final_state and turn == 0
        made = read_by(way, keys, h_kk_init, final)
        if final:
            made, last = made
        along = wide(way)
        image = _formula("y + l * p")(y=wide(made), l=regular, p=along, **options)
        # Of a direction of 0 all numbers are 0, and so is the step.
        step = _formula("s / (d if d != 0 else 1)")(s=square, d=dot(along, image), **options)
        if solution is None:
            solution = _formula("a * p")(a=step, p=along, **options)
        else:
            solution = _formula("x + a * p")(x=solution, a=step, p=along, **options)
        if turn + 1 == rounds:
            break
        left = _formula("r - a * y")(r=left, a=step, y=image, **options)
        before, square = square, dot(left, left)
        way = in_element(_formula("r + p * (s / (b if b != 0 else 1))")(r=left, p=along, s=square, b=before, **options))
    if not output_final_state:
        return read_by(in_element(solution), written, h_kv_init, False, out)
    outs = each_of(out, 3)
    y, memory = read_by(in_element(solution), written, h_kv_init, True, None if out is None else (outs[0], outs[2]))
    return y, last if out is None else copy(last, out=outs[1], **options), memory
