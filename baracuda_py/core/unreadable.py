"""Arrays that are more than memory, or have none: what torch and JAX keep of them, and the error that says so."""

from __future__ import annotations

import sys
from typing import Any

from ..interop.torch_rules import transformed
from .errors import InvalidProblemError, RecordedError, UnsupportedError


def grown(name: str = "") -> RecordedError:
    """The error of a tensor that requires a gradient, given to what autograd does not see."""
    return RecordedError(
        f"{name + ': ' if name else ''}the torch tensor requires grad, and autograd would not see this call; give its "
        ".detach(), or call under torch.no_grad()"
    )


def refuse_wrapper(a: Any) -> Any:
    """The reader, where memory is wanted, of tensors whose operations are intercepted."""
    raise RecordedError(
        f"a {type(a).__name__} is a torch tensor whose operations are intercepted (__torch_dispatch__) and has no plain"
        " memory; give the tensor it stands for"
    )


def refuse(tensor: Any) -> None:
    """Raise where memory is not all there is to the tensor: transformed, lazy bits, a gradient or tangent wanted."""
    torch = sys.modules["torch"]
    if tensor.is_meta:
        raise RecordedError("a torch tensor on device meta has no memory to read; move it to cpu or cuda")
    if transformed(tensor):
        raise RecordedError(
            "the torch tensor belongs to a transformation (torch.func.vmap, grad, jvp …) and has no memory of its own; "
            "call outside of the transformation"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidProblemError(
            "the torch tensor has its conjugate or negative bit set; call .resolve_conj().resolve_neg()"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise grown()
    if (
        torch.autograd.forward_ad._current_level >= 0
        and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None
    ):
        raise RecordedError("the torch tensor has a forward-mode tangent, which would be lost; give its .detach()")


def jax_place(array: Any) -> str:
    """The platform of a concrete JAX array on one device, "cpu" or CUDA's; raises where it is neither."""
    if array.is_deleted():
        raise InvalidProblemError("the JAX array has been deleted or donated")
    devices = array.devices()
    if len(devices) != 1:
        raise UnsupportedError(
            f"the JAX array is spread over {len(devices)} devices; give one device's part, array.addressable_data(i)"
        )
    platform = str(next(iter(devices)).platform)
    if platform not in ("cpu", "gpu", "cuda"):
        raise UnsupportedError(f"the JAX array is on {platform}; move it to a CUDA device or the CPU")
    return platform


def traced_error(name: str) -> UnsupportedError:
    """The error of a plan that is given a stand-in of JAX."""
    return UnsupportedError(
        f"{name} is traced by a JAX transformation (jit, grad, vmap …) and has no values yet; the functions of "
        "baracuda_py and baracuda_py.jax take it, plans do not"
    )
