"""The plans of attention whose scores a formula changes, and of its gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ..core import Guarantee, Relative, Vjp, extent, operand, output, scalar
from ..core.element import ElementKind, unrounded
from ..core.memo import keep
from ..ops.attention.dense.flash_sdpa import (
    FlashSdpaArgs,
    FlashSdpaDescriptor,
    FlashSdpaPlan,
    reference,
    terms_case,
)  # fmt: skip
from ..ops.attention.dense.flash_sdpa_backward import FlashSdpaBackwardArgs, FlashSdpaBackwardPlan
from ..ops.attention.dense.flash_sdpa_backward import reference as backward_reference
from ..ops.attention.score_terms import give_forward
from ..schedules.attention.dense.formulas import Embedded, backward_rows, forward_rows
from ..schedules.attention.dense.table_gradients import Tables
from .block_masks import BLOCK, LEAST_BLOCK, under_block_mask
from .made import MadeArgs, MadeDescriptor, MadePlan, args_space
from .score_descriptor import ScoreDescriptor, descriptor_of, drawn_tables
from .score_shape import ScoreShape
from .scores import ScoreFormula
from .shape import Roles
from .signature import LedSignatures, Signature

_UNSERVED = ("dmask", "dslopes", "dsinks")
"""Gradients that the plan without a formula makes, and those with one do not."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoredSdpaDescriptor(ScoreDescriptor, FlashSdpaDescriptor, MadeDescriptor):
    """As `FlashSdpaDescriptor`; a table has `<name>_shape` and `<name>_element` (by default the accumulator's).

    A byte of a block mask stands for `query_block` queries by `key_block` keys, powers of 2.
    """

    query_block: int = extent(BLOCK, minimum=LEAST_BLOCK)
    key_block: int = extent(BLOCK, minimum=LEAST_BLOCK)

    def validate(self) -> None:
        super().validate()
        self.check()

    @property
    def block_mask_shape(self) -> tuple[int, int, int, int]:
        """Of a block mask that has its own bytes for each batch and head."""
        return self.batch_size, self.num_heads, self.query_blocks, self.key_blocks


class _Scored:
    """What both plans share."""

    value_policy = (
        "a negative index of a table counts from its end, and an element outside the table is 0; infinite and NaN "
        "values of hidden keys add nothing; a byte of a block mask hides its block (0), leaves it to the formula (1), "
        "or shows all of it (any other)"
    )
    scored: ScoreShape

    @classmethod
    def case(cls, draw: Any) -> Any:
        """A problem of attention with tables of few or many elements."""
        return _case(cls, draw, draw.kind.elements)

    @classmethod
    def gradient_case(cls, draw: Any) -> Any:
        """The same with floats in float64."""
        return _case(cls, draw, [ElementKind.F64 if e.is_float else e for e in draw.kind.elements])


def _case(cls: Any, draw: Any, elements: Any) -> Any:
    made = terms_case(draw) | {"element": elements[0]}
    made |= drawn_tables(cls.scored, draw, made, elements[1:])
    blocks = {name: draw.sizes(64, 16, 32, 128) for name in ("query_block", "key_block")}
    return cls.descriptor(**made, **blocks)


class ScoredSdpaPlan(_Scored, MadePlan):
    """Attention whose scores a formula changes."""

    flops = FlashSdpaPlan.flops


class ScoredSdpaBackwardPlan(_Scored, MadePlan):
    """Its gradient by q, k, v and tables of floats that the score has a derivative by; numbers have none."""

    direction = "backward"
    flops = FlashSdpaBackwardPlan.flops

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """y and lse as the forward gives them."""
        names = ("q", "k", "v", "mask", "slopes", "sinks", "block_mask", "seed", "offset", *cls.scored.formula.inputs)
        give_forward(desc, partial(_reference, cls.scored), arrays, names)


def scored_plan_of(formula: ScoreFormula, roles: Roles) -> type[ScoredSdpaPlan]:
    """The plan of a formula whose numbers are what `roles` says; made once."""
    made: type[ScoredSdpaPlan] = _plan_of(formula, roles, False)
    return made


def scored_backward_plan_of(formula: ScoreFormula, roles: Roles) -> type[ScoredSdpaBackwardPlan]:
    """The plan of its gradient; raises where a derivative is not known."""
    made: type[ScoredSdpaBackwardPlan] = _plan_of(formula, roles, True)
    return made


_plans: dict[tuple[ScoreFormula, Roles, bool], Any] = {}


def _plan_of(formula: ScoreFormula, roles: Roles, backward: bool) -> Any:
    key = (formula, roles, backward)
    return _plans.get(key) or keep(_plans, key, _made(ScoreShape(formula, roles), backward, key), 1024)


def _made(shape: ScoreShape, backward: bool, key: Any) -> Any:
    if backward:
        shape.sloped  # noqa: B018  raises where a derivative is not known
    embedded = Embedded(
        tuple(shape.formula.tables), shape.fields, shape.values, lambda element, kind: shape.code(kind, backward),
        Guarantee(lambda element, kind: _bound(shape, kind, backward), batch_invariant=True),
        _tables(shape) if backward else None,
    )  # fmt: skip
    base: Any = ScoredSdpaBackwardPlan if backward else ScoredSdpaPlan
    name, recipe = f"ScoredSdpa{'Backward' if backward else ''}{shape.digest.capitalize()}", (_plan_of, key)
    space: dict[str, Any] = {
        "__doc__": shape.formula.text, "scored": shape, "__recipe__": recipe, "__module__": __name__,
        "op": f"attention.flash_sdpa_formula{'_backward' if backward else ''}_{shape.digest}",
        "kinds": LedSignatures(1 + len(shape.formula.tables), lambda one: shape.parts(one, False)),
        "descriptor": descriptor_of(ScoredSdpaDescriptor, name, shape, recipe, __name__),
        "args": _args(name, shape, recipe, backward),
        "variants": backward_rows(embedded) if backward else forward_rows(embedded),
        "reference": staticmethod(partial(_backward_reference if backward else _reference, shape)),
    }  # fmt: skip
    if not backward:
        space["vjp"] = ScoredVjp(shape)
    return type(base)(f"{name}Plan", (base,), space)


def _tables(shape: ScoreShape) -> Tables:
    """What kernels of the gradients of tables take."""
    numbers = {name: i for i, name in enumerate(shape.formula.tables) if name in shape.slopes}
    return Tables(numbers, shape.fields | shape.wanted, shape.values)


@dataclasses.dataclass(frozen=True)
class _OfFloats:
    """The kinds in which a table's elements are floats; `place` is its element's among the kind's."""

    place: int

    def __contains__(self, kind: Any) -> bool:
        found: bool = kind.elements[self.place].is_float
        return found


def _bound(shape: ScoreShape, kind: Signature, sloped: bool) -> Relative:
    worst = shape.parts(kind, sloped).ulps
    return Relative(4 + 2 * worst, 2 + worst)


def _args(name: str, shape: ScoreShape, recipe: Any, backward: bool) -> Any:
    """The operands of the plan without a formula, but gradients that kernels with one do not make, and its own."""
    plain: Any = FlashSdpaBackwardArgs if backward else FlashSdpaArgs
    fields: list[Any] = [
        (f.name, f.type, dataclasses.field(default=f.default, metadata=f.metadata))
        for f in dataclasses.fields(plain)
        if f.name not in _UNSERVED
    ]
    fields.append(("block_mask", Any, _BLOCK_MASK))
    fields += [(n, Any, operand(f"*{n}_shape", element=f"{n}_element")) for n in shape.formula.tables]
    if backward:
        for i, n in enumerate(shape.formula.tables):
            if n not in shape.slopes:
                continue
            if f"d{n}" in shape.formula.inputs:
                raise shape.formula.wrong(f"d{n} is the gradient of {n}; give the other operand another name", n)
            kinds: Any = _OfFloats(1 + i)
            fields.append((f"d{n}", Any, output(f"*{n}_shape", element=f"{n}_element", optional=True, kinds=kinds)))
    fields += [(n, Any, scalar(integer=whole)) for n, whole in shape.numbers.items()]
    theirs = (*shape.formula.inputs, *(f"d{n}" for n in shape.formula.tables))
    space = {**args_space(__name__, recipe, theirs, any(shape.numbers.values())), "__doc__": plain.__doc__}
    return dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )


def _random_bytes(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Blocks of every kind."""
    return rng.choice((0, 1, 2), shape, p=(0.4, 0.3, 0.3))


_BLOCK_MASK: Any = operand(
    "batch_size num_heads query_blocks key_blocks", element=ElementKind.U8, optional=True, broadcast=True,
    values=_random_bytes,
)  # fmt: skip


def _split(shape: ScoreShape, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the formula takes, and what attention takes."""
    own = {name: given[name] for name in shape.formula.inputs}
    return own, {name: value for name, value in given.items() if name not in own}


def _reference(
    shape: ScoreShape, desc: Any, /, store: Any = unrounded, block_mask: Any = None, **given: Any
) -> Mapping[str, Any]:
    own, rest = _split(shape, given)
    change = under_block_mask(desc, shape.modifier(desc, own, False), block_mask)
    return reference(desc, **rest, store=store, change=change)


def _backward_reference(
    shape: ScoreShape, desc: Any, /, store: Any = unrounded, block_mask: Any = None, **given: Any
) -> Mapping[str, Any]:
    own, rest = _split(shape, given)
    names = [name for name in shape.slopes if f"d{name}" in rest["wanted"]]
    tables = {name: np.zeros(own[name].shape, rest["q"].dtype) for name in names}
    # ds is what gradients of tables take, and is only made for others
    wanted = set(rest.pop("wanted")) - {f"d{name}" for name in names} | ({"dk"} if names else set())
    change = under_block_mask(desc, shape.modifier(desc, own, True, tables), block_mask)
    made = backward_reference(desc, **rest, wanted=wanted, store=store, change=change)
    return {**made, **{f"d{name}": total for name, total in tables.items()}}


class ScoredVjp(Vjp):
    """Links the plan to that of its gradient, which is made when it is asked for."""

    def __init__(self, shape: ScoreShape) -> None:
        self.shape = shape
        self.saves, self.kinds = {}, None
        self.grads = {"q": "dq", "k": "dk", "v": "dv", **{name: f"d{name}" for name in shape.slopes}}

    @property
    def plan(self) -> Any:
        """The gradient's plan class."""
        return scored_backward_plan_of(self.shape.formula, self.shape.roles)
