"""What functions take in JAX beside arrays with axes: no operands at all, seeds that are traced, arrays that another
object holds, arrays spread over a mesh with explicit axes."""

from __future__ import annotations

import inspect
import os
import pydoc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

jax = pytest.importorskip("jax")
from jax import numpy as jnp  # noqa: E402

from baracuda_py import jax as bj  # noqa: E402
from baracuda_py.ops.random.distributions import RandomKind  # noqa: E402

# Functions that draw without an operand, with numbers for their parameters from the middle of their ranges.


def middle(kind: RandomKind) -> dict[str, float]:
    pairs = zip(kind.row.parameters, kind.row.ranges, strict=True)
    return {name: low + 0.625 * (high - low) for (name, _), (low, high) in pairs}


DRAWN: dict[str, dict[str, Any]] = {
    **{k.row.name or k.value: {**middle(k), "shape": (3, 5)} for k in RandomKind if k is not RandomKind.RANDINT},
    "rand": {"shape": (3, 5)}, "randn": {"shape": (3, 5)}, "randint": {"low": -5, "high": 90, "shape": (3, 5)},
    "randperm": {"n": 7},
}  # fmt: skip


def equal(ours: Any, theirs: Any) -> bool:
    return bool(np.array_equal(np.asarray(ours), np.asarray(theirs)))


@pytest.mark.parametrize("name", DRAWN)
def test_a_draw_without_operands_has_the_numbers_of_the_plain_call(name: str) -> None:
    """Eagerly, under jit with a seed that is fixed or traced, and a row for each seed under vmap."""
    facts = DRAWN[name]
    plain: Callable[..., Any] = lambda seed: np.asarray(getattr(bc, name)(**facts, seed=seed))  # noqa: E731
    draw: Callable[..., Any] = lambda seed: getattr(bj, name)(**facts, seed=seed)  # noqa: E731
    for seed in (1, 7):
        want = plain(seed)
        for got in (
            draw(seed),
            jax.jit(lambda seed=seed: draw(seed))(),
            jax.jit(draw)(seed),
            jax.jit(draw)(jnp.uint32(seed)),
        ):
            assert isinstance(got, jax.Array) and equal(got, want.astype(got.dtype))
    rows = jax.jit(jax.vmap(draw))(jnp.arange(3))
    for seed in range(3):
        assert equal(rows[seed], plain(seed).astype(rows.dtype))
    mixed = jax.jit(lambda seed: getattr(bc, name)(**facts, seed=seed))  # the plain layer, which has served it before
    assert equal(mixed(7), plain(7).astype(mixed(7).dtype))


def test_large_seeds_are_what_they_are_as_numbers() -> None:
    x, seed = jnp.ones(64), 2**32 - 5
    want = bc.dropout(np.ones(64, np.float32), 0.5, seed=seed)
    assert equal(jax.jit(lambda x, seed: bj.dropout(x, 0.5, seed=seed))(x, jnp.uint32(seed)), want)


class Held:
    """Holds an array and gives it by `__jax_array__`, as `nnx.Param` does; it is a pytree of it, too."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return self.value


jax.tree_util.register_pytree_node(Held, lambda held: ((held.value,), None), lambda _, parts: Held(*parts))


def test_arrays_that_an_object_holds_are_operands() -> None:
    """Of generated functions, of those written by hand, of lists, of formulas and of views; eagerly and traced."""
    x, w = (jnp.asarray(np.random.default_rng(i).standard_normal(8).astype(np.float32)) for i in range(2))
    held, formula = Held(w), bc.elementwise("silu(x) * w")
    sigmoid = 1 / (1 + np.exp(-np.asarray(x, np.float64)))
    for layer in (bc, bj):
        for function, want in (
            (lambda x, w, layer=layer: layer.mul(x, w), x * w),
            (lambda x, w, layer=layer: layer.mul(w, x), x * w),
            (lambda x, w, layer=layer: layer.rms_norm(x, w), x / jnp.sqrt((x * x).mean() + 1e-6) * w),
            (lambda x, w, layer=layer: layer.prelu(-x[None], weight=w), jnp.where(x < 0, -x, -x * w)[None]),
            (lambda x, w, layer=layer: layer.cat([x, w]), jnp.concatenate([x, w])),
            (lambda x, w: formula(x, w), np.asarray(x) * sigmoid * np.asarray(w)),
            (lambda x, w: bc.reshape(w, (2, 4)), w.reshape(2, 4)),
            (lambda x, w: bc.movedim(bc.broadcast_to(w, (3, 8)), 0, 1), jnp.broadcast_to(w[:, None], (8, 3))),
        ):
            for one in (function, jax.jit(function)):
                made = one(x, held)
                assert isinstance(made, jax.Array) and np.allclose(made, want, rtol=1e-5, atol=1e-6)
        gradient = jax.grad(lambda held, layer=layer: layer.mul(x, held).sum())(held)
        assert isinstance(gradient, Held) and equal(gradient.value, x)


_SPREAD = """
import numpy as np, jax, jax.numpy as jnp
import baracuda_py as bc
from baracuda_py import jax as bj
from jax.sharding import NamedSharding, PartitionSpec as P

rng = np.random.default_rng(0)
X, W = rng.standard_normal((4, 8)), rng.standard_normal(8)
r = np.sqrt((X * X).mean(-1, keepdims=True) + 1e-6)
normed = X / r
upstream = 2 * normed * W * W
want = (upstream / r - normed * (upstream * normed).mean(-1, keepdims=True) / r, (2 * normed * normed * W).sum(0))
mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
formula = bc.elementwise("x * x")
with jax.set_mesh(mesh):
    for sx, sw in ((P("d", None), P(None)), (P(None, "d"), P("d")), (P(), P())):
        x, w = (jax.device_put(np.float32(a), NamedSharding(mesh, s)) for a, s in ((X, sx), (W, sw)))
        loss = lambda x, w: formula(bj.rms_norm(x, w)).sum()
        for grad in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
            got = grad(x, w)
            for g, a, b in zip(got, (x, w), want):
                assert jax.typeof(g) == jax.typeof(a), (jax.typeof(g), jax.typeof(a))
                assert np.allclose(np.asarray(g), b, rtol=1e-4, atol=1e-5)
        carried, _ = jax.lax.scan(lambda c, _: (bj.silu(bj.add(c, x)), None), x, None, length=2)
        assert jax.typeof(carried) == jax.typeof(x)
        composed = jax.grad(lambda x: bj.cosine_similarity(x, 2 * x).sum())(x)
        assert jax.typeof(composed) == jax.typeof(x) and np.allclose(composed, 0, atol=1e-5)
print("spread")
"""


def test_gradients_over_a_mesh_with_explicit_axes() -> None:
    """In a process of its own with four devices of the host."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    made = subprocess.run([sys.executable, "-c", _SPREAD], env=environment, capture_output=True, text=True)
    assert made.returncode == 0 and "spread" in made.stdout, made.stderr[-3000:]


def test_a_key_is_in_the_signatures_of_what_draws() -> None:
    """In those of `baracuda_py.jax`, in help and in its stub; elsewhere, and of what draws nothing, it is in none."""
    plain = {name: inspect.signature(getattr(bc, name)).parameters for name in dir(bj)}
    seeded = {name for name, taken in plain.items() if "seed" in taken and "key" not in taken}  # key: of attention
    assert {"dropout", "flash_sdpa", "normal", "randint"} <= seeded
    for name, taken in plain.items():
        shown = inspect.signature(getattr(bj, name)).parameters
        if name in seeded:
            assert shown["key"].default is None and shown["key"].kind is inspect.Parameter.KEYWORD_ONLY
            assert [one for one in shown if one != "key"] == list(taken)
        else:
            assert list(shown) == list(taken)
    stub = (Path(bj.__file__).parent / "__init__.pyi").read_text()
    for name in seeded:
        assert "key: Array | None = None" in stub.partition(f"\ndef {name}(")[2].partition("\n")[0]
    said = pydoc.render_doc(bj.dropout, renderer=pydoc.plaintext)
    assert "key: 'Array | None' = None" in said and "key is one key of jax.random" in said
    assert "key" not in pydoc.render_doc(bc.dropout, renderer=pydoc.plaintext).partition("\n\n")[0]
