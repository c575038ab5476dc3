"""What users put in messages, futures and caches pickles and copies: plans, descriptors, SKUs, promises, verdicts."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import dataclasses
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import TensorRef, errors, registry
from baracuda_py.core.device import CPU, fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import SeededDraw
from baracuda_py.testing.checks import combinations

COPIES: dict[str, Callable[[Any], Any]] = {
    **{f"protocol {n}": lambda v, n=n: pickle.loads(pickle.dumps(v, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
DESC = bc.RMSNormDescriptor(batch_shape=(2, 3), normalized_shape=(8,), element="bfloat16")
ERRORS = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.BaracudaError)]


def descriptors(plan: type[Plan]) -> Any:
    kind, element = combinations(plan)[0]
    for seed in range(20):
        with contextlib.suppress(errors.BaracudaError):
            return plan.case(SeededDraw(seed, element, kind))
    raise AssertionError(f"no case of {plan.__name__}")


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("device", ["cpu", CPU, fake_device(9.0), fake_device(8.0, ordinal=1)], ids=str)
def test_a_plan_is_the_plan_that_was_selected(how: str, device: Any) -> None:
    preference = bc.PlanPreference(deterministic=False)
    for chosen in (bc.RMSNormPlan.select(DESC, device=device), bc.RMSNormPlan.select(DESC, preference, device=device)):
        twin = COPIES[how](chosen)
        assert twin is chosen, "found in the cache of plans"
        assert COPIES[how]([chosen, {"a": chosen}])[0] is chosen


def test_every_plan_and_what_it_says() -> None:
    for plan in registry.plans().values():
        desc = descriptors(plan)
        chosen = plan.select(desc, device="cpu")
        for value in (chosen.desc, chosen.preference, chosen.device, chosen.sku, chosen.precision_guarantee):
            for how in COPIES.values():
                twin = how(value)
                assert twin == value and hash(twin) == hash(value), (plan, value)
        assert pickle.loads(pickle.dumps(chosen)) is chosen
        assert pickle.loads(pickle.dumps((plan, plan.args, plan.descriptor))) == (plan, plan.args, plan.descriptor)


@pytest.mark.parametrize("how", COPIES)
def test_operands_and_verdicts(how: str) -> None:
    chosen = bc.RMSNormPlan.select(DESC, device="cpu")
    x = np.ones((2, 3, 8), DESC.element.dtype)
    args = bc.RMSNormArgs(x=x, y=np.zeros_like(x))
    twin = COPIES[how](args)
    assert type(twin) is type(args) and (twin.x == args.x).all() and twin.weight is None
    chosen.run(twin)
    verdicts = [chosen.can_implement(args), chosen.can_implement(bc.RMSNormArgs(x=x[0], y=x))]
    for verdict, same in zip(verdicts, COPIES[how](verdicts), strict=True):
        assert bool(same) == bool(verdict) and same.sku == verdict.sku and same.reason == verdict.reason
        assert type(same.error) is type(verdict.error)
    for ref in (TensorRef(64, (2, 3), None, "float16"), TensorRef(0, (), None, "int64", 8, -1)):
        assert COPIES[how](ref) == ref
    for kind in ElementKind:
        assert COPIES[how](kind) is kind


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error(cls: type[errors.BaracudaError], how: str) -> None:
    """Those with a constructor of their own, too; notes and facts come along."""
    given: dict[str, tuple[Any, ...]] = {
        "WorkspaceTooSmallError": (512, 256),
        "BufferTooSmallError": (64, 32, "x"),
        "UnsupportedError": ("message", "row: why"),
        "CompileError": ("message", "the log", __file__),
    }
    error = cls(*given.get(cls.__name__, ("message",)))
    error.__dict__["fact"] = 3
    twin = COPIES[how](error)
    assert type(twin) is cls and str(twin) == str(error) and twin.args == error.args and vars(twin) == vars(error)


def in_worker(chosen: Plan, x: Any) -> Any:
    y = np.zeros_like(x)
    chosen(x=x, y=y)
    return y, chosen.sku, chosen


def test_a_plan_goes_to_a_worker_process_and_back() -> None:
    chosen = bc.RMSNormPlan.select(
        bc.RMSNormDescriptor(batch_shape=(2, 3), normalized_shape=(8,), element="float32"), device="cpu"
    )
    x = np.arange(48, dtype=np.float32).reshape(2, 3, 8)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        y, sku, back = pool.submit(in_worker, chosen, x).result(60)
    x64 = x.astype(np.float64)
    np.testing.assert_allclose(y, x64 / np.sqrt(np.mean(x64 * x64, -1, keepdims=True) + DESC.eps), rtol=1e-6)
    assert sku == chosen.sku and back is chosen


def test_a_plan_of_a_gpu_that_is_not_here_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_py.core import device as module

    real = dataclasses.replace(fake_device(9.0, ordinal=3), fake=False)
    data = pickle.dumps(bc.RMSNormPlan(DESC, bc.PlanPreference(), real))
    monkeypatch.setattr(module, "driver_device_count", lambda: 0)
    with pytest.raises(errors.DeviceMismatchError, match="the driver reports none"):
        pickle.loads(data)
    monkeypatch.setattr(module, "driver_device_count", lambda: 2)
    with pytest.raises(errors.DeviceMismatchError, match="cuda:3 was asked for; this machine has cuda:0"):
        pickle.loads(data)
    module._used.discard(False)
