"""One ONNX node as the tables of operators see it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from baracuda_py import ElementKind, UnsupportedError


class NotCovered(Exception):
    """The op does not claim this case; the message says what is missing."""


def need(condition: bool, missing: str) -> None:
    """Leave the case out unless the op claims it."""
    if not condition:
        raise NotCovered(missing)


def element(dtype: Any) -> ElementKind:
    """The element of a dtype, where we have one."""
    try:
        return ElementKind.of(np.dtype(dtype))
    except UnsupportedError:
        raise NotCovered(f"no element {'string' if np.dtype(dtype).kind == 'O' else dtype}") from None


@dataclasses.dataclass
class Node:
    """One ONNX node with its inputs as arrays of `xp`.

    Inputs travel as our ops take them: fp8, e8m0 and 4-bit elements in bytes. kinds: what they hold; sizes: how many
    elements are along the last axis.
    """

    name: str
    inputs: list[Any]
    kinds: list[ElementKind | None]
    sizes: list[int]
    attributes: dict[str, Any]
    outputs: int
    xp: Any

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index] if index < len(self.inputs) else None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; strings as str."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def number(self, index: int) -> Any:
        """A scalar input as a Python number."""
        return self[index].item()

    def axes(self, index: int = 1) -> tuple[int, ...] | None:
        """The axes that an input or the attribute `axes` names; None where neither is there or it is empty."""
        given = self[index].tolist() if self[index] is not None else self.get("axes")
        return tuple(given) if given else None
