"""BARACUDA_CHECK is read when a call is made: plans at hand, prepared layouts and functional entries follow it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan
from test_runner import array, call, plan, ref

from baracuda_py.backends.cuda import runner as runner_module
from baracuda_py.calls import call as call_module
from baracuda_py.calls.functional import functional
from baracuda_py.core import PlanPreference
from baracuda_py.core import device as device_module
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.plan import PLANS, Plan
from baracuda_py.jit import launch
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.recording import _RECORDER


class CheckedPlan(AxpyPlan):
    value_policy = "no x is negative"

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        return "x is negative" if (np.asarray(arrays["x"]) < 0).any() else None


PLANS.pop("CheckedPlan")
CheckedPlan.op = "test.checked"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARACUDA_CHECK", raising=False)


class Checked(Exception):
    """A checked kernel was about to be launched."""


@pytest.fixture(autouse=True)
def _stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked kernels need a GPU: their launch stops where its pointers are gathered, which `run` does not do there."""

    def stop(*_: Any) -> None:
        raise Checked

    monkeypatch.setattr(runner_module, "flatten", stop)


def is_checked(act: Callable[[], Any]) -> bool:
    try:
        act()
    except Checked:
        return True
    return False


def switch(on: str | None) -> None:
    if on is None:
        os.environ.pop("BARACUDA_CHECK", None)
    else:
        os.environ["BARACUDA_CHECK"] = on


@pytest.mark.parametrize("held", ["plan", "function", "selected again"])
def test_the_numpy_backend(held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "0")
    chosen, function = (
        CheckedPlan.select(AxpyDescriptor(shape=(2,), element="float32"), device="cpu"),
        functional(CheckedPlan),
    )
    x, y = np.array([1, -1], np.float32), np.zeros(2, np.float32)

    def act() -> None:
        if held == "function":
            function(x)
        else:
            mine = CheckedPlan.select(chosen.desc, device="cpu") if held == "selected again" else chosen
            mine.run(AxpyArgs(x=x, y=y))

    for on in ("0", "1", None, "1", "0"):
        switch(on)
        if on == "1":
            with pytest.raises(InvalidProblemError, match="x is negative; no x is negative"):
                act()
        else:
            act()


@pytest.mark.parametrize("form", ["cupy", "references", "mixed"])
def test_a_plan_in_use(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "0")
    x, y = array(8), array(8)
    args = {
        "cupy": call(x, y),
        "references": AxpyArgs(x=ref(x), y=ref(y)),
        "mixed": AxpyArgs(x=pointer_view(x), y=ref(y)),
    }[form]
    chosen = plan(8)
    with recording() as record:
        done = 0
        for on in (None, "1", "0", "1", "1", None, ""):
            switch(on)
            for _ in range(2):
                done += on != "1"
                assert is_checked(lambda: chosen.run(args)) == (on == "1"), on
        assert len(record.launches) == done


def test_one_plan_serves_both(monkeypatch: pytest.MonkeyPatch) -> None:
    desc = AxpyDescriptor(shape=(2, 3), element="float32")
    plain = AxpyPlan.select(desc, device="cpu")
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    assert AxpyPlan.select(desc, device="cpu") is plain


def test_a_value_that_is_none_is_an_error_until_it_is_mended(monkeypatch: Any) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "0")
    chosen, args = plan(8), call(array(8), array(8))
    with recording() as record:
        chosen.run(args)
        switch("yes")
        for _ in range(2):
            with pytest.raises(InvalidProblemError, match="BARACUDA_CHECK: got 'yes'; it takes 0 or 1"):
                chosen.run(args)
        switch("0")
        chosen.run(args)
    assert len(record.launches) == 2


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ordinal 0 is a device that counts as real, on the recorder; outputs are host memory."""
    device = dataclasses.replace(fake_device(9.0), fake=False, name="H")
    monkeypatch.setattr(launch, "_cuda", lambda: _RECORDER)
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: device)
    monkeypatch.setattr(
        call_module, "maker", lambda like, shape, kind, device, last: lambda: pointer_view(array(*shape))
    )
    used = set(device_module._used)
    with recording():
        yield
    device_module._used.clear()
    device_module._used.update(used)


def test_a_functional_entry_on_the_direct_path(real: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "0")
    axpy, x, y = functional(AxpyPlan), pointer_view(array(4, 4)), pointer_view(array(4, 4))
    learned = 0

    def learn(self: Any, arrays: Any) -> None:
        nonlocal learned
        learned += 1
        original(self, arrays)

    from baracuda_py.backends.cuda.direct import Direct

    original = Direct.learn
    monkeypatch.setattr(Direct, "learn", learn)
    for on in (None, "1", "0", "1", None):
        switch(on)
        for act in (lambda: axpy(x), lambda: axpy(x), lambda: axpy(x, out=y)):
            assert is_checked(act) == (on == "1"), on
    assert 0 < learned <= 2, "the direct path was taken, and is again after the checks"


def test_the_preference_of_the_plan_is_kept() -> None:
    chosen: Plan = AxpyPlan.select(
        AxpyDescriptor(shape=(2,), element="float32"), PlanPreference(deterministic=False), device=fake_device(9.0)
    )
    assert chosen.preference.deterministic is False and not hasattr(chosen, "checked")
