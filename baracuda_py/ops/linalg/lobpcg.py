"""lobpcg: the largest or smallest eigenvalues of Hermitian matrices, by products with a few vectors (torch.lobpcg)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import real, truth
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside, each_of
from ...core.views import constant, cut, shape_of
from ..elementwise.binary_functions import sub
from ..elementwise.complex_pair import complex
from ..layout.concat import concat
from ..layout.creation import eye
from ..layout.moves import copy, flip
from ..random.random_functions import randn
from .cholesky_functions import cholesky
from .eigh import EighPlan
from .eigh_functions import eigh
from .operators import count
from .parts import block, fits, looked_at, rehearsed, square
from .pieces import Pieces, across, down
from .qr_functions import qr
from .triangular_functions import solve_triangular

_USUAL = 100


def _lobpcg_back(
    dy: Any, A: Any, k: Any = None, B: Any = None, X: Any = None, n: Any = None, iK: Any = None, niter: Any = None,
    tol: Any = None, largest: bool = True, *, seed: Any = None, y: Any, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dA = X diag(dE) Xᴴ + V (Vᴴ dX ∘ F) Xᴴ of all vectors V, F[i, j] = 1 / (E[j] - w[i]), 0 of a vector itself."""
    (de, dx), (e, x), do = dy, y, Pieces(stream, preference)
    if B is not None:
        raise UnsupportedError("lobpcg has no gradient of the problem of two matrices; leave B out")
    made = None if de is None else do.scaled(x, across(de))
    if dx is not None:
        w, v = eigh(A, **do.options)
        if largest:
            w, v = flip(w, -1, **do.options), flip(v, -1, **do.options)
        with beside(e, stream):
            own = eye(shape_of(w, "w")[-1], shape_of(e, "e")[-1], element=read(e, "e").element, like=e)
        apart = do.of("(1 - d) / (e - w + d)", e=across(e), w=down(w), d=own)
        made = do.sum(made, do.product(v, do.scaled(do.product(do.turned(v), dx), apart)))
    return do.product(made, do.turned(x))


def _first(do: Pieces, A: Any, k: Any, X: Any, seed: Any) -> Any:
    """Vectors to begin with, [..., n, k], random where none are given."""
    shape, view = shape_of(A, "A"), read(A, "A")
    if X is not None:
        fits(shape[-1], X, True, "X")
        if shape_of(X, "X")[:-2] != shape[:-2]:
            raise InvalidProblemError(f"X must have A's leading axes {shape[:-2]}, got shape {shape_of(X, 'X')}")
        return X
    size = (*shape[:-1], count("k", k, 1))
    given = {"seed": seed, "element": view.element.part, "like": constant(A), **do.options}
    if not view.element.is_complex:
        return randn(size, **given)
    return complex(randn(size, **given), randn(size, offset=int(np.prod(size)), **given), **do.options)


@composed(_lobpcg_back, "A", result=True)
@entry(EighPlan)
def lobpcg(
    A: Array, k: int | None = None, B: Array | None = None, X: Array | None = None, n: int | None = None,
    iK: Array | None = None, niter: int | None = None, tol: float | None = None, largest: bool = True, *,
    seed: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(E, X) with A X ≈ X diag(E), or A X ≈ B X diag(E): k eigenvalues, largest first, or smallest (torch.lobpcg).

    A: Hermitian, [..., m, m] of f32, f64, complex64, complex128; E [..., k], X [..., m, k]. B: Hermitian positive
    definite. X: vectors to begin with, by default k (1) random ones by `seed`; n of them are iterated, of which k are
    returned. iK: about A's inverse. Of the spaces of X, the residuals and the last steps, which a QR keeps orthonormal,
    the best vectors are taken (Knyazev 2001), `niter` (100) times, as nothing is read back; on NumPy's arrays until
    |A x - λ x| <= tol |A| |x|, tol by default the root of eps of float64, of float32 its eps to 0.75. 3 n <= m. The
    gradient is that of the vectors of A, all of which are found then, and for Hermitian changes; that by X takes
    distinct eigenvalues. With B there is none.
    """
    do, size, to = Pieces(stream, preference), square(A, "A"), each_of(out, 2)
    most, wanted = count("niter", niter, _USUAL), count("k", k, 1 if X is None else shape_of(X, "X")[-1])
    x = _first(do, A, wanted if n is None else n, X, seed)
    wide, lead = shape_of(x, "X")[-1], None
    if 3 * wide > size:
        raise InvalidProblemError(f"lobpcg takes matrices of 3 n = {3 * wide} rows at least, got {size}; write eigh")
    if not 1 <= wanted <= wide:
        raise InvalidProblemError(f"k must be 1 to n = {wide}, got {wanted}")
    a = A
    if B is not None:
        lead = cholesky(B, **do.options)
        half = solve_triangular(lead, A, upper=False, **do.options)
        a = solve_triangular(lead, half, upper=False, left=False, trans="c", **do.options)
        x = do.product(do.turned(lead), x)
    eps = float(read(A, "A").element.limits.eps)
    limit = (eps**0.5 if eps < 1e-10 else eps**0.75) if tol is None else real("tol", tol)
    largest = truth("largest", largest)
    e, x, _ = _best(do, a, x, wide, largest)
    step = None
    scale = do.reduced("amax", do.reduced("l1_norm", a, -2), keepdims=True)
    for _ in range(min(most, 1) if rehearsed() else most):
        r = sub(do.product(a, x), do.scaled(x, across(e)), **do.options)
        if looked_at(r) and bool((np.sqrt(np.square(np.abs(r)).sum(-2)) <= limit * scale).all()):
            break
        if iK is not None:
            r = do.product(iK, r)
        e, x, step = _best(
            do, a, concat([x, r, *([] if step is None else [step])], axis=-1, **do.options), wide, largest
        )
    if lead is not None:
        x = solve_triangular(lead, x, upper=False, trans="c", **do.options)
    e = cut(e, (*(slice(None),) * (len(shape_of(e, "e")) - 1), slice(wanted)), "e")
    made = e, block(x, slice(None), slice(0, wanted))
    return tuple(copy(one, out=own, **do.options) for one, own in zip(made, to, strict=True))


def _best(do: Pieces, a: Any, space: Any, wide: int, largest: bool) -> tuple[Any, Any, Any]:
    """Eigenvalues and vectors of a in a space, and the part of these that lies beyond the space's first vectors."""
    basis, _ = qr(space, **do.options)
    e, c = eigh(do.product(do.turned(basis), do.product(a, basis)), **do.options)
    if largest:
        e, c = flip(e, -1, **do.options), flip(c, -1, **do.options)
    e = cut(e, (*(slice(None),) * (len(shape_of(e, "e")) - 1), slice(wide)), "e")
    c = block(c, slice(None), slice(0, wide))
    rest = slice(wide, None)
    step = (
        do.product(block(basis, slice(None), rest), block(c, rest, slice(None)))
        if shape_of(c, "c")[-2] > wide
        else None
    )
    return e, do.product(basis, c), step
