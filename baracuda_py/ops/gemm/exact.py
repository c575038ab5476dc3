"""Matrix products of integers and complex numbers: sums of products along rows, in one launch of `vecdot`."""

from __future__ import annotations

from typing import Any

from ...core import ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.views import shape_of
from ..elementwise.binary_numbers import element_of
from .contraction import Options, same_element
from .einsum import product
from .equation import parse, solved


def exact(a: Any, b: Any, plain: bool, out_element: Any, out: Any, stream: Any, preference: Any) -> Any:
    """a @ b with NumPy's shapes, of an element that matrix units do not have; plain: nothing else is asked for."""
    element = same_element("matmul", (element_of(a), element_of(b)))
    if not plain:
        raise UnsupportedError(
            f"matmul of {element} takes no c, alpha and math_precision; write add(mul(c, beta), mul(matmul(a, b), "
            "alpha)), or cast(…, 'float32') the operands"
        )
    left, right = shape_of(a, "a"), shape_of(b, "b")
    if not left or not right:
        raise InvalidProblemError("matmul: a and b must have an axis at least; multiply by a number with mul")
    if left[-1] != right[max(len(right) - 2, 0)]:
        raise InvalidProblemError(f"a and b do not fit: {left} @ {right}")
    rows, columns = "" if len(left) == 1 else "m", "" if len(right) == 1 else "n"
    stacks = ["..." if len(shape) > 2 else "" for shape in (left, right)]
    text = f"{stacks[0]}{rows}k,{stacks[1]}k{columns}->{max(stacks)}{rows}{columns}"
    kind = None if out_element is None else ElementKind.of(out_element)
    options = Options("element", stream, preference, kind)
    return product("matmul", solved(parse(text), (left, right)), (a, b), options, out)
