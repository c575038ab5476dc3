"""copy_pages: which pages become which, padding and pages that do not exist, other caches, layouts, launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.ops.attention.cache.copy_pages import CopyPagesArgs, CopyPagesDescriptor, CopyPagesPlan
from baracuda_py.testing import emulated_device
from baracuda_py.testing.recording import pointer_view, recording

PAGES = 9


def caches(count: int = 3, page: tuple[int, ...] = (2, 4, 8), dtype: Any = np.float32, pages: int = PAGES) -> list[Any]:
    rng = np.random.default_rng(count)
    return [rng.integers(0, 100, (pages, *page)).astype(dtype) for _ in range(count)]


def check(held: list[Any], pairs: Any, copied: list[tuple[int, int]], sources: list[Any] | None = None) -> None:
    wanted = [one.copy() for one in held]
    for one, source in zip(wanted, held if sources is None else sources, strict=True):
        for source_page, page in copied:
            one[page] = source[source_page]
    result = bc.copy_pages(held, pairs, sources)
    for one, got, want in zip(held, result, wanted, strict=True):
        assert got is one
        np.testing.assert_array_equal(one, want)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_every_cache_has_its_own_pages_copied(dtype: Any) -> None:
    check(caches(), np.array([[0, 3], [0, 8], [5, 1]], dtype), [(0, 3), (0, 8), (5, 1)])


def test_padding_and_pages_that_do_not_exist() -> None:
    wild = np.array([[0, -1], [-1, 2], [PAGES, 3], [4, PAGES], [2**62, 5], [1, -(2**63)], [6, 7]])
    check(caches(), wild, [(6, 7)])


def test_a_pool_of_another_size_is_read() -> None:
    check(caches(2), np.array([[15, 0], [3, 8], [16, 1]]), [(15, 0), (3, 8)], caches(2, pages=16))


def test_no_caches_no_pairs_no_elements() -> None:
    assert bc.copy_pages([], np.zeros((2, 2), int), element="float32") == []
    check(caches(), np.zeros((0, 2), int), [])
    check(caches(page=(2, 0)), np.array([[0, 1]]), [])


def test_pages_seen_with_other_axes_first() -> None:
    """NHD memory seen as HND, and keys and values that lie in one page."""
    nhd = [np.swapaxes(one, 1, 2) for one in caches(2, (4, 2, 8))]
    joint = caches(1, (2, 2, 4, 8))[0]
    check([*nhd, joint[:, 0], joint[:, 1]], np.array([[2, 0]]), [(2, 0)])


def test_checked_run_names_the_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    bc.copy_pages(caches(), np.array([[0, 1], [7, -1]]))
    with pytest.raises(bc.InvalidProblemError, match=r"pairs\[1\] names a page that does not exist"):
        bc.copy_pages(caches(), np.array([[0, 1], [PAGES, 2]]))
    with pytest.raises(bc.InvalidProblemError, match=r"pairs\[0\]"):
        bc.copy_pages(caches(2), np.array([[3, 1]]), caches(2, pages=3))


@pytest.mark.parametrize(
    ("given", "pairs", "sources", "said"),
    [
        (caches(2), [[0, 1]], caches(1), "a cache for each"),
        (caches(2), [[0, 1]], caches(2, (2, 4, 9)), "a cache for each"),
        ([*caches(1), *caches(1, pages=3)], [[0, 1]], None, "as many pages"),
        ([np.zeros((), np.float32)], [[0, 1]], None, "num_pages"),
        (caches(1), [0, 1], None, "pairs"),
        (caches(1), [[0.0, 1.0]], None, "pairs"),
        ([*caches(1), *caches(1, dtype=np.float16)], [[0, 1]], None, "float16"),
    ],
)
def test_what_does_not_go_together_is_refused(given: Any, pairs: Any, sources: Any, said: str) -> None:
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=said):
        bc.copy_pages(given, np.array(pairs), sources)


def test_caches_alike_are_one_launch() -> None:
    alike, others = caches(130, (2, 16), np.float16), caches(2, (3, 16), np.float16)
    held = [*alike, *others]
    desc = CopyPagesDescriptor(shapes=tuple(one.shape for one in held), num_pairs=5, element="float16")
    plan = CopyPagesPlan.select(desc, device=fake_device(9.0))
    assert str(plan.sku) == "attention.copy_pages/words/float16.float16/contiguous/sm80/bespoke"
    views = [pointer_view(one) for one in held]
    with recording() as record:
        plan.run(CopyPagesArgs(caches=views, pairs=pointer_view(np.zeros((5, 2), np.int64))))
    assert [launch.grid for launch in record.launches] == [(5, 130, 1), (5, 2, 1)]


LAYOUTS = ["alike", "nhd", "joint", "apart", "odd"]


def emulated_case(layout: str) -> tuple[list[np.ndarray], Any]:
    rng = np.random.default_rng(len(layout))
    if layout == "alike":  # more than one block a page
        return list(rng.integers(0, 100, (3, 5, 2, 33, 128)).astype(np.float32)), None
    if layout == "nhd":
        return [np.swapaxes(one, 1, 2) for one in caches(3, (4, 2, 8), np.float16, 5)], None
    if layout == "joint":
        joint = caches(1, (2, 2, 4, 8), np.uint8, 5)[0]
        return [joint[:, 0], joint[:, 1], *caches(1, (2, 4, 8), np.uint8, 5)], None
    if layout == "apart":  # no page is one run
        return [one[:, :, ::2, ::-1] for one in caches(2, (2, 4, 8), np.float64, 5)], caches(
            2, (2, 2, 8), np.float64, 7
        )
    return [one[:, 1:] for one in caches(2, (3, 7), np.uint8, 5)], caches(2, (2, 7), np.uint8, 3)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_on_the_emulator(layout: str, dtype: Any) -> None:
    from baracuda_py.testing.emulator import emulating

    held, sources = emulated_case(layout)
    wanted = [one.copy() for one in held]
    wild = [[0, -1], [-1, 2], [9, 3], [4, 5], [2, 1], [0, 3]]
    for one, source in zip(wanted, sources or held, strict=True):
        one[1], one[3] = source[2], source[0]
    desc = CopyPagesDescriptor(
        shapes=tuple(one.shape for one in held), num_pairs=len(wild), element=str(held[0].dtype),
        source_shapes=tuple(one.shape for one in sources or held),
    )  # fmt: skip
    with emulating():
        plan = CopyPagesPlan.select(desc, device=emulated_device(9.0))
        args = CopyPagesArgs(
            caches=[pointer_view(one) for one in held], pairs=pointer_view(np.array(wild, dtype)),
            sources=None if sources is None else [pointer_view(one) for one in sources],
        )  # fmt: skip
        plan.run(args)
    for got, want in zip(held, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
