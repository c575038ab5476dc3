"""baracuda_py.jax: its functions, JAX's control flow and transformations around them."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from tests.interop.hand_written import made, operands_of
from tests.interop.in_jax import in_jax, jax, same

bj = bc.jax
jnp = jax.numpy


@pytest.fixture(autouse=True)
def _on_the_host() -> Any:
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        yield


def equal(ours: Any, theirs: Any) -> bool:
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))
    return bool(pairs) and all(isinstance(a, jax.Array) and same(a, b) for a, b in pairs)


# -- the functions ----------------------------------------------------------------------------------------------------


def test_every_function_of_a_plan_is_there() -> None:
    names = [n for n in dir(bc) if hasattr(getattr(bc, n), "plan") and not isinstance(getattr(bc, n), type)]
    assert dir(bj) == sorted(names) and len(names) > 500
    assert bj.rms_norm.__name__ == "rms_norm" and bj.rms_norm.__doc__ == bc.rms_norm.__doc__
    assert inspect.signature(bj.rms_norm) == inspect.signature(bc.rms_norm)
    for name in ("RMSNormPlan", "fake_device", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(bj, name)


WRITTEN = sorted(n for n in dir(bj) if "element" not in inspect.signature(getattr(bj, n)).parameters)


UPDATED = {"causal_conv1d_update": 1, "comba_decode": 6, "gated_short_conv_update": 3, "selective_state_update": 0}
"""Functions that update an operand and make an array: which operand, the last result under JAX."""


@pytest.mark.parametrize("name", WRITTEN)
def test_functions_written_by_hand(name: str) -> None:
    operands, facts = operands_of(name)
    held, given = (
        jax.tree.map(lambda one: np.array(one) if isinstance(one, np.ndarray) else one, x) for x in (operands, facts)
    )
    arrays, words = (
        jax.tree.map(lambda one: in_jax(one) if isinstance(one, np.ndarray) else one, x) for x in (operands, facts)
    )
    plain = getattr(bc, name)(*held, **given)
    staged = getattr(bj, name)(*arrays, **words)
    assert equal(staged, (plain, held[UPDATED[name]]) if name in UPDATED else plain)


# -- what is updated in place, layouts, numbers -----------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_layouts(layout: str) -> None:
    turn = (lambda a: a) if layout == "bhsd" else (lambda a: np.ascontiguousarray(a.swapaxes(1, 2)))
    q, k, v = (turn(made(1, 4, 8, 16, seed=i)) for i in range(3))
    at = np.array([2], np.int32)
    caches = [turn(made(1, 4, 12, 16, seed=i)) for i in (5, 6)]
    for name, operands, facts in (
        ("flash_sdpa", (q, k, v), {"return_lse": True, "is_causal": True}), ("sdpa", (q, k, v), {}),
        ("rope", (q,), {"base": 100.0}), ("rope", (q, None, None, k), {}),
    ):  # fmt: skip
        arrays = [one if one is None else jnp.asarray(one) for one in operands]
        want = getattr(bc, name)(*operands, **facts, layout=layout)
        assert equal(getattr(bj, name)(*arrays, **facts, layout=layout), want)
    copies = [one.copy() for one in caches]
    bc.kv_cache_append(k, v, at, *copies, layout=layout)
    assert equal(bj.kv_cache_append(*map(jnp.asarray, (k, v, at, *caches)), layout=layout), copies)
    copies = [one.copy() for one in caches]
    y = bc.rope_kv_append(q, k, v, at, *copies, layout=layout)
    assert equal(bj.rope_kv_append(*map(jnp.asarray, (q, k, v, at, *caches)), layout=layout), (y, *copies))


def test_updates_are_results_and_leave_the_operands_alone() -> None:
    held = [made(4, seed=i) for i in range(4)]
    want = [one.copy() for one in held]
    bc.adam_step([want[0]], [want[1]], [want[2]], [np.abs(want[3])], step=2, lr=0.1)
    p, g, m = (jnp.asarray(one) for one in held[:3])
    v = jnp.abs(jnp.asarray(held[3]))
    made_ = bj.adam_step([p], [g], [m], [v], step=2, lr=0.1)
    assert [len(one) for one in made_] == [1, 1, 1] and same(made_[0][0], want[0]) and same(made_[1][0], want[2])
    assert same(p, held[0]) and same(m, held[2])


def test_donated_buffers_are_updated_where_they_are() -> None:
    k, cache, at = made(1, 2, 1, 4), made(1, 2, 8, 4, seed=1), np.array([3], np.int32)
    step = jax.jit(lambda k, at, a, b: bj.kv_cache_append(k, k, at, a, b), donate_argnums=(2, 3))
    a, b = jnp.array(cache), jnp.array(cache)
    pointers = {one.unsafe_buffer_pointer() for one in (a, b)}
    made_ = step(k, at, a, b)
    assert a.is_deleted() and b.is_deleted()
    assert {one.unsafe_buffer_pointer() for one in made_} == pointers
    bc.kv_cache_append(k, k, at, cache, cache.copy())
    assert same(made_[0], cache)


def test_numbers_are_constants_and_0d_arrays_are_operands() -> None:
    x = jnp.asarray(made(4))
    traces = []

    @jax.jit
    def scaled(x: Any, alpha: Any) -> Any:
        traces.append(1)
        return bj.affine(x, alpha=alpha, beta=-0.0)

    for alpha in (2.0, 3.0, 0.25):
        assert equal(scaled(x, alpha), bc.affine(np.asarray(x), alpha=alpha, beta=-0.0))
        assert equal(bj.affine(x, alpha), bc.affine(np.asarray(x), alpha))
        assert equal(bj.affine(x, alpha=jnp.asarray(alpha)), bc.affine(np.asarray(x), alpha))
    assert len(traces) == 1
    zeros = jnp.zeros(3)
    for beta in (0.0, -0.0):  # equal numbers, other signs
        signs = np.signbit(np.asarray(bj.affine(zeros, -1.0, beta)))
        assert signs.tolist() == [bool(np.signbit(np.float64(beta)))] * 3
    for bad in (jnp.ones(3), jnp.ones((), jnp.int8)):
        with pytest.raises(bc.InvalidProblemError, match=r"alpha must be a number or a 0-d float32"):
            bj.affine(x, alpha=bad)


def test_64_bits_are_those_of_jax() -> None:
    x = made(3, 8)
    with jax.enable_x64(False):
        found = jax.jit(lambda x: bj.argmax(x, axis=1))(x)
        assert found.dtype == jnp.int32 and np.array_equal(found, bc.argmax(x, axis=1))
        y, at = bj.max_pool2d(x[None, None], kernel_size=2, return_indices=True)
        assert at.dtype == jnp.int32 and y.shape == (1, 1, 1, 4)
        grad = jax.grad(lambda x: bj.max_pool2d(x[None, None], kernel_size=2).sum())(jnp.asarray(x))
        assert float(grad.sum()) == 4 and grad.dtype == jnp.float32
    assert bj.argmax(x, axis=1).dtype == jnp.int64


# -- JAX around them --------------------------------------------------------------------------------------------------


def block(x: Any, w: Any) -> Any:
    return bj.silu(bj.rms_norm(x, w))


def in_jnp(x: Any, w: Any) -> Any:
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
    return h * jax.nn.sigmoid(h)


TRANSFORMED: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "jit": lambda f: jax.jit(f),
    "scan": lambda f: lambda x, w: jax.lax.scan(lambda c, _: (f(c, w), f(c, w).sum()), x, None, length=3),
    "while": lambda f: lambda x, w: jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (f(c[0], w), c[1] + 1), (x, 0))[0],
    "cond": lambda f: lambda x, w: jax.lax.cond(x.sum() > 0, lambda: f(x, w), lambda: f(-x, w)),
    "map": lambda f: lambda x, w: jax.lax.map(lambda row: f(row, w), x),
    "vmap": lambda f: jax.vmap(f, (0, None)),
    "vmap of both": lambda f: lambda x, w: jax.vmap(f)(x, jnp.stack([w, 2 * w, 3 * w, w])),
    "vmap along another axis": lambda f: lambda x, w: jax.vmap(lambda row: f(row, w[:4]), 1, 1)(x),
    "vmap twice": lambda f: lambda x, w: jax.vmap(jax.vmap(f, (0, None)), (0, None))(jnp.stack([x, 2 * x]), w),
    "grad": lambda f: jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)),
    "jit of grad": lambda f: jax.jit(jax.value_and_grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))),
    "grad of jit": lambda f: jax.grad(lambda x, w: (jax.jit(f)(x, w) ** 2).sum()),
    "vmap of grad": lambda f: jax.vmap(jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)), (0, None)),
    "grad of vmap": lambda f: jax.grad(lambda x, w: (jax.vmap(f, (0, None))(x, w) ** 2).sum(), (0, 1)),
    "grad of scan": lambda f: jax.grad(
        lambda x, w: jax.lax.scan(lambda c, _: (f(c, w), f(c, w).sum()), x, None, length=3)[1].sum(), (0, 1)
    ),
    "checkpoint": lambda f: jax.grad(lambda x, w: (jax.checkpoint(f)(x, w) ** 2).sum(), (0, 1)),
    "jacrev": lambda f: jax.jacrev(lambda x, w: f(x[0], w), (0, 1)),
    "linear_transpose of vjp": lambda f: lambda x, w: jax.vjp(f, x, w)[1](x + 1),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformations(name: str) -> None:
    x, w = made(4, 8, dtype=np.float64), made(8, seed=1, dtype=np.float64)
    got, want = (TRANSFORMED[name](f)(x, w) for f in (block, in_jnp))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_vmap_is_one_call_where_the_op_allows_it() -> None:
    x, w = made(3, 4, 8), made(8)
    text = str(jax.make_jaxpr(jax.vmap(lambda x: bj.rms_norm(x, w)))(x))
    assert "scan" not in text and '"batch_shape":[3,4]' in text
    q = made(3, 2, 4, 8, 16)
    text = str(jax.make_jaxpr(jax.vmap(lambda q: bj.flash_sdpa(q, q, q)))(q))
    assert "scan" not in text and '"batch_size":6' in text
    text = str(jax.make_jaxpr(jax.vmap(lambda x: bj.dropout(x, seed=3)))(x))
    assert "scan" in text  # all rows have the stream that one has alone


def test_formulas() -> None:
    x, y = made(4, 8, dtype=np.float64), made(8, seed=1, dtype=np.float64)
    f = bc.elementwise("silu(x) * y + alpha")
    assert equal(jax.jit(lambda x, y: f(x, y, 0.5))(x, y), f(x, y, 0.5))
    assert equal(jax.jit(f)(x, y, jnp.float32(0.5)), f(x, y, 0.5))
    got = jax.grad(lambda x, y: (f(x, y, 0.5) ** 2).sum(), (0, 1))(x, y)
    want = jax.grad(lambda x, y: ((jax.nn.silu(x) * y + 0.5) ** 2).sum(), (0, 1))(x, y)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_threads() -> None:
    x, wrong = made(64, 8), []
    function, want = jax.jit(lambda x: bj.exp(bj.rms_norm(x))), bc.exp(bc.rms_norm(made(64, 8)))

    def many() -> None:
        wrong.extend(i for i in range(50) if not same(function(x), want))

    threads = [threading.Thread(target=many) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_the_examples_of_the_page_run() -> None:
    page = (Path(bc.__file__).parents[1] / "docs/jax.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    space: dict[str, Any] = {}
    for one in blocks:
        exec(one, space)
    assert len(blocks) == 5 and equal(space["y"], bc.silu(bc.rms_norm(np.ones((4, 64)), np.ones(64))))
    assert float(space["cache"][0].sum()) == 128


def test_arrays_that_a_staged_function_makes_are_filled() -> None:
    """Those are constants of the program, written on the host before it runs."""
    weights = np.ones((2, 4), np.float32)
    want = bc.multinomial_counts(10, weights, seed=1)
    assert want.sum() == 20
    np.testing.assert_array_equal(bj.multinomial_counts(10, jax.numpy.asarray(weights), seed=1), want)
