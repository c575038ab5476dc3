"""One compile among processes and threads, whatever becomes of the one that does it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from baracuda_py.core import lock
from baracuda_py.core.errors import CompileError
from baracuda_py.core.lock import exclusive
from baracuda_py.jit import Cache, Cubin, Unit, compile_unit, source, toolkit
from baracuda_py.jit import compiler as module
from baracuda_py.jit.nvrtc import Nvrtc

ROOT = Path(toolkit.__file__).parents[2]
TARGET = "sm_80"


def processes(count: int, script: str) -> list[subprocess.Popen[str]]:
    """As many, all past their imports; each goes on when it gets a line."""
    start = f"import sys, pathlib\nsys.path.insert(0, {str(ROOT)!r})\nfrom baracuda_py.jit import *\n"
    start += "from baracuda_py.core import lock\nfrom baracuda_py.jit import source\n"
    text = start + script.replace("WAIT", "print('ready', flush=True); sys.stdin.readline()")
    made = [
        subprocess.Popen([sys.executable, "-c", text], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    for process in made:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return made


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def compiling(kernels: Path, demo: Unit) -> str:
    return (
        f"source.kernel_root = lambda: pathlib.Path({str(kernels)!r})\n"
        f"WAIT\nprint(compile_unit({demo!r}, {TARGET!r}).cached)"
    )


@pytest.mark.parametrize("count", [2, 5])
def test_cold_processes_compile_once(
    compiler: Nvrtc, cache: Cache, kernels: Path, demo: Unit, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = processes(count, compiling(kernels, demo))
    for process in made:
        go(process)
    said = [process.communicate(timeout=60)[0].strip() for process in made]
    assert sorted(said) == ["False", *["True"] * (count - 1)]
    assert not list(cache.dir.rglob("*.lock"))


HOLD = """
WAIT
with lock.exclusive(pathlib.Path(PATH)):
    print('held', flush=True)
    sys.stdin.readline()
print('done', flush=True)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until it gets a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (process,) = processes(1, HOLD.replace("PATH", repr(str(path))))
    go(process)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_waited_for_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    process = holder(path)
    entered: list[float] = []

    def enter() -> None:
        with exclusive(path):
            entered.append(time.monotonic())
            assert path.exists()

    thread = threading.Thread(target=enter)
    thread.start()
    time.sleep(0.3)
    assert not entered
    left = time.monotonic()
    go(process)
    thread.join(10)
    assert entered and entered[0] >= left
    assert process.communicate(timeout=10)[0] == "done\n"
    assert not any(tmp_path.iterdir()) and not lock._held


def test_a_holder_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    process = holder(tmp_path / "a.lock")
    process.kill()
    process.wait()
    assert (tmp_path / "a.lock").exists(), "what it leaves behind"
    start = time.monotonic()
    with exclusive(tmp_path / "a.lock"):
        assert time.monotonic() - start < 5
    assert not any(tmp_path.iterdir())


def test_a_holder_that_was_stopped_is_waited_for_only_so_long(
    compiler: Nvrtc, cache: Cache, demo: Unit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = module.cache_key(demo, TARGET, source.flatten(demo.text, f"{demo.name}.cu"), cache)
    process = holder(cache._path(key, "lock"))
    process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.2)
    assert not compile_unit(demo, TARGET).cached
    assert "doing it here" in caplog.text
    assert compile_unit(demo, TARGET).cached
    process.send_signal(signal.SIGCONT)
    go(process)
    assert process.communicate(timeout=10)[0] == "done\n"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
def test_a_filesystem_without_locks(
    compiler: Nvrtc, cache: Cache, demo: Unit, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not compile_unit(demo, TARGET).cached and compile_unit(demo, TARGET).cached


def test_a_system_without_locks(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with cache.claim("ab"):
        pass
    lock.remove_stale(cache._path("ab", "lock"))


def test_clear_leaves_a_lock_that_is_held_and_takes_one_that_is_not(cache: Cache) -> None:
    held, left = cache._path("ab", "lock"), cache._path("cd", "lock")
    process = holder(held)
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    cache.clear()
    assert held.exists() and not left.exists()
    go(process)
    process.communicate(timeout=10)


def test_a_forked_child_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with exclusive(path):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        start = time.monotonic()
        with exclusive(path):
            assert time.monotonic() - start < 5
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_forked_under_a_lock_does_not_end_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    child = 0
    with exclusive(path):
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert path.exists()
            (handle,) = lock._held
            assert os.path.samestat(os.fstat(handle), path.stat())
    if not child:  # has left the context, which is its parent's
        os._exit(0)
    assert not path.exists()


STRESS = """
import os, random
WAIT
from baracuda_py.jit.cache import make_key
cache, rng = Cache(pathlib.Path(PATH)), random.Random(os.getpid())
found = 0
for step in range(100):
    n = rng.randrange(6)
    image = bytes([n]) * (1000 + 500 * n)
    with cache.claim(make_key((str(n),))):
        made = cache.lookup(make_key((str(n),)))
        found += made is not None
        made = made or cache.store(make_key((str(n),)), "s", Cubin(None, image, {}, 0.1, cached=False), {})
    assert made.image == image
    if rng.random() < 0.1:
        cache.clear()
print(found, len(cache._memory))
"""


def test_processes_that_store_read_evict_and_clear(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wins, every image is the right one, nothing is reported damaged, nothing is left behind."""
    monkeypatch.setenv("BARACUDA_CACHE_MAX_BYTES", "9000")
    made = processes(4, STRESS.replace("PATH", repr(str(cache.dir))))
    for process in made:
        go(process)
    said = [process.communicate(timeout=100)[0].split() for process in made]
    assert [process.returncode for process in made] == [0] * 4
    assert all(int(found) > 0 and kept == "0" for found, kept in said), said
    assert not list(cache.dir.rglob("*.lock")) and not list(cache.dir.rglob("*.tmp"))


def test_clear_beside_a_compile(
    compiler: Nvrtc, cache: Cache, demo: Unit, monkeypatch: pytest.MonkeyPatch, compiles: list[str]
) -> None:
    """Before, between and after its files: the compile ends well, and the entry is whole or absent."""
    real_replace, real_compile = os.replace, Nvrtc.compile
    cleared: list[str] = []

    def clear(when: str) -> None:
        cleared.append(when)
        Cache(cache.dir).clear()

    def compile(self: Nvrtc, *args: object) -> object:
        clear("compile")
        return real_compile(self, *args)  # type: ignore[arg-type]

    def replace(a: str, b: Path) -> None:
        clear(b.suffix)
        real_replace(a, b)
        clear(f"after {b.suffix}")

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Nvrtc, "compile", compile)
    assert compile_unit(demo, TARGET).kernels
    assert {"compile", ".cu", ".cubin", "after .cubin"} <= set(cleared)
    monkeypatch.setattr(os, "replace", real_replace)
    assert compile_unit(demo, TARGET).kernels and compile_unit(demo, TARGET).cached
    assert not list(cache.dir.rglob("*.tmp")) and not list(cache.dir.rglob("*.lock"))


# --- threads: one compile, and whose interruption it is


def ask(count: int, act: Callable[[], Cubin]) -> tuple[list[threading.Thread], list[object]]:
    found: list[object] = []

    def work() -> None:
        try:
            found.append(act())
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    return threads, found


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, OSError])
def test_what_interrupts_one_thread_is_not_raised_in_those_that_wait(
    cache: Cache, demo: Unit, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, waiting, calls = threading.Event(), threading.Event(), []

    def compile(unit: Unit, target: str, text: str, key: str, cache: Cache) -> Cubin:
        calls.append(threading.get_ident())
        if len(calls) == 1:
            first.set()
            assert waiting.wait(30)
            time.sleep(0.2)  # for those that wait to wait indeed
            raise error
        return cache.store(key, text, Cubin(None, b"image", {}, 0.1, cached=False), {})

    monkeypatch.setattr(module, "_compile", compile)
    (owner,), broken = ask(1, lambda: compile_unit(demo, TARGET))
    owner.start()
    assert first.wait(30)
    threads, found = ask(4, lambda: compile_unit(demo, TARGET))
    for thread in threads:
        thread.start()
    waiting.set()
    for thread in (owner, *threads):
        thread.join(30)
    assert [type(one) for one in broken] == [error]
    assert [getattr(one, "image", one) for one in found] == [b"image"] * 4
    assert len(calls) == 2, "one of those that waited compiles, once"
    assert not module._in_flight


def test_a_unit_that_does_not_compile_does_so_for_all(
    cache: Cache, demo: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, barrier = [], threading.Barrier(4)

    def compile(*_: object) -> Cubin:
        calls.append(1)
        time.sleep(0.3)
        raise CompileError("no")

    def act() -> Cubin:
        barrier.wait()
        return compile_unit(demo, TARGET)

    monkeypatch.setattr(module, "_compile", compile)
    threads, found = ask(4, act)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [type(one) for one in found] == [CompileError] * 4 and len(calls) == 1 and not module._in_flight


def test_interrupted_anywhere_nobody_waits_for_ever(cache: Cache, demo: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the cache is looked at, or while another process is waited for."""
    real = Cache.lookup
    for name in ("lookup", "claim"):
        with monkeypatch.context() as patch:

            def interrupt(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(Cache, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                compile_unit(demo, TARGET)
        assert not module._in_flight
    assert Cache.lookup is real
    logging.getLogger("baracuda_py.jit").debug("done")
