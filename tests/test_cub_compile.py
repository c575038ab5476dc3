"""The block algorithms that CUB is measured against compute what CUB's would: benchmarks/cub_compile.py, emulated."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from baracuda_py.core.unit import Unit
from baracuda_py.testing.emulator import run_kernel, translated

pytestmark = pytest.mark.usefixtures("emulation")
FOLDER = Path(__file__).parents[1] / "benchmarks"
Run = Callable[[str, np.ndarray, np.ndarray], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a kernel of the benchmark on two blocks."""
    monkeypatch.syspath_prepend(str(FOLDER))
    units = importlib.import_module("cub_compile").UNITS

    def launch(name: str, x: np.ndarray, y: np.ndarray) -> None:
        unit = Unit("cub_compile", "".join(units[name]), symbols=("kernel",))
        params = np.array([x.ctypes.data, y.ctypes.data], np.uint64).tobytes()
        run_kernel(translated(unit, "sm_90", "kernel"), "kernel", (2, 1, 1), (256, 1, 1), 0, params, 1)

    return launch


def test_each_block_sorts_its_pairs_and_keeps_the_order_of_equals(run: Run) -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**32, (2, 2048), np.uint32)
    keys[:, ::3] %= 5
    values = np.arange(4096, dtype=np.uint32).reshape(2, 2048)
    order = np.argsort(keys, axis=1, kind="stable")
    wanted = np.take_along_axis(keys, order, 1), np.take_along_axis(values, order, 1)
    run("block sort, ours", keys, values)
    assert (keys == wanted[0]).all() and (values == wanted[1]).all()


@pytest.mark.parametrize("name, width", [("warp sum, ours", 32), ("block sum, ours", 256), ("block scan, ours", 256)])
def test_sums_and_scans(run: Run, name: str, width: int) -> None:
    x = np.random.default_rng(1).integers(-50, 50, 512).astype(np.float32)  # whole numbers: any order is exact
    y = np.full(512, np.nan, np.float32)
    run(name, x, y)
    groups = x.reshape(-1, width)
    wanted = groups.cumsum(1) if "scan" in name else np.broadcast_to(groups.sum(1, keepdims=True), groups.shape)
    assert (y == wanted.ravel()).all()
