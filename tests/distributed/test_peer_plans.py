"""Rows of AllReducePlan that read peers' memory: which is taken, what it promises, its calls on emulated devices."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pytest
from distributed_stand_in import linking, stood_in
from peers_stand_in import DEVICE, drawn, reaching, small

import baracuda_py as bc
from baracuda_py.calls import call as call_module
from baracuda_py.core import device as device_module
from baracuda_py.core.element import ElementKind
from baracuda_py.core.variant import Step
from baracuda_py.distributed import launching, peer_kernels, peer_norm
from baracuda_py.distributed.peer_kernels import ONE_SHOT
from baracuda_py.jit.compiler import compile_all
from baracuda_py.testing import pointer_view
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.layouts import aligned_bytes

D = bc.distributed


@pytest.fixture(autouse=True)
def regions(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)


def test_the_size_decides() -> None:
    def work(comm: Any) -> None:
        comm.reach(reach)
        assert comm.engine == "peers" and comm.device == 0
        for nbytes, row in ((0, "one_shot"), (ONE_SHOT[4], "one_shot"), (ONE_SHOT[4] + 2, "two_shot")):
            desc = D.AllReduceDescriptor(shape=(nbytes // 2,), element="bfloat16", ranks=4)
            plan = D.AllReducePlan.select(desc, comm)
            assert str(plan.sku) == f"distributed.all_reduce[sum]/peers_{row}/bfloat16.float32/any/any/bespoke"
            promise = plan.precision_guarantee
            assert promise.order == "tree of ranks" and promise.deterministic and promise.batch_invariant
            assert plan.workspace_size() == 0
        assert f"is for messages up to {ONE_SHOT[4]} bytes, this has {ONE_SHOT[4] + 2}" in plan.explain()
        with pytest.raises(bc.UnsupportedError, match="is for engine nccl, this is peers"):
            D.AllReducePlan.select(desc, comm, bc.PlanPreference(prefer_backend="nccl"))
        boolean = D.AllReduceDescriptor(shape=(4,), element="bool", op="max", ranks=4)
        assert "no kernel sums bool over ranks" in D.AllReducePlan.select(boolean, comm).explain()

    reach = reaching(4)
    D.run_ranks(work, 4, timeout=20)


def test_beside_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_in(monkeypatch)

    def work(comm: Any) -> None:
        comm.attach(linking)
        desc = D.AllReduceDescriptor(shape=(64,), element="float32", ranks=2)
        assert D.AllReducePlan.select(desc, comm).sku.variant == "nccl_tree"
        assert "its engine knows no GPU" in D.AllReducePlan.select(desc, comm).explain()
        comm.reach(reach)
        assert comm.engine == "nccl"
        for preference in (None, bc.PlanPreference(deterministic=False)):
            assert D.AllReducePlan.select(desc, comm, preference).sku.variant == "peers_one_shot"
        fast = bc.PlanPreference(deterministic=False, prefer_backend="nccl")
        assert D.AllReducePlan.select(desc, comm, fast).sku.variant == "nccl"
        half = comm.split(0)
        assert half.engine == "nccl" and half.peers is not comm.peers and half.peers.size == 2
        comm.abort()
        assert half.peers.aborted

    reach = reaching(2)
    D.run_ranks(work, 2, timeout=20)


CASES = [  # ranks, element, op, shape, strided, in place
    (2, "bfloat16", "sum", (37, 5), False, False),
    (3, "float16", "mean", (4, 30), True, False),
    (4, "int32", "prod", (129,), False, True),
    (2, "float64", "min", (3, 0), False, False),
]  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("most", [0, 1 << 19], ids=["two_shot", "one_shot"])
@pytest.mark.parametrize(("size", "element", "op", "shape", "strided", "inplace"), CASES)
def test_calls(
    size: int, element: str, op: str, shape: Any, strided: bool, inplace: bool, most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: DEVICE)
    monkeypatch.setattr(call_module, "allocating", lambda *facts: contextlib.nullcontext())
    monkeypatch.setitem(ONE_SHOT, size, most)
    kind, one_at_a_time, copy = ElementKind.of(element), threading.Lock(), launching.Job.copy

    def alone(self: Any, *args: Any) -> None:
        with one_at_a_time if self.carrier is not None else contextlib.nullcontext():
            copy(self, *args)

    monkeypatch.setattr(launching.Job, "copy", alone)
    reach = reaching(size)

    def work(comm: Any) -> None:
        x = drawn(kind, shape, comm.rank)
        desc = D.AllReduceDescriptor(shape=shape, element=element, op=op, ranks=size)
        want = np.zeros(shape, kind.dtype)
        D.AllReducePlan.select(desc, comm)(x=x, y=want)
        comm.reach(reach)
        plan = D.AllReducePlan.select(desc, comm)
        given = np.repeat(x, 2, -1)[..., ::2] if strided else x.copy()
        y = given if inplace else np.full(shape, 7, kind.dtype)
        given = pointer_view(given)
        args = D.CollectiveArgs(x=given, y=given if inplace else pointer_view(y))
        named = plan.can_implement(args).sku.variant
        assert named == ("peers_one_shot" if x.nbytes <= most else "peers_two_shot")
        needed = plan.workspace_size(args)
        assert bool(needed) == strided
        plan.run(args, workspace=pointer_view(aligned_bytes(max(needed, 1))), stream=0)
        assert y.tobytes() == want.tobytes()
        space = pointer_view(aligned_bytes(max(needed, 1)))
        bound = plan.bind(args, workspace=space, stream=0)
        for _ in range(2):
            if inplace:
                y[...] = x
            bound()
            assert y.tobytes() == want.tobytes()
        comm.peers.abort()
        with pytest.raises(D.DistributedError):
            bound()

    with emulating(1):
        D.run_ranks(work, size, timeout=60)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_largest_kernels_do_not_spill(target: str) -> None:
    eight = {"RANKS": 8}
    units = [
        peer_kernels.ALL_REDUCE.launched(
            "distributed.all_reduce",
            kind,
            None,
            Step("two_shot", (1, 1, 1), {}, {"OP": "sum", "WIDE": wide, **eight}, 512),
        )[0]
        for kind, wide in ((ElementKind.F64, True), (ElementKind.I8, True), (ElementKind.BF16, False))
    ]
    for name, kind in (("two_shot_2048", ElementKind.BF16), ("one_shot_2048", ElementKind.F32)):
        step = Step(name, (1, 1, 1), {}, {"W": ElementKind.F32, **eight}, 512)
        units.append(peer_norm.NORM.launched(peer_norm.OP, kind, None, step)[0])
    for made in compile_all(units, target):
        for name, kernel in made.kernels.items():
            assert kernel.spill_stores == kernel.spill_loads == 0, (name, kernel)
