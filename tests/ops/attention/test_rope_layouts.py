"""Layouts, tables as Hugging Face makes them, and queries with keys, of the ops that rotate or append."""

from __future__ import annotations

import importlib.util
import inspect

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.rope.rope import RopePlan
from baracuda_py.testing import emulate, emulated_device, fill, operands

RNG = np.random.default_rng(11)
B, T, H, HK, D = 2, 7, 4, 3, 8
MAKERS = {"numpy": "asarray"} | ({"torch": "as_tensor"} if importlib.util.find_spec("torch") else {})


def hugging_face(x, cos, sin):
    """x · cos + rotate_half(x) · sin, cos and sin with a column for each of x's, as their models write it."""
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


def rotated(x, positions, axis, base=10000.0):
    """Every pair of x as a complex number; `axis` is that of the tokens."""
    half = x.shape[-1] // 2
    angle = np.asarray(positions, np.float64)[..., None] * base ** (-np.arange(half) / half)
    angle = np.expand_dims(np.broadcast_to(angle, (x.shape[0], x.shape[axis], half)), 3 - axis)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize("layout", ["bshd", "BSHD"])
def test_tokens_before_heads(layout):
    x, k = RNG.standard_normal((B, T, H, D)), RNG.standard_normal((B, T, HK, D))
    for positions in (None, np.arange(3, 3 + T), RNG.integers(0, 99, (B, T))):
        want = rotated(x, np.arange(T) if positions is None else positions, 1)
        y = bc.rope(x, positions, layout=layout)
        assert y.flags.c_contiguous and y.shape == x.shape
        np.testing.assert_allclose(y, want, atol=1e-12)
        np.testing.assert_allclose(bc.rope_backward(want, positions, layout=layout), x, atol=1e-12)
        y, y2 = bc.rope(x, positions, x2=k, layout=layout)
        np.testing.assert_allclose(y, want, atol=1e-12)
        np.testing.assert_allclose(y2, rotated(k, np.arange(T) if positions is None else positions, 1), atol=1e-12)
    assert np.shares_memory(bc.rope(x, layout=layout, out=x), x)


def test_the_default_layout_by_any_spelling():
    x = RNG.standard_normal((B, H, T, D))
    np.testing.assert_allclose(bc.rope(x, layout="BHSD"), rotated(x, np.arange(T), 2), atol=1e-12)
    with pytest.raises(InvalidProblemError, match=r"layout must be one of \['bhsd', 'bshd'\], got 'sbhd'"):
        bc.rope(x, layout="sbhd")
    with pytest.raises(InvalidProblemError, match="layout must be one of"):
        bc.rope(x, layout=None)
    for bad in (x[0], x[0, 0], 3.0, None, [x]):
        for layout in ("bhsd", "bshd"):
            with pytest.raises(InvalidProblemError, match="x"):
                bc.rope(bad, layout=layout)


@pytest.mark.parametrize("package", MAKERS)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_two_tensors_two_results(package, layout):
    """With B = 2 one result would unpack along the batch."""
    make = getattr(importlib.import_module(package), MAKERS[package])
    q, k = (make(RNG.standard_normal((2, 2, 2, D))) for _ in range(2))
    made = bc.rope(q, x2=k, layout=layout)
    assert type(made) is tuple and len(made) == 2 and all(type(m) is type(q) for m in made)
    for got, x in zip(made, (q, k), strict=True):
        np.testing.assert_allclose(got, rotated(np.asarray(x), [0, 1], 2 if layout == "bhsd" else 1), atol=1e-12)
    given = (make(np.empty((2, 2, 2, D))), make(np.empty((2, 2, 2, D))))
    back = bc.rope(q, x2=k, layout=layout, out=given)
    assert type(back) is tuple and back[0] is given[0] and back[1] is given[1]
    partly = bc.rope(q, x2=k, layout=layout, out={"y2": given[1]})
    assert partly[1] is given[1] and type(partly[0]) is type(q)
    with pytest.raises(InvalidProblemError, match="out= must give 2 arrays"):
        bc.rope(q, x2=k, layout=layout, out=given[0])
    assert not isinstance(bc.rope(q, layout=layout), tuple)
    dq, dk = bc.rope_backward(made[0], dy2=made[1], layout=layout)
    np.testing.assert_allclose(dq, np.asarray(q), atol=1e-12)
    np.testing.assert_allclose(dk, np.asarray(k), atol=1e-12)
    again = bc.rope(q, x2=k, layout=layout)
    assert type(again) is tuple and len(again) == 2


@pytest.mark.parametrize("function", [bc.rope, bc.rope_backward])
def test_what_does_not_fit_the_tokens_is_refused(function):
    x = RNG.standard_normal((B, T, H, D))  # its heads lie where "bhsd" has the tokens
    angle = np.ones((T, D // 2))
    for facts in ({"positions": np.arange(T)}, {"positions": np.zeros((B, T), int)}, {"cos": angle, "sin": angle},
                  {"cos": angle[None], "sin": angle[None]}):  # fmt: skip
        with pytest.raises(InvalidProblemError, match=r"has 7 tokens, .* has 4: .* layout='bhsd', .* layout='bshd'"):
            function(x, **facts)
        function(x, **facts, layout="bshd")
        with pytest.raises(InvalidProblemError, match=r"has 7 tokens, .* has 4: .* layout="):
            function(x.swapaxes(1, 2), **facts, layout="bshd")
    second = "x2" if function is bc.rope else "dy2"
    with pytest.raises(InvalidProblemError, match=rf"{second} of shape .* has 3 tokens, .* has 4: .* layout="):
        function(x, **{second: RNG.standard_normal((B, T, HK, D))})


def test_appending_in_the_other_layout():
    q, k, v = (RNG.standard_normal((B, T, n, D)) for n in (H, HK, HK))
    offsets = np.array([3, 0])
    caches = [np.zeros((B, 12, HK, D)) for _ in range(2)]
    with pytest.raises(InvalidProblemError, match=r"k_new of shape .* has 3 tokens, .* has 4: .* layout="):
        bc.rope_kv_append(q, k, v, offsets, *caches)
    assert not caches[0].any()
    positions = offsets[:, None] + np.arange(T)
    y = bc.rope_kv_append(q, k, v, offsets, *caches, layout="bshd")
    assert y.flags.c_contiguous
    np.testing.assert_allclose(y, rotated(q, positions, 1), atol=1e-12)
    keys = rotated(k, positions, 1)
    for b, at in enumerate(offsets):
        np.testing.assert_allclose(caches[0][b, at : at + T], keys[b], atol=1e-12)
        np.testing.assert_array_equal(caches[1][b, at : at + T], v[b])
    heads_first = [a.swapaxes(1, 2) for a in (q, k, v)]
    for function, new in ((bc.kv_cache_append, (k, v)), (bc.rope_kv_append, heads_first)):
        with pytest.raises(InvalidProblemError, match=r"k_cache of shape .* has 12 heads, .* layout='bhsd', .*'bshd'"):
            function(*new, offsets, *caches)
    plain = [np.zeros((B, 12, HK, D)) for _ in range(2)]
    made = bc.kv_cache_append(k, v, offsets, *plain, layout="bshd")
    assert made[0] is plain[0] and made[1] is plain[1]
    for b, at in enumerate(offsets):
        np.testing.assert_array_equal(plain[0][b, at : at + T], k[b])


@pytest.mark.parametrize("layout", ["nhd", "NHD", "hnd", "HND", None])
def test_pages_in_either_layout(layout):
    k, v = RNG.standard_normal((3, HK, D)), RNG.standard_normal((3, HK, D))
    table, offsets = np.array([[2, 0]]), np.array([2])
    shape = (3, 4, HK, D) if layout in ("nhd", "NHD") else (3, HK, 4, D)
    caches = [np.zeros(shape), np.zeros(shape)]
    facts = {} if layout is None else {"layout": layout}
    made = bc.paged_kv_append(k, v, *caches, table, offsets, **facts)
    assert made[0] is caches[0] and made[1] is caches[1]
    for token, (page, cell) in enumerate([(2, 2), (2, 3), (0, 0)]):
        for cache, new in zip(caches, (k, v), strict=True):
            here = cache[page, cell] if shape[1] == 4 else cache[page, :, cell]
            np.testing.assert_array_equal(here, new[token])
    assert np.count_nonzero(caches[0]) == k.size
    with pytest.raises(InvalidProblemError, match=r"k_cache of shape .* has 4 heads, .* layout='hnd', .*'nhd'"):
        bc.paged_kv_append(k, v, *(np.zeros((3, 4, HK, D)) for _ in range(2)), table, offsets)
    read = {"page_table": table, "lengths": np.array([5]), **facts}
    got = bc.batch_paged_decode(RNG.standard_normal((1, HK, D)), *caches, **read)
    assert np.isfinite(got).all()
    with pytest.raises(InvalidProblemError, match=r"layout must be one of \['hnd', 'nhd'\]"):
        bc.paged_kv_append(k, v, *caches, table, offsets, layout="bshd")


def tables(shape, columns=D):
    angle = RNG.uniform(-3, 3, (*shape, columns // 2))
    return np.concatenate([angle, angle], -1)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("lead", [(), (1,), (B,), (1, 1), (B, 1)])
def test_tables_as_hugging_face_makes_them(lead, layout):
    """A column for each of x's, an axis of 1 in front, an axis of 1 for heads."""
    tokens = 2 if layout == "bhsd" else 1
    angle = tables((*lead, T))
    if len(lead) == 2 and layout == "bshd":
        angle = angle.swapaxes(1, 2)
    x = RNG.standard_normal((B, H, T, D) if layout == "bhsd" else (B, T, H, D))
    cos, sin = np.cos(angle), np.sin(angle)
    whole = [t if t.ndim == 4 else np.expand_dims(np.broadcast_to(t, (B, T, D)), 3 - tokens) for t in (cos, sin)]
    want = hugging_face(x, *whole)
    np.testing.assert_allclose(bc.rope(x, cos=cos, sin=sin, layout=layout), want, atol=1e-12)
    np.testing.assert_allclose(bc.rope_backward(want, cos=cos, sin=sin, layout=layout), x, atol=1e-12)
    plain = {"cos": cos[..., : D // 2], "sin": sin[..., : D // 2]}
    np.testing.assert_allclose(bc.rope(x, **plain, layout=layout), want, atol=1e-12)


def test_tables_of_interleaved_pairs_and_of_some_columns():
    """GPT-J's repeat each entry beside itself: column c of a table is that of column c of x."""
    x = RNG.standard_normal((B, H, T, 10))
    angle = RNG.uniform(-3, 3, (T, 3))
    z = (x[..., 0:6:2] + 1j * x[..., 1:6:2]) * np.exp(1j * angle)
    want = x.copy()
    want[..., 0:6:2], want[..., 1:6:2] = z.real, z.imag
    for shown in (angle, np.repeat(angle, 2, -1)):
        y = bc.rope(x, cos=np.cos(shown), sin=np.sin(shown), pairing="interleaved", rotary_dim=6)
        np.testing.assert_allclose(y, want, atol=1e-12)


def test_tables_when_appending():
    q, k, v = RNG.standard_normal((B, H, T, D)), *RNG.standard_normal((2, B, HK, T, D))
    angle = tables((1, T))
    cos, sin = np.cos(angle), np.sin(angle)
    caches = [np.zeros((B, HK, T, D)) for _ in range(2)]
    y = bc.rope_kv_append(q, k, v, np.zeros(B, int), *caches, cos=cos, sin=sin)
    np.testing.assert_allclose(y, hugging_face(q, cos[:, None], sin[:, None]), atol=1e-12)
    np.testing.assert_allclose(caches[0], hugging_face(k, cos[:, None], sin[:, None]), atol=1e-12)


@pytest.mark.parametrize("shape", [(T, D - 1), (T, D + 2), (1, 2, T, D), (3, T, D), (1, 1, 1, T, D), (D,)])
def test_other_tables_are_refused(shape):
    x, table = RNG.standard_normal((B, H, T, D)), np.ones(shape)
    if shape == (D,):  # one row for all tokens, as NumPy broadcasts
        bc.rope(x, cos=table, sin=table)
        return
    with pytest.raises(InvalidProblemError, match=r"cos and sin must have shape|has . tokens"):
        bc.rope(x, cos=table, sin=table)
    with pytest.raises(InvalidProblemError, match="sin must broadcast to shape"):
        bc.rope(x, cos=np.ones((T, D)), sin=np.ones((T, D // 2)))


@pytest.mark.parametrize(
    ("pairing", "shape", "strides"),
    [("half", (T, D), (T * D, D, 1)), ("interleaved", (T, D), (T * D, D, 2)),
     ("interleaved", (T, D // 2), (T * D // 2, D // 2, 1)),
     ("half", (B, 1, T, D), (T * D, D, 1))],
)  # fmt: skip
def test_the_kernel_reads_them_where_they_lie(pairing, shape, strides):
    desc = bc.RopeDescriptor(
        batch_size=B, num_heads=H, seq_len=T, head_dim=D, pairing=pairing, table_shape=shape, element="float32"
    )
    plan = RopePlan.select(desc, device=fake_device(9.0))
    problem = dense_problem(RopePlan, desc, plan.device, optional=True)
    (step,) = plan.rows[0].geometry(problem).steps
    assert step.params["angle_strides"] == [list(strides)] * 2


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("shape", [(T, 16), (1, 1, T, 16), (B, 1, T, 8)])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("plan", [bc.RopePlan, bc.RopeKvAppendPlan])
def test_the_kernels_on_the_emulator(plan, pairing, shape):
    """Against the reference, which the tests above hold against Hugging Face's formula."""
    sizes = {"batch_size": B, "num_heads": H, "pairing": pairing, "table_shape": shape, "element": "float32"}
    if plan is bc.RopePlan:
        desc = bc.RopeDescriptor(seq_len=T, head_dim=16, num_heads2=HK, **sizes)
    else:
        desc = bc.RopeKvAppendDescriptor(num_kv_heads=HK, new_len=T, max_cache_len=9, d_k=16, d_v=16, **sizes)
    present = {"cos": True, "sin": True, "positions": False, "inv_freq": False, "x2": True, "y2": True}
    case = fill(plan, desc, RNG, present)
    assert case.arrays["cos"] is not None
    emulate(plan.select(desc, device=emulated_device(9.0)), operands(case))


def test_signatures_name_the_layout():
    for name in ("rope", "rope_backward", "rope_kv_append", "kv_cache_append", "paged_kv_append"):
        assert "layout" in inspect.signature(getattr(bc, name)).parameters, name
    assert inspect.signature(bc.rope).parameters["layout"].default == "bhsd"
    assert inspect.signature(bc.paged_kv_append).parameters["layout"].default == "hnd"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_layouts_and_tables_on_a_gpu(pairing, dtype):
    """The kernel's bits are those of the same rows in the plan's own layout, and of tables with a column a pair."""
    import cupy as cp

    x = cp.asarray(RNG.standard_normal((B, T, H, 64)).astype(dtype))
    k = cp.asarray(RNG.standard_normal((B, T, HK, 64)).astype(dtype))
    angle = RNG.uniform(-3, 3, (1, T, 32)).astype(np.float32)
    wide = np.concatenate([angle, angle], -1) if pairing == "half" else np.repeat(angle, 2, -1)
    thin, doubled = ({"cos": cp.cos(cp.asarray(a)), "sin": cp.sin(cp.asarray(a))} for a in (angle, wide))
    heads_first = [cp.ascontiguousarray(a.swapaxes(1, 2)) for a in (x, k)]
    want = bc.rope(heads_first[0], x2=heads_first[1], **thin, pairing=pairing)
    for facts in (thin, doubled, {n: t[:, :, None] for n, t in doubled.items()}):
        for _ in range(2):  # the second call finds its launch
            got = bc.rope(x, x2=k, **facts, pairing=pairing, layout="bshd")
            for a, b in zip(got, want, strict=True):
                assert a.flags.c_contiguous and isinstance(a, cp.ndarray)
                np.testing.assert_array_equal(a.get(), b.swapaxes(1, 2).get())
    given = tuple(map(cp.empty_like, (x, k)))
    assert bc.rope(x, x2=k, **doubled, pairing=pairing, layout="bshd", out=given)[1] is given[1]
    np.testing.assert_array_equal(given[0].get(), want[0].swapaxes(1, 2).get())
