"""Where a call's outputs come from: the first operand's package, device and stream."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..interop import jax_arrays, torch_rules
from ..interop.cupy_streams import on_stream
from ..interop.packages import package_name
from .checked import shown
from .dispatch import dense_view
from .element import ElementKind
from .errors import DeviceMismatchError, InvalidProblemError
from .intake import stream_pointer
from .memory import lacking, raise_lacking
from .ordinals import ordinal


def each_of(out: Any, count: int) -> tuple[Any, ...]:
    """The arrays that `out=` gives for `count` results, None for each where it gives none."""
    if out is None:
        return (None,) * count
    if count == 1 and not isinstance(out, (list, tuple)):
        return (out,)
    if not isinstance(out, (list, tuple)) or len(out) != count:
        raise InvalidProblemError(f"out= must give {count} arrays, got {shown(out)}")
    return tuple(out)


def make_all(makers: Sequence[Callable[[], Any]]) -> list[Any]:
    """The arrays of a list output."""
    return [make() for make in makers]


def channels_last(array: Any) -> bool:
    """Whether axis 1 of an array of four or five axes moves fastest in memory, then the others in their order.

    That is torch's channels_last, told from strides as torch does where an extent of 1 leaves it open.
    """
    shape, least = array.shape, 0
    if not 4 <= len(shape) <= 5:
        return False
    strides = array.stride() if hasattr(array, "stride") else getattr(array, "strides", None)
    if not strides:
        return False
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        stride = strides[axis]
        if stride < max(least, 1) or (axis == 0 and least == strides[1]):
            return False
        least = stride * max(shape[axis], 1)
    return True


def maker(like: Any, shape: Sequence[int], kind: ElementKind, device: int, last: bool = False) -> Callable[[], Any]:
    """A callable that makes an empty array in the package of `like`; for JAX, a buffer for `handed`.

    last: its axis 1 moves fastest in memory (`channels_last`).
    """
    package = package_name(type(like))
    view = dense_view("output", tuple(shape), kind)
    shape, nbytes = view.shape, view.nbytes
    if package == "torch":
        torch = sys.modules["torch"]
        known = kind.bits >= 8 and hasattr(torch, str(kind))  # its 4-bit dtypes are not packed
        dtype = getattr(torch, str(kind) if known else str(kind.carrier))
        facts: dict[str, Any] = {"dtype": dtype, "device": like.device}  # not `like`: the entry outlives the array
        if last:
            facts["memory_format"] = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        empty = torch.empty
        return _claiming(lambda: empty(shape, **facts), nbytes)
    if last and package != "jax":
        moved = maker(like, (shape[0], *shape[2:], shape[1]), kind, device)
        order = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return lambda: moved().transpose(order)
    if package == "jax" and device < 0:
        return _claiming(partial(jax_arrays.empty, shape, kind), nbytes)
    if device < 0:
        return _claiming(lambda: np.empty(shape, kind.carrier), nbytes)
    import cupy

    if package == "baracuda_py":

        def refuse() -> Any:
            raise InvalidProblemError("TensorRef operands need out=: they name no package to allocate from")

        return refuse

    from cupy.cuda.runtime import getDevice

    dtype, array = kind.carrier, cupy.ndarray

    def make() -> Any:
        if getDevice() == device:
            return array(shape, dtype)
        with cupy.cuda.Device(device):
            return array(shape, dtype)

    return _claiming(make, nbytes)


def _claiming(make: Callable[[], Any], nbytes: int) -> Callable[[], Any]:
    """A maker whose lack of memory is an `OutOfMemoryError`."""

    def claim() -> Any:
        try:
            return make()
        except Exception as error:
            raise_lacking(error, "an output", nbytes)

    return claim


def allocating(package: str, device: int, stream: Any) -> Any:
    """A context in which a package's outputs come from the device and the memory of the stream they are written on.

    Without a stream it is the device's current one, which torch finds by the device that it is told for each tensor.
    A device that CUDA cannot use is a DeviceMismatchError.
    """
    if device < 0 or (stream is None and package == "torch"):
        return contextlib.nullcontext()
    if stream is None:
        import cupy

        return _usable(device, cupy.cuda.Device(device))
    at = stream_pointer(stream)
    return _usable(device, torch_rules.on_stream(at, device) if package == "torch" else on_stream(at, device))


@contextlib.contextmanager
def _usable(device: int, context: Any) -> Iterator[None]:
    """A context of a device, where CUDA's own error of entering it is one of the array that says it is there."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(context)
        except RuntimeError as error:
            if not _of_cuda(error) or lacking(error, "a context") is not None:
                raise
            raise DeviceMismatchError(f"cuda:{device}, where an array says it is, cannot be used ({error})") from error
        yield


def _of_cuda(error: RuntimeError) -> bool:
    """Whether an error is CUDA's, as CuPy and torch say it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CUDARuntimeError", "AcceleratorError"}) or "CUDA error" in str(error)


@contextlib.contextmanager
def beside(like: Any, stream: Any = None) -> Iterator[None]:
    """A context in which the package of `like` makes arrays on its device, in the order of a stream.

    torch is told the device for each tensor.
    """
    package = package_name(type(like))
    if package == "jax":
        with jax_arrays.beside(like):
            yield
    else:
        with allocating(package, ordinal(like), stream):
            yield


def handed(value: Any, kind: ElementKind, like: Any) -> Any:
    """An output that the layer made, as the caller gets it: a JAX array is made from the written buffer."""
    if package_name(type(like)) != "jax" or value is None:
        return value
    return (
        [jax_arrays.array(v, kind, like) for v in value]
        if isinstance(value, list)
        else jax_arrays.array(value, kind, like)
    )
