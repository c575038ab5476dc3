"""Run by `test_jax_meshes` in a process of its own, with eight devices of the host: prints what went wrong."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from baracuda_py import jax as bj

RNG = np.random.default_rng(0)
X, M = (RNG.standard_normal(shape).astype(np.float32) for shape in ((8, 16), (16, 32)))
W, KEY, ZEROS = np.linspace(0.5, 1.5, 16, dtype=np.float32), jax.random.key(0), np.zeros(8, np.int32)
WRONG: list[str] = []

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {  # of x [8, 16], w [16] and m [16, 32]
    "silu": (lambda x, w, m: bj.silu(x), lambda x, w, m: jax.nn.silu(x)),
    "rms_norm": (
        lambda x, w, m: bj.rms_norm(x, w),
        lambda x, w, m: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
    ),
    "mul": (lambda x, w, m: bj.mul(x, w), lambda x, w, m: x * w),
    "matmul": (lambda x, w, m: bj.matmul(x, m), lambda x, w, m: jnp.asarray(X) @ jnp.asarray(M)),
    "sum": (lambda x, w, m: bj.sum(x, axis=-1), lambda x, w, m: x.sum(-1)),
    "sum over shards": (lambda x, w, m: bj.sum(x, axis=0), lambda x, w, m: x.sum(0)),
    "cumsum over shards": (lambda x, w, m: bj.cumsum(x, axis=0), lambda x, w, m: jnp.cumsum(jnp.asarray(X), 0)),
    "softmax": (lambda x, w, m: bj.softmax(x), lambda x, w, m: jax.nn.softmax(x)),
    "topk": (lambda x, w, m: bj.topk(x, k=2)[0], lambda x, w, m: jax.lax.top_k(jnp.asarray(X), 2)[0]),
    "cross_entropy": (
        lambda x, w, m: bj.cross_entropy(x, ZEROS), lambda x, w, m: -jax.nn.log_softmax(jnp.asarray(X))[:, 0].mean()
    ),
    "cosine_similarity": (lambda x, w, m: bj.cosine_similarity(x, 2 * x), lambda x, w, m: jnp.ones(8)),
    "dropout": (lambda x, w, m: bj.dropout(x, 0.5, key=KEY), lambda x, w, m: bj.dropout(X, 0.5, key=KEY)),
    "vmap": (lambda x, w, m: jax.vmap(lambda r: bj.softmax(r))(x), lambda x, w, m: jax.nn.softmax(x)),
    "scan": (
        lambda x, w, m: jax.lax.scan(lambda c, _: (bj.silu(c), None), x, None, length=2)[0],
        lambda x, w, m: jax.nn.silu(jax.nn.silu(x)),
    ),
    "remat": (
        lambda x, w, m: jax.checkpoint(lambda x: bj.softmax(bj.silu(x)))(x),
        lambda x, w, m: jax.nn.softmax(jax.nn.silu(x)),
    ),
}  # fmt: skip


def tell(name: str, check: Callable[[], None]) -> None:
    try:
        check()
    except Exception:
        WRONG.append(f"{name}: {traceback.format_exc(limit=-4)}")


def close(ours: Any, theirs: Any) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


def explicit() -> None:
    """`jax.set_mesh` with axes that are part of the arrays' types: values, and gradients of the types of the arrays."""
    mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        layouts = (P("d", None), P(None), P(None, "m")), (P("d", "m"), P("m"), P("m", None))
        for place in layouts:
            arrays = [jax.device_put(a, NamedSharding(mesh, p)) for a, p in zip((X, W, M), place, strict=True)]
            for name, (ours, theirs) in FUNCTIONS.items():
                for call in (ours, jax.jit(ours)) if place is layouts[0] else ():
                    tell(f"{name} {place}", lambda f=call, a=arrays, t=theirs: close(f(*a), t(X, W, M)))

                def slopes(f: Any, given: Any) -> Any:
                    return jax.grad(lambda x, w: (f(x, w, given[2]) ** 2).sum(), (0, 1))(*given[:2])

                def check(f: Any = ours, given: Any = arrays) -> None:
                    made = slopes(f, given)
                    close(made, slopes(f, (X, W, M)))
                    assert [jax.typeof(g) for g in made] == [jax.typeof(a) for a in given[:2]]

                tell(f"gradient of {name} {place}", check)


def shards() -> None:
    """`shard_map` over explicit and automatic axes, run at once and compiled, with gradients and collectives."""
    rows, keys = P("d", None), [jax.random.fold_in(KEY, i) for i in range(4)]
    parts: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
        "norm": (bj.rms_norm, bj.rms_norm, (X, W), (rows, P(None))),
        "product": (lambda a, b: jax.lax.psum(bj.matmul(a, b), "m"), lambda a, b: a @ b,
                    (X, M), (P("d", "m"), P("m", None))),
        "loop": (lambda x: jax.lax.scan(lambda c, _: (bj.silu(c), None), x, None, length=2)[0],
                 lambda x: jax.nn.silu(jax.nn.silu(x)), (X,), (rows,)),
        "rows": (lambda x: jax.vmap(lambda r: bj.softmax(r))(x), jax.nn.softmax, (X,), (rows,)),
        "alike": (lambda x: bj.cosine_similarity(x, x * x), lambda x: bj.cosine_similarity(x, x * x), (X,), (rows,)),
        "keys": (lambda x: bj.dropout(x, 0.5, key=jax.random.fold_in(KEY, jax.lax.axis_index("d"))),
                 lambda x: jnp.concatenate([bj.dropout(x[2 * i : 2 * i + 2], 0.5, key=k) for i, k in enumerate(keys)]),
                 (X,), (rows,)),
    }  # fmt: skip
    for kind in (AxisType.Explicit, AxisType.Auto):
        mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=(kind,) * 2)
        for name, (one, whole, given, specs) in parts.items():
            f = jax.shard_map(one, mesh=mesh, in_specs=specs, out_specs=P("d"))
            arrays = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(given, specs, strict=True)]
            for compiled in (False, True):
                if compiled or name != "loop":  # JAX has no rule for its gradient where it is run at once
                    tell(f"shard_map {name} {kind} {compiled}", partial(check, mesh, compiled, f, whole, given, arrays))


def check(mesh: Any, compiled: bool, f: Any, whole: Any, given: Any, arrays: Any) -> None:
    def slopes(f: Any) -> Any:
        return jax.grad(lambda *a: (f(*a) ** 2).sum(), tuple(range(len(given))))

    with jax.set_mesh(mesh):
        made = [jax.jit(g)(*arrays) if compiled else g(*arrays) for g in (f, slopes(f))]
    close(made, [whole(*given), slopes(whole)(*given)])


if __name__ == "__main__":
    assert len(jax.devices()) == 8
    explicit()
    shards()
    print("\n".join(WRONG) or "right")
