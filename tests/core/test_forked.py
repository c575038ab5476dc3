"""Plans in a forked child: whatever the parent did with them, the child is told that CUDA does not work there."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import os
import pickle
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan, UpdateArgs, UpdateDescriptor, UpdatePlan
from test_runner import array, call, plan, strided

import baracuda_py as bc
from baracuda_py.calls import call as call_module
from baracuda_py.calls.functional import functional
from baracuda_py.core import TensorRef
from baracuda_py.core import device as device_module
from baracuda_py.core.device import Device, cuda_device, driver_device_count, fake_device, resolve_device
from baracuda_py.core.plan import Plan
from baracuda_py.jit import launch
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.recording import _RECORDER

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forked children not checked: this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
TOLD = "DeviceMismatchError: this process was forked from one that used CUDA, and CUDA does not work in it; start it"


def in_child(act: Callable[[], Any]) -> str:
    """What `act` ends with in a forked child: its error, or "ran" and the result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "died"
        try:
            text = f"ran {act()!r}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, text.encode()[:4000])
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text


REAL = dataclasses.replace(fake_device(9.0), fake=False, name="H")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """What this process is known to use is as before: other tests fork, too."""
    used = set(device_module._used)
    yield
    device_module._used.clear()
    device_module._used.update(used)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A device that counts as real, its driver the recorder."""
    monkeypatch.setattr(launch, "_cuda", lambda: _RECORDER)
    monkeypatch.setattr(device_module, "driver_device_count", lambda: 1)
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: device_module.refuse_forked(False) or REAL)
    device_module.mark_used(False)
    with recording():
        yield REAL


ENTRIES: dict[str, Callable[[Plan, Any], Any]] = {
    "run": lambda p, a: p.run(a),
    "run on a stream": lambda p, a: p.run(a, stream=7),
    "run with workspace": lambda p, a: p.run(a, pointer_view(np.zeros(4096, np.uint8))),
    "call": lambda p, a: p(**{n: getattr(a, n) for n in ("x", "y")}),
    "prepare": lambda p, a: p.prepare(a),
    "bind": lambda p, a: p.bind(a),
    "bind to a stream": lambda p, a: p.bind(a, stream=7),
    "references": lambda p, a: p.run(AxpyArgs(x=ref(a.x), y=ref(a.y))),
    "graph": lambda p, a: bc.graph(lambda: p.run(a), device=p.device),
}


def made(*shape: int) -> AxpyArgs:
    return call(array(*shape), array(*shape))


def ref(a: Any) -> TensorRef:
    return TensorRef(a.data.ptr, a.shape, None, str(a.dtype))


@pytest.mark.parametrize("before", ["select", "prepare", "run", "references", "bind", "checked"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_of_an_inherited_plan(entry: str, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, args = plan(8), made(8)
    with recording() as record:
        if before == "checked":
            monkeypatch.setenv("BARACUDA_CHECK", "1")
        elif before != "select":
            ENTRIES[before](chosen, args)
        said = in_child(lambda: ENTRIES[entry](chosen, args))
        assert said.startswith(TOLD), said
        count = len(record.launches)
        if before != "checked":  # the parent is not touched
            chosen.run(args)
            assert len(record.launches) == count + 1


def test_nothing_to_do_is_no_way_round() -> None:
    chosen, args = plan(0), made(0)
    with recording():
        for entry in ("run", "prepare", "bind"):
            assert in_child(lambda entry=entry: ENTRIES[entry](chosen, args)).startswith(TOLD), entry


def test_a_workspace_lists_and_a_second_child() -> None:
    chosen, args = plan(8), strided()
    shapes = ((2,), (3,))
    many = UpdatePlan(UpdateDescriptor(shapes=shapes, element="float32"), chosen.preference, chosen.device)
    params, grads = ([pointer_view(array(*s)) for s in shapes] for _ in range(2))
    lists = UpdateArgs(params=params, grads=grads)
    with recording():
        for _ in range(2):
            assert in_child(lambda: chosen.run(args)).startswith(TOLD)
            assert in_child(lambda: many.run(lists)).startswith(TOLD)
            assert TOLD in in_child(lambda: in_child(lambda: chosen.run(args))), "a child of the child"
            chosen.run(args)
            many.run(lists)


@pytest.mark.parametrize("stream", [None, 7])
def test_a_bound_launch_and_a_graph_of_the_parent(stream: Any) -> None:
    chosen, args = plan(8), made(8)
    with recording():
        bound = chosen.bind(args, stream=stream)
        graph = bc.graph(lambda: chosen.run(args), device=chosen.device)
        bound()
        for act in (bound, graph, lambda: graph.replay(stream=7)):
            assert in_child(act).startswith(TOLD)


def test_what_needs_no_driver_still_works() -> None:
    chosen, args = plan(8), made(8)
    said = in_child(
        lambda: (bool(chosen.can_implement(args)), chosen.workspace_size(args), "dense" in chosen.explain())
    )
    assert said == "ran (True, 0, True)"
    desc = AxpyDescriptor(shape=(3, 5), element="float32")
    assert in_child(lambda: AxpyPlan.select(desc, device=fake_device(8.0)).sku.variant) == "ran 'dense'"
    assert in_child(lambda: functional(AxpyPlan)(np.ones(2, np.float32)).tolist()) == "ran [2.0, 2.0]"


def test_a_lock_that_the_parent_held_is_not_waited_for() -> None:
    chosen, args = plan(8), made(8)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with chosen.runner._lock():
            held.set()
            release.wait(30)

    with recording():
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        assert in_child(lambda: chosen.prepare(args)).startswith(TOLD)
        release.set()
        thread.join()


# --- a device whose driver the parent has set up


def test_after_select_alone(real: Device) -> None:
    desc = AxpyDescriptor(shape=(8,), element="float32")
    chosen, args = AxpyPlan(desc, bc.PlanPreference(), real), made(8)
    launch._given.clear()  # no runtime was asked for
    for entry, act in ENTRIES.items():
        assert in_child(lambda act=act: act(chosen, args)).startswith(TOLD), entry
    for asked in (None, 0, "cuda", real):
        assert in_child(lambda asked=asked: resolve_device(asked)).startswith(TOLD), asked
        assert in_child(lambda asked=asked: AxpyPlan.select(desc, device=asked)).startswith(TOLD), asked
    assert in_child(lambda: pickle.loads(pickle.dumps(chosen))).startswith(TOLD)
    assert in_child(lambda: copy.copy(chosen)).startswith(TOLD)
    assert in_child(lambda: resolve_device("cpu").kind) == "ran 'cpu'"


def test_cached_functional_entries_make_nothing_first(real: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are made before the run: CuPy's own error would come first."""
    parent = os.getpid()

    def maker(like: Any, shape: Any, kind: Any, device: int, last: bool) -> Callable[[], Any]:
        def make() -> Any:
            if os.getpid() != parent:
                raise RuntimeError("cudaErrorInitializationError: initialization error")
            return pointer_view(array(*shape))

        return make

    monkeypatch.setattr(call_module, "maker", maker)
    axpy, x, y = functional(AxpyPlan), pointer_view(array(4, 4)), pointer_view(array(4, 4))
    for _ in range(3):
        axpy(x)  # by now on the direct path
    for act in (lambda: axpy(x), lambda: axpy(x, out=y), lambda: axpy(x, stream=7), lambda: axpy(x, alpha=3.0)):
        assert in_child(act).startswith(TOLD)
    axpy(x)


def test_counting_devices_is_using_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where the parent used it without us, the driver's own answer in the child is told."""

    class Driver:
        parent = os.getpid()

        @staticmethod
        def cuInit(flags: int) -> int:
            return 0 if os.getpid() == Driver.parent else 3

        @staticmethod
        def cuDeviceGetCount(count: Any) -> int:
            count._obj.value = 2
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver)
    device_module._used.clear()
    driver_device_count.cache_clear()
    cuda_device.cache_clear()
    try:
        assert in_child(driver_device_count).startswith(TOLD)
        assert in_child(lambda: resolve_device(None)).startswith(TOLD), "NumPy is not taken in place of a GPU"
        assert driver_device_count() == 2
        assert in_child(lambda: resolve_device(0)).startswith(TOLD)
    finally:
        driver_device_count.cache_clear()


def test_a_machine_without_a_gpu_may_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: types.SimpleNamespace(cuInit=lambda flags: 100))
    device_module._used.clear()
    driver_device_count.cache_clear()
    try:
        assert driver_device_count() == 0 and resolve_device(None).kind == "cpu"
        assert in_child(lambda: resolve_device(None).kind) == "ran 'cpu'"
    finally:
        driver_device_count.cache_clear()
