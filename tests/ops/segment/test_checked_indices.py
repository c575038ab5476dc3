"""Indices that name nothing, on purpose and by mistake, in checked runs: on the NumPy backend and on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checked_emulated import check_emulated

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.testing.places import call


@pytest.fixture(autouse=True)
def _checked(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if place == "emulator":
        check_emulated(monkeypatch)
    monkeypatch.setenv("BARACUDA_CHECK", "1")


def order(place: str, ids: Any, segments: int, **facts: Any) -> Any:
    """The places of tokens."""
    held = np.asarray(ids, np.int32)
    desc = bc.SegmentOrderPlan.descriptor(tokens=held.size, num_segments=segments, element="int64", **facts)
    return call(bc.SegmentOrderPlan, desc, ("order", "offsets", "places", "rows"), place, ids=held)["places"].tolist()


@pytest.mark.parametrize("segments", [3, 2000])  # sorted by counts, and by radix
def test_ids_of_tokens_in_order(place: str, segments: int) -> None:
    assert order(place, [2, -1, 0], segments) == [1, -1, 0]
    for wrong in (segments, -2):
        with pytest.raises(InvalidProblemError, match="segment_order"):
            order(place, [2, wrong, 0], segments)
        assert order(place, [2, wrong, 0], segments, others=True) == [1, -1, 0]


def test_experts_of_other_devices(place: str) -> None:
    """As `moe_permute` says; its second launch takes rows of which some are nothing."""
    if place == "emulator":
        pytest.skip("the function's two launches are tested one by one")
    xp = np if place == "numpy" else pytest.importorskip("cupy")
    _, offsets, places = bc.moe_permute(xp.ones((2, 4)), xp.array([[0, -1], [5, 1]]), num_experts=2)
    assert offsets.tolist() == [0, 1, 2] and places.tolist() == [[0, -1], [-1, 1]]


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
@pytest.mark.parametrize("rows", [4, 2000])
@pytest.mark.parametrize("wanted", ["dx", "dweight"])
def test_rows_that_a_gradient_leaves_out(place: str, wanted: str, rows: int, kind: str) -> None:
    dy, x, weight = np.ones((2, 4), np.float32), np.ones((rows, 4), np.float32), np.ones(3, np.float32)

    def gradient(src: Any, index: Any = (0, 0, 1), **facts: Any) -> np.ndarray:
        desc = bc.GatherScatterBackwardPlan.descriptor(
            kind=kind, rows=rows, tokens=3, num_segments=2, row_shape=(4,), by="ids", element="float32", **facts
        )
        saved = {"arg": np.zeros((2, 4), np.int64)} if kind == "max" else {}
        saved |= {"count": np.array([1, 1])} if kind == "mean" else {}
        operands = {"src": np.array(src), "index": np.array(index), "weight": weight, **saved}
        found = call(bc.GatherScatterBackwardPlan, desc, (wanted,), place, dy=dy, x=x, **operands)[wanted]
        return np.asarray(found)

    last = 0 if kind == "max" else 1 if wanted == "dx" else 4  # of max the second segment's token is another
    found = gradient([1, -1, 3])
    assert np.isfinite(found).all() and found[3 if wanted == "dx" else 2].ravel()[0] == last
    gradient([1, 2, 3], padding_idx=2)
    for src, facts in (([1, rows, 3], {}), ([1, -2, 3], {}), ([1, -1, 3], {"padding_idx": 2})):
        with pytest.raises(InvalidProblemError, match="gather_scatter_backward"):
            gradient(src, **facts)
    with pytest.raises(InvalidProblemError, match="gather_scatter_backward"):
        gradient([1, 2, 3], (0, -1, 1))


def test_no_id_of_a_segment_is_left_out(place: str) -> None:
    desc = bc.SegmentReducePlan.descriptor(
        kind="sum", tokens=3, num_segments=2, row_shape=(4,), by="ids", element="float32"
    )
    x = np.ones((3, 4), np.float32)
    call(bc.SegmentReducePlan, desc, ("y",), place, x=x, index=np.array([0, 1, 1]))
    for wrong in (-1, 2):
        with pytest.raises(InvalidProblemError, match="segment_reduce"):
            call(bc.SegmentReducePlan, desc, ("y",), place, x=x, index=np.array([0, wrong, 1]))
