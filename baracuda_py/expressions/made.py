"""Classes that a formula makes at run time, and how they are pickled: as what they are made of."""

from __future__ import annotations

import copyreg
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ..core.args import Args
from ..core.descriptor import Descriptor
from ..core.plan import Plan
from .numbers import check
from .program import Program


class Made(type):
    """The class of classes made at run time; `__recipe__` is a function and its arguments that make one again."""

    __recipe__: tuple[Callable[..., Any], tuple[Any, ...]] | None


def _reduced(cls: Made) -> Any:
    recipe = cls.__dict__.get("__recipe__")
    return cls.__qualname__ if recipe is None else recipe  # a base class is found by its name


copyreg.pickle(Made, _reduced)


Numbered: TypeAlias = "Iterable[tuple[Program, Sequence[str]]]"
"""Formulas, and the names of the numbers of each."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeDescriptor(Descriptor, metaclass=Made):
    """Base of descriptors made at run time."""

    @property
    def numbered(self) -> Numbered:
        """The steps of each formula, and what its numbers are called."""
        raise NotImplementedError


@dataclasses.dataclass(slots=True, kw_only=True)
class MadeArgs(Args, metaclass=Made):
    """Base of Args classes made at run time."""


class MadePlan(Plan, metaclass=Made):
    """Base of plans made at run time: they are in no registry."""

    made = True

    @classmethod
    def check_numbers(cls, desc: Any, numbers: Mapping[str, Any]) -> None:
        """Integers that do not fit where they meet an operand."""
        for program, names in desc.numbered:
            check(program, names, numbers)


def args_space(module: str, recipe: Any, theirs: Iterable[str], joint: bool) -> dict[str, Any]:
    """The attributes of an Args class: what makes its plan again, and which of its fields have a user's names."""
    return {
        "__recipe__": (part, (Again(recipe), "args")), "__module__": module, "__theirs__": frozenset(theirs),
        "__joint__": joint,
    }  # fmt: skip


def part(plan: Any, name: str) -> Any:
    """The descriptor or Args class of a plan."""
    return getattr(plan, name)


class Again:
    """Stands for a plan in a pickle of its parts: what makes the plan."""

    def __init__(self, recipe: Any) -> None:
        self.recipe = recipe

    def __reduce__(self) -> Any:
        return self.recipe
