"""A first call compiles the kernels it launches and no others, side by side; whatever interrupts it leaves no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.cuda import loading
from baracuda_py.core.device import Device, fake_device
from baracuda_py.core.errors import BaracudaError, CompileError
from baracuda_py.core.variant import Step
from baracuda_py.core.warm import jobs
from baracuda_py.jit import Cache, Cubin, Unit, compile_unit, nvrtc
from baracuda_py.jit.compiler import compile_all
from baracuda_py.jit.launch import Wanted, install_fake
from baracuda_py.jit.nvrtc import Nvrtc
from baracuda_py.testing.recording import Function, Recorder, pointer_view

TARGET = "sm_80"
WAIT = 60.0  # seconds that nothing here takes
SETTLED = 0.5  # after which the main thread waits: Python forgets a signal that comes just before until the wait ends


class Compiling(Recorder):
    """A stand-in for a GPU that compiles what is to be loaded, as `launch.Cuda` does."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[list[str]] = []

    def load(self, device: Device, wanted: Sequence[Wanted]) -> list[Function]:
        self.wanted.append([kernel.unit.name for kernel in wanted])
        compile_all([kernel.unit for kernel in wanted], device.target)
        return super().load(device, wanted)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiling]:
    made = Compiling()
    previous = install_fake(made)
    monkeypatch.setattr(loading, "_handles", {})
    yield made
    install_fake(previous)


@pytest.fixture
def two(demo: Unit) -> list[Unit]:
    """Two units that compile."""
    return [Unit(f"demo.{name}", demo.text.replace("bc_demo", name), symbols=(name,)) for name in ("one", "other")]


def softmax(runtime: Compiling, rows: int, cols: int, sms: int) -> Any:
    """A softmax prepared on a device of its own kind, so that no other test has prepared it."""
    pytest.importorskip("cupy")
    device = Device("cuda", 0, (8, 0), 163 * 1024, sms, "fake", fake=True)
    plan = bc.SoftmaxPlan.select(bc.SoftmaxDescriptor(shape=(rows, cols), element="float32"), device=device)
    x, y = (pointer_view(np.zeros((rows, cols), np.float32)) for _ in range(2))
    plan.prepare(plan.args(x=x, y=y))
    return plan


@pytest.mark.parametrize("plan", ["RMSNormPlan", "AdamStepPlan", "FlashSdpaBackwardPlan", "AffinePlan"])
def test_a_unit_is_one_kernel(plan: str) -> None:
    for job in jobs([getattr(bc, plan)]):
        assert job.unit.symbols == (job.instance.symbol,) and job.unit.text.count('extern "C"') == 1
        assert job.unit.name == job.instance.symbol.removeprefix("bc_")


def test_a_first_call_compiles_what_it_launches(
    compiler: Nvrtc, cache: Cache, compiles: list[str], runtime: Compiling
) -> None:
    softmax(runtime, 3, 40, 101)
    ((first,),) = runtime.wanted
    assert compiles == [f"{first}.cu"] and cache.stats().entries == 1
    softmax(runtime, 5, 40, 101)
    assert len(runtime.wanted) == 1, "another problem of a kernel that is loaded asks for nothing"
    softmax(runtime, 3, 3000, 101)
    assert len(compiles) == 2 and len(set(compiles)) == 2, "another kernel of the row is compiled when it is launched"


def test_what_was_warmed_serves_a_first_call(cache: Cache, runtime: Compiling, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match="BARACUDA_JIT=cached"), monkeypatch.context() as patch:
        patch.setenv("BARACUDA_JIT", "cached")
        softmax(runtime, 3, 40, 102)
    ((name,),) = runtime.wanted
    units = {job.unit.name: job.unit for job in jobs([bc.SoftmaxPlan])}
    assert name in units, "warm and CI build the unit that the call asks for"
    try:
        compile_unit(units[name], TARGET)
    except CompileError as error:
        pytest.skip(f"the warmed call not checked: {error}")
    monkeypatch.setenv("BARACUDA_JIT", "cached")
    softmax(runtime, 3, 40, 102)
    assert runtime.wanted == [[name], [name]]


def test_a_call_that_failed_compiles_again(
    compiler: Nvrtc, cache: Cache, runtime: Compiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Nvrtc, "compile", lambda *_: nvrtc.Output(b"", "error: broken", "NVRTC_ERROR_COMPILATION"))
        with pytest.raises(CompileError, match="broken"):
            softmax(runtime, 3, 40, 103)
    softmax(runtime, 3, 40, 103)
    assert cache.stats().entries == 1


def test_an_axis_that_is_not_declared_is_told(runtime: Compiling) -> None:
    plan = bc.SoftmaxPlan.select(bc.SoftmaxDescriptor(shape=(3, 40), element="float32"), device=fake_device(8.0))
    variant = next(v for v in plan.variants if v.kernels)
    kernel = variant.kernels[0]
    step = Step(kernel.name, (1, 1, 1), {}, dict.fromkeys(kernel.axes_for(plan.desc.element), 77))
    with pytest.raises(BaracudaError, match="is not an instance of"):
        loading.load_functions(plan, variant, [step])
    assert not runtime.wanted


def test_units_are_compiled_side_by_side(compiler: Nvrtc, two: list[Unit], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_JIT_JOBS", "2")
    both, real = threading.Barrier(2, timeout=WAIT), Nvrtc.compile

    def meeting(self: Nvrtc, *given: Any) -> nvrtc.Output:
        both.wait()  # broken where the second is compiled after the first
        return real(self, *given)

    monkeypatch.setattr(Nvrtc, "compile", meeting)
    made = compile_all(two, TARGET)
    assert [list(cubin.kernels) for cubin in made] == [["one"], ["other"]]


def test_a_failure_is_raised_and_the_others_are_kept(compiler: Nvrtc, cache: Cache, two: list[Unit]) -> None:
    bad = [Unit(f"demo.bad{n}", f"int f() {{ return undefined_{n}; }}") for n in (1, 2)]
    with pytest.raises(CompileError, match="undefined_1"):
        compile_all([two[0], *bad, two[1]], TARGET)
    assert cache.stats().entries == 2
    assert all(cubin.cached for cubin in compile_all(two, TARGET))
    assert compile_all([], TARGET) == []


def blocked(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Semaphore]:
    """Compiles wait for the event; the semaphore counts those that do."""
    free, begun, real = threading.Event(), threading.Semaphore(0), Nvrtc.compile

    def waiting(self: Nvrtc, *given: Any) -> nvrtc.Output:
        begun.release()
        assert free.wait(WAIT)
        return real(self, *given)

    monkeypatch.setattr(Nvrtc, "compile", waiting)
    return free, begun


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_forked_while_kernels_are_compiled(
    compiler: Nvrtc, two: list[Unit], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free, begun = blocked(monkeypatch)
    made: list[list[Cubin]] = []
    thread = threading.Thread(target=lambda: made.append(compile_all(two, TARGET)))
    thread.start()
    assert begun.acquire(timeout=WAIT)
    pid = os.fork()
    if pid == 0:  # its threads are gone; its compiles are its own
        signal.alarm(int(WAIT))
        free.set()
        os.environ["BARACUDA_CACHE_DIR"] = str(tmp_path / "child")
        os._exit(0 if len(compile_all(two, TARGET)) == 2 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    free.set()
    thread.join(WAIT)
    assert [list(cubin.kernels) for cubin in made[0]] == [["one"], ["other"]]


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(cache: Cache, kernels: Path) -> Start:
    """Starts a process with the test's kernels and cache that runs some lines."""

    def begin(units: list[Unit], *lines: str) -> subprocess.Popen[str]:
        head = (
            "import os, signal, threading, time",
            "from pathlib import Path",
            "from baracuda_py.jit import Unit, source",
            "from baracuda_py.jit.compiler import compile_all",
            "from baracuda_py.jit.nvrtc import Nvrtc",
            f"source.kernel_root = lambda: Path({str(kernels)!r})",
            f"units = {units!r}",
        )
        return subprocess.Popen([sys.executable, "-c", "\n".join((*head, *lines))], stdout=subprocess.PIPE, text=True)

    return begin


def test_processes_share_what_they_compile(compiler: Nvrtc, cache: Cache, two: list[Unit], start: Start) -> None:
    line = f"print(sum(not cubin.cached for cubin in compile_all(units, {TARGET!r})))"
    processes = [start(two, line), start(two[::-1], line)]
    counts = [int(process.communicate(timeout=WAIT)[0]) for process in processes]
    assert sum(counts) == 2 and cache.stats().entries == 2


def test_ctrl_c_ends_the_wait_and_the_process_ends_well(
    compiler: Nvrtc, cache: Cache, two: list[Unit], start: Start
) -> None:
    """Interrupted, it leaves as Python does after Ctrl-C, when its compilers are done: none runs on in an exit."""
    process = start(
        two,
        "signal.signal(signal.SIGINT, signal.default_int_handler)",  # a parent in the background has it ignored
        "real, begun, main = Nvrtc.compile, threading.Event(), threading.get_ident()",
        "def slowly(*given):",
        f"    begun.set(); time.sleep({4 * SETTLED})",
        "    done.append(1)",
        "    return real(*given)",
        "done = []",
        "Nvrtc.compile = slowly",
        "def interrupt():",
        f"    begun.wait(); time.sleep({SETTLED}); signal.pthread_kill(main, signal.SIGINT)",
        "threading.Thread(target=interrupt).start()",
        "try:",
        f"    compile_all(units, {TARGET!r})",
        "except KeyboardInterrupt:",
        "    print('interrupted', len(done), flush=True)",
    )
    said, _ = process.communicate(timeout=WAIT)
    assert (said, process.returncode) == ("interrupted 0\n", 0)
    assert all(cubin.kernels for cubin in compile_all(two, TARGET))
    assert not [path for path in cache.dir.rglob("*") if path.suffix in (".tmp", ".lock")]
