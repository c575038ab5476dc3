"""schur and rsf2csf: complex Schur forms."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.checked import shown, truth
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import each_of
from ...core.views import shape_of
from ..elementwise.cast import cast
from .parts import known, square
from .pieces import Pieces
from .schur import SchurPlan, schur_form

_COMPLEX = {ElementKind.F32: ElementKind.C64, ElementKind.F64: ElementKind.C128}


def _complex(a: Any, name: str, options: Any) -> Any:
    """Matrices as complex ones."""
    found = known(a, name, "schur").element
    square(a, name)
    return cast(a, _COMPLEX[found], **options) if found in _COMPLEX else a


@entry(SchurPlan)
def schur(
    a: Array, output: str = "complex", *, return_info: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(t, z) with a = z t zᴴ, t upper triangular, z unitary (scipy.linalg.schur, jax.scipy.linalg, jax.lax.linalg).

    a: [..., n, n] of f32, f64, complex64, complex128; t, whose diagonal has the eigenvalues, and z are complex, the
    phases of z any. On a device n is up to 64, in one launch; larger ones on NumPy arrays. output: "complex"; the real
    form of real matrices, of blocks of two rows, is not made. return_info: info, int32 [...], besides: 0, or n of a
    matrix that did not converge, which is NaN then. No gradient: `eig` has one.
    """
    if output == "real":
        raise UnsupportedError("the real form, with blocks of two rows, is not made; write output='complex'")
    if output != "complex":
        raise InvalidProblemError(f"output must be 'complex', got {shown(output)}")
    options = {"stream": stream, "preference": preference}
    given = _complex(a, "a", options)
    return schur_form(given, return_z=True, return_info=truth("return_info", return_info), out=out, **options)


@entry(SchurPlan)
def rsf2csf(t: Array, z: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The complex Schur form (t, z) of a real one, z t zᵀ the same matrix (scipy.linalg.rsf2csf, jax.scipy.linalg).

    t, z: [..., n, n]: `schur` of t, whose vectors are multiplied by z.
    """
    do, to = Pieces(stream, preference), each_of(out, 2)
    if shape_of(t, "t") != shape_of(z, "z"):
        raise InvalidProblemError(f"z must have the shape {shape_of(t, 't')} of t, got {shape_of(z, 'z')}")
    given, vectors = _complex(t, "t", do.options), _complex(z, "z", do.options)
    made = {"t": to[0]} if to[0] is not None else None
    form, turn = schur_form(given, return_z=True, return_info=False, out=made, **do.options)
    return form, do.product(vectors, turn, to[1])
