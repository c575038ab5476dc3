"""baracuda_py.jax on a GPU: XLA's stream and buffers, the bits of the plain call, captured calls, other streams."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave the GPU's memory to the other tests

import baracuda_py as bc
from baracuda_py.core.args import arrays_of
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.jax import target
from tests.interop.hand_written import made
from tests.interop.in_jax import PLANS, in_jax, jax, problems, same

pytestmark = pytest.mark.gpu
bj = bc.jax
jnp = jax.numpy


@pytest.fixture(autouse=True)
def _on_the_gpu() -> Any:
    found = [d for d in jax.devices() if d.platform in ("gpu", "cuda")]
    if not found:
        pytest.skip("this JAX has no CUDA backend")
    with jax.default_device(found[0]), jax.enable_x64(True):
        yield


def cupy_call(function: Callable[..., Any], arrays: Any, **facts: Any) -> list[Any]:
    """The plain call on CuPy arrays: the same kernels, launched by the functional layer."""
    import cupy

    # CuPy fills what has no axes, and a fill with -0 is one with 0.
    given = jax.tree.map(lambda a: cupy.asarray(np.atleast_1d(a)).reshape(np.shape(a)), arrays)
    return jax.tree.map(cupy.asnumpy, jax.tree.leaves(function(**given, **facts)))


@pytest.mark.parametrize("name", sorted(PLANS))
def test_jit_gives_the_bits_of_the_plain_call(name: str) -> None:
    """A few problems of each page whose operands are inputs alone."""
    served = 0
    for one in problems(PLANS[name]):
        arrays = in_jax(one.arrays)
        updates = any(spec.role == "inout" for spec in arrays_of(one.case.plan.args))
        foreign = any(np.asarray(a).dtype.name not in NUMPY for a in jax.tree.leaves(one.arrays))
        if served == 2 or not arrays or updates or foreign:
            continue
        try:
            want = cupy_call(one.function, one.arrays, **one.facts)
        except UnsupportedError:  # no row for this device
            continue
        got = jax.tree.leaves(jax.jit(lambda one=one, **given: one.call(**given))(**arrays))
        for a, b in zip(want, got, strict=True):
            assert same(b, a), str(one.case)
        served += 1


NUMPY = {np.dtype(t).name for t in "?bhilBHILefdFD"}
"""The dtypes that CuPy has."""


def block(x: Any, w: Any) -> Any:
    return bj.silu(bj.rms_norm(x, w))


def in_jnp(x: Any, w: Any) -> Any:
    h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
    return h * jax.nn.sigmoid(h)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.jit(f),
        lambda f: f,
        lambda f: jax.jit(jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))),
        lambda f: jax.jit(jax.vmap(jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)), (0, None))),
        lambda f: jax.jit(lambda x, w: jax.lax.scan(lambda c, _: (f(c, w), f(c, w).sum()), x, None, length=50)),
        lambda f: jax.jit(jax.grad(lambda x, w: jax.lax.scan(lambda c, _: (f(c, w), 0), x, None, length=5)[0].sum())),
    ],
    ids=["jit", "eager", "grad", "vmap of grad", "scan", "grad of scan"],
)
def test_transformations(transform: Any) -> None:
    x, w = (jnp.asarray(made(*shape, seed=i, dtype=np.float64)) for i, shape in enumerate([(64, 512), (512,)]))
    for _ in range(3):
        got, want = transform(block)(x, w), transform(in_jnp)(x, w)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_many_runs_with_new_inputs() -> None:
    """Where XLA keeps the launches as a CUDA graph, it must not keep what they read."""
    function = jax.jit(lambda x, w: block(block(x, w), w) + block(x * 2, w))
    w = jnp.ones(512)
    for seed in range(20):
        x = jnp.asarray(made(32 + 0 * seed, 512, seed=seed, dtype=np.float64))
        want = in_jnp(in_jnp(x, w), w) + in_jnp(x * 2, w)
        np.testing.assert_allclose(function(x, w), want, rtol=1e-9, atol=1e-11)


def test_the_order_with_xla_and_with_other_streams() -> None:
    """The kernels run after what XLA made before and before what it makes next, whatever CuPy's streams do."""
    import cupy

    a = jnp.asarray(made(2048, 2048))
    function = jax.jit(lambda a: bj.exp(jax.lax.fori_loop(0, 20, lambda i, b: jnp.tanh(b @ a * 0.01), a)) + 1)
    plain = jax.jit(lambda a: jnp.exp(jax.lax.fori_loop(0, 20, lambda i, b: jnp.tanh(b @ a * 0.01), a)) + 1)
    want, stream = np.asarray(plain(a)), cupy.cuda.Stream(non_blocking=True)
    with stream:
        busy = cupy.ones((2048, 2048), cupy.float32)
        for _ in range(10):
            busy = bc.tanh(busy @ busy)
            np.testing.assert_allclose(function(a), want, rtol=1e-4)
    stream.synchronize()


def test_workspace_and_updates_in_place() -> None:
    x = jnp.asarray(made(1, 1 << 22))  # one long row: several blocks and a second pass
    assert same(jax.jit(lambda x: bj.sum(x, axis=1))(x), cupy_call(bc.sum, {"x": np.asarray(x)}, axis=1)[0])
    k, cache, at = made(1, 2, 1, 64), made(1, 2, 8, 64, seed=1), np.array([3], np.int32)
    step = jax.jit(lambda k, at, a, b: bj.kv_cache_append(k, k, at, a, b), donate_argnums=(2, 3))
    a, b = jnp.array(cache), jnp.array(cache)
    for _ in range(3):
        a, b = step(k, at, a, b)
    bc.kv_cache_append(k, k, at, cache, cache.copy())
    assert same(a, cache) and same(b, cache)
    kept = jnp.array(made(1, 2, 8, 64, seed=1))
    jax.jit(lambda k, at, a, b: bj.kv_cache_append(k, k, at, a, b))(k, at, kept, kept)
    assert same(kept, made(1, 2, 8, 64, seed=1))


def test_numbers_from_the_device() -> None:
    x = jnp.asarray(made(1000))
    function = jax.jit(lambda x, alpha: bj.affine(x, alpha=alpha, beta=0.5))
    for alpha in (2.0, 0.25, -3.0):
        want = cupy_call(bc.affine, {"x": np.asarray(x)}, alpha=alpha, beta=0.5)[0]
        assert same(function(x, alpha), want)


def test_attention_and_its_gradient() -> None:
    q, k, v = (jnp.asarray(made(2, 4, 256, 64, seed=i), jnp.bfloat16) for i in range(3))

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1), v)

    def loss(f: Any) -> Any:
        return jax.jit(jax.grad(lambda q, k, v: (f(q, k, v).astype(jnp.float32) ** 2).sum(), (0, 1, 2)))

    got = loss(lambda q, k, v: bj.flash_sdpa(q, k, v, is_causal=True))(q, k, v)
    want = loss(plain)(*(a.astype(jnp.float32) for a in (q, k, v)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float32), b, rtol=0.1, atol=0.05)


def test_threads() -> None:
    import threading

    x, wrong = made(256, 512), []
    function = jax.jit(lambda x: bj.exp(bj.rms_norm(x)))
    want = np.asarray(function(x))

    def many() -> None:
        wrong.extend(i for i in range(50) if not same(function(x), want))

    threads = [threading.Thread(target=many) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_an_executable_is_ready_when_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are loaded at instantiation, on each device of JAX's, before anything is launched or captured."""
    lowered = jax.jit(lambda x: bj.expm1(x)).lower(jnp.ones(777))
    ready: list[int] = []
    original = target.Call.sample
    monkeypatch.setattr(target.Call, "sample", lambda self: ready.append(self.ordinal) or original(self))
    lowered.compile()
    assert ready == list(target.cuda_ordinals())
