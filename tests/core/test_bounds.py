"""A server that meets ever new shapes, strides and alignments keeps so much and no more."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest
from frame_toys import AxpyDescriptor, AxpyPlan
from test_runner import H, array, call, plan

from baracuda_py.backends.cuda import direct as direct_module
from baracuda_py.backends.cuda import hotpath
from baracuda_py.backends.cuda import runner as runner_module
from baracuda_py.calls.functional import functional
from baracuda_py.core import PlanPreference, memo
from baracuda_py.testing import pointer_view, recording


def layouts(chosen: Any) -> dict[Any, Any]:
    return chosen.runner.layouts["cupy"]


def test_layouts_of_a_plan() -> None:
    chosen, y = plan(2, 4), array(2, 4)
    memory, seen = array(2 * 5000), 0
    with recording() as record:
        for pitch in range(4, 1500):
            chosen.run(call(memory[: 2 * pitch].reshape(2, pitch)[:, :4], y))
            seen = max(seen, len(layouts(chosen)))
            record.allocations.clear()
            record.launches.clear()
        assert seen == hotpath.LAYOUTS and len(layouts(chosen)) <= seen
        chosen.run(call(memory[:8].reshape(2, 4), y))
        assert len(record.launches) == 1


def test_alignments_of_a_layout() -> None:
    chosen = AxpyPlan(AxpyDescriptor(shape=(3,), element="float16"), PlanPreference(), H)

    def at(offset: int) -> np.ndarray:
        return array(16, dtype="float16")[offset : offset + 3]

    with recording() as record:
        for i, j, k in itertools.product(range(8), repeat=3):
            chosen.run(call(at(i), at(j), bias=pointer_view(at(k))))
            record.allocations.clear()
            record.launches.clear()
        (layout,) = layouts(chosen).values()
        assert 1 < len(layout.by_alignment) <= runner_module._ALIGNMENTS


def test_entries_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["baracuda_py.calls.call"]
    monkeypatch.setattr(module, "_CAPACITY", 20)
    axpy = functional(AxpyPlan)
    cache, before = list(memo._known.values())[-1], len(memo._known)
    for n in range(100):
        assert axpy(np.ones(n, np.float32)).tolist() == [2.0] * n
        assert len(cache) <= 20
    assert len(memo._known) == before


def test_launches_of_the_direct_path() -> None:
    class Made(direct_module.Direct):
        def __init__(self, chosen: Any) -> None:
            self.runner, self.package, self.prepared, self.views = chosen.runner, "cupy", {}, None

    chosen, y, memory = plan(2, 4), array(2, 4), array(2 * 5000)
    known = Made(chosen)
    with recording() as record:
        for pitch in range(4, 1500, 4):
            args = call(memory[: 2 * pitch].reshape(2, pitch)[:, :4], y)
            chosen.run(args)
            arrays = {name: getattr(args, name) for name in ("x", "bias", "y", "total")}
            for layout in layouts(chosen).values():
                for prepared in layout.by_alignment.values():
                    prepared.workspace = 0
            known.learn(arrays)
            assert len(known.prepared) <= hotpath.LAYOUTS
            record.allocations.clear()
            record.launches.clear()
    assert known.prepared


def test_keep_is_a_bound_and_forgets_nothing_else() -> None:
    records: dict[int, str] = {}
    for n in range(10):
        assert memo.keep(records, n, str(n), 4) == str(n)
        assert memo.keep(records, n, "again", 4) == str(n), "what is there stays"
        assert len(records) <= 4
    assert memo.keep(records, 9, "again", 2) == "9" and len(records) == 2
