"""orthogonal: matrices of the uniform (Haar) distribution over those of orthonormal rows or columns."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ...core import ElementKind, Scalar
from ...core.checked import real, shown, whole
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import allocating
from ...core.ordinals import ordinal
from ...core.views import constant, diagonal, transposed, with_axis
from ...expressions.elementwise import elementwise
from ...interop.packages import package_name
from ..elementwise.binary_functions import mul, ne
from ..elementwise.complex_pair import complex as joined
from ..elementwise.ternary_functions import where
from ..elementwise.unary import sgn  # type: ignore[attr-defined]
from .distributions import RandomKind
from .random_fill import RandomPlan
from .random_functions import randn, seeded, shape_given


@entry(RandomPlan)
def orthogonal(
    n: int, m: int | None = None, *, shape: Any = (), gain: float = 1.0, seed: Scalar = None, offset: Scalar = 0,
    element: Any = "float32", like: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Matrices [*shape, n, m] of orthonormal rows (n <= m) or columns, each as likely as any other.

    They are those of jax.random.orthogonal and torch.nn.init.orthogonal_: Q of the QR factorisation of normal numbers
    [*shape, max(n, m), min(n, m)], which are those of `randn` of this seed and offset, times the signs of R's diagonal
    (Mezzadri 2007), times gain; for n < m transposed. m is n where it is not given.

    The element is a float; float16 and bfloat16 are computed in float32 and rounded once. Of complex64 and complex128
    they are unitary: rows or columns are orthonormal under the conjugate transpose, real and imaginary parts of the
    normal numbers are those of `randn` [2, ...], and phases take the part of signs. like: an array whose package
    and device the result has. The factorisation is that of the package, `numpy.linalg.qr`, `cupy.linalg.qr`,
    `torch.linalg.qr` or `jax.numpy.linalg.qr`: LAPACK on the host and cuSOLVER on a GPU, whose results differ by
    rounding errors, and which allocate memory of their own. There is no gradient.
    """
    n = whole("n", n, 0)
    m = n if m is None else whole("m", m, 0)
    lead, gain, kind = shape_given(shape), real("gain", gain), ElementKind.of(element)
    if not math.isfinite(gain):
        raise InvalidProblemError(f"orthogonal: gain must be finite, got {shown(gain)}")
    if kind not in (*RandomKind.NORMAL.row.elements, *COMPLEX):
        raise UnsupportedError(
            f"orthogonal of {kind} is not drawn; it may be float32, float64, float16, bfloat16, complex64, complex128"
        )
    like = out if like is None else like
    seed = seeded("orthogonal", seed, stream, like)
    drawn = {"seed": seed, "offset": offset, "stream": stream, "preference": preference,
             "like": None if like is None else constant(like)}  # fmt: skip
    options = {"stream": stream, "preference": preference}
    z = _normal((*lead, max(n, m), min(n, m)), kind, drawn)
    if 0 in (*lead, n, m):
        none = transposed(z, "z") if n < m else z
        return _scaled(kind, none, none, gain, out, options)
    q, r = _factors(z, stream)
    signs = with_axis(diagonal(r, len(lead), len(lead) + 1, "R"), -2, "R")
    if n < m:
        q, signs = transposed(q, "Q"), transposed(signs, "R")
    return _scaled(kind, q, signs, gain, out, options)


def _normal(shape: Sequence[int], kind: ElementKind, drawn: dict[str, Any]) -> Any:
    """Normal numbers in the element of the factorisation."""
    if kind in COMPLEX:
        both = randn((2, *shape), element=kind.part, **drawn)
        return joined(both[0], both[1], stream=drawn["stream"], preference=drawn["preference"])
    return randn(shape, element=ElementKind.F64 if kind is ElementKind.F64 else ElementKind.F32, **drawn)


def _scaled(kind: ElementKind, q: Any, r: Any, gain: float, out: Any, options: dict[str, Any]) -> Any:
    """Q times the signs or phases of R's diagonal, times gain."""
    if kind not in COMPLEX:
        return _signed(str(kind))(q=q, r=r, gain=gain, out=out, **options)
    phases = where(ne(r, 0.0, **options), sgn(r, **options), 1.0, **options)
    return mul(q, mul(phases, gain, **options), out=out, **options)


@cache
def _signed(element: str) -> Any:
    """Zero counts as positive: there a sign of 0 would take away a column."""
    return elementwise(f"{element}(q * (gain if r >= 0 else -gain))")


def _factors(z: Any, stream: Any) -> tuple[Any, Any]:
    """Q and R of matrices, made by their package on the stream."""
    package = package_name(type(z))
    if package == "numpy":
        return np.linalg.qr(z)
    if package == "jax":
        return tuple(sys.modules["jax"].numpy.linalg.qr(z))
    with allocating(package, ordinal(z), stream):
        if package == "torch":
            return tuple(sys.modules["torch"].linalg.qr(z))
        return _of_cupy(z)


def _of_cupy(z: Any) -> tuple[Any, Any]:
    """CuPy loads cuSOLVER at the first call; it takes any number of matrices at once."""
    cupy = sys.modules["cupy"]
    try:
        with cupy.cuda.Device(z.data.device_id):
            q, r = cupy.linalg.qr(z)
    except ImportError as error:
        raise UnsupportedError(
            f"orthogonal on a GPU needs cuSOLVER ({error}): pip install nvidia-cusolver-cu12, or nvidia-cusolver for "
            "CUDA 13, or give like= a torch or JAX array"
        ) from error
    return q, r
