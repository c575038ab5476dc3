"""Plans: the cache, what a plan says of itself, and the NumPy backend behind it."""

from __future__ import annotations

import dataclasses
import gc
import logging
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan, UpdateArgs, UpdateDescriptor, UpdatePlan

from baracuda_py.core import (
    ArchSku,
    BackendKind,
    Chained,
    ElementKind,
    Exact,
    Forward,
    Plan,
    PlanPreference,
    Relative,
    Ulp,
    registry,
)
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.sku import PrecisionGuarantee
from baracuda_py.core.spec import numpy_row

DESC = AxpyDescriptor(shape=(2, 3), element="float32")
H = fake_device(9.0)


def test_equal_requests_are_one_plan() -> None:
    twin = AxpyDescriptor(shape=[2, 3], element=np.float32)
    assert AxpyPlan.select(DESC, device="cpu") is AxpyPlan.select(twin, PlanPreference(), device="cpu")
    assert AxpyPlan.select(DESC, device=H) is AxpyPlan.select(twin, device=fake_device(9.0))
    different = [
        AxpyPlan.select(DESC, device=fake_device(8.0)),
        AxpyPlan.select(DESC, device=fake_device(9.0, ordinal=1)),
        AxpyPlan.select(DESC, PlanPreference(deterministic=False), device=H),
        AxpyPlan.select(dataclasses.replace(DESC, element="float64"), device=H),
    ]
    assert len({id(p) for p in [*different, AxpyPlan.select(DESC, device=H)]}) == 5


def test_a_descriptor_of_another_op_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="AxpyPlan takes AxpyDescriptor, got UpdateDescriptor"):
        AxpyPlan.select(UpdateDescriptor(shapes=(), element="float32"), device="cpu")


def test_a_plan_says_what_it_is() -> None:
    plan = AxpyPlan.select(DESC, device=H)
    assert str(plan.sku) == "test.axpy/dense/float32.float32/contiguous/sm80/bespoke"
    assert (plan.sku.arch, plan.sku.backend, plan.sku.element) == (ArchSku.SM80, BackendKind.BESPOKE, ElementKind.F32)
    assert plan.precision_guarantee.error == Ulp(3)  # the weakest row this plan may take
    assert plan.sku.precision_guarantee.error == Ulp(1)
    assert plan.precision_guarantee.deterministic
    assert not AxpyPlan.select(DESC, PlanPreference(deterministic=False), device=H).precision_guarantee.deterministic
    table = plan.explain()
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["hopper", "atomic", "dense", "strided", "numpy"]
    assert "taken" in table and "would do" in table and "not deterministic" in table and "does not run on cuda" in table
    assert "AxpyPlan" in repr(plan)


def test_the_weakest_promise_is_the_loosest_of_each_field() -> None:
    a = PrecisionGuarantee("float32", "float32", True, True, True, True, Exact())
    b = PrecisionGuarantee("float16", "float16", True, False, False, True, Relative(2))
    weak = a.weakest(b)
    assert weak == b.weakest(a) and (weak.deterministic, weak.batch_invariant, weak.error) == (
        False,
        False,
        Relative(2),
    )
    order = [Exact(True), Exact(), Ulp(0.5), Ulp(2), Forward(4), Relative(2), Chained(2)]
    assert sorted(order, key=lambda e: e.looseness) == order


def test_the_numpy_plan() -> None:
    plan = AxpyPlan.select(DESC, device="cpu")
    assert str(plan.sku) == "test.axpy/numpy/float32.float32/strided/any/numpy" and plan.workspace_size() == 0
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    plan.prepare(AxpyArgs(x=x, y=y))
    assert not y.any()
    launch = plan.bind(AxpyArgs(x=x, y=y, alpha=3.0))
    launch()
    x += 1
    launch()
    assert (y == 6).all()
    plan(x=x, y=y, alpha=1.0)
    assert (y == 2).all()


def test_bad_values_are_told_under_check(monkeypatch: pytest.MonkeyPatch) -> None:
    class CheckedPlan(AxpyPlan):
        op = ""
        value_policy = "negative values are an error"

        @classmethod
        def check_values(cls, desc: Any, arrays: Any) -> str | None:
            return "x holds a negative value" if (arrays["x"] < 0).any() else None

    args = AxpyArgs(x=np.full((2, 3), -1, np.float32), y=np.zeros((2, 3), np.float32))
    CheckedPlan.select(DESC, device="cpu").run(args)
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(InvalidProblemError, match="x holds a negative value; negative values are an error"):
        CheckedPlan.select(DESC, device="cpu").run(args)


def test_an_op_without_rows_for_an_element_is_refused_with_the_table() -> None:
    class F64Plan(AxpyPlan):
        op = ""
        variants = tuple(dataclasses.replace(v, elements=(ElementKind.F64,)) for v in AxpyPlan.variants)

    with pytest.raises(UnsupportedError, match="no row of F64Plan") as caught:
        F64Plan.select(DESC, device="cpu")
    assert "not for float32" in caught.value.table


def test_nothing_to_write_is_nothing_to_do() -> None:
    plan = UpdatePlan.select(UpdateDescriptor(shapes=((0, 3), (0,)), element="float32"), device="cpu")
    empty = [np.zeros((0, 3), np.float32), np.zeros(0, np.float32)]
    plan.run(UpdateArgs(params=[a.copy() for a in empty], grads=empty))
    assert plan.can_implement(UpdateArgs(params=empty, grads=[a.copy() for a in empty])).sku.layout == "empty"  # type: ignore[union-attr]


def test_bytes_counts_required_operands_once_and_in_outs_twice() -> None:
    assert AxpyPlan.bytes(DESC) == 2 * 6 * 4 and AxpyPlan.flops(DESC) == 0
    assert UpdatePlan.bytes(UpdateDescriptor(shapes=((5,), (2, 2)), element="float64")) == 3 * 9 * 8


def test_the_sku_of_a_run_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    plan = AxpyPlan(DESC, PlanPreference(), AxpyPlan.select(DESC, device="cpu").device)
    with caplog.at_level(logging.INFO, "baracuda_py"):
        for _ in range(2):
            plan.run(AxpyArgs(x=np.ones((2, 3), np.float32), y=np.zeros((2, 3), np.float32)))
    assert [r.message for r in caplog.records].count(str(plan.sku)) == 1


def test_every_registered_plan_is_whole() -> None:
    plans = registry.plans()
    assert plans and registry.plan("rms_norm") is registry.plan("RMSNormPlan") is registry.plan("norm.rms_norm")
    with pytest.raises(InvalidProblemError, match=r"no op 'nothing'; `python -m baracuda_py ops` lists them"):
        registry.plan("nothing")
    for name, plan in plans.items():
        assert issubclass(plan, Plan) and name == plan.__name__ and name.endswith("Plan")
        assert plan.op.count(".") == 1 and plan.op.islower(), plan.op
        assert (plan.__doc__ or "").strip() and plan.descriptor.__doc__ and plan.args.__doc__, name
        assert len({v.name for v in plan.variants}) == len(plan.variants), name
        if plan.direction == "forward" and plan.vjp is not None:
            backward = registry.plan(plan.vjp.plan)
            assert backward.direction == "backward", backward


def test_plans_do_not_keep_operands_alive() -> None:
    import weakref

    class Owner(np.ndarray):
        pass

    x = np.ones((2, 3), np.float32).view(Owner)
    watch = weakref.ref(x)
    AxpyPlan.select(DESC, device="cpu").run(AxpyArgs(x=x, y=np.zeros((2, 3), np.float32)))
    del x
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("name", ["ScatterPlan", "IndexPutPlan", "ReducePlan", "SegmentReducePlan", "ConcatPlan"])
def test_numpy_takes_no_kind_of_an_element_that_no_device_row_takes(name: str) -> None:
    plan = registry.plans()[name]
    row = numpy_row(plan)
    for kind in plan.kinds or (None,):
        served = {e for e in ElementKind if any(v.serves(kind, e) for v in plan.variants)}
        assert set(row.elements_for(kind)) == served
