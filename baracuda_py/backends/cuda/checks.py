"""BARACUDA_CHECK=1 on a GPU: what is done to a call's memory before its kernels run, and looked at after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.args import Args, Operand, arrays_of
from ...core.element import ElementKind
from ...core.finite import all_finite, poison, report, word
from ...core.plan import Plan
from ...core.tensor import TensorRef, addressable


def before(plan: Plan, refs: Args) -> bool:
    """Poison the outputs that are no input, too; whether every float that is read is finite."""
    specs = arrays_of(type(refs))
    spans = [_span(ref) for spec in specs if spec.reads for ref in _items(refs, spec)]
    whole = all_finite(bits for spec in specs if spec.reads for bits in _bits(refs, spec))
    for spec in specs:
        if spec.role != "out":
            continue
        for ref in _items(refs, spec):
            low, high = _span(ref)
            if not any(low < end and start < high for start, end in spans):
                for bits, _ in _views(ref):
                    poison(bits)
    return whole


def after(plan: Plan, refs: Args, whole: bool) -> None:
    """Warn of what was not written, and of what is not finite where every operand was (`whole`)."""
    for spec in arrays_of(type(refs)):
        if spec.writes:
            for bits, element in _bits(refs, spec):
                report(plan.op, spec.name, bits, element, whole)


def _items(refs: Args, spec: Operand) -> list[TensorRef]:
    value = getattr(refs, spec.name)
    return value if isinstance(value, list) else [] if value is None else [value]


def _span(ref: TensorRef) -> tuple[int, int]:
    """The first byte and the one after the last."""
    assert ref.strides is not None
    low, high = addressable(ref.ptr, ref.shape, ref.strides, ElementKind.of(ref.element).itemsize)
    return ref.ptr + low, ref.ptr + high


def _bits(refs: Args, spec: Operand) -> Iterator[tuple[Any, ElementKind]]:
    for ref in _items(refs, spec):
        yield from _views(ref)


def _views(ref: TensorRef) -> Iterator[tuple[Any, ElementKind]]:
    """The floats of an operand as CuPy arrays of the unsigned integers that hold them, a complex one's parts apart."""
    import cupy

    element = ElementKind.of(ref.element)
    held_in = word(element)
    if held_in is None or 0 in ref.shape:
        return
    start, stop = _span(ref)
    memory = cupy.cuda.UnownedMemory(start, stop - start, ref, ref.device)
    assert ref.strides is not None
    steps = tuple(step * element.itemsize for step in ref.strides)
    for offset in (0, element.itemsize // 2) if element.is_complex else (0,):
        pointer = cupy.cuda.MemoryPointer(memory, ref.ptr - start + offset)
        yield cupy.ndarray(ref.shape, held_in, pointer, steps), element
