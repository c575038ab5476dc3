"""Formulas that nobody wrote: random trees of every function, kernels and reference compared."""

from __future__ import annotations

import random

import pytest

import baracuda_py as bc
from baracuda_py.expressions.functions import functions
from baracuda_py.expressions.parse import parse
from baracuda_py.testing import SeededDraw, emulated
from baracuda_py.testing.checks import check_layouts

# Whole results or poles that a rounding moves; the bits of one step say nothing of the next.
OUT = ("tan", "ldexp", "lcm", "gcd", "deg2rad", "logit", "lgamma", "digamma", "polygamma")


def tree(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(("x", "y", "z", "x", "alpha", "n", "0.5", "2", "-1.5"))
    function = rng.choice([f for f in functions().values() if f.name not in OUT])
    return f"{function.name}({', '.join(tree(rng, depth - 1) for _ in range(function.least))})"


def problem(seed: int) -> tuple[bc.Expression, type[bc.Plan], object]:
    """A formula that has a meaning for some elements, with its plan and those elements."""
    rng = random.Random(seed)
    while True:
        try:
            f = bc.elementwise(tree(rng, rng.choice((2, 3))))
            plan = f.plan(**{n: kind for n, kind in (("alpha", float), ("n", int)) if n in f.inputs})
            kind = rng.choice(plan.kinds.found)
            plan.shape.program(kind)
        except (bc.ExpressionError, IndexError):
            continue
        if plan.shape.arrays:
            return f, plan, kind


@pytest.mark.parametrize("seed", range(40))
def test_random_formulas_have_a_reference_and_a_text(seed: int) -> None:
    f, plan, kind = problem(seed)
    check_layouts(plan, SeededDraw(seed, kind.elements[0], kind))  # type: ignore[attr-defined]
    assert parse(f.text).roots == f.formula.roots


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("seed", range(8))
def test_kernels_of_random_formulas_compute_them(seed: int) -> None:
    _, plan, kind = problem(100 + seed)
    emulated(plan, SeededDraw(seed, kind.elements[0], kind))  # type: ignore[attr-defined]
