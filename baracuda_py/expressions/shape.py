"""`Shape`: a formula and what its inputs are, from which a plan, its operands and its kernels are made."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.element import ElementKind
from ..core.memo import cached_property, keep
from .formula import Formula
from .program import Program, program_of
from .signature import Signature

ARRAY, WHOLE, REAL = "array", "integer", "float"
"""What an input may be."""
Roles = tuple[str, ...]
_PROGRAMS = 4096


@dataclass(frozen=True)
class Shape:
    """A formula whose inputs are what `roles` says.

    of: each output's input whose gradient it is, for a gradient; cotangents: the number of its last inputs, which are
    those of the outputs of `forward`.
    """

    formula: Formula
    roles: Roles
    of: tuple[str, ...] = ()
    forward: Shape | None = None

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The inputs that are arrays."""
        return tuple(n for n, role in zip(self.formula.inputs, self.roles, strict=True) if role == ARRAY)

    @cached_property
    def read(self) -> tuple[int, ...]:
        """The arrays that the formula reads, by number: a gradient need not read what it is the gradient of."""
        named = {node.value for node in self.formula.nodes if node.form == "input"}
        return tuple(i for i, name in enumerate(self.arrays) if name in named) or (len(self.arrays) - 1,)

    @cached_property
    def scalars(self) -> Mapping[str, bool]:
        """The inputs that are numbers, and whether they are integers."""
        return {n: r == WHOLE for n, r in zip(self.formula.inputs, self.roles, strict=True) if r != ARRAY}

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The outputs' names."""
        return tuple(name for name, _ in self.formula.outputs)

    @cached_property
    def digest(self) -> str:
        """A hash of the trees and of what the inputs are, whatever they are called."""
        roles = "".join(role[0] for role in self.roles)
        places = [self.formula.inputs.index(name) for name in self.of]
        return hashlib.blake2b(f"{self.formula.digest} {roles} {places}".encode(), digest_size=16).hexdigest()

    def program(self, signature: Signature) -> Program:
        """The steps for operands of these elements."""
        found = _programs.get((self, signature))
        return found or keep(_programs, (self, signature), self._program(signature), _PROGRAMS)

    def _program(self, signature: Signature) -> Program:
        arrays = dict(zip(self.arrays, signature.elements, strict=True))
        results: list[ElementKind | None] | None = None
        if self.forward is not None:
            for name in self.arrays[len(self.forward.arrays) :]:
                if not arrays[name].is_float:
                    raise self.formula.wrong(f"{name} must be a float, got {arrays[name]}")
            results = [arrays[name] if arrays[name].is_float else None for name in self.of]
        return program_of(self.formula, arrays, self.scalars, results)


_programs: dict[tuple[Shape, Signature], Program] = {}
