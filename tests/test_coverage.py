"""The search for problems that launch kernels, and the text that tells whether a result still holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scripts import tool

from baracuda_py.core import registry
from baracuda_py.core.args import scalars_of
from baracuda_py.core.element import ElementKind
from baracuda_py.testing import coverage, fingerprint
from baracuda_py.testing.coverage import KindTarget, Problem, Target, few, search, targets
from baracuda_py.testing.draw import fill, numbers_of
from baracuda_py.testing.operands import Operands, operands
from baracuda_py.testing.telling import results_differ, tells

PLAN = registry.plans()["GlobalNormPlan"]


def test_a_search_finds_the_same_problems_again_and_they_launch_every_kernel() -> None:
    found = search(PLAN)
    assert found == search(PLAN)
    assert not found.missing
    assert frozenset().union(*(p.build().targets for p in found.problems)).issuperset(targets(PLAN))
    assert {t.element.itemsize for t in targets(PLAN)} == {2, 4, 8}


def test_what_no_problem_launches_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "_DRAWS", 50)
    nowhere = Target(PLAN.variants[0].name, "nowhere", ElementKind.F32)
    found = search(PLAN, [*targets(PLAN), nowhere])
    assert found.missing == (nowhere,)
    assert "rare" in tool("emulation_lock").unreached(PLAN, found.missing)


def test_every_kind_of_a_table_is_wanted_in_every_sort_of_element() -> None:
    plan = registry.plans()["BinaryPlan"]
    wanted = [target for target in targets(plan) if isinstance(target, KindTarget)]
    assert {target.kind for target in wanted} == set(plan.kinds)
    of_add = [target.element for target in wanted if target.kind.value == "add"]
    assert sorted(element.dtype.kind for element in of_add) == ["b", "f", "i", "u"]
    found = search(plan, [KindTarget(plan.kinds.ADD_SCALED, ElementKind.U8)])
    (problem,) = found.problems
    assert not found.missing
    assert problem.build().ready.case.arrays["alpha"] not in (0, 1)


def _binary(**changed: Any) -> Operands:
    plan = registry.plans()["BinaryPlan"]
    desc = plan.descriptor(kind="add_scaled", shape=(4, 5), element="float32")
    case = fill(plan, desc, np.random.default_rng(3), kind=desc.kind)
    case = dataclasses.replace(case, omitted=frozenset())
    return operands(dataclasses.replace(case, arrays=case.arrays | changed))


def test_operands_that_hide_an_error_are_told() -> None:
    assert tells(_binary())
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    assert not tells(_binary(a=np.ones((4, 5), np.float32)))
    assert not tells(_binary(a=x, b=x.copy()))
    assert not tells(_binary(b=np.zeros((0, 5), np.float32)))
    left_out = _binary()
    left_out.case.omitted = frozenset({"alpha"})
    assert not tells(left_out)
    without_y = _binary()
    without_y.case.wanted = frozenset()
    assert not tells(without_y)
    assert results_differ(_binary().case)
    assert not results_differ(_binary(a=np.full((4, 5), np.nan, np.float32)).case)


def test_numbers_are_drawn_off_0_and_1_below_0_and_beyond_the_range() -> None:
    plan = registry.plans()["BinaryPlan"]
    alpha, whole = (next(s for s in scalars_of(plan.args) if s.name == name) for name in ("alpha", "whole"))
    drawn = numbers_of(plan, alpha, ElementKind.U8)
    assert min(drawn) < 0 and max(drawn) > 255
    assert min(numbers_of(plan, alpha, ElementKind.F32)) < 0
    assert set(numbers_of(plan, whole, ElementKind.I8)) == {0, -128, 127}


def test_few_problems_launch_what_many_do() -> None:
    a, b, c, d = (Target("row", name, ElementKind.F32) for name in "abcd")
    one, two, three = (Problem(PLAN, ElementKind.F32, None, seed) for seed in range(3))
    assert few({one: frozenset({a}), two: frozenset({a, b}), three: frozenset({c, d, b})}) == (three, one)
    assert few({}) == ()


def test_rare_sizes_are_drawn_by_the_search_alone() -> None:
    def drawn(draw: Callable[..., int]) -> set[int]:
        return {draw(1, 2, rare=(9,)) for _ in range(99)}

    assert drawn(coverage._RareDraw(1, ElementKind.F32).sizes) == {1, 2, 9}
    assert drawn(coverage.SeededDraw(1, ElementKind.F32).sizes) == {1, 2}
    rare, usual = coverage._RareDraw(1, ElementKind.F32), coverage.SeededDraw(1, ElementKind.F32)
    assert {rare.rarely() for _ in range(99)} == {False, True}
    assert not any(usual.rarely() for _ in range(99))


def test_lines_of_the_lock_are_problems() -> None:
    lock = tool("emulation_lock")
    plan = registry.plans()["SoftmaxPlan"]
    problem = Problem(plan, ElementKind.BF16, next(iter(plan.kinds)), 7)
    assert lock.parse(str(problem)) == problem
    assert lock.parse("SoftmaxPlan bfloat16 gone 7") is None
    assert lock.parse("GonePlan bfloat16 - 7") is None
    entries = {str(problem): "k1", "GlobalNormPlan float32 - 3": "k2"}
    assert lock.read(lock.render(entries)) == entries


def test_comments_and_layout_are_in_no_key() -> None:
    code = '#line 1 "a.cu"\nint x = 1;  // one\n/* two\n lines */ float y;\nconst char* s = "//";\n'
    assert fingerprint.kernel_text(code) == fingerprint.kernel_text('int x  = 1;\n\n float y;\nconst char* s = "//";')
    assert fingerprint.kernel_text(code) != fingerprint.kernel_text(code.replace("= 1", "= 2"))
    python = 'def f(x):\n    """Says so."""\n    return x  # itself\n'
    assert fingerprint.python_text(python) == fingerprint.python_text('def f(x):\n    """No."""\n\n    return (x)\n')
    assert fingerprint.python_text(python) != fingerprint.python_text(python.replace("return x", "return -x"))


def test_what_a_function_calls_is_in_its_key() -> None:
    found = fingerprint.functions(registry.plans()["RMSNormPlan"].reference)
    assert "baracuda_py.schedules.norms.range_scale" in found
    assert "frexp" in found
    assert " at 0x" not in found


def test_a_key_depends_on_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tool("emulation_lock")
    launch = Problem(PLAN, ElementKind.F32, None, 3).build()
    before = lock.key(launch)
    assert before == lock.key(Problem(PLAN, ElementKind.F32, None, 3).build())
    flatten = lock.source.flatten
    for added, changes in (("// nothing\n", False), ("int more;\n", True)):
        monkeypatch.setattr(lock.source, "flatten", lambda text, added=added: flatten(text) + added)
        lock._included.cache_clear()
        assert (lock.key(launch) != before) == changes
