"""view_as_real and view_as_complex: the same memory seen as pairs of real numbers, or pairs as complex numbers."""

from __future__ import annotations

import sys
from typing import Any

from ...core import ElementKind, TensorRef
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError, UnsupportedError
from ...interop.arrays import Reading, package_name, read


def view_as_real(z: Any) -> Any:
    """A complex array of any strides as real numbers with a last axis of two, the parts (torch.view_as_real).

    It shares z's memory: CuPy, NumPy and torch arrays, and TensorRef. JAX has no views; there take `real` and `imag`.
    """
    found = read(z, "z")
    if found.element not in COMPLEX:
        raise UnsupportedError(f"z must be complex64 or complex128, got {found.element}")
    strides = (*(2 * step for step in found.strides), 1)
    return _seen(z, found, (*found.shape, 2), strides, found.element.part)


def view_as_complex(x: Any) -> Any:
    """A float32 or float64 array with a last axis of two as complex numbers (torch.view_as_complex).

    It shares x's memory. The last axis must be dense, other strides even, and the memory aligned to a complex number.
    """
    found = read(x, "x")
    goal = found.element.paired
    if goal is None:
        raise UnsupportedError(f"x must be float32 or float64, got {found.element}")
    if found.shape[-1:] != (2,) or found.strides[-1] != 1:
        raise InvalidProblemError(
            f"x must have a dense last axis of 2, got shape {found.shape} with strides {found.strides}"
        )
    odd = any(step % 2 for step, n in zip(found.strides[:-1], found.shape[:-1], strict=True) if n > 1)
    if odd or found.ptr % goal.itemsize:
        raise InvalidProblemError(
            f"x must have even strides and an address that is a multiple of {goal.itemsize}, got strides "
            f"{found.strides} and {found.ptr:#x}; copy it first"
        )
    return _seen(x, found, found.shape[:-1], tuple(step // 2 for step in found.strides[:-1]), goal)


def _seen(array: Any, found: Reading, shape: tuple[int, ...], strides: tuple[int, ...], element: ElementKind) -> Any:
    """The memory of an array with another shape, strides (in elements) and element, in its own package."""
    package = package_name(type(array))
    if package == "baracuda_py":
        return TensorRef(found.ptr, shape, strides, element, device=found.device)
    if package == "torch":
        torch = sys.modules["torch"]
        return torch.view_as_complex(array) if element.is_complex else torch.view_as_real(array)
    if package == "numpy":
        return array.view(element.dtype)[..., 0] if element.is_complex else array[..., None].view(element.dtype)
    if package == "cupy":
        steps = tuple(step * element.itemsize for step in strides)
        return type(array)(shape, element.dtype, array.data, steps)
    raise UnsupportedError(f"a {type(array).__name__} has no views; use complex(real, imag), or real(z) and imag(z)")
