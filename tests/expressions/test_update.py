"""Update rules from formulas, against loops in float64: order, elements, lists, numbers, storage, what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from baracuda_py.expressions.errors import ExpressionError
from baracuda_py.expressions.update_codes import code_map, decoded, dynamic_map, encoded
from baracuda_py.expressions.update_plan import CHUNK, capacity_of

BF16 = ml_dtypes.bfloat16
ADAM = "m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g * g; p = p - lr * m / (sqrt(v) + eps)"
EVERY = {"mu_product", "c", "eta", "mu", "n", "rate"}


def lists(shapes: Any, dtype: Any = np.float64, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(s)).astype(dtype) for s in shapes]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=5),
    st.sampled_from([np.float64, np.float32, np.float16, BF16]),
    st.sampled_from([np.float64, np.float32, BF16]),
)
def test_parts_in_order_and_any_elements(shapes: list[list[int]], of_params: Any, of_states: Any) -> None:
    rule = bc.optimizer(ADAM, b1=0.9, b2=0.99, eps=1e-8)
    assert rule.inputs == ("p", "g", "m", "v", "lr", "b1", "b2", "eps") and rule.written == ("m", "v", "p")
    p, g = lists(shapes, of_params), lists(shapes, of_params, 1)
    m, v = lists(shapes, of_states, 2), [np.asarray(np.square(x)) for x in lists(shapes, of_states, 3)]
    wide = [[x.astype(np.float64) for x in one] for one in (p, g, m, v)]
    rule(p, g, m, v, 0.125, grad_scale=0.5)
    for i, (p0, g0, m0, v0) in enumerate(zip(*wide, strict=True)):
        g0 = 0.5 * g0
        m1, v1 = 0.9 * m0 + 0.1 * g0, 0.99 * v0 + 0.01 * g0 * g0
        for got, want in ((m[i], m1), (v[i], v1), (p[i], p0 - 0.125 * m1 / (np.sqrt(v1) + 1e-8))):
            bound = (
                1e-10
                if got.dtype == np.float64 and of_states == of_params
                else 4 * float(ml_dtypes.finfo(got.dtype).eps)
            )
            np.testing.assert_allclose(got.astype(float), want, rtol=bound, atol=bound * 4)


def test_names_assigned_again_and_names_of_no_list() -> None:
    p, g = [np.array([2.0])], [np.array([3.0])]
    made = bc.optimizer("_s = g; p = p * _s; p = p + 1; copy = p")
    copy = [np.zeros(1, np.float32)]
    assert made(p, g, copy=copy) == (p, copy)
    assert p[0] == 7 and copy[0] == 7 and copy[0].dtype == np.float32


def test_mixed_elements_are_sorted_apart() -> None:
    p = [np.ones(3, np.float32), np.ones((2, 2), BF16), np.ones(4, np.float32), np.zeros((0, 2), np.float16)]
    g = [np.full(x.shape, 0.5, x.dtype) for x in p]
    g[2] = g[2].astype(BF16)
    bc.optimizer("p = p - g")(p, g)
    assert all((x == 0.5).all() for x in p) and [x.dtype for x in p] == [np.float32, BF16, np.float32, np.float16]


@pytest.mark.parametrize("found_inf", [1, 1.0, np.float32(np.nan), np.array(np.inf)])
def test_a_skipped_step(found_inf: Any) -> None:
    p = [np.ones(3)]
    rule = bc.optimizer("p = p - g")
    rule(p, [np.ones(3)], found_inf=found_inf)
    assert (p[0] == 1).all()
    rule(p, [np.ones(3)], found_inf=np.zeros((), np.float32))
    assert (p[0] == 0).all()


def test_numbers_may_be_arrays_of_no_axes() -> None:
    made = bc.optimizer("adamw")
    a, b = ([np.ones(3)], [np.ones(3)])
    states = [[np.zeros(3)] for _ in range(4)]
    made(a, [np.ones(3)], *states[:2], t=3, lr=0.5, grad_scale=-1.0)
    made(b, [np.ones(3)], *states[2:], t=np.array(3), lr=np.array(0.5), grad_scale=np.array(-1.0))
    assert np.array_equal(a[0], b[0]) and (a[0] > 1).all()


@pytest.mark.parametrize("t", [1, 0, -3])
def test_steps_below_one_count_as_one(t: int) -> None:
    p = [np.ones(2)]
    bc.optimizer("adam", lr=0.25, eps=0.0)(p, [np.ones(2)], [np.zeros(2)], [np.zeros(2)], t=t)
    np.testing.assert_allclose(p[0], 0.75, rtol=1e-14)


@pytest.mark.parametrize("name", sorted(bc.optimizer_rules()))
def test_every_rule_runs_and_moves_what_it_writes(name: str) -> None:
    made = bc.optimizer(name)
    held: dict[str, Any] = {}
    for i, word in enumerate((*made.inputs, *made.written)):
        if word in held or word in made.defaults:
            continue
        numbers = {"t": 2, "mu_product": 0.9, "c": 0.5, "eta": 0.1, "mu": 0.5, "n": 3, "rate": 0.1, "lr": 0.1}
        shapes = [(), ()] if word in ("trust", "rate") and name != "muon_step" else [(3,), (2, 2)]
        arrays = [np.asarray(np.abs(x) + 0.1) for x in lists(shapes, seed=i)]
        held[word] = numbers[word] if word in numbers and shapes[0] else arrays
    before = {n: [x.copy() for x in held[n]] for n in made.written}
    made(**held)
    for n in made.written:
        for a, b in zip(held[n], before[n], strict=True):
            assert np.isfinite(a).all() and not np.array_equal(a, b), n
    assert bc.optimizer_rules()[name]


@pytest.mark.parametrize(
    "options", [("sgd", "momentum"), ("adam", "amsgrad"), ("rmsprop", "centered"), ("nadam", "decoupled")]
)
def test_options_of_rules(options: tuple[str, str]) -> None:
    name, option = options
    assert bc.optimizer(name, **{option: True}).text != bc.optimizer(name).text
    with pytest.raises(InvalidProblemError, match=option):
        bc.optimizer(name, **{option: 0.5})
    with pytest.raises(BaracudaError, match="nesterof"):
        bc.optimizer("sgd", nesterof=True)
    with pytest.raises(InvalidProblemError, match="momentum=True"):
        bc.optimizer("sgd", nesterov=True)


def test_rounding_at_random_keeps_the_mean() -> None:
    rule = bc.optimizer("p = p - lr * g", stochastic="p")
    for kind in (BF16, np.float16):
        p, g = [np.ones(20_000, kind)], [np.ones(20_000, kind)]
        lr = 2.0**-14
        for offset in range(8):
            rule(p, g, lr=lr, seed=7, offset=offset)
        assert abs((1 - p[0].astype(float)).mean() - 8 * lr) < 8 * lr * 0.25
    whole, plain = [np.ones(3)], [np.ones(3)]
    rule(whole, [np.ones(3)], lr=0.1, seed=1)
    bc.optimizer("p = p - lr * g")(plain, [np.ones(3)], lr=0.1)
    assert np.array_equal(whole[0], plain[0])  # float64 is rounded to the nearest
    with pytest.raises(InvalidProblemError, match="seed"):
        rule(p, g, lr=0.1)


def test_draws_are_numbered_by_element_whatever_the_layout() -> None:
    rule = bc.optimizer("p = p - lr * g", stochastic="p")
    p = [x.astype(BF16) for x in lists([(6, 5), (7,), (4, 3)], np.float32)]
    g = [x.astype(BF16) for x in lists([(6, 5), (7,), (4, 3)], np.float32, 1)]
    turned = [np.asfortranarray(x) for x in p]
    rule(p, g, lr=0.01, seed=3)
    rule(turned, g, lr=0.01, seed=3)
    for a, b in zip(p, turned, strict=True):
        assert np.array_equal(a.view(np.uint16), np.ascontiguousarray(b).view(np.uint16))


def test_compensated_sums_lose_nothing() -> None:
    rule = bc.optimizer("sgd", compensation={"p": "c"})
    p, g, c = [np.ones(5, BF16)], [np.ones(5, BF16)], [np.zeros(5, BF16)]
    for _ in range(100):
        rule(p, g, c=c, lr=2.0**-12)
    np.testing.assert_allclose(p[0].astype(float) + c[0].astype(float), 1 - 100 * 2.0**-12, rtol=2e-5)
    with pytest.raises(InvalidProblemError, match="float16 and bfloat16"):
        rule([np.ones(5)], [np.ones(5)], c=[np.zeros(5)])


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_the_map_of_codes(kind: str) -> None:
    table = dynamic_map(kind)
    assert table.size == 256 and (np.diff(table) > 0).all() and table[-1] == 1 and 0 in table
    assert (table[0] < 0) == (kind == "signed")
    x = np.abs(lists([(300, 3)], np.float32)[0]) if kind == "unsigned" else lists([(300, 3)], np.float32)[0]
    codes, scales = encoded(kind, x)
    assert codes.dtype == np.uint8 and codes.shape == x.shape and scales.shape == (4,)
    nearest = np.abs(x.reshape(-1)[:, None] / np.repeat(scales, 256)[: x.size, None] - table).min(1)
    back = decoded(kind, codes, scales)
    np.testing.assert_allclose(np.abs(back - x).reshape(-1) / np.repeat(scales, 256)[: x.size], nearest, atol=1e-6)
    assert encoded(kind, np.zeros((0,)))[0].shape == (0,) and not encoded(kind, np.zeros(3))[1].any()
    bitsandbytes = {"signed": (0.0055, -0.9929688), "unsigned": (0.00325, 0.0)}  # values of its own map
    assert np.min(np.abs(table - bitsandbytes[kind][0])) < 2e-3 and abs(table[0] - bitsandbytes[kind][1]) < 1e-6


@pytest.mark.parametrize("kind", ["linear", "unsigned_linear", "fp8"])
def test_codes_without_a_table(kind: str) -> None:
    """Each element has the nearest value of its map; 1 and 0 are values, and codes of values are themselves."""
    table = code_map(kind)
    known = table[np.isfinite(table)]
    assert table.size == 256 and known.max() == 1 and 0 in known and (known.min() == -1) == (kind != "unsigned_linear")
    x = lists([(300, 3)], np.float32)[0]
    x = np.abs(x) if kind == "unsigned_linear" else x
    codes, scales = encoded(kind, x)
    share = x.reshape(-1) / np.repeat(scales, 256)[: x.size]
    nearest = np.abs(share[:, None] - known).min(1)
    got = (decoded(kind, codes, scales) - x).reshape(-1) / np.repeat(scales, 256)[: x.size]
    np.testing.assert_allclose(np.abs(got), nearest, atol=1e-6)
    again, _ = encoded(kind, np.concatenate([[np.float32(1)], known[:255]]))
    np.testing.assert_array_equal(table[again[1:]], known[:255])
    assert encoded(kind, np.zeros((0,)))[0].shape == (0,) and not encoded(kind, np.zeros(3))[1].any()


def test_the_linear_map_is_that_of_bitsandbytes() -> None:
    """create_linear_map(signed=True): 255 steps, and 0 twice in the middle."""
    steps = np.linspace(-1, 1, 255)
    np.testing.assert_allclose(code_map("linear"), [*steps[:127], 0, *steps[127:]], atol=1e-7)
    np.testing.assert_allclose(code_map("unsigned_linear"), np.linspace(0, 1, 256), atol=1e-7)


def test_codes_have_lists_of_scales() -> None:
    rule = bc.optimizer("lion", states8bit={"m": "signed"})
    assert rule.inputs[-1] == "m_scale"
    p, g, m = [np.ones((20, 30), np.float32)], lists([(20, 30)], np.float32), [np.zeros((20, 30), np.uint8)]
    with pytest.raises(InvalidProblemError, match="scale"):
        rule(p, g, m, m_scale=[np.zeros(2, np.float32)])
    scale = [np.zeros(3, np.float32)]
    rule(p, g, m, m_scale=scale)
    np.testing.assert_allclose(decoded("signed", m[0], scale[0]), 0.01 * g[0], atol=0.01 * scale[0].max())
    plan = rule.plan()
    desc = plan.descriptor(shapes=((20, 30),), element="float32")
    assert plan.select(desc, device=fake_device(9.0)).sku.variant == "multi_tensor"


def test_what_is_refused() -> None:
    with pytest.raises(ExpressionError, match="assigns"):
        bc.optimizer("p - g")
    with pytest.raises(ExpressionError, match="word of every update"):
        bc.optimizer("p = p - grad_scale * g")
    rule = bc.optimizer("p = p - lr * g")
    with pytest.raises(InvalidProblemError, match="p is assigned"):
        rule(1.0, [np.ones(2)], lr=0.1)
    with pytest.raises(InvalidProblemError, match="g has 1 arrays and p 2"):
        rule([np.ones(2), np.ones(2)], [np.ones(2)], lr=0.1)
    with pytest.raises(InvalidProblemError, match="shape"):
        rule([np.ones(2)], [np.ones(3)], lr=0.1)
    with pytest.raises(InvalidProblemError, match=r"p\[0\] must be an array"):
        rule([[1.0]], [np.ones(1)], lr=0.1)
    with pytest.raises(InvalidProblemError, match="did you mean adam"):
        bc.optimizer("adamz")
    same = np.ones(4)
    with pytest.raises(InvalidProblemError, match="overlaps"):
        rule([same[:3]], [same[1:]], lr=0.1)
    with pytest.raises(InvalidProblemError, match="needs lr"):
        rule([np.ones(2)], [np.ones(2)])
    with pytest.raises(BaracudaError):
        rule([np.ones(2, np.int32)], [np.ones(2, np.int32)], lr=0.1)
    for wrong in ({"stochastic": "g"}, {"compensation": {"q": "c"}}, {"states8bit": {"p": "both"}},
                  {"stochastic": "p", "compensation": {"p": "c"}}):  # fmt: skip
        with pytest.raises(InvalidProblemError):
            bc.optimizer("p = p - g", **wrong)


def test_launches_of_long_lists() -> None:
    plan = bc.optimizer("p = p - lr * g").plan(lr=float)
    most = capacity_of(plan.shape)
    shapes = [(0,), *[(3,)] * (most + 1), (CHUNK + 1,)]
    chosen = plan.select(plan.descriptor(shapes=shapes, element="float32"), device=fake_device(9.0))
    steps = chosen.rows[0].geometry(chosen._dense).steps
    assert [step.grid[0] for step in steps] == [most - 1, 4]


def test_rules_are_values() -> None:
    made = bc.optimizer("adamw", amsgrad=True)
    again = pickle.loads(pickle.dumps(made))
    assert again == made and hash(again) == hash(made) and "vmax" in repr(made)
    plan = made.plan(t=int)
    assert pickle.loads(pickle.dumps(plan)) is plan
    assert made != bc.optimizer("adamw") and made.plan(t=int) is plan


def test_lists_in_one_call() -> None:
    x, y = lists([(3,), (2, 2)]), lists([(3,), (2, 2)], seed=1)
    want = {"add": [a + 2 * b for a, b in zip(x, y, strict=True)], "mul": [a * b for a, b in zip(x, y, strict=True)]}
    got = {"add": bc.foreach_add(x, y, alpha=2.0), "mul": bc.foreach_mul(x, y)}
    want["axpby"], got["axpby"] = [2 * a - b for a, b in zip(x, y, strict=True)], bc.foreach_axpby(x, y, 2.0, -1.0)
    want["lerp"], got["lerp"] = [a + 0.25 * (b - a) for a, b in zip(x, y, strict=True)], bc.foreach_lerp(x, y, 0.25)
    want["norm"], got["norm"] = [np.linalg.norm(a) for a in x], bc.foreach_norm(x)
    want["scale"], got["scale"] = [a * 3 for a in x], bc.foreach_mul(x, 3.0)
    each = [np.array(2.0), np.array(-1.0)]
    want["each"], got["each"] = [2 * x[0], -x[1]], bc.foreach_mul(x, each)
    for name in want:
        for a, b in zip(got[name], want[name], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14, err_msg=name)
    before = [a.copy() for a in x]
    assert bc.foreach_add(x, 1.0, out=x)[0] is x[0]
    np.testing.assert_allclose(x[1], before[1] + 1)
    assert bc.foreach_add([], []) == [] and bc.foreach_norm([]) == []
    with pytest.raises(InvalidProblemError, match="y has 1 arrays"):
        bc.foreach_add(x, y[:1])
    with pytest.raises(InvalidProblemError, match="out must be a list"):
        bc.foreach_add(x, y, out=y[:1])


def test_clipping_and_unscaling() -> None:
    grads = [np.array([3.0, -0.5]), np.array([[4.0]])]
    assert bc.clip_grad_norm_(grads, 1.0) == np.sqrt(25.25)
    np.testing.assert_allclose(np.sqrt(sum((g**2).sum() for g in grads)), 1, rtol=1e-5)
    grads = [np.array([3.0, -0.5, np.nan]), np.array([[-4.0]])]
    bc.clip_grad_value_(grads, 1.0)
    np.testing.assert_array_equal(grads[0], [1, -0.5, np.nan])
    assert grads[1] == -1
    with pytest.raises(InvalidProblemError, match="clip_value"):
        bc.clip_grad_value_(grads, -1.0)
    grads = [np.array([2.0, 4.0], np.float32), np.zeros((0, 2), np.float32)]
    assert bc.unscale_(grads, 2.0) == 0 and (grads[0] == [1, 2]).all()
    grads[0][1] = np.inf
    found = bc.unscale_(grads, 2.0)
    assert found == 1 and found.dtype == np.float32 and found.shape == ()
