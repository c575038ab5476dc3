"""Run by `test_jax_ranks`: a process of `jax.distributed`, or two devices of the host under shard_map. Says "right"."""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from baracuda_py import InvalidProblemError, distributed
from baracuda_py import jax as bj


def ranks(port: str, rank: int) -> None:
    """Two processes that JAX has brought together are ranks of a communicator."""
    try:
        distributed.communicator(jax.distributed)
    except InvalidProblemError as error:
        assert "call its initialize() first" in str(error)
    else:
        raise AssertionError("nothing was initialized")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    with distributed.communicator(jax.distributed, timeout=30) as comm:
        assert (comm.rank, comm.size, comm.engine) == (rank, 2, "processes")
        x = jnp.arange(6, dtype=jnp.bfloat16) + rank
        made = distributed.all_reduce(x, comm)
        assert type(made).__module__.startswith("jax") and made.dtype == jnp.bfloat16
        assert made.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
        assert distributed.all_gather(np.full(1, rank), comm).tolist() == [0, 1]
        again = distributed.communicator(jax.distributed, timeout=30)  # another one of the same processes
        distributed.barrier(again)
        again.close()
        distributed.barrier(comm)
    jax.distributed.shutdown()


def shards() -> None:
    """A layer of Megatron's, our ops inside shard_map and lax's collectives: values and gradients of one device."""
    rng = np.random.default_rng(0)
    x, up, down = (rng.standard_normal(s).astype(np.float32) for s in ((6, 8), (16, 8), (8, 16)))
    mesh = jax.make_mesh((2,), ("ranks",), axis_types=(AxisType.Auto,))

    def layer(x: Any, up: Any, down: Any) -> Any:
        h = bj.silu(bj.linear(bj.rms_norm(x), up))
        return jax.lax.psum(bj.linear(h, down), "ranks")

    spread = jax.jit(jax.shard_map(layer, mesh=mesh, in_specs=(P(), P("ranks", None), P(None, "ranks")), out_specs=P()))

    def whole(x: Any, up: Any, down: Any) -> Any:
        h = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        return jax.nn.silu(h @ up.T) @ down.T

    np.testing.assert_allclose(spread(x, up, down), whole(x, up, down), rtol=2e-4, atol=2e-5)
    got, want = (jax.grad(lambda *given, f=f: (f(*given) ** 2).sum(), (0, 1, 2))(x, up, down) for f in (spread, whole))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)

    def scattered(x: Any) -> Any:  # the sequence over ranks: gathered for attention's keys, each its own queries
        q = x.reshape(x.shape[0], 2, -1).transpose(1, 0, 2)[None]
        k = jax.lax.all_gather(q, "ranks", axis=2, tiled=True)
        return bj.flash_sdpa(q, k, k)[0].transpose(1, 0, 2).reshape(x.shape)

    spread = jax.jit(jax.shard_map(scattered, mesh=mesh, in_specs=P("ranks"), out_specs=P("ranks")))
    q = x.reshape(6, 2, 4).transpose(1, 0, 2)
    want = jax.nn.softmax(q @ q.transpose(0, 2, 1) / 2.0, -1) @ q
    np.testing.assert_allclose(spread(x), want.transpose(1, 0, 2).reshape(6, 8), rtol=2e-4, atol=2e-5)


if __name__ == "__main__":
    if sys.argv[1] == "shards":
        shards()
    else:
        ranks(sys.argv[1], int(sys.argv[2]))
    print("right")
