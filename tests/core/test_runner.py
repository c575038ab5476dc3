"""The CUDA side without a GPU: prepared layouts, buffers under threads, workspaces, streams, capture, forks."""

from __future__ import annotations

import ast
import gc
import multiprocessing
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from frame_toys import AXPY, UPDATE, AxpyArgs, AxpyDescriptor, AxpyPlan, UpdateArgs, UpdateDescriptor, UpdatePlan

from baracuda_py.backends.cuda.hotpath import source
from baracuda_py.core import TensorRef
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import (
    BaracudaError,
    DeviceMismatchError,
    InvalidProblemError,
    MisalignedOperandError,
    NotPreparedError,
    WorkspaceTooSmallError,
)
from baracuda_py.core.intake import stream_pointer
from baracuda_py.core.plan import Plan
from baracuda_py.jit import launch
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.layouts import aligned_bytes
from baracuda_py.testing.recording import STREAM

H = fake_device(9.0)


def array(*shape: int, dtype: str = "float32") -> np.ndarray:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = aligned_bytes(max(count, 1))
    memory[:] = 0
    return memory[:count].view(dtype).reshape(shape)


def plan(*shape: int, preference: Any = None) -> Plan:
    """A plan of its own: nothing prepared yet."""
    chosen = AxpyPlan.select(AxpyDescriptor(shape=shape, element="float32"), preference, device=H)
    return AxpyPlan(chosen.desc, chosen.preference, H)


def call(x: Any, y: Any, **more: Any) -> AxpyArgs:
    return AxpyArgs(x=pointer_view(x), y=pointer_view(y), **more)


def address(a: np.ndarray) -> int:
    return int(a.__array_interface__["data"][0])


def test_the_generated_code_is_python_that_reads() -> None:
    for cls in (AxpyArgs, UpdateArgs):
        for package in ("cupy", "torch", "ref"):
            ast.parse(source(cls, package))


def test_pointers_constants_and_scalars_arrive() -> None:
    x, y, bias, total = array(4, 8), array(4, 8), array(8), array(1).reshape(())
    with recording() as record:
        plan(4, 8).run(call(x, y, bias=pointer_view(bias), total=pointer_view(total), alpha=3, step=-5))
    (launched,) = record.launches
    fields = launched.fields(AXPY)
    assert (fields["x"], fields["y"], fields["bias"], fields["total"]) == tuple(map(address, (x, y, bias, total)))
    assert (fields["alpha_ptr"], fields["alpha_value"], fields["step_value"]) == (0, 3.0, -5)
    assert fields["n"] == 32 and fields["rank"] == 2 and fields["strides"][:8] == (8, 1, 0, 0, 8, 1, 0, 0)
    assert fields["eps"] == pytest.approx(0.1) and fields["flag"] == 0
    assert launched.grid == (32, 1, 1) and launched.block == (128, 1, 1) and launched.stream == STREAM
    assert launched.function.symbol == "bc_axpy__axpy__float32__4"


def test_absent_operands_are_null() -> None:
    with recording() as record:
        plan(4).run(call(array(4), array(4)))
    fields = record.launches[0].fields(AXPY)
    assert fields["bias"] == fields["total"] == 0


def test_scalars_may_live_on_the_device() -> None:
    alpha, step = array(1).reshape(()), array(1, dtype="int64").reshape(())
    with recording() as record:
        plan(4).run(call(array(4), array(4), alpha=pointer_view(alpha), step=pointer_view(step)))
        plan(4).run(call(array(4), array(4), alpha=np.float32(0.5), step=2**63 + 1))
    first, second = (r.fields(AXPY) for r in record.launches)
    assert first["alpha_ptr"] == address(alpha) and first["alpha_value"] == 0.0  # the tag of float32
    assert first["step_ptr"] == address(step) and first["step_value"] == 2  # the tag of int64
    assert second["alpha_value"] == 0.5 and second["step_value"] == -(2**63) + 1  # the same 64 bits


def test_a_new_alignment_is_a_layout_of_its_own() -> None:
    memory, y = array(64), array(8)
    chosen = plan(8)
    with recording() as record:
        for start in (0, 1, 4, 5, 0, 1):
            chosen.run(call(memory[start : start + 8], y))
        assert len(record.allocations) == 3  # the strided row takes a workspace
    kernels = [r.function.symbol for r in record.launches]
    wide, narrow = "bc_axpy__axpy__float32__4", ["bc_axpy__axpy__float32__1", "bc_axpy__second__float32__1"]
    assert kernels == [wide, *narrow, wide, *narrow, wide, *narrow]


def test_lists_are_packed_in_slices_with_nulls_behind() -> None:
    shapes = tuple((i + 1,) for i in range(6))
    chosen = UpdatePlan.select(UpdateDescriptor(shapes=shapes, element="float32"), device=H)
    params, grads = [array(*s) for s in shapes], [array(*s) for s in shapes]
    with recording() as record:
        chosen.run(UpdateArgs(params=[*map(pointer_view, params)], grads=tuple(map(pointer_view, grads))))
        a, b = (r.fields(UPDATE) for r in record.launches)
    assert a["params"] == tuple(map(address, params[:4])) and a["grads"] == tuple(map(address, grads[:4]))
    assert b["params"] == (*map(address, params[4:]), 0, 0) and b["sizes"][:2] == (5, 6)
    with pytest.raises(InvalidProblemError, match=r"grads overlaps params|params overlaps grads"), recording():
        chosen.run(UpdateArgs(params=[*map(pointer_view, params)], grads=[*map(pointer_view, [params[0], *grads[1:]])]))


def test_eight_threads_share_a_plan_without_mixing_buffers() -> None:
    chosen = plan(16)
    arrays = [(array(16), array(16)) for _ in range(8)]
    gate = threading.Barrier(8)
    errors: list[BaseException] = []

    def work(i: int) -> None:
        try:
            args = call(*arrays[i], alpha=float(i), step=i)
            gate.wait()
            for _ in range(300):
                chosen.run(args)
        except BaseException as error:
            errors.append(error)

    with recording() as record:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors and len(record.launches) == 8 * 300
    expected = {(address(x), address(y), float(i), i) for i, (x, y) in enumerate(arrays)}
    by_thread: dict[int, set[Any]] = {}
    for launched in record.launches:
        f = launched.fields(AXPY)
        by_thread.setdefault(launched.thread, set()).add((f["x"], f["y"], f["alpha_value"], f["step_value"]))
    assert set().union(*by_thread.values()) == expected and all(len(s) == 1 for s in by_thread.values())


def ref(a: np.ndarray, **facts: Any) -> TensorRef:
    return TensorRef(address(a), a.shape, tuple(s // a.itemsize for s in a.strides), str(a.dtype), **facts)


def test_packages_may_be_mixed() -> None:
    x, y, bias = array(8), array(8), array(8)
    chosen = plan(8)
    calls = [
        AxpyArgs(x=pointer_view(x), y=ref(y), bias=ref(bias)),
        AxpyArgs(x=ref(x), y=pointer_view(y), bias=pointer_view(bias)),
        AxpyArgs(x=pointer_view(x), y=pointer_view(y), bias=ref(bias)),
        AxpyArgs(x=ref(x), y=ref(y), bias=ref(bias)),
        AxpyArgs(x=pointer_view(x), y=pointer_view(y), bias=pointer_view(bias)),
    ]
    with recording() as record:
        for args in calls * 2:
            chosen.run(args)
            chosen.bind(args)()
    assert len({r.image for r in record.launches}) == 1 and len(record.launches) == 20


def test_prepare_and_bind_work_after_run() -> None:
    chosen, args = plan(8), call(array(8), array(8))
    with recording() as record:
        chosen.run(args)
        chosen.prepare(args)
        chosen.bind(args)()
        chosen(x=args.x, y=args.y)
    assert len({r.image for r in record.launches}) == 1 and len(record.launches) == 3


def strided(n: int = 8) -> AxpyArgs:
    return call(array(2 * n)[::2], array(n))


def test_a_workspace_is_checked_and_used() -> None:
    chosen, args = plan(8), strided()
    assert chosen.workspace_size(args) == chosen.workspace_size() == 1024  # the most that dense operands may take
    memory = aligned_bytes(4096)
    with recording() as record:
        chosen.run(args, pointer_view(memory[:1024]))
        assert not record.allocations
        assert [r.fields(AXPY)["scratch"] for r in record.launches] == [address(memory), address(memory) + 256]
        chosen.bind(args, pointer_view(memory[256:1280]))()
        assert record.launches[-1].fields(AXPY)["scratch"] == address(memory) + 512
        for act in (lambda w: chosen.run(args, w), lambda w: chosen.bind(args, w)):
            with pytest.raises(WorkspaceTooSmallError, match="needs 1024 bytes, got 1023") as caught:
                act(pointer_view(memory[:1023]))
            assert (caught.value.needed, caught.value.got) == (1024, 1023)
            with pytest.raises(MisalignedOperandError, match="256-byte aligned"):
                act(pointer_view(memory[16:2064]))
            with pytest.raises(DeviceMismatchError, match="workspace is in host memory"):
                act(memory)
        count = len(record.launches)
        chosen.run(args, TensorRef(address(memory), (256,), None, "float32"))
        assert len(record.launches) == count + 2


def test_a_bound_launch_holds_its_workspace() -> None:
    memory = aligned_bytes(1024)
    given = pointer_view(memory)
    alive = weakref.ref(given)
    with recording():
        bound = plan(8).bind(strided(), given)
        del given
        gc.collect()
        assert alive() is not None
        del bound
        gc.collect()
        assert alive() is None


def test_capture_needs_preparation_and_a_workspace() -> None:
    chosen, args, memory = plan(8), strided(), aligned_bytes(1024)
    with recording() as record:
        record.capturing = True
        with pytest.raises(NotPreparedError, match=r"call plan\.prepare\(args\) first"):
            chosen.run(args, pointer_view(memory))
        record.capturing = False
        chosen.prepare(args)
        record.capturing = True
        chosen.run(args, pointer_view(memory))
        with pytest.raises(NotPreparedError, match="1024 bytes of workspace, to be given under capture"):
            chosen.run(args)
        assert len(record.launches) == 2 and not record.allocations


class Pointer:
    ptr = 11


class TorchLike:
    cuda_stream = 12


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 13


@pytest.mark.parametrize(
    ("stream", "pointer"), [(Pointer(), 11), (TorchLike(), 12), (Protocol(), 13), (14, 14), (0, 0)]
)
def test_streams_of_any_package(stream: Any, pointer: int) -> None:
    chosen, args = plan(8), call(array(8), array(8))
    with recording() as record:
        chosen.run(args, stream=stream)
        chosen.run(args, stream=stream)
        chosen.bind(args, stream=stream)()
    assert [r.stream for r in record.launches] == [pointer] * 3
    assert stream_pointer(stream) == pointer


@pytest.mark.parametrize("stream", ["main", 1.5, object(), True])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    with pytest.raises(InvalidProblemError, match="stream must be"), recording():
        plan(8).run(call(array(8), array(8)), stream=stream)


def test_another_current_device_is_switched_and_restored() -> None:
    with recording() as record:
        runtime = launch.runtime_for(H)
        runtime.use_device(1)
        try:
            plan(8).run(call(array(8), array(8)))
            assert runtime.current_device() == 1 and len(record.launches) == 1
        finally:
            runtime.use_device(0)


def test_operands_of_another_device_are_refused() -> None:
    x, y = array(8), array(8)
    chosen = plan(8)
    with recording() as record:
        chosen.run(call(x, y))
        for wrong in (
            AxpyArgs(x=pointer_view(x), y=pointer_view(y, device=1)),
            AxpyArgs(x=pointer_view(x, device=1), y=pointer_view(y)),
            AxpyArgs(x=pointer_view(x), y=ref(y, device=1)),
            AxpyArgs(x=x, y=pointer_view(y)),
            call(x, y, alpha=pointer_view(array(1).reshape(()), device=1)),
        ):
            for _ in range(2):
                with pytest.raises(DeviceMismatchError, match=r"cuda:1|host memory"):
                    chosen.run(wrong)
        assert len(record.launches) == 1


def test_wrong_calls_raise_after_right_ones() -> None:
    """The generated code takes the form of the call for granted; what breaks it must still be a typed error."""
    x, y = pointer_view(array(8)), pointer_view(array(8))
    chosen = plan(8)
    with recording() as record:
        chosen.run(AxpyArgs(x=x, y=y))
        for wrong in (
            AxpyArgs(x=None, y=y), AxpyArgs(x=x, y=None), AxpyArgs(x=[x], y=y), AxpyArgs(x=x, y=[y]),
            AxpyArgs(x=x, y="y"),
            AxpyArgs(x=x, y=y, total=y), AxpyArgs(x=x, y=y, alpha="1"), AxpyArgs(x=x, y=y, step=0.5),
            UpdateArgs(params=[x], grads=[y]), None,
        ):  # fmt: skip
            with pytest.raises(InvalidProblemError):
                chosen.run(wrong)  # type: ignore[arg-type]
        assert len(record.launches) == 1


def test_a_fake_device_without_a_recorder_says_so() -> None:
    with pytest.raises(NotPreparedError, match="fake sm_90 is not a real device"):
        plan(8).run(call(array(8), array(8)))


def _in_child(queue: Any, chosen: Plan, args: AxpyArgs) -> None:
    found = []
    for act in (chosen.run, AxpyPlan(chosen.desc, chosen.preference, H).run):
        try:
            act(args)
            found.append("ran")
        except BaracudaError as error:
            found.append(f"{type(error).__name__}: {error}")
    queue.put(found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_to_spawn() -> None:
    context = multiprocessing.get_context("fork")
    chosen, args = plan(8), call(array(8), array(8))
    with recording() as record:
        chosen.run(args)
        queue = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(queue, chosen, args))
        child.start()
        child.join(30)
        assert not queue.empty()
        answers = queue.get()
        chosen.run(args)  # the parent is not touched
    assert len(record.launches) == 2
    assert all(a.startswith("DeviceMismatchError: this process was forked") and "spawn" in a for a in answers), answers
