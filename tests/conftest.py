"""What every test shares: the `gpu` marker, hypothesis profiles, one kernel cache, compilation of all units at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import hypothesis
import pytest

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
    if config.option.unseen and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(Path(config.option.unseen)))


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped, with what to type, where there is no device; those seen to pass are left out."""
    file = Path(config.option.unseen or os.devnull)
    if seen := set(file.read_text().splitlines() if file.exists() else ()):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in seen])
        items[:] = [item for item in items if item.nodeid not in seen]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and devices() == 0:
        skip = pytest.mark.skip(
            reason="needs a CUDA device: run `python -m pytest tests -m gpu` on a machine with a GPU"
        )
        for item in marked:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Registers and spilled bytes of the tensor-core kernels, of their instances the most."""
    reports = [r for r in terminalreporter.getreports("passed") if r.when == "call"]
    found = [tuple(value) for report in reports for key, value in report.user_properties if key == "kernel"]
    rows = dict.fromkeys(found)  # rows of a table may share a kernel
    if rows:
        terminalreporter.section("tensor-core kernels: most registers a thread, bytes spilled out + in")
        for symbol, target, registers, spilled in rows:
            terminalreporter.write_line(f"{symbol:<64} {target:<8} {registers:>3}  {spilled}")
