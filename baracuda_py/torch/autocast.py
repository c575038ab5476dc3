"""What torch.autocast does to the operands of a call, by the rule of its op.

"lower": floats become autocast's dtype (products, attention). "float32": halves become float32 (losses, softmax, norms,
sums, and the functions that torch lists). "widest": operands that must have one element become the widest among them.
A page may say `autocast`; otherwise the family does, and kinds of a table that torch treats apart.
"""

from __future__ import annotations

import inspect
from itertools import zip_longest
from typing import Any

from ..core.args import arrays_of
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
    if not isinstance(plan, type):  # a formula
        return "widest"
    if any(spec.role == "inout" for spec in arrays_of(plan.args)):  # type: ignore[attr-defined]
        return ""
    said = getattr(plan, "autocast", "")
    family = str(plan.op).partition(".")[0]  # type: ignore[attr-defined]
    return said or FAMILIES.get(family) or KINDS.get(getattr(kind, "value", ""), "widest")


@memo()
def _parameters(function: Any) -> tuple[tuple[str, ...], frozenset[str]]:
    """The names of a function's positional parameters, and those whose operands have an element of their own."""
    shown = inspect.signature(function).parameters.values()
    names = tuple(p.name for p in shown if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL))
    plan = function.plan
    specs = arrays_of(plan.args) if isinstance(plan, type) else ()  # type: ignore[attr-defined]
    return names, frozenset(s.name for s in specs if s.element not in ("element", "first"))


def cast_operands(
    function: Any, args: tuple[Any, ...], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments with its float tensors in the dtype that the op's rule asks for."""
    rule = rule_of(function.plan, getattr(function, "fixed", {}).get("kind"))
    names, own = _parameters(function)
    named = [*zip_longest(names[: len(args)], args, fillvalue=names[-1]), *given.items()]
    grouped = [t for n, v in named if n not in own and n != "out" for t in _floats(v)]
    if not rule or not grouped or not torch.is_autocast_enabled(grouped[0].device.type):
        return args, given
    if rule == "lower":
        goal = torch.get_autocast_dtype(grouped[0].device.type)
    elif rule == "float32" or len({t.dtype for t in grouped}) > 1:
        goal = torch.float32
    else:
        return args, given
    held = [v if n in own or n == "out" else _cast(v, goal) for n, v in named]
    return tuple(held[: len(args)]), dict(zip(given, held[len(args) :], strict=True))


def _eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _floats(value: Any) -> list[Any]:
    return [t for t in (value if isinstance(value, (list, tuple)) else (value,)) if _eligible(t)]


def _cast(value: Any, goal: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(one, goal) for one in value])
    return value.to(goal) if _eligible(value) else value
