"""Records of fp8: what is read has the bits of the decoded cells, on all kernels; what is appended is what is read."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.attention.mla.mla_decode import MlaDecodeDescriptor, MlaDecodePlan, mla_decode
from baracuda_py.ops.attention.mla.mla_decode_fp8 import MlaDecodeFp8Descriptor, MlaDecodeFp8Plan, mla_decode_fp8
from baracuda_py.ops.attention.mla.mla_kv_append import mla_kv_append
from baracuda_py.ops.attention.mla.mla_kv_append_fp8 import mla_kv_append_fp8
from baracuda_py.ops.attention.mla.mla_sparse import MlaSparseDescriptor, MlaSparsePlan
from baracuda_py.ops.attention.mla.mla_sparse_fp8 import MlaSparseFp8Descriptor, MlaSparseFp8Plan, mla_sparse_fp8
from baracuda_py.ops.attention.mla.records import decoded, encoded
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

BF16 = ml_dtypes.bfloat16
ROWS = ("split_k_wgmma", "split_k_mma")


def make(seed: int, pages: int, page: int, d_latent: int, d_rope: int) -> Any:
    """A generator, and a cache of records whose groups have scales of their own."""
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((pages, page, d_latent // 128, 128)) * np.exp2(
        rng.integers(-5, 3, (pages, page, 1, 1))
    )
    latent = groups.reshape(pages, page, d_latent).astype(BF16)
    return rng, encoded(latent, rng.standard_normal((pages, page, d_rope)))


def emulate(plan: Any, row: str, desc: Any, **operands: Any) -> Any:
    shape = (*operands["q"].shape[:-1], desc.d_latent)
    y, lse = np.full(shape, 7, BF16), np.full(shape[:-1], 7, np.float32)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(variant for variant in chosen.rows if variant.name == row)
    with emulating(1):
        chosen.run(plan.args(**{n: pointer_view(x) for n, x in {**operands, "y": y, "lse": lse}.items()}))
    return y.tobytes(), lse.tobytes()


def test_records_are_flashmla_s() -> None:
    """656 bytes: codes, the scales of four groups, the rope; what is decoded is near what was encoded."""
    rng = np.random.default_rng(0)
    latent, rope = rng.standard_normal((3, 512)).astype(BF16), rng.standard_normal((3, 64)).astype(BF16)
    latent[1, 128:256] = 0
    cells = encoded(latent, rope)
    assert cells.shape == (3, 656)
    columns = decoded(cells, 512, np.float32)
    assert (columns[:, 512:] == rope.astype(np.float32)).all() and not columns[1, 128:256].any()
    largest = np.abs(latent.astype(np.float32).reshape(3, 4, 128)).max(-1)
    np.testing.assert_allclose(cells[:, 512:528].copy().view(np.float32)[largest > 0], largest[largest > 0] / 448)
    np.testing.assert_allclose(columns[:, :512], latent.astype(np.float32), rtol=2**-4, atol=2e-2)
    with pytest.raises(InvalidProblemError, match="d_latent must be a multiple of 128 in records of fp8, got 100"):
        MlaDecodeFp8Descriptor(
            batch_size=1, num_queries=1, num_heads=1, num_pages=1, page_size=1, width=164, scale=1.0, element="bfloat16"
        )


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(("sizes", "apart"), [((512, 64), 0), ((512, 64), 5), ((256, 40), 0), ((128, 64), 0)])
def test_decoding_has_the_bits_of_decoded_cells(row: str, sizes: tuple[int, int], apart: int) -> None:
    """More tiles than stages; a missing page; records that are aligned, and that are not."""
    rng, cells = make(1, 12, 16, *sizes)
    cache = np.zeros((12, 16, cells.shape[-1] + apart), np.uint8)[..., apart:]
    cache[:] = cells
    q = rng.standard_normal((2, 2, 5, sum(sizes))).astype(BF16)
    table = rng.permutation(12).astype(np.int32).reshape(1, 12).repeat(2, 0)
    table[1, 3] = -1
    facts: dict[str, Any] = {
        "batch_size": 2, "num_queries": 2, "num_heads": 5, "num_pages": 12, "page_size": 16, "width": sum(sizes),
        "scale": 0.1, "d_rope": sizes[1], "max_pages": 12, "element": "bfloat16",
    }  # fmt: skip
    given = {"q": q, "page_table": table, "lengths": np.array([190, 61], np.int32)}
    got = emulate(MlaDecodeFp8Plan, row, MlaDecodeFp8Descriptor(**facts), cache=cache, **given)
    plain = decoded(cells, sizes[0], np.float32).astype(BF16)
    assert got == emulate(MlaDecodePlan, row, MlaDecodeDescriptor(**facts), cache=plain, **given)


@pytest.mark.parametrize("row", ROWS)
def test_listed_cells_have_the_bits_of_decoded_cells(row: str) -> None:
    rng, cells = make(2, 40, 32, 128, 64)
    cells[3, 5, :128] = 0x7F  # NaN
    q = rng.standard_normal((2, 5, 192)).astype(BF16)
    lists = rng.integers(-1, 40 * 32 + 1, (2, 1100)).astype(np.int32)
    lists[0][lists[0] == 3 * 32 + 5] = -1
    facts: dict[str, Any] = {
        "num_queries": 2, "num_heads": 5, "num_pages": 40, "page_size": 32, "width": 192, "top_k": 1100, "scale": 0.1,
        "element": "bfloat16",
    }  # fmt: skip
    got = emulate(MlaSparseFp8Plan, row, MlaSparseFp8Descriptor(**facts), q=q, cache=cells, indices=lists)
    plain = decoded(cells, 128, np.float32).astype(BF16)
    want = emulate(MlaSparsePlan, row, MlaSparseDescriptor(**facts), q=q, cache=plain, indices=lists)
    assert got == want and np.isfinite(np.frombuffer(got[1], np.float32)[:5]).all()


def test_a_list_and_a_sequence_are_one() -> None:
    """On the NumPy backend, by the functions."""
    rng, cells = make(3, 2, 8, 128, 8)
    q = rng.standard_normal((1, 1, 3, 136)).astype(BF16)
    given = {"page_table": np.array([[1, 0]]), "lengths": np.array([11])}
    y = mla_decode_fp8(q, cells, **given, scale=0.1, d_rope=8)
    listed = mla_sparse_fp8(q[0], cells, np.array([[*range(8, 16), 0, 1, 2]], np.int32), scale=0.1, d_rope=8)
    np.testing.assert_array_equal(y[0], listed)


# ---- appending -------------------------------------------------------------------------------------------------------


def test_what_is_appended_is_read() -> None:
    """Into views of one array of bytes; near what the append and the decoding of cells of 16 bits make."""
    rng = np.random.default_rng(4)
    latent, k_rope = (rng.standard_normal((6, n)).astype(BF16) for n in (256, 64))
    weight, table = rng.uniform(0.5, 2, 256).astype(BF16), np.array([[3, 1], [0, 4]])
    tables = {"page_table": table, "cache_offsets": np.array([0, 2])}
    records, cells = np.full((5, 4, 392), 7, np.uint8), np.zeros((5, 4, 320), BF16)
    parts = records[..., :256], records[..., 256:264].view(np.float32), records[..., 264:].view(BF16)
    mla_kv_append_fp8(latent, k_rope, *parts, weight=weight, **tables)
    mla_kv_append(latent, k_rope, cells, weight=weight, **tables)
    columns = decoded(records, 256, np.float32)
    for b, positions in enumerate((range(3), range(2, 5))):
        for n in positions:
            got, want = columns[table[b, n // 4], n % 4], cells[table[b, n // 4], n % 4].astype(np.float32)
            np.testing.assert_allclose(got[:256], want[:256], rtol=2**-3, atol=0.02)
            np.testing.assert_allclose(got[256:], want[256:], rtol=2**-7, atol=1e-3)
    assert (records[2] == 7).all()
    q, given = rng.standard_normal((2, 1, 3, 320)).astype(BF16), {"page_table": table, "scale": 0.05}
    for lengths in ([3, 0], [2, 2]):
        y = mla_decode_fp8(q, records, **given, lengths=np.array(lengths)).astype(np.float32)
        want = mla_decode(q, cells, **given, lengths=np.array(lengths)).astype(np.float32)
        np.testing.assert_allclose(y[0], want[0], rtol=0.1, atol=0.1)


def test_groups_of_zeros_and_of_what_is_not_finite() -> None:
    latent = np.zeros((1, 512), BF16)
    latent[0, 130], latent[0, 260], latent[0, 400] = np.nan, np.inf, 3
    codes, scales, rope = np.zeros((1, 1, 512), np.uint8), np.zeros((1, 1, 4), np.float32), np.zeros((1, 1, 0), BF16)
    tables = {"page_table": np.array([[0]]), "cache_offsets": np.array([0])}
    mla_kv_append_fp8(latent, np.zeros((1, 0), BF16), codes, scales, rope, **tables)
    columns = decoded(np.concatenate([codes, scales.view(np.uint8)], -1), 512, np.float32)[0, 0]
    assert scales[0, 0, 0] == 2.0**-126 and not columns[:128].any()
    assert np.isnan(columns[128:384]).all() and columns[400] == 3 and not columns[401:].any()
    with pytest.raises(InvalidProblemError, match="d_latent must be a multiple of 128"):
        mla_kv_append_fp8(latent[:, :100], np.zeros((1, 0), BF16), codes[..., :100], scales, rope, **tables)
