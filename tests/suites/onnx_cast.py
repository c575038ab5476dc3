"""ONNX's Cast and CastLike: the elements that `cast` has, fp8 and 4-bit ones in the bytes that they travel in."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import baracuda_py as bc
from baracuda_py.core.element import decode

from .onnx_node import Node, element, need


def cast(n: Node) -> Any:
    """The input in the element that the node, or the second input, names; the result holds one element an item."""
    target = _target(n)
    held = n.kinds[0]
    assert held is not None
    saturate = target.bits == 8 and target.is_float and bool(n.get("saturate", 1))  # an attribute of these alone
    need(
        target is not bc.ElementKind.E8M0 or n.get("round_mode", "up") == "nearest",
        "cast rounds to the nearest power of two, not up",
    )
    shape = (*n[0].shape[:-1], n.sizes[0]) if n[0].ndim else ()
    y = bc.cast(n[0], target, element=held, shape=shape, saturate=saturate)
    stored = y if isinstance(y, np.ndarray) else y.get()
    return decode(stored, target)[..., : n.sizes[0]] if target.carrier != target.dtype else stored


def _target(n: Node) -> bc.ElementKind:
    if n.name == "CastLike":
        assert n.kinds[1] is not None
        return n.kinds[1]
    return element(helper.tensor_dtype_to_np_dtype(n.attributes["to"]))
