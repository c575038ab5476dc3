"""What torch.autocast does to the operands of a call, by the rule of its op.

"lower": floats become autocast's dtype (products, attention). "float32": halves become float32 (losses, softmax, norms,
sums, and the functions that torch lists). "widest": operands that must have one element become the widest among them.
A page may say `autocast`; otherwise the family does, and kinds of a table that torch treats apart.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import Any

from ..calls.call import Call
from ..core.args import arrays_of, scalars_of
from ..core.memo import memo
from .untyped import torch

FAMILIES = {"gemm": "lower", "attention": "lower", "softmax": "float32", "loss": "float32", "norm": "float32"}
KINDS = dict.fromkeys(  # torch's list for CUDA, by the names of kinds
    ("acos", "asin", "cosh", "cumprod", "cumsum", "erfinv", "exp", "expm1", "l1_norm", "l2_norm", "log", "log10",
     "log1p", "log2", "logsumexp", "p_norm", "pow", "prod", "reciprocal", "rsqrt", "sinh", "softplus", "sum", "tan"),
    "float32",
)  # fmt: skip


def rule_of(plan: Any, kind: Any = None) -> str:
    """The rule of a plan, of one kind of it; "" where autocast leaves operands alone."""
    if any(spec.role == "inout" for spec in arrays_of(plan.args)):
        return ""
    said = getattr(plan, "autocast", "")
    family = str(plan.op).partition(".")[0]
    return said or FAMILIES.get(family) or KINDS.get(str(getattr(kind, "value", kind)), "widest")


def cast_call(call: Call) -> Any:
    """The result of a call, and of what it calls without a further cast."""
    plan, kind = call.entry.plan, call.entry.fixed.get("kind", call.attributes.get("kind"))
    own = {s.name for s in arrays_of(plan.args) if s.element not in _SHARED}
    arrays = _cast_to_rule(rule_of(plan, kind), call.arrays, own)
    with torch._C._DisableAutocast():
        return call.entry.function(**dataclasses.replace(call, arrays=arrays).keywords)


def cast_function(function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """The result of a function written by hand, and of what it calls without a further cast.

    One without a plan, as collectives are, takes its operands as they are.
    """
    if not hasattr(function, "plan"):
        with torch._C._DisableAutocast():
            return function(*args, **given)
    names, own = _parameters(function)
    places = [*zip_longest(names[: len(args)], args, fillvalue=names[-1] if names else "")]
    named = {(name, at): value for at, (name, value) in enumerate((*places, *given.items()))}
    apart = {key for key in named if key[0] in own}
    held = list(_cast_to_rule(rule_of(function.plan, function.fixed.get("kind")), named, apart).values())
    with torch._C._DisableAutocast():
        return function(*held[: len(args)], **dict(zip(given, held[len(args) :], strict=True)))


_SHARED = ("element", "first")  # the elements that operands must have in common


@memo()
def _parameters(function: Any) -> tuple[tuple[str, ...], frozenset[str]]:
    """The names of a function's positional parameters, and those that are cast by no rule: numbers, outputs, and
    operands that have an element of their own."""
    shown = inspect.signature(function).parameters.values()
    names = tuple(p.name for p in shown if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL))
    own = {s.local for s in arrays_of(function.plan.args) if s.element not in _SHARED}
    return names, frozenset({"out", *own, *(s.local for s in scalars_of(function.plan.args))})


def _cast_to_rule(rule: str, named: Mapping[Any, Any], own: Collection[Any]) -> Mapping[Any, Any]:
    """The values by their names, its float tensors in the dtype that a rule asks for, but for those of `own`."""
    grouped = [t for name, value in named.items() if name not in own for t in _floats(value)]
    if not rule or not grouped or not torch.is_autocast_enabled(grouped[0].device.type):
        return named
    if rule == "lower":
        goal = torch.get_autocast_dtype(grouped[0].device.type)
    elif rule == "float32" or len({t.dtype for t in grouped}) > 1:
        goal = torch.float32
    else:
        return named
    return {name: value if name in own else _cast(value, goal) for name, value in named.items()}


def _eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _floats(value: Any) -> list[Any]:
    return [t for t in (value if isinstance(value, (list, tuple)) else (value,)) if _eligible(t)]


def _cast(value: Any, goal: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(one, goal) for one in value])
    return value.to(goal) if _eligible(value) else value
