"""BARACUDA_CHECK of slot mappings and of pages to copy: kernels tell of what NumPy tells of, and write the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checked_emulated import check_emulated

import baracuda_py as bc
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

PAGES, SIZE = 5, 4
SLOTS = {
    "all there": ([3, 0, PAGES * SIZE - 1], False), "padding": ([-1, 7, -(2**62)], False),
    "one behind": ([3, PAGES * SIZE, 0], True), "far behind": ([2**62, 1, -1], True),
}  # fmt: skip
PAIRS = {
    "all there": ([[0, 1], [0, 2]], False), "padding": ([[9, -1], [-4, -7]], False), "no source": ([[-1, 1]], True),
    "source behind": ([[PAGES, 1], [0, 2]], True), "target behind": ([[0, 2**40], [0, 2]], True),
}  # fmt: skip


def both(plan: Any, desc: Any, made: Any, wrong: bool, written: tuple[str, ...]) -> None:
    """The plan on the emulator, checked, and on the NumPy backend, checked and not."""
    held = [made() for _ in range(3)]
    failed = []
    with emulating():
        chosen = plan.select(desc, device=emulated_device(9.0))
        views = {
            n: [pointer_view(x) for x in a] if isinstance(a, list) else pointer_view(a) for n, a in held[0].items()
        }
        try:
            chosen.run(plan.args(**views))
        except bc.InvalidProblemError:
            failed.append("device")
    try:
        plan.select(desc, device="cpu").run(plan.args(**held[1]))
    except bc.InvalidProblemError:
        failed.append("host")
    assert failed == (["device", "host"] if wrong else [])
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BARACUDA_CHECK")
        plan.select(desc, device="cpu").run(plan.args(**held[2]))
    for name in written:
        np.testing.assert_array_equal(held[0][name], held[2][name])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", SLOTS)
def test_slots(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    slots, wrong = SLOTS[case]
    check_emulated(monkeypatch)
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 3, 2, 8), dtype=np.float32)

    def made() -> dict[str, Any]:
        caches = {name: np.zeros((PAGES, 2, SIZE, 8), np.float32) for name in ("k_cache", "v_cache")}
        return {"k_new": k.copy(), "v_new": v.copy(), "slot_mapping": np.array(slots), **caches}

    desc = bc.PagedKvAppendDescriptor(
        num_tokens=3, num_heads=2, num_pages=PAGES, page_size=SIZE, d_k=8, d_v=8, element="float32"
    )
    both(bc.PagedKvAppendPlan, desc, made, wrong, ("k_cache", "v_cache"))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", PAIRS)
def test_pairs(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    pairs, wrong = PAIRS[case]
    check_emulated(monkeypatch)
    rng = np.random.default_rng(0)
    caches = rng.standard_normal((3, PAGES, SIZE, 8), dtype=np.float32)

    def made() -> dict[str, Any]:
        return {"caches": [one.copy() for one in caches], "pairs": np.array(pairs)}

    desc = bc.CopyPagesDescriptor(shapes=tuple(one.shape for one in caches), num_pairs=len(pairs), element="float32")
    both(bc.CopyPagesPlan, desc, made, wrong, ("caches",))
