"""svd_lowrank and pca_lowrank: singular vectors of the largest singular values, by products with random vectors."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import truth, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import constant, shape_of
from ..elementwise.binary_functions import sub
from ..elementwise.cast import cast
from ..elementwise.complex_pair import complex
from ..layout.moves import copy
from ..random.random_functions import randn
from .pieces import Pieces
from .pseudo_inverse import matrices
from .qr_functions import qr
from .svd import SvdPlan
from .svd_functions import svd


def _random(do: Pieces, a: Any, rows: int, q: int, seed: Any) -> Any:
    """Normal numbers [rows, q] in a's element."""
    element = read(a, "a").element
    like, part = constant(a), element.part
    given = {"element": part, "like": like, **do.options}
    real = randn((rows, q), seed=seed, **given)
    if not element.is_complex:
        return real
    return complex(real, randn((rows, q), seed=seed, offset=rows * q, **given), **do.options)


def _found(do: Pieces, a: Any, q: int, niter: int, seed: Any, to: Any) -> Any:
    """(U, S, V) of a, of whose columns' span random products, refined, tell a basis."""
    m, n = shape_of(a, "a")[-2:]
    wide = m < n
    tall, turned = (do.turned(a), a) if wide else (a, do.turned(a))
    basis, _ = qr(do.product(tall, _random(do, a, min(m, n), q, seed)), **do.options)
    for _ in range(niter):
        basis, _ = qr(do.product(turned, basis), **do.options)
        basis, _ = qr(do.product(tall, basis), **do.options)
    u, s, vh = svd(do.product(do.turned(basis), tall), False, **do.options)
    u, v = do.product(basis, u), do.turned(vh)
    made = (v, s, u) if wide else (u, s, v)
    return tuple(one if out is None else copy(one, out=out, **do.options) for one, out in zip(made, to, strict=True))


def _sizes(a: Any, q: Any, niter: Any) -> tuple[int, int]:
    least = min(matrices(a, "a")[-2:])
    found = min(6, least) if q is None else whole("q", q, 0)
    if found > least:
        raise InvalidProblemError(f"q must be at most min(m, n) = {least}, got {found}")
    return found, whole("niter", niter, 0)


@entry(SvdPlan)
def svd_lowrank(
    a: Array, q: int | None = 6, niter: int = 2, M: Array | None = None, *, seed: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(U, S, V) with a ≈ U diag(S) Vᴴ of the q largest singular values, about (torch.svd_lowrank).

    a: [..., m, n] of f32, f64, complex64, complex128; U [..., m, q], S [..., q], V [..., n, q]. M: a - M is taken in
    a's place. By Halko, Martinsson and Tropp (2011): a basis of a's products with q random vectors, refined by `niter`
    products with aᴴ and a; the best approximation needs q a few above the rank. seed: of the random vectors, which are
    the same for the same seed; None is the package's own (`seed()`). Gradients are those of its calls, for functions
    that do not depend on signs and phases.
    """
    do, (count, steps) = Pieces(stream, preference), _sizes(a, q, niter)
    held = a if M is None else sub(a, M, **do.options)
    return _found(do, held, count, steps, seed, each_of(out, 3))


@entry(SvdPlan)
def pca_lowrank(
    a: Array, q: int | None = None, center: bool = True, niter: int = 2, *, seed: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(U, S, V) of principal components: `svd_lowrank` of a less the mean of its rows (torch.pca_lowrank).

    a: [..., m, n], m samples of n numbers; q: by default min(6, m, n). V's columns are the principal directions, S² /
    (m - 1) the variances. center: without it a is taken as it is.
    """
    do, (count, steps) = Pieces(stream, preference), _sizes(a, q, niter)
    if truth("center", center) and 0 not in shape_of(a, "a"):
        a = sub(a, cast(do.reduced("mean", a, -2, keepdims=True), read(a, "a").element, **do.options), **do.options)
    return _found(do, a, count, steps, seed, each_of(out, 3))
