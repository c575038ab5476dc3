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
    return memory_of(array.detach())


class _Memory:
    """A tensor's memory in NumPy's words, and the tensor, which keeps it."""

    __slots__ = ("__array_interface__", "tensor")
    __array_interface__: dict[str, Any]
    tensor: Any


def memory_of(tensor: Any) -> np.ndarray:
    """The memory of a tensor of the host, which autograd does not follow, as a NumPy array.

    Not by `Tensor.numpy`, which forbids for good that the tensor's storage is resized: FSDP does that to gathered
    parameters. Every call of an operand comes here, so it makes no call of Python's that it need not.
    """
    stored, typestr = _stored_as(tensor.dtype)
    memory = _Memory()
    memory.tensor = tensor
    memory.__array_interface__ = {
        "version": 3, "shape": tuple(tensor.shape), "strides": tuple(map(stored.itemsize.__mul__, tensor.stride())),
        "typestr": typestr, "data": (tensor.data_ptr(), False),
    }  # fmt: skip
    array: np.ndarray = np.asarray(memory)
    return array if stored.isbuiltin == 1 else array.view(stored)


@memo()
def _stored_as(dtype: Any) -> tuple[np.dtype, str]:
    """NumPy's dtype for one of torch, and what its protocol calls it: integers where it is not NumPy's own."""
    stored = ElementKind.of(dtype).dtype
    return stored, stored.str if stored.isbuiltin == 1 else f"<u{stored.itemsize}"
