"""`optimizer`: an update rule from a formula, over lists of tensors, in place and in one launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..calls.call import resolve
from ..calls.exported import exported
from ..calls.functional import functional
from ..calls.interpreters import innermost
from ..core.arrays import read
from ..core.checked import shown
from ..core.element import HALVES
from ..core.errors import InvalidProblemError
from ..core.execution import Again
from ..core.keywords import near
from ..core.memo import keep
from ..interop.dynamo import FORMULA, PLAN, broken_at, uncompiled
from ..interop.packages import package_name
from .calls import Call, by_names
from .formula import Formula
from .shape import ARRAY, REAL, Roles
from .update_codes import KINDS
from .update_plan import UpdatePlan, scale_name, update_plan_of
from .update_rules import RULES, rule_text
from .update_shape import SCALE, UpdateShape, compensated, scaled, update_formula

_OPTIONS = (SCALE, "found_inf", "seed", "offset", "stream", "preference")


@exported
@uncompiled(FORMULA)
def optimizer(
    rule: str, /, *, stochastic: str = "", compensation: Mapping[str, str] | None = None,
    states8bit: Mapping[str, str] | None = None, **defaults: Any,
) -> UpdateRule:  # fmt: skip
    """A step of an optimiser from a formula, for lists of tensors: one launch for all of them, in place.

        step = bc.optimizer("m = b * m + (1 - b) * g; p = p - lr * sign(m) - lr * decay * p", b=0.9, decay=0.0)
        step(p=params, g=grads, m=momenta, lr=1e-4)      # lists of arrays of any package

    The parts of the formula are assignments, done in order for every element; a name that is assigned is a list that
    is written, one that begins with an underscore is none. What a call gives decides what other names are: a list of
    arrays, or a number (a Python number, or a 0-d device array, so that a captured graph can change it). The lists of
    a call have tensors of the same shapes; any of them may be float32, float64, float16 or bfloat16, and tensors of
    several elements are sorted apart. Everything is computed in float32 (float64 where a list has it) and rounded
    once, where it is stored; 1 - b and the like are computed in float64.

    Every call takes besides: `grad_scale`, which multiplies `g` wherever the formula reads it (a clip factor, the
    inverse of a loss scale, -1 to maximise), and `found_inf`: where that is not 0 nothing is written. Both may be 0-d
    device arrays.

    rule: a formula, or the name of one of `optimizer_rules`, `bc.optimizer("adamw", amsgrad=True)`, whose options go
    by keyword with the defaults.
    stochastic: a list of 16-bit floats that is rounded at random so that its mean is kept (Gupta et al. 2015); calls
    then take `seed` and `offset`, integers or 0-d arrays, another offset for every step.
    compensation: {"p": "c"}: 16-bit floats p are kept as p + c by a list c of what was rounded off (Kahan 1965).
    states8bit: {"m": "signed", "v": "unsigned"}: lists of uint8 codes with a list of scales beside each, `m_scale`, of
    one float32 for 256 elements; states begin as zeros of both. "signed" and "unsigned" are the dynamic map of Dettmers
    et al. 2022, "linear" and "unsigned_linear" equal steps (both as bitsandbytes has them), "fp8" float8_e4m3fn.
    """
    if isinstance(rule, str) and rule.isidentifier() and rule not in RULES:
        close = near(rule, tuple(RULES))
        hint = f"did you mean {' or '.join(close)}?" if close else "optimizer_rules() has them"
        raise InvalidProblemError(f"there is no rule {shown(rule)}; {hint}")
    if rule in RULES:
        rule, defaults = rule_text(rule, defaults)
    return UpdateRule(
        update_formula(rule, tuple(defaults)), defaults, stochastic, tuple((compensation or {}).items()),
        tuple((states8bit or {}).items()),
    )  # fmt: skip


@exported
class UpdateRule(Call):
    """An update rule as a function of lists; `bc.optimizer` makes it. `plan(…)` is its Plan class.

    `text` is its formula, `inputs` are the names of its lists and numbers in order, `written` those it assigns.
    """

    def __init__(
        self, formula: Formula, defaults: Mapping[str, Any] | None = None, stochastic: str = "",
        compensation: tuple[tuple[str, str], ...] = (), states8bit: tuple[tuple[str, str], ...] = (),
    ) -> None:  # fmt: skip
        self.formula, self.stochastic = formula, stochastic
        self.compensation, self.states8bit = compensation, states8bit
        self.written = tuple(name for name, _ in formula.outputs)
        for what, name in (("stochastic", stochastic), *(("compensation", n) for n, _ in compensation)):
            if name and name not in self.written:
                raise InvalidProblemError(f"{what} names {shown(name)}; what is assigned is {', '.join(self.written)}")
        for name, kind in states8bit:
            if name not in formula.inputs or kind not in KINDS:
                raise InvalidProblemError(
                    f"states8bit names a list and one of {', '.join(KINDS)}, got {name}={shown(kind)}"
                )
        if len({stochastic, *(n for n, _ in (*compensation, *states8bit))} - {""}) < bool(stochastic) + len(
            compensation
        ) + len(states8bit):
            raise InvalidProblemError("a list is stored in one way: stochastic, compensation or states8bit")
        only = [name for name in self.written if name not in formula.inputs]
        scales = [scale_name(name) for name, _ in states8bit]
        lists = (*formula.inputs, *only, *(low for _, low in compensation), *scales)
        super().__init__(lists, defaults)
        self._plans: dict[Any, type[UpdatePlan]] = {}
        self._entries: dict[type[UpdatePlan], Callable[..., Any]] = {}
        self._again: dict[Any, Again | int] = {}

    @property
    def text(self) -> str:
        """The formula."""
        return self.formula.text

    def __call__(
        self, /, *args: Any, grad_scale: Any = 1.0, found_inf: Any = 0.0, seed: Any = None, offset: Any = 0,
        stream: Any = None, preference: Any = None, **given: Any,
    ) -> Any:  # fmt: skip
        """One step: writes the lists that are assigned, and gives them back, a list or a tuple of lists."""
        held = dict(zip(self.inputs, self.values(args, given), strict=True))
        options = {SCALE: grad_scale, "found_inf": found_inf, "seed": seed, "offset": offset}
        return self.stepped(held, options, stream, preference)

    @broken_at(PLAN)
    def stepped(
        self, held: Mapping[str, Any], options: Mapping[str, Any], stream: Any = None, preference: Any = None,
        kept: Collection[str] = (),
    ) -> Any:  # fmt: skip
        """A call with all of it named. kept: lists of the very arrays of an earlier call (`core.execution.Again`)."""
        held = {n: held[n] for n in self.inputs}
        lists = {n: v for n, v in held.items() if isinstance(v, (list, tuple))}
        for name in (*self.written, *(low for _, low in self.compensation)):
            if name not in lists:
                raise InvalidProblemError(
                    f"{name} is assigned, so it must be a list of arrays, got {shown(held[name])}"
                )
        count = len(lists[self.written[0]])
        for name, one in lists.items():
            if len(one) != count:
                raise InvalidProblemError(
                    f"{name} has {len(one)} arrays and {self.written[0]} {count}; lists go together place by place"
                )
        numbers = {n: v for n, v in held.items() if n not in lists}
        given = {"found_inf": options["found_inf"]}
        if self.stochastic:
            if options.get("seed") is None:
                raise InvalidProblemError(
                    "seed must be given, an integer or a 0-d array, as a list is rounded at random"
                )
            given |= {"seed": options["seed"], "offset": options["offset"]}
        if "g" in self.formula.inputs:
            given[SCALE] = options[SCALE]
        roles = self._number_roles(lists, numbers)
        plain = bool(count) and stream is None and preference is None and innermost() is None
        key = self._likeness(lists, roles) if plain else None
        again = self._again.get(key, _UNSEEN)
        if isinstance(again, int) or not again.run(lists, {**numbers, **given}, kept):
            for places in _alike(lists, count):
                own = lists if len(places) == count else {n: [one[i] for i in places] for n, one in lists.items()}
                self._run(own, roles, numbers, given, stream, preference)
            if key is not None:
                learned = self._learned(again, lists, roles, numbers, given)
                self._again.pop(key, None)  # what is there stays otherwise
                keep(self._again, key, learned, 64)
        results = [held[name] for name in self.written]
        return results[0] if len(results) == 1 else tuple(results)

    def _run(
        self, lists: Mapping[str, Any], roles: Mapping[str, str], numbers: Mapping[str, Any], given: Mapping[str, Any],
        stream: Any, preference: Any,
    ) -> None:  # fmt: skip
        plan = self._plan(lists, roles)
        function = self._entries.get(plan)
        if function is None:
            function = keep(self._entries, plan, by_names(functional(plan, "optimizer")), 64)
        function(**lists, **numbers, **given, stream=stream, preference=preference)

    def _plan(self, lists: Mapping[str, Any], roles: Mapping[str, str]) -> type[UpdatePlan]:
        """The plan of lists that are alike."""
        elements = tuple(read(lists[n][0], f"{n}[0]").element for n, _ in self.compensation)
        key = (tuple(roles.values()), elements, _singles(lists, self.written))
        return self._plans.get(key) or keep(self._plans, key, update_plan_of(self._shape(*key)), 64)

    def _likeness(self, lists: Mapping[str, Sequence[Any]], roles: Mapping[str, str]) -> Any:
        """What tells calls from others, at the cost of a look at each list's first array; None: not of torch."""
        first = [one[0] for one in lists.values()]
        if package_name(type(first[0])) != "torch":
            return None
        looks = tuple([(getattr(x, "shape", None), getattr(x, "dtype", None), type(x)) for x in first])
        return tuple(roles.values()), tuple(lists), len(lists[self.written[0]]), looks

    def _learned(
        self, seen: Any, lists: Mapping[str, Any], roles: Mapping[str, str], numbers: Mapping[str, Any],
        given: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """What is remembered of a call that was served: a count, and from the second call on what runs others."""
        if not isinstance(seen, int):
            return _OTHERWISE
        if seen != _SEEN:
            return seen + 1
        if len(_alike(lists, len(lists[self.written[0]]))) != 1:
            return _OTHERWISE
        found = resolve(self._plan(lists, roles), lists, {}, {}, None)
        return found.plan.runner.again(found.plan.args(**lists, **numbers, **given)) or _OTHERWISE

    def _number_roles(self, lists: Mapping[str, Any], numbers: Mapping[str, Any]) -> dict[str, str]:
        marked = tuple(numbers.values())
        roles = iter(super().roles((_SOME, *marked))[1:])
        return {n: ARRAY if n in lists else next(roles) for n in self.inputs}

    def _shape(self, roles: Roles, elements: tuple[Any, ...], singles: tuple[str, ...] = ()) -> UpdateShape:
        known = dict(zip(self.inputs, roles, strict=True))
        formula = scaled(self.formula)
        pairs = {}
        for (name, low), kind in zip(self.compensation, elements, strict=True):
            if kind not in HALVES:
                raise InvalidProblemError(f"compensation is of float16 and bfloat16, {name} is {kind}")
            pairs[name] = (low, kind)
        formula = compensated(formula, pairs)
        chosen = tuple(REAL if n == SCALE else known[n] for n in formula.inputs)
        return UpdateShape(formula, chosen, self.stochastic, self.states8bit, singles)

    def plan(self, /, **roles: Any) -> type[UpdatePlan]:
        """The Plan class in which names are lists but those with a default and those given here: `plan(lr=float)`."""
        if self.compensation:
            raise InvalidProblemError(
                "the plan of a compensated rule depends on the element: write the cast in a formula"
            )
        return update_plan_of(self._shape(self.chosen(roles), ()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UpdateRule) and self._facts == other._facts

    @property
    def _facts(self) -> tuple[Any, ...]:
        return self.formula, self.defaults, self.stochastic, self.compensation, self.states8bit

    def __hash__(self) -> int:
        return hash(self.formula)

    def __reduce__(self) -> tuple[Any, ...]:
        return UpdateRule, self._facts

    def __repr__(self) -> str:
        return f"optimizer({self.text!r})"


_UNSEEN, _SEEN, _OTHERWISE = 0, 1, -30
"""Counts of calls: after `_SEEN` the next is made ready for; lists that were otherwise are left alone for a while."""
_SOME = np.zeros(1, np.float32)
"""Stands for the lists where roles of numbers are found."""


def _singles(lists: Mapping[str, Sequence[Any]], written: Sequence[str]) -> tuple[str, ...]:
    """The lists of one number a tensor: 0-d arrays beside tensors that have axes."""
    if not any(_rank(x) for x in lists[written[0]]):
        return ()
    return tuple(n for n, one in lists.items() if n not in written and not any(map(_rank, one)))


def _rank(x: Any) -> int:
    return len(getattr(x, "shape", ()))


def _alike(lists: Mapping[str, Sequence[Any]], count: int) -> list[list[int]]:
    """The places whose tensors have the same elements in all lists."""
    if not count:
        return []
    if all(len({getattr(x, "dtype", None) for x in one}) == 1 for one in lists.values()):
        return [list(range(count))]
    found: dict[Any, list[int]] = {}
    for i in range(count):
        found.setdefault(tuple(str(getattr(one[i], "dtype", None)) for one in lists.values()), []).append(i)
    return list(found.values())


__all__ = ["UpdateRule", "optimizer"]
