"""batch_paged_decode on a GPU: the bits of flash_decoding wherever the cells stand, bad tables, captured graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paged_caches import compressed, deal

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.paged.batch_paged_decode import (
    BatchPagedDecodeArgs,
    BatchPagedDecodeDescriptor,
    BatchPagedDecodePlan,
    batch_paged_decode,
)
from baracuda_py.ops.attention.decoding.flash_decoding import flash_decoding

pytestmark = pytest.mark.gpu


def make(batch: int, heads: int, kv_heads: int, cells: int, d_k: int, d_v: int, dtype: Any) -> list[Any]:
    """q and the dense caches, on the device."""
    cupy = pytest.importorskip("cupy")
    shapes = (batch, heads, d_k), (batch, kv_heads, cells, d_k), (batch, kv_heads, cells, d_v)
    return [cupy.random.standard_normal(shape, "float32").astype(dtype) for shape in shapes]


def on_device(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables' copies there."""
    cupy = pytest.importorskip("cupy")
    return {name: cupy.asarray(value) for name, value in tables.items()}


def same(got: tuple[Any, Any], want: tuple[Any, Any]) -> bool:
    """Equal bits of y and lse."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("page", [1, 3, 16, 64, 256])
@pytest.mark.parametrize(
    ("dtype", "heads", "kv_heads", "d_k", "d_v"),
    [
        ("float16", 8, 1, 128, 128), ("float16", 6, 2, 64, 72), ("float16", 1, 1, 256, 256), ("float16", 21, 1, 17, 19),
        ("float32", 8, 2, 128, 128), ("float32", 3, 3, 19, 40), ("float64", 8, 1, 64, 64),
    ],
)  # fmt: skip
def test_pages_change_no_bit(page, dtype, heads, kv_heads, d_k, d_v):
    """Dense or dealt out, either layout and table; NaN in every cell and nonsense in every slot that is not used."""
    q, k, v = make(4, heads, kv_heads, 1100, d_k, d_v, dtype)
    lengths = np.array([1100, 0, 257, 1024], np.int32)
    want = flash_decoding(q, k, v, on_device({"n": lengths})["n"], return_lse=True)
    rng = np.random.default_rng(page)
    for nhd in (False, True):
        caches, table = deal(rng, [k, v], page, np.nan, lengths=lengths, nhd=nhd)
        used = -(-lengths // page)
        padded = np.where(np.arange(table.shape[1]) < used[:, None], table, -5).astype(np.int32)
        wider = np.concatenate([padded, np.full((4, 3), 2**40)], axis=1)
        for tables in (
            {"page_table": wider, "lengths": lengths},
            {"page_table": padded, "lengths": lengths.astype(np.int64)},
            compressed(table, lengths, page, spare=2),
        ):
            layout = "nhd" if nhd else "hnd"
            assert same(batch_paged_decode(q, *caches, **on_device(tables), layout=layout, return_lse=True), want)


@pytest.mark.parametrize(("dtype", "heads"), [("float16", 16), ("float32", 4)])
def test_neighbours_change_no_bit(dtype, heads):
    """A batch that fills the device (blocks of four splits) against each sequence alone, by a table of its own."""
    cupy = pytest.importorskip("cupy")
    batch, page = cupy.cuda.Device().attributes["MultiProcessorCount"], 16
    q, k, v = make(batch, heads, 2, 2100, 64, 64, dtype)
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 2101, batch)
    lengths[:6] = 0, 1, 256, 257, 1024, 2100
    caches, table = deal(rng, [k, v], page, np.nan, lengths=lengths)
    y, lse = batch_paged_decode(q, *caches, **on_device({"page_table": table, "lengths": lengths}), return_lse=True)
    assert same((y, lse), flash_decoding(q, k, v, cupy.asarray(lengths), return_lse=True))
    for b in range(8):
        used = max(1, -(-int(lengths[b]) // page))
        alone = {"page_table": table[b : b + 1, :used], "lengths": lengths[b : b + 1]}
        got = batch_paged_decode(q[b : b + 1], *caches, **on_device(alone), return_lse=True)
        assert same(got, (y[b : b + 1], lse[b : b + 1])), int(lengths[b])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("page", [1, 16, 48])
@pytest.mark.parametrize("window", [0, 1, 300, 1030, 2**40])
def test_a_window_is_a_cache_of_its_own(dtype, page, window):
    """Bit for bit that of the tokens in it, wherever it starts in a page; what lies before has no page at all."""
    q, k, v = make(3, 8, 2, 1100, 64, 64, dtype)
    lengths = np.array([1100, 17, 1029])
    caches, table = deal(np.random.default_rng(page), [k, v], page, np.nan, lengths=lengths)
    first = np.maximum(0, lengths - 1 - window)
    table = np.where(np.arange(table.shape[1]) < (first // page)[:, None], -1, table)
    tables = on_device({"page_table": table, "lengths": lengths})
    got = batch_paged_decode(q, *caches, **tables, window_left=window, return_lse=True)
    for b, (start, n) in enumerate(zip(first.tolist(), lengths.tolist(), strict=True)):
        one = [a[b : b + 1] for a in (q, k[:, :, start:n], v[:, :, start:n])]
        want = flash_decoding(*one, on_device({"n": np.array([n - start])})["n"], return_lse=True)
        assert same(tuple(a[b : b + 1] for a in got), want), n


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("page", [1, 8, 64])
@pytest.mark.parametrize("bad", [-1, 2**31 - 1, 2**32, -(2**63)])
def test_missing_pages_and_wild_tables(dtype, page, bad):
    q, k, v = make(3, 4, 2, 640, 64, 40, dtype)
    rng = np.random.default_rng(7)
    caches, table = deal(rng, [k, v], page, np.nan)
    table = table.astype(np.int64)
    table[0, 3], table[1, ::2], table[2] = bad, bad, bad
    host = [a.get().astype("float64") for a in (q, *caches)]
    tight = {"float16": 5e-3, "float32": 2e-6, "float64": 1e-13}[dtype]
    indices, indptr = table.reshape(-1)[: 2 * table.shape[1]], np.array([0, 2**62, -3, 5])
    for tables in (
        {"page_table": table, "lengths": np.array([640, 2**40, 9])},
        {"kv_indices": indices, "kv_indptr": indptr, "lengths": np.array([99, 640, -1])},
        {"kv_indices": indices, "kv_indptr": indptr[::-1].copy(), "kv_last_page_len": np.array([2**62, 1, -7])},
    ):
        got = batch_paged_decode(q, *caches, **on_device(tables), return_lse=True)
        for mine, want in zip(got, batch_paged_decode(*host, **tables, return_lse=True), strict=True):
            np.testing.assert_allclose(mine.get(), want, rtol=tight, atol=tight)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_checked_run(monkeypatch, dtype):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v = make(2, 4, 2, 64, 64, 64, dtype)
    caches, table = deal(np.random.default_rng(8), [k, v], 16, np.nan)
    for lengths, entry, fine in (
        ([64, 33], None, True),
        ([64, 65], None, False),
        ([64, 48], -1, True),
        ([0, 49], 99, False),
    ):
        tables = {"page_table": table.copy(), "lengths": np.array(lengths)}
        if entry is not None:
            tables["page_table"][1, 3] = entry
        if fine:
            batch_paged_decode(q, *caches, **on_device(tables))
        else:
            with pytest.raises(InvalidProblemError):
                batch_paged_decode(q, *caches, **on_device(tables))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_replay_with_lengths_and_pages_that_move_on(dtype):
    cupy = pytest.importorskip("cupy")
    q, k, v = make(3, 8, 2, 600, 64, 64, dtype)
    rng = np.random.default_rng(9)
    caches, table = deal(rng, [k, v], 16, np.nan)
    tables = on_device({"page_table": np.full_like(table, -1), "lengths": np.zeros(3, np.int32)})
    desc = BatchPagedDecodeDescriptor(
        batch_size=3, num_heads=8, num_kv_heads=2, num_pages=len(caches[0]), page_size=16, d_k=64, d_v=64,
        max_pages=table.shape[1], element=dtype,
    )  # fmt: skip
    plan = BatchPagedDecodePlan.select(desc, device=0)
    y, lse = cupy.empty((3, 8, 64), dtype), cupy.empty((3, 8), "float32")
    args = BatchPagedDecodeArgs(q=q, k_cache=caches[0], v_cache=caches[1], y=y, lse=lse, **tables)
    workspace = cupy.empty(plan.workspace_size(args), "uint8")
    plan.prepare(args)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(args, workspace=workspace)
        graph = stream.end_capture()
    for lengths in ([1, 0, 600], [15, 16, 17], [256, 257, 599]):
        used = -(-np.array(lengths) // 16)
        tables["lengths"][...] = cupy.asarray(lengths)
        tables["page_table"][...] = cupy.asarray(np.where(np.arange(table.shape[1]) < used[:, None], table, -1))
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert same((y, lse), flash_decoding(q, k, v, cupy.asarray(lengths), return_lse=True)), lengths
