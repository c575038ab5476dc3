"""What a launch takes besides arrays: scalars, workspace, a stream, and all of it as one flat tuple of pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ...core.args import Args, Operand, arrays_of, scalars_of
from ...core.arrays import located
from ...core.device import Device
from ...core.dispatch import SCALAR_TAGS, check_pointer, host_number, met_number, undrawn
from ...core.element import ElementKind
from ...core.errors import DeviceMismatchError, InvalidProblemError, MisalignedOperandError, WorkspaceTooSmallError
from ...core.plan import Plan
from ...core.tensor import TensorRef, View
from ...core.unreadable import grown
from ...interop.packages import package_name
from ...interop.torch_rules import external_stream, increment_versions, raw_stream_getter
from ...jit.launch import Runtime


def scalar_value(value: Any, spec: Operand, ordinal: int, desc: Any) -> tuple[int, Any]:
    """A scalar operand as (device pointer or 0, value); with a pointer the value is its type tag."""
    if value is None and spec.drawn:
        return 0, undrawn(spec, desc)
    plain = host_number(value, spec)
    if plain is not None:
        return 0, met_number(spec, desc, plain)
    view = located(value, spec.name)
    if view.device != ordinal:
        raise DeviceMismatchError(f"{spec.name} is on cuda:{view.device}, the plan is on cuda:{ordinal}; copy it there")
    tag = SCALAR_TAGS[view.element]
    return view.ptr, tag if spec.integer or spec.meets else float(tag)


def flatten(plan: Plan, refs: Args, workspace: int, ordinal: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """All pointers of a call in `Launch` order, and the scalars' values."""
    flat: list[int] = []
    for spec in arrays_of(plan.args):
        value = getattr(refs, spec.name)
        flat.extend([0] if value is None else [v.ptr for v in value] if isinstance(value, list) else [value.ptr])
    pairs = [scalar_value(getattr(refs, spec.name), spec, ordinal, plan.desc) for spec in scalars_of(plan.args)]
    return (*flat, *(p for p, _ in pairs), workspace, 0, 0), tuple(v for _, v in pairs)


def checked_workspace(given: Any, needed: int, device: Device) -> TensorRef:
    """The caller's workspace as bytes: dense, writable, on the device, 256-byte aligned, large enough."""
    view = located(given, "workspace")
    if view.device != device.ordinal:
        place = "host memory" if view.device < 0 else f"cuda:{view.device}"
        raise DeviceMismatchError(f"workspace is in {place}, the plan is on {device}; allocate it there")
    memory = View(view.ptr, view.shape, view.strides, view.element)
    if view.readonly or not memory.dense:
        wrong = "is read-only" if view.readonly else f"has gaps (shape {view.shape} strides {view.strides})"
        raise InvalidProblemError(f"workspace {wrong}; give a dense writable array")
    if memory.nbytes < needed:
        raise WorkspaceTooSmallError(needed, memory.nbytes)
    check_pointer("workspace", view)
    if view.ptr % 256:
        raise MisalignedOperandError(f"workspace must be 256-byte aligned, got address {view.ptr:#x}")
    return TensorRef.of_checked(view.ptr, (memory.nbytes,), (1,), ElementKind.U8, view.device)


def current_stream(arrays: Iterable[Any], runtime: Runtime, ordinal: int) -> Callable[[], int]:
    """What tells the current stream of the arrays' package, as a pointer.

    torch's for its CUDA tensors, CuPy's for all else; raw pointers and host memory have no say.
    """
    packages = {package_name(type(array)) for array in arrays if _has_stream(array)}
    if "torch" not in packages:
        return runtime.current_stream
    getter = raw_stream_getter()
    if packages == {"torch"}:
        return partial(getter, ordinal)

    def agreed() -> int:
        ours, theirs = runtime.current_stream(), getter(ordinal)
        if ours != theirs:
            names = ", ".join(sorted(packages))
            raise InvalidProblemError(
                f"operands are of several packages ({names}), and the current streams of CuPy and torch differ "
                f"({ours:#x}, {theirs:#x}); pass stream= and order what the others write before it"
            )
        return ours

    return agreed


def _has_stream(array: Any) -> bool:
    """Whether the array's package has a say; what cannot even be asked is refused when it is read."""
    package = package_name(type(array))
    try:
        return bool(array.get_device() >= 0) if package == "torch" else package not in ("baracuda_py", "numpy")
    except Exception:
        return False


def record_stream(arrays: Iterable[Any], stream: int, ordinal: int) -> None:
    """Tell torch's allocator that tensors are in use on a stream, where it is not torch's current one."""
    tensors = [a for a in arrays if package_name(type(a)) == "torch" and a.get_device() == ordinal]
    if tensors and stream != raw_stream_getter()(ordinal):
        known = external_stream(stream, ordinal)
        for tensor in tensors:
            tensor.record_stream(known)


def twin(kind: type) -> type:
    """The other type of plain torch tensors: calls take tensors and parameters together. Else the type itself."""
    if package_name(kind) != "torch":
        return kind
    import torch

    twins: dict[type, type] = {torch.Tensor: torch.nn.Parameter, torch.nn.Parameter: torch.Tensor}
    return twins.get(kind, kind)


def torch_names() -> dict[str, Any]:
    """What code generated for torch's tensors calls."""
    import torch

    return {
        "CURRENT": raw_stream_getter(),
        "GRAD": torch.is_grad_enabled,
        "RECORDED": grown,
        "FORWARD": torch.autograd.forward_ad,
        "INCREMENT": increment_versions(),
    }
