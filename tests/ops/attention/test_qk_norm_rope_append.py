"""qk_norm_rope_append: against the ops that it joins, formats, packed operands, sections, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.element import decode
from baracuda_py.ops.attention.cache.qk_norm_rope_append import QkNormRopeAppendDescriptor, QkNormRopeAppendPlan

TOKENS, HEADS, KV, D, DV = 6, 4, 2, 32, 16
AT: dict[str, Any] = {
    "page_table": np.array([[3, 0], [1, 6], [5, 4]], np.int32), "cache_offsets": np.array([0, 3, 6], np.int32)
}  # fmt: skip
POSITIONS = np.array([0, 1, 3, 4, 6, 7])
NORMS: list[dict[str, Any]] = [{"norm": False}, {}, {"weight_offset": 1.0}]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operands(dv: int = DV) -> tuple[np.ndarray, ...]:
    return draw(TOKENS, HEADS, D), draw(TOKENS, KV, D, seed=1), draw(TOKENS, KV, dv, seed=2)


def caches(kind: Any = np.float32, dv: int = DV) -> list[np.ndarray]:
    return [np.full((7, KV, 4, d), 0x11, kind) for d in (D, dv)]


def scales(groups: tuple[int, int] = (1, 1)) -> list[np.ndarray]:
    return [np.full((7, KV, 4, n), 5, np.float32) for n in groups]


def apart(q: Any, k: Any, turn: dict[str, Any], norm: dict[str, Any], weights: Any) -> Any:
    """Rotated queries and keys by the ops for them, [tokens, heads, d]."""
    heads = [x.swapaxes(0, 1)[None] for x in (q, k)]
    if norm.get("norm", True):
        made = bc.qk_norm_rope(*heads, *weights, **turn, **norm)
    else:
        made = bc.rope(heads[0], x2=heads[1], **turn)
    return [x[0].swapaxes(0, 1) for x in made]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("turn", [{}, {"pairing": "interleaved", "rotary_dim": 12, "scale": 0.5, "offset": 3}])
@pytest.mark.parametrize("slots", [False, True])
def test_is_the_ops_one_after_the_other(norm: dict[str, Any], turn: dict[str, Any], slots: bool) -> None:
    q, k, v = operands()
    weights = (draw(D, seed=3), draw(D, seed=4)) if norm.get("norm", True) else (None, None)
    at = {"slot_mapping": np.array([12, 13, 7, 24, 18, -1])} if slots else AT
    got, want = caches(), caches()
    facts = {**turn, "positions": POSITIONS}
    y = bc.qk_norm_rope_append(q, k, v, *got, q_weight=weights[0], k_weight=weights[1], **facts, **norm, **at)
    turned = apart(q, k, facts, norm, weights)
    bc.paged_kv_append(turned[1], v, *want, **at)
    np.testing.assert_allclose(y, turned[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(got[1], want[1])
    assert (got[0] == 0x11).any()


@pytest.mark.parametrize(
    ("form", "own"), [("int8", True), *((f, own) for f in ("float8_e4m3fn", "float8_e5m2") for own in (True, False))]
)
@pytest.mark.parametrize("norm", NORMS[:2])
def test_codes_are_those_of_the_appends(form: str, own: bool, norm: dict[str, Any]) -> None:
    q, k, v = operands()
    v[2, 1], v[3, 0, 5] = 0, np.nan
    kind = np.int8 if form == "int8" else np.uint8
    got, want, facts = caches(kind), caches(kind), {"positions": POSITIONS}
    turned = apart(q, k, facts, norm, (None, None))
    if own:
        made, wanted = scales(), scales()
        bc.qk_norm_rope_append(q, k, v, *got, **facts, **AT, **norm, format=form, k_scales=made[0], v_scales=made[1])
        bc.paged_kv_append_quantized(turned[1], v, *want, *wanted, **AT, format=form)
        for one, other in zip(made, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    else:
        given: dict[str, Any] = {"k_scale": 0.01, "v_scale": 0.3, "v_head_scale": np.array([0.5, 2], np.float32)}
        bc.qk_norm_rope_append(q, k, v, *got, **facts, **AT, **norm, format=form, **given)
        bc.paged_kv_append_fp8(turned[1], v, *want, **AT, cache_element=form, **given)
    np.testing.assert_array_equal(got[1], want[1])
    one, other = (c[0] if form == "int8" else decode(c[0], form) for c in (got, want))
    one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
    step = 1.0 if form == "int8" else np.abs(other) / (8 if form == "float8_e4m3fn" else 4) + 2.0**-9
    assert (np.abs(one - other) <= step).all()  # keys are rounded once, not also to the element before


@pytest.mark.parametrize(
    ("d", "dv", "group"),
    [(32, 64, 32), (32, 32, None), (64, 128, 64), (6, 10, None), (34, 2, None), (96, 32, 32), (128, 128, 128)],
)
@pytest.mark.parametrize("turn", [{}, {"pairing": "interleaved", "rotary_dim": 6}, {"rotary_dim": 6}])
@pytest.mark.parametrize("by", [None, "float32", "bfloat16"])
def test_int4_is_what_the_append_of_codes_stores(
    d: int, dv: int, group: int | None, turn: dict[str, Any], by: str | None
) -> None:
    """Bytes of two columns that different lanes turn, groups of fewer lanes than a head, and every kind of row."""
    kind = np.dtype(getattr(ml_dtypes, by or "float32", "float32"))
    given = [draw(TOKENS, n, w, seed=w + n).astype(kind) for n, w in ((HEADS, d), (KV, d), (KV, dv))]
    q, k, v = (x.astype(np.float32) for x in given)
    v[2, 1], v[3, 0, 1], k[4, 1, d // 2] = 0, np.nan, np.inf
    at = {**AT, "format": "int4", "group_size": group}
    got, want = ([np.full((7, KV, 4, n // 2), 0x11, np.uint8) for n in (d, dv)] for _ in range(2))
    made, wanted = (scales((1, 1) if group is None else (d // group, dv // group)) for _ in range(2))
    facts = {"positions": POSITIONS, **turn}
    turned = apart(q, k, facts, {"norm": False}, (None, None))
    bc.paged_kv_append_quantized(turned[1], v, *want, *wanted, **at)
    if by:
        own = dict(zip(("q", "k", "v"), (x.astype(kind) for x in (q, k, v)), strict=True))
        y = np.empty_like(own["q"])
        desc = QkNormRopeAppendDescriptor(
            batch_size=3, num_tokens=TOKENS, num_heads=HEADS, num_kv_heads=KV, num_pages=7, page_size=4, d_k=d, d_v=dv,
            norm=False, format="int4", group_size=group, max_pages=2, element=by,
            **turn,
        )  # fmt: skip
        outputs = {"yq": y, "k_cache": got[0], "v_cache": got[1], "k_scales": made[0], "v_scales": made[1]}
        call(QkNormRopeAppendPlan, desc, outputs, **own, positions=POSITIONS, **AT)
    else:
        y = bc.qk_norm_rope_append(q, k, v, *got, k_scales=made[0], v_scales=made[1], norm=False, **facts, **at)
    step = 2**-8 if by == "bfloat16" else 1e-5
    np.testing.assert_allclose(y.astype(np.float32), turned[0], rtol=step, atol=step)
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_array_equal(got[1], want[1])
    codes = [np.stack([c[0] & 15, c[0] >> 4]).astype(int) for c in (got, want)]
    apart_by = (codes[0] - codes[1] + 8) % 16 - 8
    assert abs(apart_by).max() <= 1 and (apart_by != 0).mean() < 0.01
    assert (got[0] == 0x11).any()


@pytest.mark.parametrize(
    "sections", [{"mrope_section": (4, 6, 6)}, {"mrope_section": (6, 5, 5), "mrope_interleaved": True}]
)
def test_positions_along_several_axes(sections: dict[str, Any]) -> None:
    q, k, v = operands()
    positions = np.random.default_rng(5).integers(0, 99, (3, TOKENS))
    held = caches()
    y = bc.qk_norm_rope_append(q, k, v, *held, positions, **AT, **sections)
    turned = apart(q, k, {"positions": positions[:, None], **sections}, {}, (None, None))
    np.testing.assert_allclose(y, turned[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(held[0][3, :, 0], turned[1][0], rtol=1e-6, atol=1e-6)


def test_packed_operands_in_place_and_pages_of_the_other_layout() -> None:
    packed = draw(TOKENS, HEADS + 2 * KV, D)
    q, k, v = (x.copy() for x in np.split(packed, (HEADS, HEADS + KV), 1))
    got, want = caches(dv=D), [np.ascontiguousarray(c.swapaxes(1, 2)) for c in caches(dv=D)]
    parts = np.split(packed, (HEADS, HEADS + KV), 1)
    y = bc.qk_norm_rope_append(*parts, *got, POSITIONS, **AT, out=parts[0])
    assert y is parts[0]
    other = bc.qk_norm_rope_append(q, k, v, *want, POSITIONS, **AT, layout="nhd")
    np.testing.assert_array_equal(packed[:, :HEADS], other)
    np.testing.assert_array_equal(packed[:, HEADS:], np.concatenate([k, v], 1))
    for one, two in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, two.swapaxes(1, 2))


def test_what_does_not_go_together_is_refused() -> None:
    q, k, v = operands()
    made = dict(zip(("k_scales", "v_scales"), scales(), strict=True))
    heads = {"k_head_scale": np.ones(KV, np.float32)}
    weight = {"q_weight": np.ones(D, np.float32), "norm": False}
    codes = {"format": "float8_e4m3fn"}
    for kind, facts, match in (
        (np.float32, made, "k_scales"), (np.int8, {"format": "int8"}, "k_scales"),
        (np.uint8, codes | {"k_scales": made["k_scales"]}, "k_scales"),
        (np.uint8, codes | made | heads, "k_head_scale"),
        (np.float32, weight, "q_weight"), (np.uint8, {"format": "int4"}, "k_bytes"),
        (np.float32, {"group_size": 32}, "group_size"),
        (np.int8, {"format": "int8", "group_size": 16} | made, "scale a"),
        (np.uint8, {"format": "int4", "group_size": 16} | made, "group_size"),
        (np.float32, {"mrope_section": (8, 8)}, "positions"), (np.float32, codes, "k_cache"),
    ):  # fmt: skip
        with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=match):
            bc.qk_norm_rope_append(q, k, v, *caches(kind), POSITIONS, **AT, **facts)
    with pytest.raises(bc.InvalidProblemError, match="page_table"):
        bc.qk_norm_rope_append(q, k, v, *caches(), POSITIONS)


@pytest.mark.parametrize("form", ["plain", "int8", "int4"])
def test_no_tokens_leave_caches_alone(form: str) -> None:
    """The kernel has a block then, too, and the tables name cells of sequences that have tokens already."""
    q, k, v = (np.zeros((0, n, D), np.float32) for n in (HEADS, KV, KV))
    kind = {"plain": np.float32, "int8": np.int8, "int4": np.uint8}[form]
    held = [np.full((7, KV, 4, D // 2 if form == "int4" else D), 0x11, kind) for _ in range(2)]
    made = {"k_scales": scales()[0], "v_scales": scales()[1]} if form != "plain" else {}
    desc = QkNormRopeAppendDescriptor(
        batch_size=3, num_tokens=0, num_heads=HEADS, num_kv_heads=KV, num_pages=7, page_size=4, d_k=D, d_v=D,
        format=form, num_indices=6, element="float32",
    )  # fmt: skip
    tables = {"kv_indices": np.arange(6), "kv_indptr": np.arange(0, 7, 2), "kv_last_page_len": np.array([1, 2, 4])}
    outputs = {"yq": q.copy(), "k_cache": held[0], "v_cache": held[1], **made}
    call(QkNormRopeAppendPlan, desc, outputs, q=q, k=k, v=v, positions=np.zeros(0, int), **tables)
    assert all((x == 0x11).all() for x in held) and all((x == 5).all() for x in made.values())
