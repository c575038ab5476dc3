"""What descriptors of plans made of a score's formula share: the shapes of its tables, and blocks of pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core import derived, element, extents
from ..core.element import ElementKind
from .block_masks import check_blocks
from .made import Again, Numbered, part
from .score_shape import ScoreShape
from .signature import ELEMENTS, Signature


class ScoreDescriptor:
    """A table has `<name>_shape` and `<name>_element`; a block is `query_block` queries by `key_block` keys."""

    scored: ClassVar[ScoreShape]
    element: ElementKind
    query_len: int
    key_len: int
    query_block: int
    key_block: int

    def check(self) -> None:
        """Raises where the formula has no meaning for the elements, or a table has other axes than in the formula."""
        check_blocks(self.query_block, self.key_block)
        self.scored.parts(self.kind, False)
        for name, axes in self.scored.formula.tables.items():
            if len(shape := getattr(self, f"{name}_shape")) != axes:
                raise self.scored.formula.wrong(f"{name} has {len(shape)} axes, as its shape is {shape}", name)

    @property
    def query_blocks(self) -> int:
        """Blocks along the queries."""
        return -(-self.query_len // self.query_block)

    @property
    def key_blocks(self) -> int:
        """Blocks along the keys."""
        return -(-self.key_len // self.key_block)

    @property
    def kind(self) -> Signature:
        """The elements of q, k and v, and of the tables."""
        tables = self.scored.formula.tables
        return Signature((self.element, *(getattr(self, f"{name}_element") for name in tables)))

    @property
    def numbered(self) -> Numbered:
        """The formulas of the score, of the mask and of indices, and their numbers."""
        for one in self.scored.parts(self.kind, False).each():
            yield one.program, one.numbers


def descriptor_of(base: Any, name: str, shape: ScoreShape, recipe: Any, module: str) -> Any:
    """The descriptor of one formula: `base` with the fields of its tables, whose elements are the accumulator's."""
    fields: list[Any] = []
    for table in shape.formula.tables:
        fields.append((f"{table}_shape", "tuple[int, ...]", extents()))
        fields.append((f"{table}_element", Any, element(ELEMENTS, derived(lambda desc: desc.element.acc))))
    space = {"scored": shape, "__recipe__": (part, (Again(recipe), "descriptor")), "__module__": module}
    made = dataclasses.make_dataclass(
        f"{name}Descriptor", fields, bases=(base,), namespace=space, frozen=True, kw_only=True
    )
    made.__doc__ = base.__doc__
    return made


def drawn_tables(shape: ScoreShape, draw: Any, made: dict[str, Any], elements: Sequence[Any]) -> dict[str, Any]:
    """Tables of few or many elements for a drawn problem of attention; `elements` has one of each table."""
    sizes = (1, made["num_heads"], made["query_len"] + made["key_len"], 5, made["batch_size"])
    tables: dict[str, Any] = {}
    for (name, axes), one in zip(shape.formula.tables.items(), elements, strict=True):
        tables |= {f"{name}_shape": tuple(draw.sizes(*sizes) for _ in range(axes)), f"{name}_element": one}
    return tables
