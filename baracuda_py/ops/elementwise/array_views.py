"""The same memory seen otherwise: complex numbers as pairs, bits as another element; and what an array is a view of."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...core import ElementKind, TensorRef
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.exported import exported
from ...core.arrays import Reading, read
from ...interop.packages import package_name


@exported
def view_as_real(z: Any) -> Any:
    """A complex array of any strides as real numbers with a last axis of two, the parts (torch.view_as_real).

    It shares z's memory: CuPy, NumPy and torch arrays, and TensorRef. JAX has no views; there take `real` and `imag`.
    """
    found = read(z, "z")
    if found.element not in COMPLEX:
        raise UnsupportedError(f"z must be complex64 or complex128, got {found.element}")
    return _seen(z, found, found.element.part, "real(z) and imag(z)")


@exported
def view_as_complex(x: Any) -> Any:
    """A float32 or float64 array with a last axis of two as complex numbers (torch.view_as_complex).

    It shares x's memory. The last axis must be dense, other strides even, and the memory aligned to a complex number.
    """
    found = read(x, "x")
    goal = found.element.paired
    if goal is None:
        raise UnsupportedError(f"x must be float32 or float64, got {found.element}")
    return _seen(x, found, goal, "complex(real, imag)")


@exported
def bitcast_convert_type(x: Any, new_dtype: Any) -> Any:
    """The bits of x as another element (jax.lax.bitcast_convert_type), any but bool and those of 4 bits.

    Of an element half as wide, or narrower, there is one more last axis, of as many as fit; of a wider one the last
    axis, which must have just these, dense and aligned, is gone. It shares x's memory: CuPy, NumPy and torch arrays,
    and TensorRef. JAX has no views; there its own function makes a copy.
    """
    found, goal = read(x, "x"), ElementKind.of(new_dtype)
    for kind in (found.element, goal):
        if kind is ElementKind.BOOL or kind.bits < 8:
            raise UnsupportedError(f"{kind} has no bits that another element may have; cast it to uint8")
    if package_name(type(x)) == "jax":
        jax = sys.modules["jax"]
        return jax.lax.bitcast_convert_type(x, goal.dtype)
    return _seen(x, found, goal, "an array of its own")


def _seen(array: Any, found: Reading, element: ElementKind, instead: str) -> Any:
    """The memory of an array as another element, in its own package."""
    shape, strides = _places(found, element)
    package = package_name(type(array))
    if package == "baracuda_py":
        return TensorRef(found.ptr, shape, strides, element, device=found.device)
    if package == "torch":
        torch = sys.modules["torch"]
        if array.requires_grad and found.element.is_complex is not element.is_complex:  # which autograd follows
            return torch.view_as_real(array) if found.element.is_complex else torch.view_as_complex(array)
        dtype = getattr(torch, str(element))
        if 0 in found.shape:  # without elements strides are any, of which torch's view is particular
            return array.new_empty(shape, dtype=dtype)
        if element.itemsize < found.element.itemsize:
            return array.unsqueeze(-1).view(dtype)
        return array.view(dtype) if element.itemsize == found.element.itemsize else array.view(dtype).squeeze(-1)
    if package == "numpy":
        if 0 in found.shape:
            return np.empty(shape, element.dtype)
        if element.itemsize < found.element.itemsize:
            return array[..., None].view(element.dtype)
        seen = array.view(element.dtype)
        return seen if element.itemsize == found.element.itemsize else seen[..., 0]
    if package == "cupy":
        steps = tuple(step * element.itemsize for step in strides)
        return type(array)(shape, element.dtype, array.data, steps)
    raise UnsupportedError(f"a {type(array).__name__} has no views; use {instead}")


def _places(found: Reading, element: ElementKind) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and the strides, in elements, of memory seen as another element."""
    times = found.element.itemsize // element.itemsize
    if times > 1:
        return (*found.shape, times), (*(times * step for step in found.strides), 1)
    count = element.itemsize // found.element.itemsize
    if count == 1:
        return found.shape, found.strides
    if found.shape[-1:] != (count,) or (found.strides[-1] != 1 and 0 not in found.shape):
        raise InvalidProblemError(
            f"x must have a dense last axis of {count}, got shape {found.shape} with strides {found.strides}"
        )
    lead = list(zip(found.strides[:-1], found.shape[:-1], strict=True))
    if any(step % count for step, n in lead if n > 1) or found.ptr % element.itemsize:
        whole = "even strides" if count == 2 else f"strides that are multiples of {count}"
        raise InvalidProblemError(
            f"x must have {whole} and an address that is a multiple of {element.itemsize}, got strides "
            f"{found.strides} and {found.ptr:#x}; copy it first"
        )
    return found.shape[:-1], tuple(step // count for step in found.strides[:-1])


@exported
def iscomplexobj(x: Any) -> bool:
    """Whether x is an array of complex numbers (numpy.iscomplexobj); nothing on the device is read."""
    return read(x, "x").element.is_complex


@exported
def isrealobj(x: Any) -> bool:
    """Whether x is an array of other numbers than complex ones (numpy.isrealobj)."""
    return not iscomplexobj(x)


@exported
def resolve_conj(x: Any) -> Any:
    """x itself; of a torch tensor that stands for the conjugate of its memory, the conjugate (torch.resolve_conj)."""
    return x.resolve_conj() if package_name(type(x)) == "torch" else x


@exported
def resolve_neg(x: Any) -> Any:
    """x itself; of a torch tensor that stands for the negative of its memory, the negative (torch.resolve_neg)."""
    return x.resolve_neg() if package_name(type(x)) == "torch" else x
