"""`out_element=` and `out_scale=` of attention: its output as fp8, for the matrix product that follows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...core import ElementKind, InvalidProblemError, UnsupportedError, registry
from ...core.arrays import read
from ...core.checked import shown, truth
from ...core.element import FP8, HALVES
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of
from ...interop.torch_rules import requires_grad
from ..layout.made import new


def asked(out_element: Any, out_scale: Any) -> bool:
    """Whether a call names an element of the output, or a scale."""
    return out_element is not None or type(out_scale) is not float or out_scale != 1.0


def fp8_output(
    attend: Callable[..., Any], operands: tuple[Any, Any, Any], out_element: Any, out_scale: Any, *, heads: int,
    return_lse: Any = False, out: Any = None, stream: Any = None, preference: Any = None, more: int = 0,
) -> Any:  # fmt: skip
    """What attend(return_lse=, out=, stream=, preference=) gives, but y times out_scale as fp8.

    operands: q, k and v. heads: y's axis of them, of which out_scale may have a number each. more: how many results
    there are behind y and lse.
    """
    if out_element is None:
        if not isinstance(out_scale, (int, float)) or out_scale != 1:
            raise InvalidProblemError(f"out_scale goes with an out_element of fp8, got {shown(out_scale)} and none")
        return attend(return_lse=return_lse, out=out, stream=stream, preference=preference)
    kind = _checked(operands, out_element)
    wanted = 1 + truth("return_lse", return_lse) + more
    to, *rest = each_of(out, wanted)
    outs = None
    if rest and out is not None:  # the caller's lse, beside an output of our own
        with beside(operands[0], stream):
            y = new(shape_of(to, "out"), read(operands[0], "q").element, operands[0])
        outs = (y, *rest)
    y, *others = each_of(attend(return_lse=return_lse, out=outs, stream=stream, preference=preference), wanted)
    made = _cast(y, kind, out_scale, heads, {"out": to, "stream": stream, "preference": preference})
    return (made, *others) if others else made


def _checked(operands: tuple[Any, Any, Any], out_element: Any) -> ElementKind:
    """The fp8 of the output; what cannot have one, or asks for its gradient, is refused."""
    kind, own = ElementKind.of(out_element), read(operands[0], "q").element
    if kind not in FP8 or own not in (ElementKind.F32, *HALVES):
        raise UnsupportedError(
            f"out_element must be {FP8[0]} or {FP8[1]}, or None for that of q, and q float16, bfloat16 or float32; got "
            f"{kind} and {own}"
        )
    if requires_grad(operands) and sys.modules["torch"].is_grad_enabled():
        raise UnsupportedError(
            f"an output of {kind} has no gradient, and q, k or v requires grad; give their .detach(), or call under "
            "torch.no_grad()"
        )
    return kind


def _cast(y: Any, kind: ElementKind, out_scale: Any, axis: int, options: dict[str, Any]) -> Any:
    """y times a number, or times one for each entry of an axis, as fp8; attention alone loads no other page."""
    fp8_cast = registry.public("fp8_cast")
    shape = () if isinstance(out_scale, (int, float)) else shape_of(out_scale, "out_scale")
    if not shape:
        return fp8_cast(y, to_element=kind, scale=out_scale, **options)
    of = shape_of(y, "y")
    if shape not in ((1,), (of[axis],)) or read(out_scale, "out_scale").element is not ElementKind.F32:
        raise InvalidProblemError(
            f"out_scale must be a number, or float32 of shape (), (1,) or ({of[axis]},), one for each head, got "
            f"{read(out_scale, 'out_scale').element} of shape {shape}"
        )
    if shape == (1,):
        return fp8_cast(y, to_element=kind, scale=reshaped(out_scale, (), "out_scale"), **options)
    by = registry.public("reciprocal")(out_scale, stream=options["stream"], preference=options["preference"])
    ones = [1] * (len(of) - 1)
    by = reshaped(by, (*ones[:axis], shape[0], *ones[axis:]), "out_scale")
    return registry.public("quantize")(y, by, to_element=kind, **options)
