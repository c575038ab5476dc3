"""`exercise` of an op, or of a formula: every check, on whatever device there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.checked import shown
from ..core.device import driver_device_count
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.plan import Plan
from ..expressions.elementwise import Expression
from .checks import CHECKS, Check
from .checks import exercise as exercise_plan
from .emulated import emulated
from .emulator import missing
from .gpu import GPU_CHECKS
from .gradients import check_gradients


def exercise(
    op: type[Plan] | Expression, check: Check | None = None, examples: int | None = None,
    elements: tuple[ElementKind, ...] | None = None, seeded: bool = True, roles: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Run a check on a seeded problem per (kind, element), then on `examples` that hypothesis draws and shrinks.

    Without a check: all of them, and of a formula those of its gradient too, on the NumPy backend, and on the GPU, or
    on the emulator where there is none. Inputs of a formula are arrays but those that have a default, or are in
    `roles`: `exercise(f, roles={"alpha": float})`. Raises AssertionError with the problem that failed.
    """
    if not isinstance(op, Expression) and not (isinstance(op, type) and issubclass(op, Plan)):
        raise InvalidProblemError(f"op must be a Plan class or a formula, got {shown(op)}")
    if check is not None and not callable(check):
        raise InvalidProblemError(f"check must be a function of a plan and a draw, got {shown(check)}")
    if isinstance(op, Expression):
        plan = op.plan(**(roles or {}))
        linked = plan.vjp if op.differentiable else None
        for one in (plan,) if linked is None else (plan, linked.plan):
            exercise_plan_with(one, check, 4 if examples is None else examples, elements, seeded, op.smooth)
    else:
        exercise_plan_with(op, check, 12 if examples is None else examples, elements, seeded, True)


def exercise_plan_with(
    plan: type[Plan], check: Check | None, examples: int, elements: tuple[ElementKind, ...] | None, seeded: bool,
    smooth: bool,
) -> None:  # fmt: skip
    """One check, or all that apply; differences say nothing of the gradient of a function that is not `smooth`."""
    if check is not None:
        return exercise_plan(plan, check, examples, elements, seeded)
    for one in CHECKS:
        if getattr(one, "applies", lambda plan: True)(plan) and (smooth or one is not check_gradients):
            exercise_plan(plan, one, examples, elements, seeded)
    if driver_device_count():
        for one in GPU_CHECKS:
            exercise_plan(plan, one, getattr(one, "examples", 0), elements, seeded)
    elif missing() is None:
        exercise_plan(plan, emulated, examples, elements, seeded=False)
    return None
