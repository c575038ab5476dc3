"""cg, bicgstab and gmres: systems of a matrix or a function, in a bounded number of iterations."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import shape_of, with_axis
from ..elementwise.binary_functions import div, logical_and, mul, ne, sub
from ..elementwise.cast import cast
from ..elementwise.ternary_functions import where
from ..elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..gemm.gemm import GemmPlan
from ..layout.concat import concat
from ..layout.moves import copy
from ..layout.pad import pad
from .operators import Systems, count, operator, settled, vectors
from .parts import adjoint_of, as_operand, block, column
from .pieces import Pieces
from .pseudo_inverse import lstsq


def _begun(a: Any, b: Any, x0: Any, m: Any, name: str, do: Pieces) -> tuple[Any, ...]:
    """A and M as maps, b, the first x and its residual."""
    b, n = vectors(a, b, name)
    product, near = operator(a, n, do), operator(m, n, do, "M")
    if x0 is None:
        return product, near, b, do.nothing(b), b
    if shape_of(x0, "x0") != shape_of(b, "b"):
        raise InvalidProblemError(f"x0 must have the shape of x, {shape_of(b, 'b')}, got {shape_of(x0, 'x0')}")
    return product, near, b, x0, sub(b, product(x0), **do.options)


def _ended(x: Any, left: Any, limit: Any, made: int, out: Any, do: Pieces) -> Any:
    """(x, info): 0 where the residual is small enough, else how many iterations were made, or 1."""
    to = each_of(out, 2)
    told = cast(do.of("where(s <= t, 0, i)", s=left, t=limit, i=float(max(made, 1))), "int32", out=to[1], **do.options)
    return (x if to[0] is None else copy(x, out=to[0], **do.options)), told


def _is_array(held: dict[str, Any]) -> bool:
    """Of a function the gradient is that of its calls."""
    return not callable(held["A"])


def _gradient(db: Any, a: Any, x: Any, b: Any, do: Pieces) -> tuple[Any, Any]:
    """dA = -db xᴴ."""
    columns, rows = with_axis(db, -1, "db"), adjoint_of(with_axis(x, -1, "x"), do.options)
    da = neg(do.product(columns, rows), **do.options)
    return as_operand(da, a, do.options), as_operand(db, b, do.options)


# ---- conjugate gradients -------------------------------------------------------------------------------------------


def _cg_back(
    dy: Any, A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: Any = None,
    M: Any = None, y: Any, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """db = A⁻¹ dx by the same iterations."""
    do = Pieces(stream, preference)
    db, _ = cg(A, dy[0], tol=tol, atol=atol, maxiter=maxiter, M=M, **do.options)
    return _gradient(db, A, y[0], b, do)


@composed(_cg_back, "A", "b", result=True, where=_is_array)
@entry(GemmPlan)
def cg(
    A: Any, b: Array, x0: Array | None = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x, info) with A x ≈ b of a Hermitian positive definite A, by conjugate gradients (jax.scipy.sparse.linalg.cg).

    A: [..., n, n], or a function of vectors along the last axis, which returns as many. b, x: [..., n]; the leading
    axes broadcast, and each system has its own steps and end: |b - A x| <= max(tol |b|, atol). M, an array or a
    function, is about A's inverse. info, int32 [...]: 0 there, else the number of iterations. All `maxiter` iterations
    (by default 10 n, at most 1000) are made, in which systems that are done stay as they are; on NumPy's arrays they
    end when all are done. By A and b of an array A there is a gradient, that of the solution, as near as x; of a
    function it is that of the iterations.
    """
    do = Pieces(stream, preference)
    product, near, b, x, r = _begun(A, b, x0, M, "cg", do)
    of, most = Systems(do), count("maxiter", maxiter, 10 * shape_of(b, "b")[-1])
    limit, left = of.limit(b, tol, atol), of.real_dot(r, r)
    z = near(r)
    p, along, made = z, left if M is None else of.real_dot(r, z), 0
    for made in range(1, most + 1):
        if settled(left, limit, made):
            made -= 1
            break
        q = product(p)
        step = do.of("where(s > t, g / d, 0)", s=left, t=limit, g=along, d=of.real_dot(p, q))
        x, r = of.plus(x, step, p), of.plus(r, do.of("-s", s=step), q)
        z = near(r)
        more = of.real_dot(r, z)
        turn = do.of("where(s > t, m / g, 0)", s=left, t=limit, m=more, g=along)
        left = more if M is None else of.real_dot(r, r)
        p, along = of.plus(z, turn, p), more
    return _ended(x, left, limit, made, out, do)


# ---- bicgstab ------------------------------------------------------------------------------------------------------


def _turned(m: Any, do: Pieces) -> Any:
    return m if m is None or callable(m) else adjoint_of(m, do.options)


def _bicgstab_back(
    dy: Any, A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: Any = None,
    M: Any = None, y: Any, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """db = A⁻ᴴ dx by the same iterations, without a function M, of which nobody knows the adjoint."""
    do = Pieces(stream, preference)
    m = None if callable(M) else _turned(M, do)
    db, _ = bicgstab(adjoint_of(A, do.options), dy[0], tol=tol, atol=atol, maxiter=maxiter, M=m, **do.options)
    return _gradient(db, A, y[0], b, do)


@composed(_bicgstab_back, "A", "b", result=True, where=_is_array)
@entry(GemmPlan)
def bicgstab(
    A: Any, b: Array, x0: Array | None = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x, info) with A x ≈ b of any A, by stabilised biconjugate gradients (jax.scipy.sparse.linalg.bicgstab).

    Operands, ends, info and gradients as of `cg`. An iteration has two products with A. A system whose products vanish
    before it is done stays there (a breakdown), and info tells; `gmres` has none.
    """
    do = Pieces(stream, preference)
    product, near, b, x, r = _begun(A, b, x0, M, "bicgstab", do)
    of, most = Systems(do), count("maxiter", maxiter, 10 * shape_of(b, "b")[-1])
    limit, left = of.limit(b, tol, atol), of.real_dot(r, r)
    shadow, p, rho, made = r, r, of.dot(r, r), 0
    for made in range(1, most + 1):
        if settled(left, limit, made):
            made -= 1
            break
        active = do.of("s > t", s=left, t=limit)
        towards = near(p)
        v = product(towards)
        alpha = _quotient(rho, of.dot(shadow, v), active, do)
        s = of.plus(r, neg(alpha, **do.options), v)
        beyond = near(s)
        t = product(beyond)
        omega = _quotient(of.dot(t, s), of.dot(t, t), active, do)
        x = of.plus(of.plus(x, alpha, towards), omega, beyond)
        r = of.plus(s, neg(omega, **do.options), t)
        fresh = of.dot(shadow, r)
        ratio = _quotient(fresh, rho, active, do)
        beta = _times(ratio, _quotient(alpha, omega, active, do), do)
        p = of.plus(r, beta, of.plus(p, neg(omega, **do.options), v))
        rho, left = fresh, of.real_dot(r, r)
    return _ended(x, left, limit, made, out, do)


def _times(x: Any, y: Any, do: Pieces) -> Any:
    return mul(x, y, **do.options)


def _quotient(x: Any, y: Any, active: Any, do: Pieces) -> Any:
    """x / y, or 0 of systems that are done or of a y of 0."""
    nothing = do.nothing(y)
    safe = logical_and(active, ne(y, nothing, **do.options), **do.options)
    return where(safe, div(x, y, **do.options), nothing, **do.options)


# ---- gmres ---------------------------------------------------------------------------------------------------------


def _gmres_back(
    dy: Any, A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, restart: int = 20,
    maxiter: Any = None, M: Any = None, y: Any, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """db = A⁻ᴴ dx by the same iterations, without a function M, of which nobody knows the adjoint."""
    do = Pieces(stream, preference)
    m = None if callable(M) else _turned(M, do)
    given = {"tol": tol, "atol": atol, "restart": restart, "maxiter": maxiter, "M": m}
    db, _ = gmres(adjoint_of(A, do.options), dy[0], **given, **do.options)
    return _gradient(db, A, y[0], b, do)


@composed(_gmres_back, "A", "b", result=True, where=_is_array)
@entry(GemmPlan)
def gmres(
    A: Any, b: Array, x0: Array | None = None, *, tol: float = 1e-5, atol: float = 0.0, restart: int = 20,
    maxiter: int | None = None, M: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(x, info) with A x ≈ b of any A, by generalised minimal residuals (jax.scipy.sparse.linalg.gmres).

    Operands, ends, info and gradients as of `cg`. Each of `maxiter` rounds (by default 10 n / restart, at most 1000)
    makes an orthonormal basis of `restart` vectors by products with A, and takes the least residual in it; a basis that
    ends before is one of fewer. |b - A x| is looked at between rounds. M acts on residuals, from the left.
    """
    do = Pieces(stream, preference)
    product, near, b, x, r = _begun(A, b, x0, M, "gmres", do)
    n = shape_of(b, "b")[-1]
    if isinstance(restart, bool) or not isinstance(restart, int) or restart < 1:
        raise InvalidProblemError(f"restart must be a number of vectors, 1 or more, got {shown(restart)}")
    size = max(min(restart, n), 1)
    of, most, made = Systems(do), count("maxiter", maxiter, -(-10 * n // size)), 0
    limit, left = of.limit(b, tol, atol), of.real_dot(r, r)
    for made in range(1, most + 1):
        if settled(left, limit, made):
            made -= 1
            break
        basis, along, length = _basis(product, near, r, size, do)
        right = pad(cast(with_axis(length, -1, "s"), read(b, "b").element, **do.options), (0, size), **do.options)
        found, *_ = lstsq(along, with_axis(right, -1, "b"), **do.options)
        step = column(do.product(block(basis, slice(None), slice(0, size)), found))
        active = with_axis(do.of("s > t", s=left, t=limit), -1, "s")
        x = do.sum(x, where(active, step, do.nothing(step), **do.options))
        r = sub(b, product(x), **do.options)
        left = of.real_dot(r, r)
    return _ended(x, left, limit, made, out, do)


def _basis(product: Any, near: Any, r: Any, size: int, do: Pieces) -> tuple[Any, Any, Any]:
    """(V, H, |z|) with M A V[:, :k] = V H, V of orthonormal columns, the first M r = z: each made so twice."""
    of = Systems(do)
    z = near(r)
    length = do.of("sqrt(s)", s=of.real_dot(z, z))
    first = of.times(z, do.of("where(s > 0, 1 / s, 0)", s=length))
    basis, columns = with_axis(first, -1, "v"), []
    for k in range(size):
        w = near(product(column(block(basis, slice(None), slice(k, k + 1)))))
        before = of.real_dot(w, w)
        h = None
        for _ in range(2):
            share = do.product(do.turned(basis), with_axis(w, -1, "w"))
            w = sub(w, column(do.product(basis, share)), **do.options)
            h = do.sum(h, share)
        after = of.real_dot(w, w)
        eps = float(read(after, "s").element.limits.eps)
        size_of = do.of("where(s > e * t, sqrt(s), 0)", s=after, t=before, e=(10 * eps) ** 2)
        w = of.times(w, do.of("where(s > 0, 1 / s, 0)", s=size_of))
        basis = concat([basis, with_axis(w, -1, "w")], axis=-1, **do.options)
        below = cast(with_axis(with_axis(size_of, -1, "s"), -1, "s"), read(w, "w").element, **do.options)
        own = concat([h, below], axis=-2, **do.options)
        columns.append(pad(own, (0, 0, 0, size - 1 - k), **do.options) if k < size - 1 else own)
    return basis, concat(columns, axis=-1, **do.options), length
