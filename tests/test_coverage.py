"""The search for problems that launch kernels, and the text that tells whether a result still holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripts import tool

from baracuda_py.core import registry
from baracuda_py.core.element import ElementKind
from baracuda_py.testing import coverage, fingerprint
from baracuda_py.testing.coverage import Problem, Target, few, search, targets

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
    monkeypatch.setattr(lock.source, "flatten", lambda text: flatten(text) + "// nothing\n")
    assert lock.key(launch) == before
    monkeypatch.setattr(lock.source, "flatten", lambda text: flatten(text) + "int more;\n")
    assert lock.key(launch) != before
