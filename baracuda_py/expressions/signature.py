"""The elements of a formula's operands: what its kernels are made for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import FLOATS, INTS, ElementKind
from ..core.memo import cached_property
from .errors import ExpressionError

E = ElementKind
ELEMENTS = (*FLOATS, *INTS, E.BOOL)


@dataclass(frozen=True)
class Signature:
    """The element of each array operand, in order; a kind of a formula's plan."""

    elements: tuple[ElementKind, ...]

    @property
    def value(self) -> str:
        """Part of SKUs and symbols: the element of all operands, or of each."""
        return "_".join(str(e) for e in (self.elements if len(set(self.elements)) > 1 else self.elements[:1]))

    def __str__(self) -> str:
        return self.value


class Signatures(Sequence[Signature]):
    """Signatures that tests run a formula with: each element for all operands, then mixed ones, as far as it has them.

    They are found when somebody asks: the plan of a call needs none of them.
    """

    def __init__(self, operands: int, program: Callable[[Signature], Any]) -> None:
        self.operands = operands
        self.program = program

    @cached_property
    def found(self) -> tuple[Signature, ...]:
        """All of them."""
        served = [one for one in dict.fromkeys(self._candidates()) if self._serves(one)]
        measured = [one for one in served if self._is_measured(one)]
        return tuple(measured or served) or (Signature((E.F32,) * self.operands),)

    def _candidates(self) -> Iterator[Signature]:
        for element in (E.F32, E.F64, E.F16, E.BF16, E.I32, E.I64, E.U8, E.BOOL):
            yield Signature((element,) * self.operands)
        for i in range(self.operands if self.operands > 1 else 0):
            for one, others in ((E.BOOL, E.F32), (E.I32, E.BF16), (E.BF16, E.F32), (E.F64, E.F16), (E.BOOL, E.I64)):
                yield Signature(tuple(one if i == j else others for j in range(self.operands)))

    def _is_measured(self, one: Signature) -> bool:
        """Whether results can be told from wrong ones: a rounded result of whole numbers alone has no yardstick."""
        whole = not any(element.is_float for element in one.elements)
        return not whole or all(not element.is_float for element in self.program(one).results)

    def _serves(self, one: Signature) -> bool:
        try:
            self.program(one)
        except ExpressionError:
            return False
        return True

    def __len__(self) -> int:
        return len(self.found)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Signature:  # type: ignore[override]
        return self.found[index]

    def __iter__(self) -> Iterator[Signature]:
        return iter(self.found)


class LedSignatures(Signatures):
    """At most two for each float of the first operand, with floats, integers and bool in the others."""

    @cached_property
    def found(self) -> tuple[Signature, ...]:
        """All of them."""
        kinds = (E.F32, E.I32, E.BOOL, E.BF16, E.I64)
        every: list[Signature] = []
        for element in FLOATS:
            tried = itertools.product(kinds, repeat=self.operands - 1)
            every += itertools.islice((s for t in tried if self._serves(s := Signature((element, *t)))), 2)
        return tuple(every) or (Signature((E.F32,) * self.operands),)
