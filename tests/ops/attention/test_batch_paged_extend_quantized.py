"""batch_paged_extend_quantized: what codes mean; a token's bits follow from its position alone, in every format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paged_caches import deal

from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind, encode
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.attention.paged.batch_paged_extend import batch_paged_extend
from baracuda_py.ops.attention.paged.batch_paged_extend_quantized import (
    BatchPagedExtendQuantizedArgs,
    BatchPagedExtendQuantizedDescriptor,
    BatchPagedExtendQuantizedPlan,
    batch_paged_extend_quantized,
)
from baracuda_py.schedules.attention import extend, extend_quantized
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

HEADS, GROUP = 2, 4  # key heads, and query heads of each
FORMATS = [("int8", 0), ("int4", 0), ("int4", 32), ("float8_e4m3fn", 0), ("float8_e5m2", 0)]
BF16 = ElementKind.BF16.dtype
ROWS = [(np.float16, 9.0), (BF16, 9.0), (BF16, 8.0), (np.float32, 8.0)]


def coded(x: Any, kind: str, group: int) -> tuple[Any, Any]:
    """Codes as they travel, and scales, of x [..., d]."""
    groups = x.reshape(*x.shape[:-1], -1, group or x.shape[-1])
    largest = {"int8": 127, "int4": 7, "float8_e4m3fn": 448, "float8_e5m2": 57344}[kind]
    scales = (np.abs(groups).max(-1, initial=0) / largest).astype(np.float32)
    codes = (groups / np.where(scales == 0, 1, scales)[..., None]).reshape(x.shape)
    dtype = ElementKind.of(kind).dtype
    codes = np.rint(codes).astype(np.int8).astype(dtype) if kind.startswith("int") else codes.astype(dtype)
    return codes if kind == "int8" else encode(codes, kind), scales


def elements(codes: Any, scales: Any, kind: str) -> Any:
    """The same as float64."""
    if kind == "int4":
        nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
        values = (nibbles ^ 8).astype(np.float64) - 8
    else:
        values = codes.view(ElementKind.of(kind).dtype).astype(np.float64)
    return values * np.repeat(scales.astype(np.float64), values.shape[-1] // scales.shape[-1], -1)


def made(
    lengths: list[int], queries: list[int], form: tuple[str, int], d: int = 64, page: int = 16, dtype: Any = np.float64
) -> tuple[Any, ...]:
    """q of each sequence's last tokens; codes and scales of keys and of values; tables; bounds.

    Cells that no sequence has hold codes and scales that must not be seen.
    """
    kind, group = form
    rng = np.random.default_rng(0)
    arrays: list[Any] = []
    for _ in range(2):
        arrays += coded(rng.standard_normal((len(lengths), HEADS, max(lengths), d)), kind, group)
    q = rng.standard_normal((sum(queries), HEADS * GROUP, d)).astype(dtype)
    paged: list[Any] = []
    for array in arrays:
        fill = np.nan if array.dtype == np.float32 else 127
        (one,), table = deal(np.random.default_rng(1), [array], page, fill, lengths=lengths)
        paged.append(one)
    bounds = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
    k, k_scales, v, v_scales = paged
    tables = {"page_table": table, "lengths": np.array(lengths, np.int32)}
    return q, {"k_cache": k, "v_cache": v, "k_scales": k_scales, "v_scales": v_scales}, tables, bounds


def run(q: Any, caches: Any, tables: Any, bounds: Any, form: Any, arch: float, units: int = 0, **facts: Any) -> Any:
    """y and lse as the kernels for `arch` leave them; units: blocks of keys that a thread block takes, 0 its choice."""
    names = {spec.name for spec in arrays_of(BatchPagedExtendQuantizedArgs)}
    optional = {n: facts.pop(n) for n in names & set(facts)}
    numbers = {n: facts.pop(n) for n in ("k_scale", "v_scale") if n in facts}
    k, d = caches["k_cache"], q.shape[2]
    desc = BatchPagedExtendQuantizedDescriptor(
        batch_size=len(bounds) - 1, total_q=len(q), num_heads=q.shape[1], num_kv_heads=k.shape[1], d_k=d, d_v=d,
        num_pages=k.shape[0], page_size=k.shape[2], element=ElementKind.of(q.dtype), aux_element=form[0],
        group_size=form[1], max_pages=tables["page_table"].shape[1],
        **{"is_causal": True, "max_seqlen_q": int(np.diff(bounds).max(initial=0)), **facts},
    )  # fmt: skip
    y, lse = np.full(q.shape, np.nan, q.dtype), np.full((q.shape[1], len(q)), np.nan, np.float32)
    given = {"q": q, **caches, "qo_indptr": bounds, **optional, **tables, "y": y, "lse": lse}
    seen = {n: None if given.get(n) is None else pointer_view(given[n]) for n in names - set(numbers)}
    with pytest.MonkeyPatch.context() as patch, emulating(1):
        if units:
            patch.setattr(extend, "run_of", lambda groups, at_once: units)
        plan = BatchPagedExtendQuantizedPlan.select(desc, device=emulated_device(arch))
        plan.run(BatchPagedExtendQuantizedArgs(**seen, **numbers))
    return y, lse


def truth(q: Any, caches: Any, tables: Any, bounds: Any, form: Any, **facts: Any) -> Any:
    """batch_paged_extend of the elements, in float64."""
    k, v = (elements(caches[f"{n}_cache"], caches[f"{n}_scales"], form[0]) for n in ("k", "v"))
    for name in ("slopes", "sinks"):
        facts[name] = None if facts.get(name) is None else facts[name].astype(np.float64)
    tree = facts.pop("tree_mask", None)
    return batch_paged_extend(q.astype(np.float64), k, v, bounds, tree, **tables, return_lse=True, **facts)


def close(got: Any, want: Any, form: Any) -> None:
    """Within the rounding of the element; a score of keys that are rounded with their groups' scales has an error."""
    tolerance = {np.dtype(np.float32): 4e-6, np.dtype(np.float16): 3e-3}.get(got[0].dtype, 2e-2)
    np.testing.assert_allclose(got[0].astype(np.float64), want[0], rtol=0, atol=tolerance)
    exact = got[0].dtype == np.float32 or not form[1]
    np.testing.assert_allclose(got[1], want[1], rtol=4e-6, atol=4e-6 if exact else tolerance)


# ---- on NumPy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_codes_times_scales(form):
    q, caches, tables, bounds = made([40, 3, 0, 70], [2, 1, 1, 3], form, dtype=np.float32)
    y, lse = batch_paged_extend_quantized(q, **caches, qo_indptr=bounds, format=form[0], **tables, return_lse=True)
    close((y, lse), truth(q, caches, tables, bounds, form), ("", 0))


@pytest.mark.parametrize("form", FORMATS)
def test_pages_with_heads_behind_tokens(form):
    q, caches, tables, bounds = made([40, 3], [2, 1], form, dtype=np.float32)
    want = batch_paged_extend_quantized(q, **caches, qo_indptr=bounds, format=form[0], **tables)
    turned = {n: np.ascontiguousarray(x.swapaxes(1, 2)) for n, x in caches.items()}
    got = batch_paged_extend_quantized(q, **turned, qo_indptr=bounds, format=form[0], layout="nhd", **tables)
    np.testing.assert_array_equal(got, want)


def test_scales_of_all_and_of_heads():
    form = ("float8_e4m3fn", 0)
    q, caches, tables, bounds = made([40, 3], [2, 1], form, dtype=np.float32)
    heads = np.array([0.5, 2.0], np.float32)
    caches["k_scales"] = np.ones_like(caches["k_scales"]) * heads[:, None, None] * np.float32(0.125)
    caches["v_scales"] = np.full_like(caches["v_scales"], 0.25)
    want = batch_paged_extend_quantized(q, **caches, qo_indptr=bounds, format=form[0], **tables)
    codes = {n: caches[n] for n in ("k_cache", "v_cache")}
    scales = {"k_scale": 0.125, "k_head_scale": heads, "v_scale": np.array(0.25, np.float32)}
    got = batch_paged_extend_quantized(q, **codes, qo_indptr=bounds, format=form[0], **scales, **tables)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("form", "change", "words"),
    [
        (("int8", 0), {"format": "int5"}, "int5"),
        (("int8", 0), {"k_scales": np.ones((7, 2, 16, 1), np.float64)}, "k_scales"),
        (("int8", 0), {"v_scales": np.ones((7, 2, 16, 2), np.float32)}, "v_scales"),
        (("int4", 32), {"v_scales": np.ones((7, 2, 16, 1), np.float32)}, "v_scales"),
        (("int4", 0), {"k_scales": np.ones((7, 2, 16, 4), np.float32)}, "group_size"),
        (("int4", 0), {"format": "int8"}, "cache"),
        (("float8_e4m3fn", 0), {"k_head_scale": np.ones(3, np.float32)}, "k_head_scale"),
    ],
)
def test_bad_input_is_named(form, change, words):
    q, caches, tables, bounds = made([40, 3, 0, 30], [2, 1, 1, 3], form, dtype=np.float32)
    pages = caches["k_cache"].shape[0]
    change = {n: np.resize(x, (pages, *x.shape[1:])) if np.ndim(x) == 4 else x for n, x in change.items()}
    with pytest.raises((InvalidProblemError, UnsupportedError), match=words):
        batch_paged_extend_quantized(q, **{**caches, "format": form[0], **change}, qo_indptr=bounds, **tables)


# ---- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "facts",
    [
        {"d": 128, "lengths": [300, 5], "queries": [3, 2]},
        {"d": 64, "lengths": [90, 40], "queries": [20, 1], "softcap": 3.0, "terms": True},  # more than 64 rows
        {"d": 96, "lengths": [70, 1], "queries": [2, 1], "page": 3, "scale": -0.05, "window_left": 20},
    ],
)
def test_kernels(dtype, arch, form, facts):
    facts = dict(facts)
    shape = {n: facts.pop(n) for n in ("lengths", "queries", "d", "page") if n in facts}
    q, caches, tables, bounds = made(form=form, **shape, dtype=dtype)
    if facts.pop("terms", False):
        rng = np.random.default_rng(3)
        facts["tree_mask"] = rng.random((len(q), max(shape["queries"]))) < 0.5
        facts["slopes"] = np.linspace(0.01, 0.3, HEADS * GROUP, dtype=np.float32)
        facts["sinks"] = np.linspace(-1, 3, HEADS * GROUP, dtype=np.float32)
    want = truth(q, caches, tables, bounds, form, **facts)
    close(run(q, caches, tables, bounds, form, arch, **facts), want, form)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("d", [192, 256])
def test_wide_heads(form, d):
    q, caches, tables, bounds = made([70, 20], [30, 1], form, d=d, dtype=BF16)
    close(run(q, caches, tables, bounds, form, 9.0), truth(q, caches, tables, bounds, form), form)


def tokens(cache: Any, tables: Any, n: int) -> Any:
    """The first n tokens of the first sequence, [n, heads, columns]."""
    row, page = tables["page_table"][0], cache.shape[2]
    return np.array([cache[row[i // page], :, i % page] for i in range(n)])


def pages(x: Any, page: int) -> Any:
    """Tokens [n, heads, columns] in pages, one after the other."""
    whole = np.zeros((-(-len(x) // page) * page, *x.shape[1:]), x.dtype)
    whole[: len(x)] = x
    return whole.reshape(-1, page, *x.shape[1:]).swapaxes(1, 2)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
@pytest.mark.parametrize("form", FORMATS)
def test_bits_follow_from_the_position_alone(dtype, arch, form):
    """Alone, among drafts, in a chunk, beside others, in pages of another size, by blocks or by groups of them."""
    q, caches, tables, bounds = made([600, 90], [5, 40], form, dtype=dtype)
    y, lse = run(q, caches, tables, bounds, form, arch, units=1)
    others = run(q, caches, tables, bounds, form, arch, units=extend.FOLD)
    np.testing.assert_array_equal(y, others[0])
    np.testing.assert_array_equal(lse, others[1])
    for i in (0, 4):
        one = {"page_table": tables["page_table"][:1], "lengths": np.array([596 + i], np.int32)}
        alone = run(q[i : i + 1], caches, one, np.array([0, 1], np.int32), form, arch, units=extend.FOLD)
        np.testing.assert_array_equal(alone[0][0], y[i])
        np.testing.assert_array_equal(alone[1][:, 0], lse[:, i])
    again = {name: pages(tokens(cache, tables, 600), 64) for name, cache in caches.items()}
    wide = {"page_table": np.arange(10, dtype=np.int32)[None], "lengths": np.array([600], np.int32)}
    np.testing.assert_array_equal(run(q[:5], again, wide, np.array([0, 5], np.int32), form, arch)[0], y[:5])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
@pytest.mark.parametrize("form", FORMATS)
def test_scales_that_are_nan_touch_what_sees_them_alone(dtype, arch, form):
    q, caches, tables, bounds = made([90], [4], form, dtype=dtype)
    tree = np.tril(np.ones((4, 4), bool))
    tree[2:, 1] = False
    page, cell = tables["page_table"][0][87 // 16], 87 % 16
    for hidden in ("k_scales", "v_scales"):
        given = caches | {hidden: caches[hidden].copy()}
        given[hidden][page, :, cell] = np.nan
        y, _ = run(q, given, tables, bounds, form, arch, tree_mask=tree)
        assert np.isnan(y[1].astype(np.float32)).all()
        assert np.isfinite(y[[0, 2, 3]].astype(np.float32)).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
def test_scales_of_all_and_of_heads_in_kernels(dtype, arch):
    form = ("float8_e5m2", 0)
    q, caches, tables, bounds = made([90], [4], form, dtype=dtype)
    factors = {"k_scale": 2.0, "v_scale": -0.5, "k_head_scale": np.array([0.5, -1.0], np.float32)}
    scaled = caches | {
        "k_scales": caches["k_scales"] * np.array([1.0, -2.0], np.float32)[:, None, None],
        "v_scales": caches["v_scales"] * np.float32(-0.5),
    }
    close(run(q, caches, tables, bounds, form, arch, **factors), truth(q, scaled, tables, bounds, form), form)


def test_shared_memory_fits():
    """Two blocks of 64 rows a multiprocessor of 228 KB, one of 128; 99 KB without wgmma; pages of 6 KB beside them."""
    for bits in (4, 8):
        for d in extend.DIMS:
            for groups, tilings in extend_quantized.WGMMA.items():
                t = tilings[d]
                assert t.coded_smem(d, 64 * groups, bits) + 6400 <= (227 << 10 if t.blocks == 1 else 113 << 10)
            assert extend_quantized.MMA[1][d].coded_smem(d, 64, bits) + 6400 <= 99 << 10
