"""A transformer block of our functions in Flax and Equinox: trained with optax, mapped, scanned and rematerialised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
from jax import numpy as jnp  # noqa: E402

from baracuda_py import jax as bj  # noqa: E402

WORDS, WIDTH, HEADS, DEPTH, LENGTH = 11, 16, 2, 2, 8
IDS = jnp.asarray(np.resize([3, 1, 4, 1, 5, 9, 2, 6], (4, LENGTH + 1)), jnp.int32)
TOKENS, TARGETS = IDS[:, :-1], IDS[:, 1:]
SHAPES = {"norm1": (WIDTH,), "qkv": (3 * WIDTH, WIDTH), "out": (WIDTH, WIDTH), "norm2": (WIDTH,),
          "gate_up": (4 * WIDTH, WIDTH), "down": (WIDTH, 2 * WIDTH)}  # fmt: skip


def first(name: str, key: Any, shape: tuple[int, ...]) -> Any:
    """A parameter before training."""
    return jnp.ones(shape) if "norm" in name else 0.3 * jax.random.normal(key, shape)


def block(p: Any, x: Any, key: Any = None) -> Any:
    """Attention and a gated MLP of [batch, length, width], p(name) giving parameters; dropout where there is a key."""
    batch, length, _ = x.shape
    h = bj.rms_norm(x, p("norm1"))
    q, k, v = jnp.split(bj.linear(h, p("qkv")).reshape(batch, length, HEADS, -1), 3, -1)
    h = bj.flash_sdpa(q, k, v, layout="bshd", is_causal=True).reshape(batch, length, -1)
    h = bj.linear(h, p("out"))
    x = x + (h if key is None else bj.dropout(h, 0.1, key=key))
    return x + bj.linear(bj.swiglu(bj.linear(bj.rms_norm(x, p("norm2")), p("gate_up"))), p("down"))


def block_of_jax(p: Any, x: Any) -> Any:
    """The same in jax.numpy."""
    batch, length, _ = x.shape

    def norm(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w

    q, k, v = jnp.split((norm(x, p("norm1")) @ p("qkv").T).reshape(batch, length, HEADS, -1), 3, -1)
    h = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, length, -1)
    x = x + h @ p("out").T
    gate, up = jnp.split(norm(x, p("norm2")) @ p("gate_up").T, 2, -1)
    return x + (jax.nn.silu(gate) * up) @ p("down").T


def loss_of(logits: Any, targets: Any) -> Any:
    return bj.cross_entropy(logits.reshape(-1, WORDS), targets.reshape(-1))


def trained(step: Callable[[], Any], steps: int = 30) -> None:
    losses = [float(step()) for _ in range(steps)]
    assert losses[-1] < 0.3 * losses[0] and np.isfinite(losses).all(), losses


def test_flax_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Block(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            for name, shape in SHAPES.items():
                setattr(self, name, nnx.Param(first(name, rngs.params(), shape)))

        def __call__(self, x: Any, key: Any = None) -> Any:
            return block(lambda name: getattr(self, name), x, key)

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.embedding = nnx.Param(jax.random.normal(rngs.params(), (WORDS, WIDTH)))

            @nnx.split_rngs(splits=DEPTH)
            @nnx.vmap(axis_size=DEPTH)
            def blocks(rngs: Any) -> Any:
                return Block(rngs)

            self.blocks = blocks(rngs)
            self.norm = nnx.Param(jnp.ones(WIDTH))

        def __call__(self, tokens: Any, key: Any = None) -> Any:
            x = bj.embedding(tokens, self.embedding)

            @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
            @nnx.remat
            def through(x: Any, one: Any) -> Any:
                return one(x, key)

            return bj.linear(bj.rms_norm(through(x, self.blocks), self.norm), self.embedding)

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any, key: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: loss_of(m(TOKENS, key), TARGETS))(model)
        optimizer.update(model, grads)
        return loss

    keys = iter(jax.random.split(jax.random.key(1), 64))
    trained(lambda: step(model, optimizer, next(keys)))
    each = nnx.vmap(lambda m, t: m(t[None])[0], in_axes=(None, 0))(model, TOKENS)
    np.testing.assert_allclose(each, model(TOKENS), rtol=1e-5, atol=1e-5)
    ours, theirs = (
        nnx.grad(lambda m, f=f: (f(lambda name: jnp.asarray(getattr(m, name)), jnp.ones((2, 4, WIDTH))) ** 2).sum())(
            Block(nnx.Rngs(2))
        )
        for f in (block, block_of_jax)
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4)


def test_flax_linen() -> None:
    linen = pytest.importorskip("flax.linen")

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Any, _: Any = None) -> Any:
            held = {n: self.param(n, lambda key, n=n, s=s: first(n, key, s)) for n, s in SHAPES.items()}
            return block(held.__getitem__, x, self.make_rng("dropout") if self.has_rng("dropout") else None), None

    class Model(linen.Module):
        @linen.compact
        def __call__(self, tokens: Any) -> Any:
            embedding = self.param("embedding", lambda key: jax.random.normal(key, (WORDS, WIDTH)))
            blocks = linen.scan(
                linen.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True, "dropout": True},
                length=DEPTH,
            )()  # fmt: skip
            x, _ = blocks(bj.embedding(tokens, embedding), None)
            return bj.linear(bj.rms_norm(x, self.param("norm", lambda key: jnp.ones(WIDTH))), embedding)

    model, optimizer = Model(), optax.adamw(1e-2)
    held = {"params": model.init(jax.random.key(0), TOKENS)}
    held["state"] = optimizer.init(held["params"])

    @jax.jit
    def step(params: Any, state: Any, key: Any) -> Any:
        loss, grads = jax.value_and_grad(
            lambda p: loss_of(model.apply(p, TOKENS, rngs={"dropout": key}), TARGETS)
        )(params)  # fmt: skip
        changes, state = optimizer.update(grads, state, params)
        return loss, optax.apply_updates(params, changes), state

    keys = iter(jax.random.split(jax.random.key(1), 64))

    def one() -> Any:
        loss, held["params"], held["state"] = step(held["params"], held["state"], next(keys))
        return loss

    trained(one)
    each = jax.vmap(lambda t: model.apply(held["params"], t[None])[0])(TOKENS)
    np.testing.assert_allclose(each, model.apply(held["params"], TOKENS), rtol=1e-5, atol=1e-5)


def test_equinox() -> None:
    eqx = pytest.importorskip("equinox")

    class Block(eqx.Module):
        held: dict[str, Any]

        def __init__(self, key: Any) -> None:
            keys = jax.random.split(key, len(SHAPES))
            self.held = {n: first(n, k, s) for k, (n, s) in zip(keys, SHAPES.items(), strict=True)}

        def __call__(self, x: Any, key: Any = None) -> Any:
            return block(self.held.__getitem__, x, key)

    class Model(eqx.Module):
        embedding: Any
        blocks: Block
        norm: Any

        def __init__(self, key: Any) -> None:
            a, b = jax.random.split(key)
            self.embedding, self.norm = jax.random.normal(a, (WORDS, WIDTH)), jnp.ones(WIDTH)
            self.blocks = eqx.filter_vmap(Block)(jax.random.split(b, DEPTH))

        def __call__(self, tokens: Any, key: Any = None) -> Any:
            arrays, rest = eqx.partition(self.blocks, eqx.is_array)

            @jax.checkpoint
            def through(x: Any, one: Any) -> Any:
                return eqx.combine(one, rest)(x, key), None

            x, _ = jax.lax.scan(through, bj.embedding(tokens, self.embedding), arrays)
            return bj.linear(bj.rms_norm(x, self.norm), self.embedding)

    model, optimizer = Model(jax.random.key(0)), optax.adamw(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model: Any, state: Any, key: Any) -> Any:
        loss, grads = eqx.filter_value_and_grad(lambda m: loss_of(m(TOKENS, key), TARGETS))(model)
        changes, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
        return loss, eqx.apply_updates(model, changes), state

    keys = iter(jax.random.split(jax.random.key(1), 64))

    def one() -> Any:
        nonlocal model, state
        loss, model, state = step(model, state, next(keys))
        return loss

    trained(one)
    each = eqx.filter_vmap(lambda m, t: m(t[None])[0], in_axes=(None, 0))(model, TOKENS)
    np.testing.assert_allclose(each, model(TOKENS), rtol=1e-5, atol=1e-5)
    per_sample = eqx.filter_vmap(eqx.filter_grad(lambda m, t, y: loss_of(m(t[None]), y[None])), in_axes=(None, 0, 0))
    mean = jax.tree.map(lambda a: a.mean(0), per_sample(model, TOKENS, TARGETS))
    whole = eqx.filter_grad(lambda m: loss_of(m(TOKENS), TARGETS))(model)
    for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
