"""Lists of tensors in one launch: sums, products, interpolation, norms, clipping, unscaling."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...calls.exported import exported
from ...core import Array
from ...core.checked import real, shown
from ...core.errors import InvalidProblemError
from ...core.memo import memo
from ...core.outputs import beside
from ...expressions.elementwise import elementwise
from ...expressions.update import UpdateRule, optimizer
from ..layout.creation import empty_like
from .global_norm import global_norm

Arrays = Sequence[Array]


@exported
def foreach_add(
    x: Arrays, y: Any, *, alpha: Any = 1.0, out: Any = None, stream: Any = None, preference: Any = None
) -> list[Array]:
    """x[i] + alpha · y[i] for lists of arrays (torch._foreach_add); y may be a number, too. out may be x, in place."""
    return _mapped("z = x + alpha * y", x, {"y": y}, {"alpha": alpha}, out, stream, preference)


@exported
def foreach_mul(x: Arrays, y: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> list[Array]:
    """x[i] · y[i] for lists of arrays (torch._foreach_mul).

    y may be a number, or a list of 0-d arrays, one for each array of x. out may be x, in place.
    """
    return _mapped("z = x * y", x, {"y": y}, {}, out, stream, preference)


@exported
def foreach_axpby(
    x: Arrays, y: Arrays, alpha: Any = 1.0, beta: Any = 1.0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> list[Array]:  # fmt: skip
    """alpha · x[i] + beta · y[i] for lists of arrays (apex's multi_tensor_axpby). out may be x or y, in place."""
    return _mapped("z = alpha * x + beta * y", x, {"y": y}, {"alpha": alpha, "beta": beta}, out, stream, preference)


@exported
def foreach_lerp(
    x: Arrays, y: Arrays, weight: Any, *, out: Any = None, stream: Any = None, preference: Any = None
) -> list[Array]:
    """x[i] + weight · (y[i] - x[i]) for lists of arrays (torch._foreach_lerp): averages of weights. out may be x."""
    return _mapped("z = x + weight * (y - x)", x, {"y": y}, {"weight": weight}, out, stream, preference)


@exported
def foreach_norm(x: Arrays, *, stream: Any = None, preference: Any = None) -> list[Array]:
    """The 2-norm of each array, 0-d in float32 (float64 of float64) (torch._foreach_norm). Two launches an array."""
    return [global_norm([one], stream=stream, preference=preference) for one in _listed("x", x)]


@exported
def clip_grad_value_(grads: Arrays, clip_value: float, *, stream: Any = None, preference: Any = None) -> list[Array]:
    """Cut gradients to [-clip_value, clip_value], in place (torch.nn.utils.clip_grad_value_). NaN stays NaN."""
    most = real("clip_value", clip_value)
    if not most >= 0:
        raise InvalidProblemError(f"clip_value must be at least 0, got {shown(clip_value)}")
    made = _listed("grads", grads)
    if made:
        _rule("x = clamp(x, -most, most)")(x=made, most=most, stream=stream, preference=preference)
    return made


@exported
def clip_grad_norm_(grads: Arrays, max_norm: Any, *, stream: Any = None, preference: Any = None) -> Array:
    """Scale gradients of one element so that their norm, as one vector, is at most max_norm, in place; gives the norm.

    torch.nn.utils.clip_grad_norm_: the factor is min(1, max_norm / (norm + 1e-6)), which stays on the device. An
    optimizer's `grad_scale` takes the factor of `global_norm` instead, and nothing is written.
    """
    where = {"stream": stream, "preference": preference}
    made = _listed("grads", grads)
    found, factor = global_norm(made, max_norm=max_norm, return_clip_factor=True, **where)
    if made:
        _rule("x = x * factor")(x=made, factor=factor, **where)
    return found


@exported
def unscale_(grads: Arrays, scale: Any, *, stream: Any = None, preference: Any = None) -> Array:
    """Divide gradients of one element by a loss scale, in place; gives found_inf: 1.0 beside NaN or infinity, else 0.0.

    As torch's GradScaler does (torch._amp_foreach_non_finite_check_and_unscale_, which takes 1 / scale): found_inf goes
    to an optimizer's `found_inf`, which then writes nothing. scale: a number or a 0-d array.
    """
    where = {"stream": stream, "preference": preference}
    made = _listed("grads", grads)
    found = _NOT_FINITE(global_norm(made, **where), **where)
    if made:
        _rule("x = x / scale")(x=made, scale=scale, **where)
    return found


_NOT_FINITE = elementwise("float32(not isfinite(x))")


@memo()
def _rule(text: str) -> UpdateRule:
    return optimizer(text)


def _listed(name: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidProblemError(f"{name} must be a list of arrays, got {shown(value)}")
    return list(value)


def _mapped(text: str, x: Arrays, lists: dict[str, Any], numbers: dict[str, Any], out: Any, stream: Any,
            preference: Any) -> list[Array]:  # fmt: skip
    """A formula of lists, written to z."""
    x = _listed("x", x)
    for name, one in lists.items():
        if isinstance(one, (list, tuple)) and len(one) != len(x):
            raise InvalidProblemError(f"{name} has {len(one)} arrays and x {len(x)}; lists go together place by place")
    if not x:
        return []
    if out is None:
        with beside(x[0], stream):
            out = [empty_like(one) for one in x]
    elif not isinstance(out, (list, tuple)) or len(out) != len(x):
        raise InvalidProblemError(f"out must be a list of {len(x)} arrays, got {shown(out)}")
    held = {n: list(one) if isinstance(one, (list, tuple)) else one for n, one in {"x": x, **lists}.items()}
    same = next((n for n, one in held.items() if isinstance(one, list) and all(map(operator.is_, one, out))), None)
    written = {} if same else {"z": list(out)}
    _rule(text.replace("z =", f"{same or 'z'} =", 1))(
        **held, **written, **numbers, stream=stream, preference=preference
    )
    return list(out)
