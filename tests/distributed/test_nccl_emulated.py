"""Sums over ranks by the emulated kernels: the bits of the host's rows on random numbers, called as on a device."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pytest
from distributed_stand_in import linking, stood_in

import baracuda_py as bc
from baracuda_py.calls import call as call_module
from baracuda_py.core import device as device_module
from baracuda_py.core.element import ElementKind
from baracuda_py.distributed import launching
from baracuda_py.distributed.plan import PLANS
from baracuda_py.testing import emulated_device, pointer_view
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.layouts import aligned_bytes

D = bc.distributed
CASES = [  # ranks, element, descriptor, facts, shape
    (3, "float32", D.AllReduceDescriptor, {}, (4, 37)),
    (2, "bfloat16", D.AllReduceDescriptor, {"op": "mean"}, (130,)),
    (3, "float16", D.ReduceScatterDescriptor, {"axis": 1}, (5, 9)),
    (9, "float16", D.ReduceDescriptor, {"root": 1}, (11,)),
    (2, "float32", D.AllToAllDescriptor, {"split_axis": 1}, (3, 4)),
    (2, "uint8", D.AllToAllVDescriptor, {"send_counts": (1, 2), "receive_counts": None}, (3, 5)),
    (2, "float32", D.SendReceiveDescriptor, {"to": None, "source": None}, (7,)),
    (2, "int8", D.PermuteDescriptor, {"pairs": ((0, 1),)}, (6,)),
]  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("size", "element", "kind", "facts", "shape"), CASES)
def test_kernels_give_the_bits_of_the_host(
    size: int, element: str, kind: Any, facts: Any, shape: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_in(monkeypatch)
    emulated = emulated_device(9.0)
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: emulated)
    monkeypatch.setattr(call_module, "allocating", lambda *facts: contextlib.nullcontext())  # nothing is made
    dtype, one_at_a_time = ElementKind.of(element).dtype, threading.Lock()
    launch = launching.Job._kernel
    copy = launching.Job.copy

    def alone(call: Any) -> Any:
        def locked(self: Any, *args: Any) -> None:
            with one_at_a_time if self.carrier is not None else contextlib.nullcontext():
                call(self, *args)

        return locked

    monkeypatch.setattr(launching.Job, "_kernel", alone(launch))
    monkeypatch.setattr(launching.Job, "copy", alone(copy))

    def work(comm: Any) -> None:
        x = (np.random.default_rng(comm.rank).standard_normal(shape) * 50).astype(dtype)
        own = dict(facts)
        if "receive_counts" in facts:
            own["receive_counts"] = (facts["send_counts"][comm.rank],) * 2
        if "source" in facts:
            own["source" if comm.rank else "to"] = 1 - comm.rank
        desc = kind(shape=shape, element=element, ranks=size, **own)
        made = desc.output_shape(comm.rank)
        y, want = (None, None) if made is None else (np.full(made, 7, dtype), np.zeros(made, dtype))
        PLANS[kind].select(desc, comm)(x=x, y=want)
        comm.attach(lambda comm: linking(comm, emulated))
        plan = PLANS[kind].select(desc, comm)
        args = D.CollectiveArgs(x=pointer_view(x), y=None if y is None else pointer_view(y))
        assert plan.can_implement(args).sku.variant in ("nccl_tree", "nccl")
        needed = plan.workspace_size(args)
        with pytest.raises(bc.WorkspaceTooSmallError) if needed else contextlib.nullcontext():
            if needed:
                plan.run(args, workspace=pointer_view(np.zeros(needed - 1, np.uint8)), stream=0)
        for _ in range(2):  # the second time nothing is new
            plan.run(args, workspace=pointer_view(aligned_bytes(max(needed, 1))), stream=0)
        if y is not None:
            assert y.tobytes() == want.tobytes(), (y, want)

    with emulating(1):
        D.run_ranks(work, size, timeout=60)
