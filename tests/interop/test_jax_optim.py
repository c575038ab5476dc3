"""Gradient transformations under jit, against optax's of the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py import InvalidProblemError

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402

from baracuda_py.jax import optim  # noqa: E402


def walked(transformation: Any, dtype: Any = jnp.float32, steps: int = 4) -> Any:
    params = {"a": jnp.ones((3, 4), dtype), "b": [jnp.arange(5.0, dtype=dtype)]}
    state, update = transformation.init(params), jax.jit(transformation.update)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        grads = jax.tree.map(lambda x: jnp.asarray(rng.standard_normal(x.shape), x.dtype), params)
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("sgd", {}), ("sgd", {"momentum": 0.9}), ("sgd", {"momentum": 0.9, "nesterov": True}), ("adam", {"b1": 0.8}),
        ("adam", {"eps_root": 1e-4}), ("adamw", {"weight_decay": 0.1}), ("lion", {"weight_decay": 0.1}),
        ("adagrad", {}), ("rmsprop", {"decay": 0.8}), ("rmsprop", {"centered": True, "momentum": 0.8}),
        ("rmsprop", {"eps_in_sqrt": False, "momentum": 0.8, "nesterov": True, "bias_correction": True}),
        ("adam", {"nesterov": True}), ("nadam", {}), ("nadamw", {"weight_decay": 0.1}), ("amsgrad", {"b2": 0.5}),
        ("adamax", {}), ("adamaxw", {"weight_decay": 0.1}), ("radam", {"b2": 0.9}),
        ("radam", {"threshold": 4.5, "b2": 0.8}), ("adabelief", {"eps_root": 1e-6}), ("yogi", {}),
        ("adan", {"weight_decay": 0.1}), ("adadelta", {"weight_decay": 0.1}),
        ("rprop", {}), ("sign_sgd", {}), ("lamb", {"weight_decay": 0.1}),
        ("lars", {"weight_decay": 0.1, "nesterov": True}), ("lars", {"trust_coefficient": 0.1}),
    ],
    ids=str,
)  # fmt: skip
def test_steps_are_those_of_optax(name: str, given: dict[str, Any]) -> None:
    ours, theirs = (
        walked(optax.chain(optax.clip_by_global_norm(1.0), getattr(m, name)(0.1, **given))) for m in (optim, optax)
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize(
    ("name", "given"),
    [("ademamix", {"weight_decay": 0.1}), ("ademamix", {"alpha": optax.linear_schedule(0.0, 5.0, 3), "b3": 0.9}),
     ("muon", {"weight_decay": 0.1}), ("muon", {"nesterov": False, "adam_weight_decay": 0.1})],
    ids=["ademamix", "schedules", "muon", "plain"],
)  # fmt: skip
def test_steps_are_those_of_optax_contrib(name: str, given: dict[str, Any]) -> None:
    ours, theirs = (walked(getattr(m, name)(0.1, **given)) for m in (optim, optax.contrib))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-5, atol=2e-5)


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("optimistic_gradient_descent", {}), ("optimistic_gradient_descent", {"alpha": 0.7, "beta": 0.4}),
        ("optimistic_adam_v2", {"alpha": 0.8}), ("optimistic_adam_v2", {"nesterov": False, "beta": 0.5}),
        ("fromage", {}), ("fromage", {"min_norm": 0.5}), ("acprop", {}), ("acprop", {"weight_decay": 0.1, "b2": 0.9}),
        ("adopt", {}), ("adopt", {"nesterov": True, "b1": 0.5}), ("adopt", {"use_clipping": False, "eps": 0.1}),
        ("simplified_ademamix", {"alpha": 2.0, "weight_decay": 0.1}),
        ("simplified_ademamix", {"alpha": optax.linear_schedule(0.0, 5.0, 3), "eps_root": 1e-4}),
        ("madgrad", {}), ("madgrad", {"momentum": 0.5, "weight_decay": 0.1}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value) or "plain",
)  # fmt: skip
def test_twenty_steps_are_those_of_optax(name: str, given: dict[str, Any], wide: bool) -> None:
    theirs = optax if hasattr(optax, name) else optax.contrib
    with jax.enable_x64(wide):
        found = [
            jax.tree.leaves(walked(getattr(m, name)(0.05, **given), jnp.float64 if wide else jnp.float32, 20))
            for m in (optim, theirs)
        ]
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype == (np.float64 if wide else np.float32)
        least = 3e-5 if not wide else 1e-7 if name == "madgrad" else 1e-12  # optax's root of its count is float32
        np.testing.assert_allclose(a, b, rtol=least, atol=least / 3)


@pytest.mark.parametrize("debias", [True, False])
def test_means_of_updates(debias: bool) -> None:
    ours, theirs = (walked(m.ema(0.9, debias)) for m in (optim, optax))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_schedules_and_rates_that_are_arrays() -> None:
    schedule = optax.linear_schedule(0.1, 0.01, 5)
    for a, b in zip(*(jax.tree.leaves(walked(m.sgd(schedule))) for m in (optim, optax)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    for a, b in zip(*(jax.tree.leaves(walked(optim.sgd(lr))) for lr in (0.5, jnp.float32(0.5))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_moments_of_16_bit_parameters_are_float32() -> None:
    made = optim.adamw(1e-2)
    assert {x.dtype for x in jax.tree.leaves(made.init({"w": jnp.ones(3, jnp.bfloat16)}).trees)} == {
        jnp.dtype("float32")
    }
    assert all(x.dtype == jnp.bfloat16 for x in jax.tree.leaves(walked(made, jnp.bfloat16, 2)))


def test_what_is_refused() -> None:
    made = optim.adamw(0.1)
    params = {"w": jnp.ones(3)}
    with pytest.raises(InvalidProblemError, match="params must be given"):
        made.update(params, made.init(params))
    for other in (optim.lamb(0.1), optim.muon(0.1)):
        with pytest.raises(InvalidProblemError, match="params must be given"):
            other.update(params, other.init(params))
