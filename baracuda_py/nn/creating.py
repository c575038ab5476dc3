"""Where PyTorch's functions that make arrays put them: `device`, `generator`, and what else they say of a tensor.

A device is torch's and makes a tensor there. Without one, and without `like`, the result is what the function of this
package makes: an array of CuPy, or of NumPy where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.checked import shown
from ..core.errors import InvalidProblemError, UnsupportedError
from ..interop.packages import package_name
from ..ops.elementwise.cast import cast

_MOST = 2**63 - 1
WORDS = ("device", "layout", "requires_grad", "pin_memory", "memory_format")


def taken(name: str, given: dict[str, Any]) -> Callable[[Any], Any]:
    """What is to be done with what a function makes, by the words that say it, which leave `given`."""
    layout, pinned, grows = given.pop("layout", None), given.pop("pin_memory", None), given.pop("requires_grad", False)
    form = given.pop("memory_format", None)
    if layout is not None and str(layout) != "torch.strided":
        raise UnsupportedError(f"{name}: layout must be torch.strided, got {shown(layout)}")
    if pinned:
        raise UnsupportedError(f"{name}: pin_memory is False here; call .pin_memory() of the result")
    lasting = form is not None and str(form) not in ("torch.contiguous_format", "torch.preserve_format")
    if not grows and not lasting:
        return lambda made: made

    def finish(made: Any) -> Any:
        if package_name(type(made)) != "torch":
            raise InvalidProblemError(
                f"{name}: {'memory_format' if lasting else 'requires_grad'} is of torch's tensors, and the result is "
                f"a {type(made).__name__}; give device="
            )
        made = made.contiguous(memory_format=form) if lasting else made
        return made.requires_grad_() if grows else made

    return finish


def place(name: str, given: dict[str, Any]) -> None:
    """Put a tensor of the device that is asked for, or of the generator's, in the place of `like`."""
    device, generator = given.pop("device", None), given.get("generator")
    if device is None and generator is not None:
        device = generator.device
    if device is not None:
        given["like"] = _torch(name).empty((), device=device)


def moved(name: str, like: Any, device: Any) -> Any:
    """An array of the shape and dtype of `like` on the device that is asked for, whatever it holds."""
    if device is None:
        return like
    if package_name(type(like)) != "torch":
        raise InvalidProblemError(f"{name}: device is of torch's tensors, and the result is where the input is")
    made = _torch(name).empty(0, device=device).device
    return like if made == like.device else _torch(name).empty_like(like, device=made)


def drawn(name: str, generator: Any, like: Any) -> Any:
    """A seed from a generator of torch, on the device of the operands."""
    torch = _torch(name)
    if not isinstance(generator, torch.Generator):
        raise InvalidProblemError(f"{name}: generator must be a torch.Generator, got {shown(generator)}; or give seed=")
    device = like.device if package_name(type(like)) == "torch" else generator.device
    return torch.randint(_MOST, (), dtype=torch.int64, device=generator.device, generator=generator).to(device)


def _torch(name: str) -> Any:
    try:
        import torch
    except ImportError:
        raise InvalidProblemError(f"{name}: device and generator are torch's, which is not here; give like=") from None
    return torch


def as_element(made: Any, dtype: Any, out: Any) -> Any:
    """What was made, in a dtype, or written over an array, that its function does not take."""
    return made if dtype is None and out is None else cast(made, out.dtype if dtype is None else dtype, out=out)
