"""`attention`: scaled dot-product attention whose scores and mask are formulas."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from ..calls.exported import exported
from ..calls.functional import functional
from ..core.arrays import read
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.keywords import unknown_keywords
from ..core.memo import keep
from ..interop.dynamo import FORMULA, calls_in_graph, methods_in_graph, uncompiled
from ..ops.attention.dense.flash_sdpa import TURNED as FORWARD
from ..ops.attention.dense.flash_sdpa import FlashSdpaArgs, FlashSdpaDescriptor, flash_sdpa
from ..ops.attention.dense.flash_sdpa_backward import TURNED as BACKWARD
from ..ops.attention.dense.flash_sdpa_backward import FlashSdpaBackwardArgs, flash_sdpa_backward
from ..ops.attention.layouts import Layouts, asked
from .block_mask_plan import block_mask_plan_of
from .block_masks import BLOCK, BlockMask, taken
from .calls import by_names, number_role
from .parse import RESERVED
from .score_plan import ScoredSdpaPlan, scored_backward_plan_of, scored_plan_of
from .score_shape import ScoreShape
from .scores import PLACES, SCORE, ScoreFormula, score_formula
from .shape import REAL, WHOLE, Roles

_GRADIENTS = ("dq", "dk", "dv")
_KNOWN = 256


@exported
@uncompiled(FORMULA)
def attention(
    score: str | Callable[..., Any] | None = None, mask: str | Callable[..., Any] | None = None, **defaults: Any
) -> FormulaAttention:
    """Attention whose scores a formula changes, and in which a formula says which keys a query sees.

        f = bc.attention("softcap(s, cap) + bias[h, q - k]", mask="q - k < window", cap=30.0)
        y = f(q, k, v, bias=bias, window=128, is_causal=True)
        dq, dk, dv = f.vjp(dy, q, k, v, bias=bias, window=128, is_causal=True)

    `bc.flash_sdpa(q, k, v, score=…, mask=…, bias=bias)` is the same in one call. In formulas `s` is the score, which is
    scale · q kᵀ behind the soft cap; `b`, `h`, `q` and `k` are the numbers of its batch, query head, query and key. A
    name with brackets is an element of a table, an array of as many axes that the call gives by that name: a negative
    index counts from the end, and what lies outside is 0. Any other name is a number, a Python one or a 0-d array. A
    mask is true where a key is seen, and does not depend on s. What `flash_sdpa` has besides (causality, windows,
    grouped heads, slopes, sinks, an array as mask, dropout) goes with it; causality and windows are better given so, as
    whole tiles of keys are then skipped. `defaults` are numbers that are taken where a name is not given.

    A formula is a text or a Python function of symbols with these names, `lambda s, h, q, k, bias: s + bias[h, q - k]`,
    which is called once. One without meaning raises `ExpressionError`, which points at the characters.
    """
    shared = not defaults and all(one is None or isinstance(one, (str, FunctionType)) for one in (score, mask))
    known = _by_text.get((score, mask)) if shared else None
    if known is not None:
        return known
    made = FormulaAttention(score_formula(score, mask, _reserved()), defaults)
    return keep(_by_text, (score, mask), keep(_by_tree, made.formula, made, _KNOWN), _KNOWN) if shared else made


_by_text: dict[Any, FormulaAttention] = {}
_by_tree: dict[ScoreFormula, FormulaAttention] = {}
"""What was made: equal formulas share their functions, so that one that is written in a call is read once."""


def _reserved() -> frozenset[str]:
    """Words of attention, which are no operands of a formula."""
    fields = [f.name for cls in (FlashSdpaDescriptor, FlashSdpaArgs, FlashSdpaBackwardArgs)
              for f in dataclasses.fields(cls)]  # fmt: skip
    words = [name for f in (flash_sdpa, flash_sdpa_backward) for name in inspect.signature(f).parameters]
    return frozenset((*RESERVED, "store", "block_mask", "query_block", "key_block", "kinds", *fields, *words)) - {
        SCORE,
        *PLACES,
    }


@methods_in_graph("__call__", "block_mask", "backward", "vjp")
@exported
class FormulaAttention:
    """Attention by formulas as a function; `bc.attention` makes it. `plan(…)` is its Plan class.

    `formula` has the trees, `inputs` are the names of tables and numbers.
    """

    def __init__(self, formula: ScoreFormula, defaults: Mapping[str, Any] | None = None) -> None:
        self.formula = formula
        self.defaults = dict(defaults or {})
        self.inputs = formula.inputs
        self.in_graph = calls_in_graph(self, "__call__", "block_mask", "backward", "vjp")
        self._functions: dict[tuple[Roles, bool], Callable[..., Any]] = {}
        self._block_masks: dict[Roles, Callable[..., Any]] = {}
        if unknown := [name for name in self.defaults if name not in formula.numbers]:
            raise unknown_keywords("attention", unknown, ("score", "mask", *formula.numbers))
        for name, value in self.defaults.items():
            if not isinstance(value, (int, float, np.generic)):
                raise InvalidProblemError(f"the default of {name} must be a number, got {shown(value)}")

    def __call__(
        self, /, q: Any, k: Any, v: Any, mask: Any = None, slopes: Any = None, sinks: Any = None, *,
        block_mask: Any = None, layout: str = "bhsd", return_lse: bool = False, out: Any = None,
        stream: Any = None, preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """y, and the lse with return_lse; `given` are the tables and numbers, and what `flash_sdpa` takes besides.

        block_mask: what `block_mask(q, k, …)` made, or torch's BlockMask of a mask_mod that says the same.
        Blocks of which no pair is seen are then left out, and of those of which all are the mask's formula is
        not evaluated; the result is the same, to the bit.
        """
        block_mask = taken(block_mask)
        tables, numbers, facts = self._split(given)
        facts |= {**numbers, "return_lse": return_lse, **_block_sizes(block_mask)}
        function, operands = self._function(numbers, False), (q, k, v, *tables, mask, slopes, sinks)
        operands += () if block_mask is None else (block_mask.kinds,)
        return function(*operands, **facts, layout=layout, out=out, stream=stream, preference=preference)

    def block_mask(
        self, /, q: Any, k: Any, *, query_block: int = BLOCK, key_block: int = BLOCK, layout: str = "bhsd",
        stream: Any = None, preference: Any = None, **given: Any,
    ) -> BlockMask:  # fmt: skip
        """What the mask's formula says of blocks of query_block queries by key_block keys, powers of 2 from 16 on.

        Of q and k only sizes and element are read; `given` are the tables and numbers that the mask names, as in the
        call, and others are passed over. It is one launch, without a wait. Where the formula names no b, all batches
        share the blocks, and where it names no h all heads. Causality, windows and an array as mask are not in it: they
        are the call's.
        """
        formula = self.formula.of_mask
        if formula is None:
            raise InvalidProblemError(f"{self!r} has no mask, of which a block mask could be made")
        held = {**self.defaults, **given}
        if missing := [name for name in formula.inputs if held.get(name) is None]:
            raise InvalidProblemError(f"the mask of {self!r} needs {' and '.join(missing)}")
        if unknown := [name for name in given if name not in self.inputs]:
            raise unknown_keywords("block_mask", unknown, self.inputs)
        numbers = {name: held[name] for name in formula.numbers}
        roles = tuple([number_role(value, name) for name, value in numbers.items()])
        function = self._block_masks.get(roles)
        if function is None:
            made = by_names(functional(block_mask_plan_of(formula, roles), "block_mask", layouts=Layouts(("q", "k"))))
            function = keep(self._block_masks, roles, made, 64)
        sizes = {"query_block": query_block, "key_block": key_block}
        where = {"layout": layout, "stream": stream, "preference": preference}
        return BlockMask(function(q, k, *(held[name] for name in formula.tables), **numbers, **sizes, **where), **sizes)

    def backward(
        self, /, q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, mask: Any = None, slopes: Any = None,
        sinks: Any = None, dlse: Any = None, *, block_mask: Any = None, layout: str = "bhsd", return_dq: bool = True,
        return_dk: bool = True, return_dv: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
        **given: Any,
    ) -> Any:  # fmt: skip
        """(dq, dk, dv), those asked for; y and lse are the forward's, dlse reaches lse, the rest is as there.

        After them the gradients of tables of floats for which `return_d<name>` is True, where the score has a
        derivative by them: sums over all pairs that read an element, each rounded once.
        """
        block_mask = taken(block_mask)
        others = {name: given.pop(name) for name in list(given) if name.startswith("return_d")}
        sloped = self.slopes
        for name, flag in others.items():
            if flag and name.removeprefix("return_d") not in sloped:
                self._refuse_gradient(name.removeprefix("return_d"))
        tables, numbers, facts = self._split(given)
        function = self._function(numbers, True)
        operands = (q, k, v, y, lse, dy, *tables, mask, slopes, sinks, dlse)
        operands += () if block_mask is None else (block_mask.kinds,)
        more = {f"d{name}": bool(others.get(f"return_d{name}")) for name in sloped}
        for name, table in zip(self.formula.tables, tables, strict=True):
            if more.get(f"d{name}") and not read(table, name).element.is_float:
                raise InvalidProblemError(f"d{name} is wanted but {name} holds {read(table, name).element}, not floats")
        flags = asked({"dq": return_dq, "dk": return_dk, "dv": return_dv, **more})
        facts |= {**numbers, **{f"return_{name}": flag for name, flag in flags.items()}, **_block_sizes(block_mask)}
        return function(*operands, **facts, layout=layout, out=out, stream=stream, preference=preference)

    def vjp(
        self, /, dy: Any, q: Any, k: Any, v: Any, mask: Any = None, slopes: Any = None, sinks: Any = None, *,
        block_mask: Any = None, y: Any = None, lse: Any = None, dlse: Any = None,
        wrt: str | tuple[str, ...] = ("q", "k", "v"), layout: str = "bhsd", out: Any = None, stream: Any = None,
        preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """The gradients for `wrt` of the call f(q, k, v, mask, slopes, sinks, **given): one array, or a tuple.

        y and lse are what that call returned; they are computed anew where they are not given. dlse is the gradient
        that reaches lse, as dy is that of y.
        """
        names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        known = [*_GRADIENTS, *(f"d{name}" for name in self.slopes)]
        for name in names:
            if f"d{name}" not in known:
                self._refuse_gradient(name)
        if not names:
            raise InvalidProblemError("wrt names some of q, k, v and tables, got none of them")
        terms = {"mask": mask, "slopes": slopes, "sinks": sinks, "block_mask": block_mask, "layout": layout}
        where = {"stream": stream, "preference": preference}
        if y is None or lse is None:
            y, lse = self(q, k, v, **terms, **where, **{**given, "return_lse": True})
        more = {**given, **{f"return_{name}": name[1:] in names for name in known}}
        made = self.backward(q, k, v, y, lse, dy, **terms, dlse=dlse, out=out, **where, **more)
        if len(names) == 1:
            return made
        found = dict(zip([name[1:] for name in known if name[1:] in names], made, strict=True))
        return tuple(found[name] for name in names)

    def plan(self, /, **roles: Any) -> type[ScoredSdpaPlan]:
        """The Plan class for numbers that are floats, or integers where it says so: `plan(window=int)`."""
        if unknown := [name for name in roles if name not in self.formula.numbers]:
            raise unknown_keywords("plan", unknown, self.formula.numbers)
        chosen = {name: type(value) for name, value in self.defaults.items()} | roles
        if wrong := [name for name, kind in roles.items() if kind not in (int, float)]:
            raise InvalidProblemError(f"{wrong[0]} must be float or int, got {shown(roles[wrong[0]])}")
        kinds = tuple(WHOLE if chosen.get(name) is int else REAL for name in self.formula.numbers)
        return scored_plan_of(self.formula, kinds)

    def _function(self, numbers: Mapping[str, Any], backward: bool) -> Callable[..., Any]:
        roles = tuple([number_role(value, name) for name, value in numbers.items()])
        function = self._functions.get((roles, backward))
        if function is None:
            plan = (scored_backward_plan_of if backward else scored_plan_of)(self.formula, roles)
            name, layouts = ("flash_sdpa_backward", BACKWARD) if backward else ("flash_sdpa", FORWARD)
            made = by_names(functional(plan, name, layouts=layouts))
            function = keep(self._functions, (roles, backward), made, 64)
        return function

    @property
    def slopes(self) -> tuple[str, ...]:
        """The tables that have a gradient: the score has a derivative by their elements."""
        return tuple(ScoreShape(self.formula, (REAL,) * len(self.formula.numbers)).slopes)

    def _split(self, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """The tables, the numbers, and what remains, which attention takes."""
        held = {**self.defaults, **given}
        if missing := [name for name in self.inputs if held.get(name) is None]:
            raise InvalidProblemError(f"{self!r} needs {' and '.join(missing)}")
        tables = [held[name] for name in self.formula.tables]
        for name, table in zip(self.formula.tables, tables, strict=True):
            if isinstance(table, (int, float)):
                raise InvalidProblemError(f"{name} is a table in the formula, and must be an array, got {shown(table)}")
        numbers = {name: held[name] for name in self.formula.numbers}
        return tables, numbers, {name: value for name, value in given.items() if name not in self.inputs}

    def _refuse_gradient(self, name: str) -> None:
        """Of what has none here."""
        if name in self.formula.tables:
            raise InvalidProblemError(
                f"{name} has no gradient: the score does not depend on it, or has no derivative by it that is known"
            )
        if name in (*self.formula.numbers, "mask", "slopes", "sinks"):
            raise InvalidProblemError(f"{name} has no gradient beside a formula; q, k and v have")
        raise InvalidProblemError(f"wrt names {shown(name)}; q, k and v have a gradient")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormulaAttention) and (self.formula, self.defaults) == (other.formula, other.defaults)

    def __hash__(self) -> int:
        return hash(self.formula)

    def __reduce__(self) -> tuple[Any, ...]:
        return FormulaAttention, (self.formula, self.defaults)

    def __repr__(self) -> str:
        return f"attention({self.formula.text!r})"


def _block_sizes(block_mask: BlockMask | None) -> dict[str, int]:
    if block_mask is None:
        return {}
    return {"query_block": block_mask.query_block, "key_block": block_mask.key_block}
