"""The mark of functions and classes of pages that the package exports though no plan stands behind them."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
MARK = "exported"


def exported(value: T) -> T:
    """Marks a function or class: `tools/exports.py` makes every name that its module has of it public."""
    setattr(value, MARK, True)
    return value


def is_exported(value: object) -> bool:
    """Whether it is marked itself, and not a class that it is of or comes from."""
    return MARK in getattr(value, "__dict__", ())
