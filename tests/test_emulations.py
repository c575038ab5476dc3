"""What an emulated test's outcome depends on is in its key; what is known is not run, and what fails is not noted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import call_emulated
import emulations
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import AffinePlan, CholeskyPlan, LayerNormPlan, PlanPreference, RMSNormPlan
from baracuda_py.core.plan import Plan
from baracuda_py.core.tensor import TensorRef
from baracuda_py.testing import Operands, emulate, emulated_device, emulating, fill, operands, pointer_view

HERE = sys.modules[__name__]


def problem(
    plan: type[Plan] = RMSNormPlan, cc: float = 9.0, deterministic: bool = False, seed: int = 0, **facts: Any
) -> tuple[Plan, Operands]:
    desc = plan.descriptor(**{"batch_shape": (3,), "normalized_shape": (8,)} | facts, element="float32")
    ready = operands(fill(plan, desc, np.random.default_rng(seed)))
    return plan(desc, PlanPreference(deterministic=deterministic), emulated_device(cc)), ready


def changed(how: str) -> tuple[Plan, Operands]:
    plan, ready = problem()
    if how == "a byte of an operand":
        ready.laid["x"].before[ready.laid["x"].start] ^= 1
    elif how == "the text of the kernel":
        plan.rows = tuple(replace(row, prelude=lambda element, kind: "// a\n#define ANOTHER 1\n") for row in plan.rows)
    elif how == "the bound":
        bound = replace(plan.rows[0].guarantee, error=bc.core.Relative(3))
        plan.rows = tuple(replace(row, guarantee=bound) for row in plan.rows)
    elif how == "the grid":
        plan.rows = tuple(replace(row, geometry=blocks(row.geometry)) for row in plan.rows)
    return plan, ready


def blocks(geometry: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One more block of every step."""

    def more(p: Any) -> Any:
        made = geometry(p)
        return made if isinstance(made, str) else replace(made, steps=tuple(larger(step) for step in made.steps))

    def larger(step: Any) -> Any:
        return replace(step, grid=(step.grid[0] + 1, *step.grid[1:]))

    return more


def key_of(plan: Plan, ready: Operands) -> str:
    made, why = emulations.key(lambda: emulate(plan, ready), HERE)
    assert made, why
    return made


def test_equal_emulations_have_one_key() -> None:
    assert key_of(*problem()) == key_of(*problem()) == key_of(*changed("nothing"))


@pytest.mark.parametrize("how", ["a byte of an operand", "the text of the kernel", "the bound", "the grid"])
def test_each_thing_is_in_the_key(how: str) -> None:
    assert key_of(*changed(how)) != key_of(*problem())


def test_numbers_are_in_the_key() -> None:
    def scaled(alpha: float) -> str:
        desc = AffinePlan.descriptor(shape=(5,), element="float32")
        case = fill(AffinePlan, desc, np.random.default_rng(0))
        case.arrays["alpha"] = alpha
        return key_of(AffinePlan(desc, PlanPreference(), emulated_device(9.0)), operands(case))

    assert scaled(0.5) == scaled(0.5) != scaled(0.25)


def test_problems_devices_and_preferences_are_in_the_key() -> None:
    made = [problem(), problem(seed=1), problem(batch_shape=(4,)), problem(cc=8.0), problem(deterministic=True)]
    made += [problem(LayerNormPlan)]
    assert len({key_of(*one) for one in made}) == len(made)


def test_references_the_emulator_and_the_test_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key_of(*problem())}
    for name in ("_reference", "_checks"):
        with monkeypatch.context() as patch:
            patch.setattr(emulations._locks(), name, lambda *given: "another")
            keys.add(key_of(*problem()))
    monkeypatch.setattr(emulations, "_text", lambda module: "another")
    assert len(keys | {key_of(*problem())}) == 4


def test_the_text_of_a_test_is_that_of_what_it_imports_too() -> None:
    module = ModuleType("a_test")
    module.call = call_emulated.call  # type: ignore[attr-defined]
    assert call_emulated in emulations._helpers(module)
    assert HERE in emulations._helpers(HERE)


def rms(x: np.ndarray, view: Callable[[np.ndarray], Any]) -> np.ndarray:
    """By the emulator."""
    y = np.full_like(x, 77)
    desc = RMSNormPlan.descriptor(batch_shape=x.shape[:-1], normalized_shape=x.shape[-1:], element="float32")
    with emulating(1):
        RMSNormPlan.select(desc, device=emulated_device(9.0)).run(RMSNormPlan.args(x=view(x), y=view(y)))
    return y


def reference(x: np.ndarray) -> TensorRef:
    return TensorRef(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), "float32")


@pytest.mark.parametrize("view", [pointer_view, reference])
def test_a_dry_run_launches_nothing_and_has_the_results_of_numpy(view: Callable[[np.ndarray], Any]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)[:, ::-2]
    with emulations.dry() as noted:
        y = rms(x, view)
    assert (noted.launches, noted.opaque) == (1, "")
    np.testing.assert_array_equal(y, bc.rms_norm(x, normalized_shape=(12,)))


def test_after_a_dry_run_kernels_run(emulation: None) -> None:
    """Plans keep what they launch by."""
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    with emulations.dry():
        rms(x, pointer_view)
    y = rms(x, pointer_view)
    np.testing.assert_allclose(y, bc.rms_norm(x, normalized_shape=(40,)), rtol=1e-5)


def test_what_fails_or_is_launched_past_a_plan_has_no_key() -> None:
    def wrong() -> None:
        assert rms(np.ones((1, 8), np.float32), pointer_view)[0, 0] == 2

    def past() -> None:
        x = np.ones((1, 8), np.float32)
        desc = RMSNormPlan.descriptor(batch_shape=(1,), normalized_shape=(8,), element="float32")
        with emulating(1):
            plan = RMSNormPlan.select(desc, device=emulated_device(9.0))
            plan.runner.run(RMSNormPlan.args(x=pointer_view(x), y=pointer_view(x)), None, None)

    assert emulations.key(wrong, HERE)[0] == ""
    assert "no plan's run" in emulations.key(past, HERE)[1]
    assert emulations.key(lambda: None, HERE) == ("", "")


def test_a_library_is_noted_and_not_called() -> None:
    def solve(scale: float, inplace: bool = False) -> Callable[[], None]:
        def test() -> None:
            a = (np.eye(70) * scale).astype(np.float32)
            y = a if inplace else np.zeros_like(a)
            desc = CholeskyPlan.descriptor(n=70, element="float32")
            with emulating(1):
                chosen = CholeskyPlan.select(desc, device=emulated_device(9.0))
                chosen.run(CholeskyPlan.args(a=pointer_view(a), y=pointer_view(y)))

        return test

    keys = [emulations.key(solve(*given), HERE) for given in ((1.0,), (1.0,), (2.0,), (1.0, True))]
    assert all(made for made, _ in keys), keys
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@cache
def kept() -> list[int]:
    return []


def test_what_a_test_keeps_is_not_for_dry_runs() -> None:
    def test() -> None:
        assert not kept()
        kept().append(1)
        rms(np.ones((1, 8), np.float32), pointer_view)

    kept().append(0)
    made, why = emulations.key(test, HERE)
    assert made, why
    assert kept() == [0]


class Item(SimpleNamespace):
    """A test as pytest has it."""

    def __init__(self, test: Callable[..., None], **given: Any) -> None:
        names = SimpleNamespace(argnames=tuple(given), name2fixturedefs={})
        super().__init__(
            nodeid="a", obj=test, funcargs=given, fixturenames=list(given), _fixtureinfo=names, module=HERE
        )


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where keys go; nothing is known yet, and no sample is taken."""
    monkeypatch.setattr(emulations, "written", [tmp_path / "passed"])
    monkeypatch.setattr(emulations, "SAMPLE", 0)
    monkeypatch.setattr(emulations, "known", dict)
    return tmp_path / "passed"


def test_what_is_known_is_not_run(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []

    def test(x: float = 1) -> None:
        rms(np.full((1, 8), x, np.float32), pointer_view)
        ran.append(emulations.emulator.run_kernel.__module__ != emulations.__name__)

    monkeypatch.setattr(emulations.emulator, "translated", lambda *given: None)
    monkeypatch.setattr(emulations.emulator, "run_kernel", print)
    assert emulations.run(Item(test))
    assert ran == [False, True]
    lock = emulations._read(notes)
    monkeypatch.setattr(emulations, "known", lambda: lock)
    assert emulations.run(Item(test))
    assert ran == [False, True, False]
    assert emulations.run(Item(lambda: test(2)))
    assert ran == [False, True, False, False, True]
    monkeypatch.setattr(emulations, "SAMPLE", 1)
    assert emulations.run(Item(test))
    assert ran[-2:] == [False, True]


def test_what_is_not_in_the_lock_or_has_fixtures_of_its_own_runs_as_any_other(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert emulations.run(Item(lambda tmp_path: None, tmp_path=1)) is None
    monkeypatch.setattr(emulations, "written", [])
    assert emulations.run(Item(lambda: None)) is None


def test_what_fails_is_not_noted(notes: Path) -> None:
    def test() -> None:
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        emulations.run(Item(test))
    assert not notes.exists()


def test_keys_are_put_beside_others(
    notes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = notes.with_name("lock")
    monkeypatch.setattr(emulations, "LOCK", lock)
    monkeypatch.setattr(emulations, "known", lambda: {"b": "1", "c": "2"})
    monkeypatch.setattr(sys, "argv", ["emulations.py", str(notes)])
    notes.write_text("a 3\n# d: no words\nb 4\n")
    emulations.main()
    assert lock.read_text() == "a 3\nb 4\nc 2\n"
    assert "d: no words" in capsys.readouterr().out
