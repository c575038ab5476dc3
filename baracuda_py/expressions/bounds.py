"""How far a formula's result may be from the truth.

A formula that only moves, compares and chooses is exact. One rounding, or one function of stored values, has the bound
of that operation. Of anything else no bound in ulp holds, as sums cancel: it is measured against the same formula in
the operands' own types.
"""

from __future__ import annotations

from ..core.element import ElementKind
from ..core.error_bound import ErrorBound, Exact, Relative
from .program import Program, Step


def bound_of(program: Program) -> ErrorBound:
    """The loosest bound of the outputs."""
    bounds = [_output(program, index, element) for index, element in program.outputs]
    return max(bounds, key=lambda bound: bound.looseness)


def _output(program: Program, index: int, element: ElementKind) -> ErrorBound:
    exact = _exact(program)
    root = program.steps[index]
    if exact[index]:
        return Exact()
    once = root.form == "call" and all(exact[i] for i in root.args) and root.element is element
    held = _held(program, element) if once else []
    if once and root.value.bound is not None and all(held[i] for i in root.args):
        return root.value.bound(element)  # type: ignore[no-any-return]
    worst = max((step.value.ulps for step in program.steps if step.form == "call"), default=0.0)
    return Relative(4 + 2 * worst, 2 + worst)


def _exact(program: Program) -> list[bool]:
    """Of each step, whether it has the truth's own value."""
    found: list[bool] = []
    for step in program.steps:
        found.append(_is_exact(step, program) and all(found[i] for i in step.args))
    return found


def _is_exact(step: Step, program: Program) -> bool:
    if step.form == "call":
        return bool(step.value.exact) or not step.element.is_float
    if step.form == "convert":  # of an integer to a float that has fewer digits, or of a number
        source = program.steps[step.args[0]]
        return not step.element.is_float or (not source.uniform and source.element.is_float)
    return step.form != "cast" or program.steps[step.args[0]].form in ("input", "constant", "scalar")


def _held(program: Program, element: ElementKind) -> list[bool]:
    """Of each step, whether its value is one of the element, so that the bound of a table's kind holds."""
    found: list[bool] = []
    for step in program.steps:
        own = step.form in ("input", "cast", "constant")
        made = step.form == "call" and all(found[i] for i in step.args)
        found.append((own or made) and step.element is element)
    return found
