"""qr with its gradient, and what is multiplied by its Q: ormqr and qr_multiply."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.functional import functional
from ...core import Array
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import each_of
from ...core.views import diagonal, shape_of, transposed, with_axis
from ..elementwise.binary_functions import add, sub
from ..layout.concat import concat
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.triangle import triu
from ..layout.written import diag_embed
from .householder_product import HouseholderProductPlan, householder_product
from .parts import Options, adjoint_of, block, column, one_batch, product
from .parts import conjugate as _conjugate
from .pieces import Pieces
from .qr import QrPlan
from .triangular_functions import solve_triangular

_qr: Any = functional(QrPlan)


def _whole(do: Pieces, dq: Any, dr: Any, q: Any, r: Any) -> Any:
    """(dQ + Q S) R⁻ᴴ, S = M + Mᴴ - Re diag M of M = triu(dR Rᴴ - Qᴴ dQ): matrices no wider than tall."""
    inner = None if dr is None else do.product(dr, do.turned(r))
    if dq is not None:
        along = do.product(do.turned(q), dq)
        inner = do.times(along, -1.0) if inner is None else sub(inner, along, **do.options)
    inner = triu(inner, **do.options)
    rank = len(shape_of(inner, "m"))
    both = add(inner, do.turned(inner), **do.options)
    own = do.times(diagonal(both, rank - 2, rank - 1, "m"), 0.5)
    made = do.product(q, sub(both, diag_embed(own, **do.options), **do.options))
    made = made if dq is None else add(dq, made, **do.options)
    return solve_triangular(r, made, upper=True, left=False, trans="c", **do.options)


def _qr_gradient(
    dy: Any, a: Any, mode: str = "reduced", *, y: Any, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """That of [X Y] = Q [U V], X square: V = Qᴴ Y gives dY = Q dV and a part Y dVᴴ of dQ; X has `_whole`."""
    do, (m, n) = Pieces(stream, preference), shape_of(a, "a")[-2:]
    if mode == "r":
        dq, dr, (q, r) = None, dy, _qr(a, return_q=True, **do.options)
    else:
        (dq, dr), (q, r) = dy, y
    if mode == "complete" and m > n:
        raise UnsupportedError(
            "qr of mode 'complete' has no gradient where a has more rows than columns, for the last columns of q are "
            "any; write mode='reduced'"
        )
    if m >= n:
        return _whole(do, dq, dr, q, r)
    first, rest, every = slice(0, m), slice(m, None), slice(None)
    beyond = do.product(q, block(dr, every, rest)) if dr is not None else None
    if dr is not None:
        dq = do.sum(dq, do.product(block(a, every, rest), do.turned(block(dr, every, rest))))
    square = _whole(do, dq, None if dr is None else block(dr, every, first), q, block(r, every, first))
    if beyond is None:
        return pad(square, (0, n - m), **do.options)
    return concat([square, beyond], axis=-1, **do.options)


@composed(_qr_gradient, "a", result=True)
@entry(QrPlan)
def qr(a: Array, mode: str = "reduced", *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(q, r) with a = q r, q of orthonormal columns and r upper triangular (torch.linalg.qr, numpy.linalg.qr).

    a: [..., m, n] of f32, f64, complex64, complex128; k = min(m, n). mode: "reduced" gives q [..., m, k] and
    r [..., k, n], "complete" q [..., m, m] and r [..., m, n], "r" the reduced r alone, as NumPy has it. Signs and
    phases of q's columns are the library's. Nothing waits for the device. The gradient is torch's, of matrices whose
    first k columns are independent (it is infinite or NaN elsewhere); "complete" has none of more rows than columns.
    """
    if mode not in ("reduced", "complete", "r"):
        raise InvalidProblemError(f"mode must be 'reduced', 'complete' or 'r', got {shown(mode)}")
    options = {"stream": stream, "preference": preference}
    if mode == "r":
        return _qr(a, return_q=False, out=each_of(out, 1) if out is not None else None, **options)
    return _qr(a, complete=mode == "complete", return_q=True, out=out, **options)


# ---- products with Q -----------------------------------------------------------------------------------------------


def _factor(a: Any, tau: Any, options: Options) -> Any:
    """Q [..., m, m] of m×k reflectors: they are the first columns of a square matrix."""
    shape, own = shape_of(a, "a"), shape_of(tau, "tau")
    if len(shape) < 2 or own[:-1] != shape[:-2] or not own or own[-1] > min(shape[-2:]):
        raise InvalidProblemError(
            f"a must be [..., m, n] and tau [..., k] of the same batch, k <= min(m, n), got shapes {shape} and {own}"
        )
    m, n = shape[-2:]
    held = block(a, slice(None), slice(0, m)) if n >= m else pad(a, (0, m - n), **options)
    return householder_product(held, tau, **options)


@entry(HouseholderProductPlan)
def ormqr(
    a: Array, tau: Array, other: Array, left: bool = True, transpose: bool = False, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Q other, or Qᴴ other with `transpose`; other Q (Qᴴ) where not `left` (torch.ormqr, jax.lax.linalg.ormqr).

    Q is the product of the k reflectors in a [..., m, n] and tau [..., k], as `geqrf` returns them, all m columns of
    it: it is made, [..., m, m], and multiplied by other [..., m, p] ([..., p, m]), whose leading axes broadcast with
    a's. There is no gradient of a and tau.
    """
    options = {"stream": stream, "preference": preference}
    q = _factor(a, tau, options)
    m, own = shape_of(q, "a")[-1], shape_of(other, "other")
    if len(own) < 2 or own[-2 if truth("left", left) else -1] != m:
        wanted = f"[..., {m}, p]" if left else f"[..., p, {m}]"
        raise InvalidProblemError(f"other must have shape {wanted}, as Q has {m} rows, got {own}")
    q, other = one_batch((q, "a"), (other, "other"))
    turned = adjoint_of(q, options) if truth("transpose", transpose) else q
    return Pieces(stream, preference).product(*((turned, other) if left else (other, turned)), out)


@entry(QrPlan)
def qr_multiply(
    a: Array, c: Array, mode: str = "right", *, conjugate: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(c Q, R), or (Q c, R) of mode "left", with a = Q R reduced (scipy.linalg.qr_multiply, jax.scipy.linalg).

    a: [..., m, n], k = min(m, n); c: [..., p, m] (right), or [..., k, p] (left), or a vector, [m] or [k]. conjugate:
    Q's conjugate stands for Q.
    """
    if mode not in ("left", "right"):
        raise InvalidProblemError(f"mode must be 'left' or 'right', got {shown(mode)}")
    options, to = {"stream": stream, "preference": preference}, each_of(out, 2)
    shape, of = shape_of(c, "c"), shape_of(a, "a")
    if not shape or len(of) < 2:
        raise InvalidProblemError(f"a must be a matrix and c a matrix or a vector, got shapes {of} and {shape}")
    vector = len(shape) == 1
    given = with_axis(c, 0 if mode == "right" else -1, "c") if vector else c
    rows = shape_of(given, "c")[-1 if mode == "right" else -2]
    if rows != (of[-2] if mode == "right" else min(of[-2:])):
        raise InvalidProblemError(f"c of shape {shape} does not fit Q of shape {(*of[:-1], min(of[-2:]))}")
    q, r = qr(a, **options)
    q = _conjugate(q, options, truth("conjugate", conjugate))
    made = product(given, q, options) if mode == "right" else product(q, given, options)
    made = column(transposed(made, "c") if mode == "right" else made) if vector else made
    made = made if to[0] is None else copy(made, out=to[0], **options)
    return made, r if to[1] is None else copy(r, out=to[1], **options)
