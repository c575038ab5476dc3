"""The mark of functions and classes of pages that the package exports though no plan stands behind them."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from ..interop.dynamo import opaque

T = TypeVar("T")
MARK = "exported"


def exported(value: T) -> T:
    """Marks a function or class: `tools/exports.py` makes every name that its module has of it public."""
    setattr(value, MARK, True)
    if isinstance(value, FunctionType) and _of_arrays(value):
        opaque(value)
    return value


def _of_arrays(function: FunctionType) -> bool:
    """Whether its first argument is an array, or some, and so is the result: to torch.compile it is one call then."""
    said = {name: str(annotation) for name, annotation in function.__annotations__.items()}
    return (
        "Array" in next(iter(said.values()), "") and "Array" in said.get("return", "") and next(iter(said)) != "return"
    )


def is_exported(value: object) -> bool:
    """Whether it is marked itself, and not a class that it is of or comes from."""
    return MARK in getattr(value, "__dict__", ())
