"""A plan by any name that a user knows: a plan's, an op's, or that of a function of one op."""

from __future__ import annotations

from importlib import import_module

from .._exports import EXPORTS
from ..core import registry
from ..core.errors import BaracudaError
from ..core.plan import Plan


def plan_of(name: str) -> type[Plan]:
    """The plan; a function stands for its own where it is no kind of a table."""
    try:
        return registry.plan(name)
    except BaracudaError:
        value = getattr(import_module("baracuda_py"), name) if name in EXPORTS else None
        found = getattr(value, "plan", None)
        if isinstance(found, type) and issubclass(found, Plan) and not found.kinds:
            return found
        raise


def plans_of(name: str) -> list[type[Plan]]:
    """The plans of a family, an op, a kind or a function."""
    try:
        return registry.family(name)
    except BaracudaError:
        if name not in EXPORTS:
            raise
    return [plan_of(name)]
