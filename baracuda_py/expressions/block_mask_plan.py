"""The plan of block masks: what a mask's formula says of whole blocks of pairs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..core import (
    Exact,
    Geometry,
    Guarantee,
    Kernel,
    Params,
    Problem,
    Step,
    Variant,
    element,
    extent,
    operand,
    output,
    scalar,
)
from ..core.element import ElementKind
from ..core.memo import keep
from ..schedules.attention.score_terms import WINDOW
from .block_masks import BLOCK, EMPTY, FULL, LEAST_BLOCK, PARTIAL
from .made import MadeArgs, MadeDescriptor, MadePlan, args_space
from .score_descriptor import ScoreDescriptor, descriptor_of, drawn_tables
from .score_shape import ScoreShape
from .scores import PLACES, ScoreFormula
from .shape import Roles
from .signature import LedSignatures

_FIELDS: dict[str, Any] = WINDOW | {"kinds": "ptr", "stride": "i64[4]", "blocks": "i64[4]"}
_FIELDS |= {"query_len": "i64", "key_len": "i64", "query_block": "i32", "key_block": "i32"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockMaskDescriptor(ScoreDescriptor, MadeDescriptor):
    """As those of the attention that takes the mask: `element` is that of its q, k and v."""

    batch_size: int = extent()
    num_heads: int = extent()
    num_kv_heads: int = extent()
    query_len: int = extent()
    key_len: int = extent()
    d_k: int = extent()
    query_block: int = extent(BLOCK, minimum=LEAST_BLOCK)
    key_block: int = extent(BLOCK, minimum=LEAST_BLOCK)
    element: ElementKind = element()

    def validate(self) -> None:
        self.check()

    @property
    def own_batches(self) -> int:
        """Batches that have a mask of their own: one where the formula does not name b."""
        return self.batch_size if PLACES[0] in self.scored.formula.places else min(self.batch_size, 1)

    @property
    def own_heads(self) -> int:
        """Heads that have a mask of their own: one where the formula does not name h."""
        return self.num_heads if PLACES[1] in self.scored.formula.places else min(self.num_heads, 1)


class BlockMaskPlan(MadePlan):
    """A byte for each block of pairs: 0 where the formula hides all, 2 where it shows all, else 1."""

    scored: ScoreShape
    value_policy = "a negative index of a table counts from its end, and an element outside the table is 0"

    @classmethod
    def case(cls, draw: Any) -> Any:
        """A problem of attention with tables of few or many elements."""
        first, *others = draw.kind.elements
        made: dict[str, Any] = {
            "batch_size": draw.integer(0, 2), "num_heads": draw.integer(1, 2), "num_kv_heads": 1,
            "query_len": draw.sizes(1, 7, 64, 67), "key_len": draw.sizes(0, 1, 65, 130), "d_k": 8, "element": first,
            "query_block": draw.sizes(64, 16, 32), "key_block": draw.sizes(64, 16, 128),
        }  # fmt: skip
        made |= drawn_tables(cls.scored, draw, made, others)
        return cls.descriptor(**made)


_plans: dict[tuple[ScoreFormula, Roles], Any] = {}


def block_mask_plan_of(formula: ScoreFormula, roles: Roles) -> type[BlockMaskPlan]:
    """The plan of a mask's formula whose numbers are what `roles` says; made once."""
    key = (formula, roles)
    made: type[BlockMaskPlan] = _plans.get(key) or keep(_plans, key, _made(ScoreShape(formula, roles), key), 1024)
    return made


def _made(shape: ScoreShape, key: Any) -> Any:
    name, recipe = f"BlockMask{shape.digest.capitalize()}", (block_mask_plan_of, key)
    space: dict[str, Any] = {
        "__doc__": shape.formula.text, "scored": shape, "__recipe__": recipe, "__module__": __name__,
        "op": f"attention.block_mask_{shape.digest}",
        "kinds": LedSignatures(1 + len(shape.formula.tables), lambda one: shape.parts(one, False)),
        "descriptor": descriptor_of(BlockMaskDescriptor, name, shape, recipe, __name__),
        "args": _args(name, shape, recipe),
        "variants": (_row(shape),), "reference": staticmethod(partial(_reference, shape)),
    }  # fmt: skip
    base: Any = BlockMaskPlan
    return type(base)(f"{name}Plan", (base,), space)


def _row(shape: ScoreShape) -> Variant:
    params = Params("BlockMaskParams", **_FIELDS, **shape.fields)

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        if max(desc.query_len, desc.key_len) >= 2**30:
            return "more than 2^30 queries or keys"
        for name in shape.formula.tables:
            if max(p.views[name].shape, default=0) >= 2**31:
                return f"{name} has 2^31 or more elements along an axis"
        blocks = p.kinds.shape
        if (count := math.prod(blocks)) >= 2**31:
            return "2^31 or more blocks"
        given = {
            "stride": p.kinds.strides, "blocks": blocks, "query_len": desc.query_len, "key_len": desc.key_len,
            "query_block": desc.query_block, "key_block": desc.key_block, **shape.values(p),
        }  # fmt: skip
        return Geometry((Step("blocks", (count, 1, 1), given, {}, 256),) if count else ())

    return Variant(
        "pairs", geometry, source="attention/sparse/make_block_mask.cu",
        kernels=(Kernel("blocks", "make_block_mask", params, {}, threads=256),),
        elements=lambda kind: kind.elements[:1], guarantee=Guarantee(Exact(), batch_invariant=True), may_spill=True,
        prelude=lambda element, kind: f'#include "attention/score_formula.cuh"\n{shape.code(kind, False)}',
    )  # fmt: skip


def _args(name: str, shape: ScoreShape, recipe: Any) -> Any:
    fields: list[Any] = [
        ("q", Any, operand("batch_size num_heads query_len d_k")),
        ("k", Any, operand("batch_size num_kv_heads key_len d_k")),
        *((n, Any, operand(f"*{n}_shape", element=f"{n}_element")) for n in shape.formula.tables),
        ("kinds", Any, output("own_batches own_heads query_blocks key_blocks", element=ElementKind.U8)),
        *((n, Any, scalar(integer=whole)) for n, whole in shape.numbers.items()),
    ]
    space = args_space(__name__, recipe, shape.formula.inputs, any(shape.numbers.values()))
    space["__doc__"] = "Any strides. Of q and k the sizes are read alone."
    return dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )


def _reference(shape: ScoreShape, desc: Any, /, *, q: Any, k: Any, **given: Any) -> Mapping[str, Any]:
    every = (desc.own_batches, desc.own_heads, desc.query_len, desc.key_len)
    change = shape.modifier(desc, given, False)
    rows, columns = (np.arange(0, n, block) for n, block in ((every[2], desc.query_block), (every[3], desc.key_block)))
    made = np.zeros((*every[:2], desc.query_blocks, desc.key_blocks), np.uint8)
    if not made.size:
        return {"kinds": made}
    for b in range(every[0]):
        seen: Any = change(slice(b, b + 1), np.zeros((1, *every[1:]), q.dtype)).seen
        some, all_ = (op.reduceat(op.reduceat(seen, rows, 2), columns, 3) for op in (np.logical_or, np.logical_and))
        made[b] = np.where(all_, FULL, np.where(some, PARTIAL, EMPTY))[0]
    return {"kinds": made}
