"""A forked child waits for nothing that a thread of its parent holds; a process ends while its threads compile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from baracuda_py import _forking
from baracuda_py.core.memo import cached_property

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forked children not checked: this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SECONDS = 20  # long for what takes milliseconds, short for what waits for ever


def ends(act: Callable[[], Any]) -> bool:
    """Whether `act` returns in a forked child, in time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


class Inside:
    """A thread that is inside `act` until told to leave: act(enter, leave)."""

    def __init__(self, act: Callable[[Callable[[], None]], Any]) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=act, args=(self.stay,), daemon=True)

    def stay(self) -> None:
        self.entered.set()
        self.leave.wait(SECONDS)

    def __enter__(self) -> Inside:
        self.thread.start()
        assert self.entered.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self.thread.join()


class Slow:
    """A property that takes as long as it is told to."""

    def __init__(self, during: Callable[[], None] = lambda: None) -> None:
        self.during = during

    @cached_property
    def value(self) -> object:
        self.during()
        return object()


def test_a_property_that_a_thread_computes() -> None:
    with Inside(lambda stay: Slow(stay).value):
        assert ends(lambda: Slow().value)


def test_a_property_is_one_object_for_all_threads() -> None:
    slow, seen = Slow(lambda: time.sleep(0.01)), []
    threads = [threading.Thread(target=lambda: seen.append(slow.value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and all(one is slow.value for one in seen)


def hold(mutex: _forking.Mutex, stay: Callable[[], None]) -> None:
    with mutex():
        stay()


def take(mutex: _forking.Mutex) -> None:
    with mutex():
        pass


def test_a_mutex_is_free_in_a_child() -> None:
    mutex = _forking.Mutex()
    with Inside(lambda stay: hold(mutex, stay)):
        assert ends(lambda: take(mutex))
    with mutex():  # held by the thread that forks: taken again, and left, in both
        assert ends(lambda: take(mutex))
    assert ends(lambda: take(mutex))


def test_a_fork_waits_for_what_must_not_stay_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forking, "_whole", [])
    mutex, done = _forking.Mutex(whole=True), []

    def work(stay: Callable[[], None]) -> None:
        with mutex():
            stay()
            done.append(1)

    with Inside(work) as inside:
        threading.Timer(0.1, inside.leave.set).start()
        assert ends(lambda: take(mutex) or done[0])
    with mutex():  # not for itself
        assert ends(lambda: take(mutex))


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Imports a module of the package whose body takes as long as it is told to."""
    import baracuda_py

    (tmp_path / "slow_body.py").write_text("import baracuda_py\nbaracuda_py._stay()\nwhole = 1\n")
    monkeypatch.setattr(baracuda_py, "__path__", [*baracuda_py.__path__, str(tmp_path)])

    def load(stay: Callable[[], None]) -> None:
        monkeypatch.setattr(baracuda_py, "_stay", stay, raising=False)
        __import__("baracuda_py.slow_body")

    yield load
    sys.modules.pop("baracuda_py.slow_body", None)


def test_a_fork_waits_for_an_import(slow_module: Callable[[Callable[[], None]], None]) -> None:
    def use() -> None:
        module: Any = __import__("baracuda_py.slow_body", fromlist=["whole"])
        assert module.whole

    with Inside(slow_module) as inside:
        threading.Timer(0.1, inside.leave.set).start()
        assert ends(use)


def test_a_fork_waits_for_an_import_that_waits_for_loggings_lock(tmp_path: Path) -> None:
    (tmp_path / "slow_body.py").write_text("import baracuda_py\nbaracuda_py.stay()\n")
    ran = subprocess.run([sys.executable, "-c", LOGS, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "0\n", ran.stderr


LOGS = """
import os, sys, threading, time
import baracuda_py
import logging

entered = threading.Event()

def stay():
    entered.set()
    time.sleep(0.3)  # the other thread forks
    logging.getLogger("baracuda_py.slow_body")

baracuda_py.stay = stay
baracuda_py.__path__.append(sys.argv[1])
threading.Thread(target=__import__, args=("baracuda_py.slow_body",), daemon=True).start()
entered.wait()
child = os.fork()
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


def test_children_of_threads_that_make_formulas() -> None:
    """Every lock between a formula and its result, in a fresh process."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", FORMULAS], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "0\n", ran.stderr


FORMULAS = """
import itertools, os, threading, time
import numpy as np
import baracuda_py as bc

x, count, over = np.ones(5, np.float32), itertools.count(), False

def work():
    while not over:
        bc.elementwise(f"x * {next(count)}.5 + exp(x)")(x)

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
failed = 0
for i in range(12):
    time.sleep(0.01 * i)
    child = os.fork()
    if child == 0:
        bc.elementwise(f"x - {i}.125")(x)
        os._exit(0)
    until = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until:
        time.sleep(0.005)
    if not ended[0]:
        os.kill(child, 9)
        ended = os.waitpid(child, 0)
    failed += ended[1] != 0
over = True
print(failed)
"""


@pytest.mark.usefixtures("emulation")  # takes NVRTC
def test_a_process_ends_while_a_daemon_thread_compiles() -> None:
    ran = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, f"it ended with {ran.returncode}\n{ran.stderr}"


COMPILES = """
import threading
from baracuda_py.core.errors import CompileError
from baracuda_py.jit import nvrtc

compiler, begun = nvrtc.load(), threading.Event()
body = "".join(f"p[{i}] = p[{i + 1}] * p[{i + 2}] + __sinf(p[{i + 3}]);" for i in range(200))
text = 'extern "C" __global__ void k(float* p) {' + body + "}"

def work():
    while True:
        begun.set()
        try:
            compiler.compile(text, "k.cu", ("--gpu-architecture=sm_80",))
        except CompileError as error:
            assert "exiting" in str(error)
            return

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
threading.Event().wait(0.3)
"""
