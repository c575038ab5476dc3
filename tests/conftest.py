"""What every test shares: the `gpu` marker, hypothesis profiles, one kernel cache, compilation of all units at once."""

from __future__ import annotations

import gc
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest

TESTS = Path(__file__).parent

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.register_profile("random", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# `Relative` bounds are measured by the formula in NumPy, whose products are BLAS's: one kind of it on every x86.
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

# A worker of xdist has a core: torch and BLAS, which would take all of them in each, are told before they load.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Kernels compiled by one test serve the others, and the next run; the user's own cache is left alone.
os.environ.setdefault("BARACUDA_CACHE_DIR", str(Path(tempfile.gettempdir(), f"baracuda-tests-{os.getuid()}")))


@pytest.fixture(scope="session")
def emulation() -> None:
    """What runs kernels without a GPU, or a skip."""
    from baracuda_py.testing.emulator import missing

    if (why := missing()) is not None:
        pytest.skip(f"kernels not emulated, which takes NVRTC and g++: {why}")


@pytest.fixture(autouse=True)
def _own_numbers(request: pytest.FixtureRequest) -> None:
    """What a test draws from its module's generators depends on its name alone, not on what its worker ran before."""
    for generator in generators(request.module):
        generator.bit_generator.state = type(generator.bit_generator)(zlib.crc32(request.node.name.encode())).state


@cache
def generators(module: ModuleType) -> list[np.random.Generator]:
    """NumPy's generators among the names of a module."""
    return [value for value in vars(module).values() if isinstance(value, np.random.Generator)]


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls on arrays of the host go through `Plan.run`, where a test watches them, also where they need not."""
    from baracuda_py.backends.numpy_direct import Direct
    from baracuda_py.core.execution import MISS

    monkeypatch.setattr(Direct, "call", lambda self, *given: MISS)


@pytest.fixture(params=["numpy", "emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> str:
    """Where `baracuda_py.testing.places.call` runs: each backend that a machine has."""
    if request.param == "emulator":
        request.getfixturevalue("emulation")
    return str(request.param)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--unseen FILE`: a run where more is installed, torch and JAX, that repeats nothing of one without them."""
    parser.addoption(
        "--unseen", metavar="FILE", help="leave out the tests that FILE says have passed, and add those that pass now"
    )
    parser.addoption(
        "--emulations", metavar="FILE", help="append the keys of emulated tests that pass (tests/emulations.py)"
    )


class Passed:
    """Writes the names of the tests that pass to a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.names = file, list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.names.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        with self.file.open("a") as held:
            held.writelines(f"{name}\n" for name in self.names)


def pytest_configure(config: pytest.Config) -> None:
    """Where tests are spread over workers, the process that they report to writes the file."""
    config.stash[LEFT_OUT] = set()
    if config.option.emulations:
        import emulations

        emulations.note(config.option.emulations)
    config.option.loadscopereorder = False  # of xdist, which would go by the number of tests
    if config.option.unseen and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(Path(config.option.unseen)))


@cache
def devices() -> int:
    """CUDA devices the driver reports."""
    from baracuda_py.core.device import driver_device_count

    return driver_device_count()


@pytest.fixture(autouse=True)
def _first_device(request: pytest.FixtureRequest) -> None:
    """JAX leaves the last of several GPUs current; tests make their arrays on the first."""
    if request.node.get_closest_marker("gpu"):
        from cupy.cuda import runtime

        runtime.setDevice(0)


QUICK = ("core", "ops", "schedules", "test_exports.py", "test_ops.py", "test_stub.py", "test_words.py")
"""What `pytest -m quick` runs of, under `tests/`: nothing emulated or compiled, no wide sweep over values, and of the
checks of every op (`test_ops.py`) its layouts and its launches."""


def quick(item: pytest.Item) -> bool:
    """Whether a test is one of a first look, see `QUICK`."""
    path = item.path.relative_to(TESTS)
    sweeps = "everywhere" in path.name or path.name == "test_rehearsal.py"
    dear = "emulation" in _fixtures(item) or sweeps or path.parts[0] not in QUICK
    return not dear and (path.name != "test_ops.py" or item.name.endswith(("-layouts]", "-launches]")))


def _fixtures(item: pytest.Item) -> set[str]:
    """The fixtures that a test uses, also those that a place asks for."""
    place = getattr(item, "callspec", None)
    places = [value for value in place.params.values() if isinstance(value, str)] if place is not None else []
    return {*getattr(item, "fixturenames", ()), *(["emulation"] if "emulator" in places else [])}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A quick run does not load what it leaves out: of 25 s of collection that is half."""
    if config.option.markexpr != "quick" or not collection_path.is_relative_to(TESTS) or collection_path == TESTS:
        return None
    return collection_path.relative_to(TESTS).parts[0] not in QUICK or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so that looking through it for garbage, again and again, is in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Of what emulates, `tests/emulations.lock` may say that it has passed as it is."""
    import emulations

    return emulations.run(pyfuncitem)


LEFT_OUT = pytest.StashKey[set[str]]()  # tests, by function, that only a GPU could run


def marked_gpu(collector: pytest.Collector, test: object) -> bool:
    """Whether a function has the mark `gpu`, or its class, or its module."""
    holders = [test, *(node.obj for node in collector.listchain() if isinstance(node, pytest.Module | pytest.Class))]
    marks = [mark for holder in holders for mark in _listed(getattr(holder, "pytestmark", ()))]
    return any(getattr(mark, "name", "") == "gpu" for mark in marks)


def _listed(marks: object) -> Iterable[object]:
    return marks if isinstance(marks, (list, tuple)) else (marks,)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Without a GPU what is marked `gpu` is not collected: a third of all tests, each of which costs a little."""
    if not name.startswith("test") or not marked_gpu(collector, obj) or devices() > 0:
        return None
    collector.config.stash[LEFT_OUT].add(f"{collector.nodeid}::{name}")
    return []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests seen to pass and, without a GPU, parameters marked `gpu`; marks the `quick` ones.

    Workers get the files with the most emulated tests first: what is left at the end is short.
    """
    file = Path(config.option.unseen or os.devnull)
    if seen := set(file.read_text().splitlines() if file.exists() else ()):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in seen])
        items[:] = [item for item in items if item.nodeid not in seen]
    if devices() == 0:
        marked = [item for item in items if item.get_closest_marker("gpu")]
        config.stash[LEFT_OUT].update(item.nodeid.partition("[")[0] for item in marked)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    for item in filter(quick, items):
        item.add_marker("quick")
    if hasattr(config, "workerinput"):
        emulated = Counter(item.path for item in items if "emulation" in _fixtures(item))
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (-emulated[item.path], -sizes[item.path]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells what it left out to the process that sums up; every worker collects the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = sorted(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker told."""
    node.config.stash[LEFT_OUT].update(getattr(node, "workeroutput", {}).get("left_out", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was left out, and registers and spilled bytes of the tensor-core kernels, of their instances the most."""
    if left_out := config.stash[LEFT_OUT]:
        files = {name.partition("::")[0] for name in left_out}
        terminalreporter.write_line(
            f"not collected: {len(left_out)} tests of {len(files)} files need a CUDA device; run "
            "`python -m pytest tests -m gpu` on a machine with a GPU"
        )
    reports = [r for r in terminalreporter.getreports("passed") if r.when == "call"]
    found = [tuple(value) for report in reports for key, value in report.user_properties if key == "kernel"]
    rows = dict.fromkeys(found)  # rows of a table may share a kernel
    if rows:
        terminalreporter.section("tensor-core kernels: most registers a thread, bytes spilled out + in")
        for symbol, target, registers, spilled in rows:
            terminalreporter.write_line(f"{symbol:<64} {target:<8} {registers:>3}  {spilled}")
