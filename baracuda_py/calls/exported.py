"""The mark of functions and classes of pages that the package exports though no plan stands behind them."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any, TypeVar

from ..interop.dynamo import opaque
from ..interop.jax_arrays import unwrapped, wraps
from .misfits import raise_explained

T = TypeVar("T")
MARK = "exported"


def exported(value: T) -> T:
    """Marks a function or class: `tools/exports.py` makes every name that its module has of it public.

    A function names the argument that its annotation does not take where it fails by an error that is not ours, as
    those that `entry` marks do; where it fails of what holds arrays of JAX, it is called with these.
    """
    made: Any = _explaining(value) if inspect.isfunction(value) else value
    setattr(made, MARK, True)
    if isinstance(made, FunctionType) and _of_arrays(made):
        opaque(made)
    return made  # type: ignore[no-any-return]


def _explaining(function: Any) -> Any:
    shown = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except Exception as error:
            if wraps((*args, *given.values())):
                return call(*unwrapped(args), **unwrapped(given))
            raise_explained(error, shown, args, given)

    return call


def _of_arrays(function: FunctionType) -> bool:
    """Whether its first argument is an array, or some, and so is the result: to torch.compile it is one call then."""
    said = {name: str(annotation) for name, annotation in function.__annotations__.items()}
    return (
        "Array" in next(iter(said.values()), "") and "Array" in said.get("return", "") and next(iter(said)) != "return"
    )


def is_exported(value: object) -> bool:
    """Whether it is marked itself, and not a class that it is of or comes from."""
    return MARK in getattr(value, "__dict__", ())
