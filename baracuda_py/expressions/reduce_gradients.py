"""Gradients of reductions of formulas, by formulas of the elements: two or three calls, of which one has their size.

The gradient of y = kind(v) by an element is that of a formula of v in which the reduced value r (and a count c) stand
still; n is a number. So it is a gradient of the formula's own, with the cotangent of y broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .build import call
from .formula import RESULT, Formula, fresh, output_name
from .nodes import Node, named, substituted
from .parse import parse


@dataclass(frozen=True)
class Surrogate:
    """text: of v, r, c and n, what has the derivative. value: the reduction that r is. count: what c counts."""

    text: str
    value: str = ""
    count: str = ""
    corrected: bool = False

    def formula(self, inner: Formula) -> Formula:
        """The surrogate of the elements of a formula, with r, c and n as its last inputs where it has them."""
        return _placed(self.text, inner)

    def counted(self, inner: Formula) -> Formula:
        """What c counts."""
        return _placed(self.count, inner)


SURROGATES: Mapping[str, Surrogate] = {
    "sum": Surrogate("v"),
    "mean": Surrogate("v / n"),
    "nansum": Surrogate("where(isnan(v), 0, v)"),
    "nanmean": Surrogate("where(isnan(v), 0, v) / c", count="not isnan(v)"),
    "sum_squares": Surrogate("square(v)"),
    "l1_norm": Surrogate("abs(v)"),
    "l2_norm": Surrogate("where(r == 0, 0, square(v) / (2 * r))", "l2_norm"),
    "logsumexp": Surrogate("exp(v - r)", "logsumexp"),
    "amax": Surrogate("where(v == r, v / c, 0)", "amax", "v == r"),
    "amin": Surrogate("where(v == r, v / c, 0)", "amin", "v == r"),
    "var": Surrogate("square(v - r) / n", "mean", corrected=True),
}
"""Kinds with a gradient: ties of extremes share it, and the 2-norm has none at 0, as in PyTorch."""

R, C, N = "r", "c", "n"
"""The further inputs, which are called so, unless a formula's own are."""


def places(inner: Formula) -> Mapping[str, str]:
    """What R, C and N are called beside the inputs of a formula."""
    return {name: fresh(f"{name}_", inner.inputs) for name in (R, C, N)}


def _placed(text: str, inner: Formula) -> Formula:
    parsed, called = parse(text), places(inner)
    given = {named("v"): inner.roots[0], **{named(n): named(own) for n, own in called.items()}}
    (made,) = substituted(parsed.roots, given)
    used = [own for n, own in called.items() if named(n) in parsed.nodes]
    inputs = (*inner.inputs, *used)
    return Formula(inputs, ((output_name(RESULT, inputs), made),), inner.text, inner.spans)


def widened(name: str, element: str) -> Formula:
    """The formula of a reduced value that is not rounded to 16 bits."""
    tree: Node = named(name)
    return Formula((name,), ((output_name(RESULT, (name,)), call(element, (tree,)) if element else tree),))
