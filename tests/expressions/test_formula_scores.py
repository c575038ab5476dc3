"""Formulas of attention's scores: texts and functions, errors, what they compute beside torch, checks and kernels."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.expressions.score_shape import element_at
from baracuda_py.expressions.scores import score_formula
from baracuda_py.testing import CHECKS, emulated, exercise

RNG = np.random.default_rng(0)
B, H, KV, Q, K, D = 2, 4, 2, 37, 53, 16
QUERY, KEY, VALUE = (RNG.standard_normal(s) for s in ((B, H, Q, D), (B, KV, K, D), (B, KV, K, D)))
BIAS, DOC = RNG.standard_normal((H, Q + K)), RNG.integers(0, 3, (B, K))
SCORE, MASK = "softcap(s, cap) + bias[h, q - k]", "q - k < window and doc[b, q] == doc[b, k]"


def test_names_with_brackets_are_tables_and_others_numbers() -> None:
    made = score_formula("softcap(s, cap) + bias[h, q - k] + page[doc[b, q], 0]", MASK)
    assert dict(made.tables) == {"bias": 2, "doc": 2, "page": 2} and made.numbers == ("cap", "window")
    assert [one.name for one in made.accesses] == ["bias[h, q - k]", "doc[b, q]", "page[doc[b, q], 0]", "doc[b, k]"]
    assert made.score is not None and made.score.inputs == (
        "cap", "s", "bias[h, q - k]", "page[doc[b, q], 0]",
    )  # fmt: skip


def test_a_function_of_symbols_is_the_same_formula() -> None:
    text = score_formula("s * cap + bias[h, q - k]", None)
    traced = score_formula(lambda s, b, h, q, k, cap, bias: s * cap + bias[h, q - k], None)
    assert traced.digest == text.digest and traced == text
    assert score_formula("s * c + t[h, q - k]", None).digest == text.digest
    assert score_formula("s * cap + bias[h, k - q]", None).digest != text.digest
    assert score_formula("s + t[q] + t[k]", None).digest != score_formula("s + t[q] + u[k]", None).digest
    gate = bc.elementwise("a * b + 1")
    assert score_formula(lambda s, t, q: gate(s, t[q]), None) == score_formula("s * t[q] + 1", None)
    mask = score_formula(None, lambda q, k, window: (q >= k) & (q - k < window))
    assert mask.numbers == ("window",) and mask.score is None


def in_torch(torch: Any, q: Any, k: Any, v: Any, cap: float = 20.0, window: int = 30) -> Any:
    k, v = (x.repeat_interleave(H // KV, 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * D**-0.5
    i, j = torch.arange(Q)[:, None], torch.arange(K)[None]
    doc = torch.tensor(DOC)
    s = cap * torch.tanh(s / cap) + torch.tensor(BIAS)[:, i - j]
    seen = ((i - j < window) & (j <= i))[None, None] & (doc[:, i] == doc[:, j])[:, None]
    return torch.softmax(s.masked_fill(~seen, -torch.inf), -1) @ v


GIVEN: dict[str, Any] = {"bias": BIAS, "doc": DOC, "cap": 20.0, "window": 30, "is_causal": True}


def test_it_is_torchs_forward_and_backward() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (QUERY, KEY, VALUE))
    wanted = in_torch(torch, q, k, v)
    f = bc.attention(SCORE, MASK)
    y, lse = bc.flash_sdpa(QUERY, KEY, VALUE, score=SCORE, mask=MASK, return_lse=True, **GIVEN)
    np.testing.assert_allclose(y, wanted.detach(), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(f(QUERY, KEY, VALUE, **GIVEN), y)
    dy = RNG.standard_normal(y.shape)
    grads = torch.autograd.grad(wanted, (q, k, v), torch.tensor(dy))
    mine = bc.flash_sdpa_backward(QUERY, KEY, VALUE, y, lse, dy, score=SCORE, mask=MASK, **GIVEN)
    again = f.vjp(dy, QUERY, KEY, VALUE, **GIVEN)
    for one, other, same in zip(mine, grads, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
        np.testing.assert_array_equal(same, one)
    dv, dq = f.vjp(dy, QUERY, KEY, VALUE, y=y, lse=lse, wrt=("v", "q"), **GIVEN)
    np.testing.assert_array_equal(dv, mine[2])
    np.testing.assert_array_equal(dq, mine[0])
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (dy, QUERY, KEY, VALUE)]
    for one, other in zip(f.vjp(*swapped, layout="bshd", **GIVEN), mine, strict=True):
        np.testing.assert_array_equal(one.swapaxes(1, 2), other)


def test_what_attention_has_can_be_written() -> None:
    """Causality, window, soft cap, slopes, an array as mask: by a formula and as arguments, alone and together."""
    slopes, bias = RNG.random(H), RNG.standard_normal((H, Q, K))

    def same(plain: dict[str, Any], **given: Any) -> None:
        wanted = bc.flash_sdpa(QUERY, KEY, VALUE, **plain)
        np.testing.assert_allclose(bc.flash_sdpa(QUERY, KEY, VALUE, **given), wanted, rtol=1e-12, atol=1e-13)

    same({"is_causal": True}, mask="k <= q")
    same({"is_causal": True, "window_left": 7}, mask="q - k <= n", n=7, is_causal=True)
    same({"is_causal": True, "causal_alignment": "bottom_right"}, mask="k <= q + n", n=K - Q)
    same({"softcap": 5.0}, score="softcap(s, 5.0)")
    same({"softcap": 5.0, "slopes": slopes}, score="s - m[h] * abs(q - k)", m=slopes, softcap=5.0)
    same({"slopes": slopes, "softcap": 3.0}, score="softcap(s, 3.0)", slopes=slopes)
    same({"mask": bias, "scale": -0.3}, score="s + t[h, q, k]", t=bias, scale=-0.3)
    same({"mask": bias > 0}, mask="t[h, q, k]", t=bias > 0)
    same({"mask": bias > 0, "scale": 0.6}, score="2 * s", mask=bias > 0, scale=0.3)
    f = bc.attention(mask="t[h, q, k]")
    np.testing.assert_allclose(
        f(QUERY, KEY, VALUE, bias, t=bias > 0), bc.flash_sdpa(QUERY, KEY, VALUE, np.where(bias > 0, bias, -np.inf))
    )
    same({"dropout_p": 0.4, "seed": 3, "scale": 0.5}, score="s * 2", scale=0.25, dropout_p=0.4, seed=3)


def test_what_a_formula_hides_adds_nothing() -> None:
    value = VALUE.copy()
    value[:, :, 5] = np.inf
    value[:, :, 6] = np.nan
    got = bc.flash_sdpa(QUERY, KEY, value, mask="k < 5 or k > 6")
    keep = [k for k in range(K) if k not in (5, 6)]
    np.testing.assert_allclose(got, bc.flash_sdpa(QUERY, KEY[:, :, keep], VALUE[:, :, keep]), rtol=1e-12)
    none, lse = bc.flash_sdpa(QUERY, KEY, VALUE, mask="q < 0", return_lse=True)
    assert not none.any() and np.isneginf(lse).all()


def test_elements_of_tables_are_numpys_within_and_0_outside() -> None:
    table = np.arange(12.0).reshape(3, 4)
    found = element_at(table, [np.array([0, -1, -3, -4, 3, 2]), np.array([0, -1, 3, 0, 0, 4])])
    np.testing.assert_array_equal(found, [0, 11, 3, 0, 0, 0])
    assert not element_at(np.ones((0, 4)), [np.array([0]), np.array([0])]).any()


@pytest.mark.parametrize(
    ("call", "said", "at"),
    [
        (lambda c: c(score="s + bias[h, q] + bias", bias=BIAS), "is a table; write bias[…]", "bias"),
        (lambda c: c(score="bias + bias[h] + s", bias=BIAS), "is a number, and no table", "bias"),
        (lambda c: c(score="s + bias[h]", bias=BIAS), "bias has 2 axes", "bias[h]"),
        (lambda c: c(score="s + bias[h, q] + bias[q]", bias=BIAS), "has 2 axes elsewhere", "q"),
        (lambda c: c(score="s + bias[doc[q], q]", bias=BIAS, doc=DOC[0] + 0.5), "a whole number", "doc[q]"),
        (lambda c: c(score="s + bias[int32(s)]", bias=BIAS), "does not depend on the score", "int32(s)"),
        (lambda c: c(score="s + bias[1:2]", bias=BIAS), "an index for each axis", "1:2"),
        (lambda c: c(score="s + q[0]"), "q is a number, and no table", "q"),
        (lambda c: c(score="a = s; b = s"), "one value", None),
        (lambda c: c(score="s * scale"), "scale is a word of attention", "scale"),
        (lambda c: c(score=lambda s, seed: s * seed, seed=1), "seed is a word of attention", None),
        (lambda c: c(mask="s > 0"), "does not depend on the score", "s"),
        (lambda c: c(mask="q - k"), "true or false, got int32", "q - k"),
        (lambda c: c(score="s + sillu(q)"), "did you mean silu", "sillu"),
        (lambda c: c(score="s + bias[h, q]"), "needs bias", None),
        (lambda c: c(score="s * n", n=BIAS), "0-d array", None),
        (lambda c: c(score="s + t[q]", t=1.0), "t is a table", None),
        (lambda c: c(score=3), "string or a function", None),
        (lambda c: c(score="s * n", n=1, m=2), "unexpected keyword argument 'm'", None),
        (lambda c: bc.attention(), "score= or mask=", None), (lambda c: bc.attention("s * n", m=1), "keyword", None),
    ],
)  # fmt: skip
def test_wrong_formulas_say_what_is_wrong(call: Callable[[Any], Any], said: str, at: str | None) -> None:
    with pytest.raises(bc.InvalidProblemError) as raised:
        call(lambda **given: bc.flash_sdpa(QUERY, KEY, VALUE, **given))
    assert said in str(raised.value)
    if at is not None:
        line, carets = str(raised.value).splitlines()[-2:]
        start = carets.index("^")
        assert line[start : start + carets.count("^")] == at


def test_gradients_that_are_not_made_are_refused() -> None:
    f = bc.attention("s + bias[h, q] * n", mask="t[k] > 0")
    given = {"bias": BIAS, "n": 1.0, "t": np.ones(K)}
    y, lse = f(QUERY, KEY, VALUE, return_lse=True, **given)
    with pytest.raises(bc.InvalidProblemError, match="t has no gradient"):
        f.vjp(y, QUERY, KEY, VALUE, wrt="t", **given)
    with pytest.raises(bc.InvalidProblemError, match="n has no gradient beside a formula"):
        f.backward(QUERY, KEY, VALUE, y, lse, y, return_dn=True, **given)
    with pytest.raises(bc.InvalidProblemError, match="slopes has no gradient beside a formula"):
        bc.flash_sdpa_backward(
            QUERY, KEY, VALUE, y, lse, y, slopes=np.ones(H), score="s + bias[h, q]", bias=BIAS, return_dslopes=True
        )
    with pytest.raises(bc.ExpressionError, match="no derivative of elu by its argument 2"):
        bc.attention("elu(-1.0, s)").vjp(y, QUERY, KEY, VALUE)
    bc.attention("elu(-1.0, s)")(QUERY, KEY, VALUE)


def test_numbers_may_be_on_the_device_or_defaults() -> None:
    f = bc.attention("s * n", n=2.0)
    assert f.inputs == ("n",)
    np.testing.assert_array_equal(f(QUERY, KEY, VALUE), f(QUERY, KEY, VALUE, n=np.array(2.0)))
    np.testing.assert_allclose(f(QUERY, KEY, VALUE, n=1), bc.flash_sdpa(QUERY, KEY, VALUE), rtol=1e-13)


def test_they_are_pickled_and_compared() -> None:
    f = bc.attention(SCORE, MASK, cap=20.0)
    assert pickle.loads(pickle.dumps(f)) == f != bc.attention(SCORE, MASK)
    plan = f.plan(window=int)
    assert pickle.loads(pickle.dumps(plan)) is plan
    backward = plan.vjp.plan  # type: ignore[union-attr]
    assert pickle.loads(pickle.dumps(backward)) is backward
    facts = {"batch_size": 1, "num_heads": 2, "query_len": 3, "key_len": 5, "d_k": 8, "d_v": 8, "element": "bfloat16"}
    desc = plan.descriptor(**facts, bias_shape=(2, 8), doc_shape=(1, 5), doc_element="int32")
    assert pickle.loads(pickle.dumps(desc)) == desc
    chosen = plan.select(desc, device=bc.fake_device(9.0))
    assert chosen.sku.variant == "mma" and plan.scored.digest in str(chosen.sku)


FORMULAS: tuple[tuple[str, str | None, str | None, dict[str, Any]], ...] = (
    ("both", SCORE, MASK, {"window": int}), ("mask", None, "abs(q - k) <= n or t[k]", {"n": int}),
    ("score", "where(q > k, s * a, -s) + silu(s) * m[h]", None, {"a": float}),
    ("nested", "s - 0.1 * bias[bucket[q - k], h]", None, {}),
)  # fmt: skip
NAMES = [name for name, *_ in FORMULAS]


def plans(name: str) -> list[type[bc.Plan]]:
    score, mask, roles = next(rest for one, *rest in FORMULAS if one == name)
    plan = bc.attention(score, mask).plan(**roles)
    return [plan, plan.vjp.plan]  # type: ignore[union-attr]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", NAMES)
def test_they_pass_the_checks_of_all_ops(name: str, direction: str, check: object) -> None:
    plan = plans(name)[direction == "backward"]
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_them(name: str, direction: str) -> None:
    exercise(plans(name)[direction == "backward"], emulated, examples=2, seeded=False)
