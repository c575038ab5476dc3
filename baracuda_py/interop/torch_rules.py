"""What torch keeps of a tensor besides its memory, and what a kernel that gets only a pointer must not pass over.

A negative or conjugate bit says that the values are not those in memory. Autograd records no kernel of ours, so a
tensor that needs its record is refused, and a tensor that was written has its version counter raised: backward through
a value saved before then raises, as after torch's own `out=`. torch gives a dead tensor's memory to the next one in the
order of the stream it was made on; a tensor used on another stream must have that stream recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any


def intercepts(kind: type) -> bool:
    """Whether operations of a subclass are intercepted (`__torch_dispatch__`): a trace's stand-in, or a wrapper."""
    return kind.__torch_dispatch__ is not sys.modules["torch"].Tensor.__torch_dispatch__  # type: ignore[attr-defined]


def transformed(tensor: Any) -> bool:
    """Whether a tensor belongs to a transformation of torch.func."""
    return bool(sys.modules["torch"]._C._functorch.is_functorch_wrapped_tensor(tensor))


def recorded(array: Any) -> bool:
    """Whether an array is a torch tensor that `refuse` would raise `RecordedError` for."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    if intercepts(type(array)) or array.is_meta or transformed(array):
        return True
    return bool(array.requires_grad and torch.is_grad_enabled())


def stands_in(values: Iterable[Any]) -> bool:
    """Whether any operand, or one of a list, is a torch tensor whose operations are intercepted, as in a trace."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    each = (one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,)))
    return any(isinstance(one, torch.Tensor) and intercepts(type(one)) for one in each)


def modes() -> bool:
    """Whether a mode of torch's, that of a trace say, sees every operation."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch._C._len_torch_dispatch_stack())


def autocasting() -> bool:
    """Whether torch.autocast is on here, for any device."""
    torch = sys.modules.get("torch")
    return torch is not None and torch._C._is_any_autocast_enabled()


def settled(value: Any) -> Any:
    """A number or attribute without torch's symbols of numbers, which become the numbers that they stand for."""
    torch = sys.modules["torch"]
    if isinstance(value, (torch.SymInt, torch.SymBool)):
        return int(value) if isinstance(value, torch.SymInt) else bool(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    if isinstance(value, (list, tuple)):
        return type(value)([settled(one) for one in value])
    return value


def settled_call(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call without torch's symbols of numbers."""
    return tuple([settled(value) for value in args]), {name: settled(value) for name, value in given.items()}


def requires_grad(values: Iterable[Any]) -> bool:
    """Whether any of the arguments of a call is a torch tensor that requires a gradient.

    One that cannot be asked does not: the error is that of whoever reads it, who knows the operand's name.
    """
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(value, torch.Tensor) and _grows(value) for value in values)


def followed(values: Iterable[Any]) -> bool:
    """Whether any of the arguments of a call is a torch tensor of which autograd wants a gradient or has a tangent, or
    a transformation of torch.func, which may want one: what is outside of it is not seen inside."""
    torch = sys.modules.get("torch")
    return torch is not None and any(
        isinstance(value, torch.Tensor) and (_grows(value) or transformed(value) or has_tangent(value))
        for value in values
    )


def has_tangent(tensor: Any) -> bool:
    """Whether a tensor has a tangent of forward mode, outside of the transformations of torch.func."""
    ad = sys.modules["torch"].autograd.forward_ad
    return ad._current_level >= 0 and ad.unpack_dual(tensor).tangent is not None


def _grows(tensor: Any) -> bool:
    """Whether a tensor requires a gradient; of a subclass that does not say so the reader of its memory tells why."""
    try:
        return bool(tensor.requires_grad)
    except MemoryError:
        raise
    except Exception:
        return False


def may_be_lazy(shape: tuple[int, ...], strides: tuple[int, ...], element: Any) -> bool:
    """Whether a tensor of this layout may have its negative or conjugate bit set: asking each tensor costs 0.1 µs.

    element: its ElementKind, which is a floor above this module.

    The conjugate bit is of complex tensors, the negative bit of what `.imag` makes of a conjugate one: a view that
    steps over every second real number, as do all views of it (short of `as_strided`, which names its own strides).
    """
    steps = (stride for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    return element.is_complex or (element.is_float and not any(step % 2 for step in steps))


@cache
def increment_versions() -> Callable[[Sequence[Any]], None]:
    """What raises the version counters of written tensors: `torch.autograd.graph.increment_version`, twice as fast."""
    import torch

    quick: Callable[[Any], None] = torch._C._increment_version
    try:
        quick((torch.empty(0),))
    except TypeError:  # torch 2.4 takes one at a time

        def one_by_one(tensors: Sequence[Any]) -> None:
            for tensor in tensors:
                quick(tensor)

        return one_by_one
    return quick


def external_stream(stream: int, ordinal: int) -> Any:
    """A stream's pointer as torch's object."""
    cuda = sys.modules["torch"].cuda
    return cuda.ExternalStream(stream, device=ordinal) if stream else cuda.default_stream(ordinal)


def on_stream(stream: int, ordinal: int) -> Any:
    """A context in which torch's current stream is `stream`: its allocator then orders memory on it."""
    return sys.modules["torch"].cuda.stream(external_stream(stream, ordinal))


def raw_stream_getter() -> Callable[[int], int]:
    """torch's current stream of a device as a pointer; the public object costs 5 µs a call."""
    import torch

    getter = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return getter or (lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream))


class Memory:
    """Bytes of torch's allocator as workspace; `.ptr` is their address."""

    __slots__ = ("owner", "ptr")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.ptr: int = owner.data_ptr()


@cache
def _allocator(ordinal: int) -> tuple[Callable[[int], Any], Callable[[int], int]]:
    import torch

    return partial(torch.empty, dtype=torch.uint8, device=torch.device("cuda", ordinal)), raw_stream_getter()


def of_a_graph(memory: Memory) -> bool:
    """Whether torch keeps the memory for a graph that it captures itself (`torch.cuda.graph`), as long as that lives.

    Any other would be given to somebody else while a captured graph still writes it.
    """
    for segment in sys.modules["torch"].cuda.memory_snapshot():
        if 0 <= memory.ptr - segment["address"] < segment["total_size"]:
            return any(segment.get("segment_pool_id", ()))
    return False


def memory(nbytes: int, stream: int, ordinal: int) -> Memory:
    """Bytes of torch's allocator, ordered on `stream`."""
    allocate, current = _allocator(ordinal)
    if stream == current(ordinal):
        return Memory(allocate(nbytes))
    with on_stream(stream, ordinal):
        return Memory(allocate(nbytes))
