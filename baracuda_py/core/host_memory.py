"""Arrays of NumPy and torch that are nothing but memory of the host: what a call may take without a second look."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .element import ElementKind
from .memo import memo


def plain_memory(array: Any) -> np.ndarray | None:
    """The array's memory as a NumPy array, or None where the array is more than that, or less.

    More: a tensor that autograd, a mode or a transformation of torch's follows, or with a lazy bit, or a
    subclass. Less: a sparse or an opaque layout, memory that is elsewhere, not aligned to its element, or null.
    """
    kind = type(array)
    if kind is np.ndarray:
        if array.itemsize == array.dtype.alignment:
            return array if array.flags.aligned else None
        return None if array.__array_interface__["data"][0] % array.itemsize else array
    torch = sys.modules.get("torch")
    if torch is None or (kind is not torch.Tensor and kind is not torch.nn.Parameter):
        return None
    if (
        not array.is_cpu
        or not torch._C._has_storage(array)
        or (array.requires_grad and torch.is_grad_enabled())
        or array.is_neg()
        or array.is_conj()
        or torch._C._len_torch_dispatch_stack()
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._functorch.maybe_current_level() is not None  # inside even a view of a plain tensor is wrapped
        or torch._C._functorch.is_functorch_wrapped_tensor(array)
    ):
        return None
    at = array.data_ptr()
    if not at or at % array.element_size():
        return None
    stored, carried = stored_as(array.dtype)
    plain = array.detach()
    return plain.numpy() if carried is None else plain.view(carried).numpy().view(stored)  # type: ignore[no-any-return]


@memo()
def stored_as(dtype: Any) -> tuple[np.dtype, Any]:
    """NumPy's dtype for one of torch, and the integers of torch that carry it where `numpy()` has no such dtype."""
    torch = sys.modules["torch"]
    kind = ElementKind.of(dtype)
    if kind.dtype.isbuiltin == 1:
        return kind.dtype, None
    return kind.dtype, torch.int16 if kind.itemsize == 2 else torch.uint8
