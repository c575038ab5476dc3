"""The functions of gated activations, of a gate and an up apart or as the halves of one array."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from ...core import Array, UnsupportedError
from ...calls.functional import functional
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.interpreters import recorder
from ...core.outputs import beside, maker
from ...core.ordinals import ordinal
from ...interop.packages import package_name
from ...core.arrays import read
from ...core.registry import public
from ...interop.torch_rules import has_tangent, requires_grad, stands_in, transformed
from ..elementwise.unary_fields import fixed_for
from .gated_activation import GatedActivationPlan
from .gated_activation_backward import GatedActivationBackwardPlan
from .gated_kinds import GatedActivationKind


@exported
def halves(x: Array, order: str = "gate_first", axis: int = -1) -> tuple[Array, Array]:
    """(gate, up): views of the two halves of x along an axis.

    order: "gate_first" as language models pack them (LLaMA's gate_up projection), or "gate_last" as
    torch.nn.functional.glu does, where glu(x) = first · sigmoid(second), or "interleaved", the even and the odd ones,
    as gpt-oss packs them.
    """
    if not isinstance(order, str) or order not in _ORDERS:
        raise InvalidProblemError(f'order must be "gate_first", "gate_last" or "interleaved", got {shown(order)}')
    shape = read(x, "x").shape
    at = whole("axis", axis, -len(shape), len(shape) - 1) % len(shape) if shape else 0
    if not shape or shape[at] % 2:
        which = "last axis" if at == len(shape) - 1 or not shape else f"axis {at}"
        raise InvalidProblemError(f"x must have an even {which} to be split in halves, got shape {shape}")
    lead, middle = (slice(None),) * at, shape[at] // 2
    before, after = (*lead, slice(None, middle)), (*lead, slice(middle, None))
    if order == "interleaved":
        before, after = (*lead, slice(None, None, 2)), (*lead, slice(1, None, 2))
    try:
        first, second = x[before], x[after]
    except Exception as error:
        raise InvalidProblemError(f"x must be an array that can be sliced, got {type(x).__name__}") from error
    return (second, first) if order == "gate_last" else (first, second)


_ORDERS = ("gate_first", "gate_last", "interleaved")
_USUAL = {GatedActivationKind.GLU: "gate_last", GatedActivationKind.SWIGLU_OAI: "interleaved"}
"""The order of halves where none is given, if not the gate first."""


def usual_order(kind: Any, order: str | None) -> str:
    """The order of halves; by default that of torch's glu, of gpt-oss, and of language models for the others."""
    if order is not None:
        return order
    usual = (given for one, given in _USUAL.items() if kind is one or (isinstance(kind, str) and kind == one.value))
    return next(usual, "gate_first")


_HALVES = """

    With `up` left out, `gate` is an array of both, halves along `axis`. order: "gate_first", "gate_last" or
    "interleaved", by default {order}."""


def _shown(made: Callable[..., Any], apart: Callable[..., Any], doc: str, fixed: dict[str, Any]) -> Any:
    """`made` with the name and the parameters of `apart`, but `up` optional, and with `axis` and `order`."""
    parameters = list(inspect.signature(apart).parameters.values())
    optional = [p.replace(default=None) if p.name == "up" else p for p in parameters]
    own = [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=made.__annotations__[n])
        for n, d in (("axis", -1), ("order", None))
    ]
    last = inspect.Parameter("unknown", inspect.Parameter.VAR_KEYWORD)
    made.__name__ = made.__qualname__ = apart.__name__
    full = inspect.Signature([*optional, *own, last], return_annotation=apart.__annotations__["return"])
    made.__signature__ = full  # type: ignore[attr-defined]
    order = usual_order(fixed.get("kind"), None)
    if "kind" not in fixed:
        order = "gate_last of glu, interleaved of swiglu_oai, gate_first of the others"
    made.__doc__ = doc + _HALVES.format(order=order)
    return entry(apart.plan, **fixed)(made)  # type: ignore[attr-defined]


def _refuse_halves(axis: Any, order: Any) -> None:
    if order is not None or type(axis) is not int or axis != -1:
        raise InvalidProblemError("axis and order say how one array is split; with up given there is nothing to split")


def _alone(given: dict[str, Any]) -> bool:
    """Whether autograd alone records a call of an array of both halves, which is there: no trace, no transformation."""
    x = given["gate"]
    return package_name(type(x)) == "torch" and not (stands_in((x,)) or transformed(x) or has_tangent(x))


def _of_halves(name: str, apart: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an array of both halves, whose gradient is one array: views of x each would have one as large as
    x of their own, zeros but for a half, which autograd then adds."""

    def slopes(dy: Array, gate: Array, axis: int, order: str, coefficients: Any, preference: Any = None) -> Any:
        torch = sys.modules["torch"]
        if not (torch.is_grad_enabled() and requires_grad((gate,))):
            back = public(f"{name}_backward")
            return back(dy, gate, axis=axis, order=order, preference=preference, **coefficients)
        # A gradient of the gradient: by the functions of views, whose record torch differentiates.
        y = apart(*halves(gate, order, axis), preference=preference, **coefficients)
        return torch.autograd.grad(y, gate, dy, create_graph=True)[0]

    def packed(
        gate: Array, axis: int, order: str, coefficients: Any, *, out: Any = None, stream: Any = None,
        preference: Any = None,
    ) -> Any:  # fmt: skip
        options = {"out": out, "stream": stream, "preference": preference}
        return apart(*halves(gate, order, axis), **coefficients, **options)

    packed.__name__ = name
    return composed(slopes, "gate", where=_alone)(packed)


_OPTIONS = ("out", "stream", "preference")


def _function(name: str, doc: str, **fixed: Any) -> Any:
    apart = functional(GatedActivationPlan, name, doc, **fixed)
    packed = _of_halves(name, apart)

    def made(gate: Array, up: Any = None, *, axis: int = -1, order: str | None = None, **rest: Any) -> Any:
        if up is not None:
            _refuse_halves(axis, order)
            return apart(gate, up, **rest)
        order = usual_order(fixed.get("kind", rest.get("kind")), order)
        if recorder((gate,)) is None:
            return apart(*halves(gate, order, axis), **rest)
        own = {key: rest.pop(key) for key in _OPTIONS if key in rest}
        return packed(gate, axis, order, rest, **own)

    return _shown(made, apart, doc, fixed)


def _backward_function(name: str, doc: str, **fixed: Any) -> Any:
    apart = functional(GatedActivationBackwardPlan, name, doc, **fixed)

    def made(dy: Array, gate: Array, up: Any = None, *, axis: int = -1, order: str | None = None, **rest: Any) -> Any:
        if up is not None:
            _refuse_halves(axis, order)
            return apart(dy, gate, up, **rest)
        if any(rest.pop(name, True) is not True for name in ("return_dgate", "return_dup")):
            raise InvalidProblemError("both halves of one gradient are written; give gate and up apart to have one")
        out = rest.pop("out", None)
        whole = _like(gate, rest.get("stream")) if out is None else out
        of = usual_order(fixed.get("kind", rest.get("kind")), order)
        apart(dy, *halves(gate, of, axis), out=list(halves(whole, of, axis)), **rest)
        return whole

    return _shown(made, apart, doc, fixed)


def _like(x: Array, stream: Any) -> Array:
    """An empty array of x's package, shape and element, in the order of a stream."""
    if package_name(type(x)) == "jax":
        raise UnsupportedError("halves of a JAX array are no views to write to; give gate and up apart")
    found = read(x, "x")
    with beside(x, stream):
        return maker(x, found.shape, found.element, ordinal(x))()


_OF = "y = act(gate) · up, act that of the kind; see `GatedActivationPlan`."
_BACK = "(dgate, dup), or dx of both halves, of y = act(gate) · up; see `GatedActivationBackwardPlan`."
gated_activation = _function("gated_activation", _OF)
gated_activation_backward = _backward_function("gated_activation_backward", _BACK)

# Two functions for each kind.
globals().update(
    {kind.value: _function(kind.value, _OF, **fixed_for(kind)) for kind in GatedActivationKind}  # type: ignore[arg-type]
    | {
        f"{kind.value}_backward": _backward_function(f"{kind.value}_backward", _BACK, **fixed_for(kind))  # type: ignore[arg-type]
        for kind in GatedActivationKind
    }
)
