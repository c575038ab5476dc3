"""ONNX's QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import baracuda_py as bc
from baracuda_py.core.element import decode

from .onnx_node import Node, element, need

E = bc.ElementKind


def _scope(n: Node, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """(block_shape, shape of scales and zero points), all of x's rank."""
    scale, rank = n[1], len(shape)
    if scale.size == 1 and scale.ndim <= 1:
        return (0,) * rank, (1,) * rank
    axis, size = n.get("axis", 1), n.get("block_size", 0)
    axis %= rank
    if size:
        return tuple(size if a == axis else 1 for a in range(rank)), tuple(scale.shape)
    wanted = tuple(m if a == axis else 1 for a, m in enumerate(shape))
    return tuple(1 if a == axis else 0 for a in range(rank)), wanted


def _zeros(n: Node, target: E, shape: tuple[int, ...]) -> Any:
    """Zero points as `quantize` takes them: none of a float, those of 4 bits an item a byte."""
    if n[2] is None or target.is_float:
        return None
    if target.bits == 4:
        held = (*n[2].shape[:-1], n.sizes[2])
        return bc.cast(n[2], "int8" if target is E.S4 else "uint8", element=target, shape=held).reshape(shape)
    return n[2].reshape(shape)


def quantize(n: Node) -> Any:
    """The target is that of the zero point, or `output_dtype`, or uint8."""
    named = n.get("output_dtype", 0)
    if n[2] is not None:
        target = n.kinds[2] or element(n[2].dtype)
    else:
        target = element(helper.tensor_dtype_to_np_dtype(named)) if named else E.U8
    need(n.get("saturate", 1) == 1, "quantize saturates")
    need(n.kinds[0] is not None and n.kinds[0].is_float, "quantize takes floats")
    block, shape = _scope(n, n[0].shape)
    y = bc.quantize(n[0], n[1].reshape(shape), _zeros(n, target, shape), to_element=target, block_shape=block)
    stored = y if isinstance(y, np.ndarray) else y.get()
    return decode(stored, target)[..., : n.sizes[0]] if target.carrier != target.dtype else stored


def dequantize(n: Node) -> Any:
    """The result has the scale's element, or `output_dtype`."""
    held, named = n.kinds[0], n.get("output_dtype", 0)
    assert held is not None
    target = element(helper.tensor_dtype_to_np_dtype(named)) if named else element(n[1].dtype)
    whole = (*n[0].shape[:-1], n.sizes[0]) if n[0].ndim else ()
    block, shape = _scope(n, whole)
    return bc.dequantize(
        n[0], n[1].reshape(shape), _zeros(n, held, shape), to_element=target, block_shape=block, element=held,
        shape=whole,
    )  # fmt: skip


def dynamic_quantize(n: Node) -> Any:
    """Of the whole tensor, to uint8."""
    y, scale, zero = bc.dynamic_quantize(n[0], symmetric=False, to_element="uint8")
    return [y, scale.reshape(()), bc.cast(zero, "uint8").reshape(())]


QUANTIZE = {"QuantizeLinear": quantize, "DequantizeLinear": dequantize, "DynamicQuantizeLinear": dynamic_quantize}
