"""Formulas that nobody wrote: random trees of every function, kernels and reference compared, whatever operands are
called."""

from __future__ import annotations

import random
import re

import pytest
from fuzz_values import NAMES

import baracuda_py as bc
from baracuda_py.expressions.functions import functions
from baracuda_py.expressions.parse import parse
from baracuda_py.testing import SeededDraw, emulated
from baracuda_py.testing.checks import check_layouts
from baracuda_py.testing.launches import check_launches

# Whole results or poles that a rounding moves; the bits of one step say nothing of the next.
OUT = ("tan", "ldexp", "lcm", "gcd", "deg2rad", "logit", "lgamma", "digamma", "polygamma")


def tree(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(("x", "y", "z", "x", "alpha", "n", "0.5", "2", "-1.5"))
    function = rng.choice([f for f in functions().values() if f.name not in OUT])
    return f"{function.name}({', '.join(tree(rng, depth - 1) for _ in range(function.least))})"


PLAIN = ("x", "y", "z", "alpha", "n")


def problem(seed: int, names: tuple[str, ...] = PLAIN) -> tuple[bc.Expression, type[bc.Plan], object]:
    """A formula that has a meaning for some elements, with its plan and those elements; `names` stand for `PLAIN`."""
    rng, called = random.Random(seed), dict(zip(PLAIN, names, strict=True))
    while True:
        try:
            text = re.sub(r"\b(x|y|z|alpha|n)\b", lambda found: called[found[0]], tree(rng, rng.choice((2, 3))))
            f = bc.elementwise(text)
            numbers = ((called["alpha"], float), (called["n"], int))
            plan = f.plan(**{n: kind for n, kind in numbers if n in f.inputs})
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


@pytest.mark.parametrize("seed", range(40))
def test_what_operands_are_called_changes_nothing(seed: int) -> None:
    """The same trees with other names: none loses its meaning, and results are those of the plain names."""
    names = tuple(random.Random(seed).sample(NAMES, len(PLAIN)))
    plain, _, _ = problem(seed)
    f, plan, kind = problem(seed, names)
    called = dict(zip(PLAIN, names, strict=True))
    assert f.inputs == tuple(called[name] for name in plain.inputs)
    check_layouts(plan, SeededDraw(seed, kind.elements[0], kind))  # type: ignore[attr-defined]
    check_launches(plan, SeededDraw(seed, kind.elements[0], kind))  # type: ignore[attr-defined]
    assert parse(f.text).roots == f.formula.roots


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("seed", range(4))
def test_kernels_take_any_names(seed: int) -> None:
    names = tuple(random.Random(seed).sample(NAMES, len(PLAIN)))
    _, plan, kind = problem(200 + seed, names)
    emulated(plan, SeededDraw(seed, kind.elements[0], kind))  # type: ignore[attr-defined]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("seed", range(8))
def test_kernels_of_random_formulas_compute_them(seed: int) -> None:
    _, plan, kind = problem(100 + seed)
    emulated(plan, SeededDraw(seed, kind.elements[0], kind))  # type: ignore[attr-defined]
