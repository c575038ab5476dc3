"""Seeds that a call does not name: torch's generator, a key of JAX, or an error; one rule for all that draws."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
import baracuda_py.torch as bt  # noqa: E402
from baracuda_py.nn import functional as bf  # noqa: E402

X = torch.linspace(-2.0, 2.0, 256).reshape(1, 2, 16, 8)
WEIGHTS = torch.full((64,), 1 / 64)
GRAPH = torch.arange(9) * 8, torch.arange(64) % 8  # eight nodes, each with an edge to each
PROBS = torch.full((2, 3, 8), 1 / 8)
ENDS = torch.tensor([0, 1, 2], dtype=torch.int32)
IDS = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)

# A call of every function that draws; numbers stand for operands of any package, which `at` makes.
CALLS: dict[str, Any] = {
    **{
        name: lambda f, a: f(a(X))
        for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout2d",
                     "native_dropout", "rand_like", "randn_like", "gumbel_softmax", "categorical")
    },
    **{
        name: lambda f, a: f(shape=(64,), like=a(X))
        for name in ("ball", "bernoulli", "bits", "cauchy", "double_sided_maxwell", "exponential", "gumbel", "laplace",
                     "log_normal", "lognormal", "maxwell", "normal", "orthogonal", "pareto", "rademacher", "rand",
                     "randn", "random_logistic", "rayleigh", "rng_bit_generator", "triangular", "trunc_normal",
                     "truncated_normal", "uniform", "weibull", "weibull_min")
    },
    **{
        name: lambda f, a: f(3.0, shape=(64,), like=a(X))
        for name in ("chi2", "chi_square", "chisquare", "generalized_normal", "poisson", "random_gamma",
                     "random_loggamma", "standard_t", "student_t", "wald")
    },
    "ball": lambda f, a: f(3, shape=(64,), like=a(X)),
    "binomial": lambda f, a: f(9.0, 0.5, shape=(64,), like=a(X)),
    "choice": lambda f, a: f(a(WEIGHTS.cumsum(0)), (64,), p=a(WEIGHTS)),
    "dirichlet": lambda f, a: f(a(WEIGHTS)),
    "drop_block2d": lambda f, a: f(a(X)),
    "drop_block3d": lambda f, a: f(a(X.reshape(1, 2, 4, 4, 8))),
    "dropout1d": lambda f, a: f(a(X[0])),
    "dropout3d": lambda f, a: f(a(X[0].reshape(32, 2, 2, 2))),
    "dropout_add_layer_norm": lambda f, a: f(a(X), a(X)),
    "dropout_add_rms_norm": lambda f, a: f(a(X), a(X)),
    "flash_sdpa": lambda f, a: f(a(X), a(X), a(X), dropout_p=0.5),
    "flash_sdpa_varlen": lambda f, a: f(*[a(X[0])] * 3, *[a(ENDS)] * 2, dropout_p=0.5),
    "geometric": lambda f, a: f(0.1, shape=(64,), like=a(X)),
    "multi_head_attention_forward": lambda f, a: f(
        *[a(X.reshape(8, 4, 8))] * 3, 8, 2, a(torch.ones(24, 8)), None, None, None, False, 0.5, a(torch.eye(8)), None
    ),
    "multinomial": lambda f, a: f(a(WEIGHTS), 16),
    "multinomial_counts": lambda f, a: f(64, a(WEIGHTS)),
    "multivariate_normal": lambda f, a: f(a(X[0, 0, 0]), a(torch.eye(8))),
    "negative_binomial": lambda f, a: f(9.0, 0.5, shape=(64,), like=a(X)),
    **{
        name: lambda f, a, n=n: f(
            a(X[0, :, :, :8]), [a(X[0, :, :, :8])] * 2 if n == 4 else a(X[0, :, :, :8]),
            [a(torch.ones(8 * n, 8) / 8)] * 4, has_biases=False, num_layers=2, dropout=0.5, train=True,
        )
        for name, n in (("gru", 3), ("lstm", 4), ("rnn_relu", 1), ("rnn_tanh", 1))
    },
    "orthogonal": lambda f, a: f(8, like=a(X)),
    "permutation": lambda f, a: f(a(WEIGHTS.cumsum(0))),
    "quantize": lambda f, a: f(a(X), 0.3, stochastic=True),
    "mirostat_sample": lambda f, a: f(a(torch.zeros(64, 64)), a(torch.full((64,), 9.0))),
    "neighbor_sample": lambda f, a: f(a(GRAPH[0]), a(GRAPH[1]), a(torch.zeros(64, dtype=torch.int64)), k=4),
    "randint": lambda f, a: f(1000, shape=(64,), like=a(X)),
    "randint_like": lambda f, a: f(a(X), 1000),
    "random_beta": lambda f, a: f(2.0, 3.0, shape=(64,), like=a(X)),
    "random_f": lambda f, a: f(2.0, 3.0, shape=(64,), like=a(X)),
    "random_walk": lambda f, a: f(a(GRAPH[0]), a(GRAPH[1]), a(torch.zeros(64, dtype=torch.int64)), length=9),
    "randperm": lambda f, a: f(64, like=a(X)),
    "rng_uniform": lambda f, a: f(0.0, 1.0, shape=(64,), like=a(X)),
    "rrelu": lambda f, a: f(a(X), training=True),
    "sample": lambda f, a: f(a(torch.zeros(64, 64))),
    "sdpa": lambda f, a: f(a(X), a(X), a(X), dropout_p=0.5),
    "shuffle": lambda f, a: f(a(WEIGHTS.cumsum(0))),
    "stochastic_cast": lambda f, a: f(a(X), "bfloat16"),
    "stochastic_depth": lambda f, a: f(a(torch.ones(64, 2))),
    "verify_chain": lambda f, a: f(a(IDS), a(PROBS[:, :2]), a(PROBS), index_element="int32"),
    "verify_tree": lambda f, a: f(
        a(IDS), a(torch.tensor([[-1, 0]] * 2, dtype=torch.int32)), a(PROBS[:, :2]), index_element="int32"
    ),
    "xtc_mask": lambda f, a: f(a(torch.arange(64.0).expand(64, 64) / 16), 0.05),
}  # fmt: skip
BACKWARD = {"dropout_backward", "flash_sdpa_backward", "flash_sdpa_varlen_backward", "rrelu_backward", "sdpa_backward"}


def draws() -> list[str]:
    """The functions that take a seed."""
    functions = {name: getattr(bc, name) for name in dir(bc) if hasattr(getattr(bc, name, None), "plan")}
    return [n for n, f in functions.items() if not isinstance(f, type) and "seed" in inspect.signature(f).parameters]


def flat(made: Any) -> list[Any]:
    parts = made if isinstance(made, tuple) else (made,)
    return [np.asarray(one.float() if isinstance(one, torch.Tensor) else one) for one in parts if one is not None]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


BEGIN = {"lobpcg", "pca_lowrank", "svd_lowrank"}
"""Those that begin with random vectors, of which hardly a trace is left in what they find."""


def test_every_function_that_draws_is_here() -> None:
    assert set(CALLS) | BACKWARD | BEGIN == set(draws())


@pytest.mark.parametrize("name", CALLS)
def test_torch_draws_from_its_own_generator(name: str) -> None:
    call, function = CALLS[name], getattr(bt, name)
    made = []
    for _ in range(2):
        torch.manual_seed(5)
        made.append([call(function, lambda x: x) for _ in range(6)])
    first, again = made
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert any(not same(first[0], other) for other in first[1:])


@pytest.mark.parametrize("name", CALLS)
def test_elsewhere_a_seed_is_demanded(name: str) -> None:
    with pytest.raises(bc.InvalidProblemError, match="seed is None; give the stream to draw from"):
        CALLS[name](getattr(bc, name), lambda x: x.numpy())


def test_gradients_take_the_seed_of_the_forward_call() -> None:
    x = X.numpy()
    lse = np.zeros((1, 2, 16), np.float32)
    for call in (
        lambda: bc.flash_sdpa_backward(x, x, x, x, lse, x, dropout_p=0.5),
        lambda: bc.flash_sdpa_backward(X, X, X, X, torch.tensor(lse), X, dropout_p=0.5),
        lambda: bc.sdpa_backward(x, x, x, np.zeros((1, 2, 16, 16), np.float32), x, dropout_p=0.5),
        lambda: bc.dropout_backward(X, p=0.5),
        lambda: bc.rrelu_backward(X, X, training=True),
    ):
        with pytest.raises(bc.InvalidProblemError, match="seed is None"):
            call()


@pytest.mark.parametrize("p", [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5)])
def test_a_probability_of_any_kind_draws(p: Any) -> None:
    with pytest.raises(bc.InvalidProblemError, match="seed is None"):
        bc.flash_sdpa(*[X.numpy()] * 3, dropout_p=p)
    first, second = (bc.flash_sdpa(X, X, X, dropout_p=p) for _ in range(2))
    assert not torch.equal(first, second)
    for wrong in ("half", 1.5, -0.5, float("nan")):
        with pytest.raises(bc.InvalidProblemError, match="dropout_p"):
            bc.flash_sdpa(*[X.numpy()] * 3, dropout_p=wrong)
    assert not bc.flash_sdpa(*[X.numpy()] * 3, dropout_p=1).any()


def test_where_nothing_is_drawn_no_seed_is_asked_for() -> None:
    x = X.numpy()
    state = torch.get_rng_state()
    for y in (bc.flash_sdpa(x, x, x), bc.sdpa(x, x, x), bc.flash_sdpa(X, X, X), bc.dropout(X, training=False)):
        assert y.shape == x.shape
    assert bc.quantize(x, 0.5).dtype == np.int8 and bc.rrelu(X).shape == X.shape
    assert torch.equal(state, torch.get_rng_state())


def test_a_formula_of_attention_draws_alike() -> None:
    scored = bc.attention("s + 0.5 * q")
    with pytest.raises(bc.InvalidProblemError, match="seed is None"):
        scored(*[X.numpy()] * 3, dropout_p=0.5)
    assert not torch.equal(scored(X, X, X, dropout_p=0.5), scored(X, X, X, dropout_p=0.5))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: bt.dropout(x, 0.5),
        lambda x: bt.flash_sdpa(x, x, x, dropout_p=0.5),
        lambda x: bt.flash_sdpa_varlen(*[x[0]] * 3, ENDS, ENDS, dropout_p=0.5),
        lambda x: bt.dropout_add_rms_norm(x, x)[0],
        lambda x: bt.drop_block2d(x),
    ],
    ids=["dropout", "flash_sdpa", "flash_sdpa_varlen", "dropout_add_rms_norm", "drop_block2d"],
)
def test_gradients_checkpoints_and_compiled_calls_see_one_mask(call: Any) -> None:
    """The gradient of Σ y² tells the mask: it is that of the weights that made y, in each way of running."""
    x = X.double().requires_grad_()

    def gradient(run: Any) -> Any:
        torch.manual_seed(7)
        y = run(x)
        return y, torch.autograd.grad(y.square().sum(), x)[0]

    y, dx = gradient(call)
    held = gradient(lambda x: torch.utils.checkpoint.checkpoint(call, x, use_reentrant=False))
    assert torch.equal(y, held[0]) and torch.equal(dx, held[1])
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    first, slope = gradient(compiled)
    assert torch.equal(y, first) and torch.equal(dx, slope)
    assert not torch.equal(compiled(x), compiled(x))
    direction, step = torch.linspace(1, -1, x.numel(), dtype=x.dtype).reshape(x.shape), 1e-6
    ends = []
    for sign in (1, -1):
        torch.manual_seed(7)
        with torch.no_grad():
            ends.append(call(x + sign * step * direction).square().sum())
    torch.testing.assert_close((dx * direction).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-6)


def test_torchs_own_calls_draw_as_torch_does() -> None:
    for call in (
        lambda: bf.scaled_dot_product_attention(X, X, X, dropout_p=0.5),
        lambda: bf.dropout(X),
        lambda: bf.alpha_dropout(X, 0.5, True),
        lambda: bf.rrelu(X, training=True),
        lambda: bf.gumbel_softmax(X),
    ):
        made = []
        for _ in range(2):
            torch.manual_seed(1)
            made.append([call(), call()])
        assert all(torch.equal(a, b) for a, b in zip(*made, strict=True)) and not torch.equal(*made[0])


def test_a_key_of_jax_stands_for_a_stream() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    x, key, other = jax.numpy.ones(64), jax.random.key(0), jax.random.key(1)
    y = bj.dropout(x, key=key)
    for again in (bj.dropout(x, key=jax.random.PRNGKey(0)), bc.dropout(x, key=key), jax.jit(bj.dropout)(x, key=key)):
        assert np.array_equal(y, again)
    assert not np.array_equal(y, bj.dropout(x, key=other))
    assert np.array_equal(jax.grad(lambda x: bj.dropout(x, key=key).sum())(x), y)
    q = jax.numpy.asarray(X.numpy())
    made = [bj.flash_sdpa(q, q, q, dropout_p=0.5, key=k) for k in (key, key, other)]
    assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])
    for call, message in (
        (lambda: bj.flash_sdpa(q, q, q, dropout_p=0.5), "a key of jax.random by key="),
        (lambda: bc.dropout(x), "a key of jax.random by key="),
        (lambda: bj.dropout(x, key=key, seed=1), "key= stands for seed and offset"),
        (lambda: bj.dropout(x, key=key, offset=1), "key= stands for seed and offset"),
        (lambda: bj.dropout(x, key=jax.random.split(key)), "key must be one key"),
        (lambda: bj.flash_sdpa(q, key=q), "did you mean k="),
        (lambda: bc.dropout(x, key=key, foo=1), "unexpected keyword argument 'foo'"),
    ):
        with pytest.raises(bc.BaracudaError, match=message):
            call()


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("multi_head_attention_forward", "orthogonal")])
def test_every_function_takes_a_key(name: str) -> None:
    jax = pytest.importorskip("jax")
    calls = []

    def keyed(key: Any) -> Any:
        function = getattr(bc, name)
        return CALLS[name](
            lambda *args, **given: function(*args, **given, key=key), lambda x: jax.numpy.asarray(x.numpy())
        )

    calls = [keyed(jax.random.key(i)) for i in (0, 0, 1, 2, 3, 4)]
    assert same(calls[0], calls[1]) and any(not same(calls[0], other) for other in calls[2:])


@pytest.mark.parametrize("make", ["key", "PRNGKey"])
def test_a_key_of_jax_in_the_place_of_a_seed(make: str) -> None:
    """seed= takes keys, new and old, as key= does: at once, compiled, mapped, and in a loop of the plain layer."""
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    key, x = getattr(jax.random, make)(3), jax.numpy.ones((4, 16))
    keys = jax.random.split(key, 4)
    for draw in (
        lambda x, **given: bj.dropout(x, 0.5, **given),
        lambda x, **given: x + bj.normal(shape=x.shape, like=x, **given),
    ):
        one = draw(x, key=key)
        assert np.array_equal(one, draw(x, seed=key)) and not np.array_equal(one, draw(x, seed=keys[1]))
        each = np.stack([draw(row, key=k) for row, k in zip(x, keys, strict=True)])
        for word in ("key", "seed"):
            mapped = jax.jit(jax.vmap(lambda row, k, draw=draw, word=word: draw(row, **{word: k})))
            assert np.array_equal(each, mapped(x, keys))
            shared = jax.vmap(lambda k, draw=draw, word=word: draw(x, **{word: k}))(keys)
            assert np.array_equal(shared[1], draw(x, key=keys[1]))
    assert np.array_equal(bc.dropout(x, 0.5, seed=key), bj.dropout(x, 0.5, key=key))
    looped = jax.lax.scan(lambda c, k: (c, bc.dropout(x[0], 0.5, seed=k)), 0, keys)[1]
    assert np.array_equal(looped[0], bj.dropout(x[0], 0.5, key=keys[0]))
    for call, message in (
        (lambda: bj.dropout(x, 0.5, seed=keys), "key must be one key|seed must be a number or a 0-d"),
        (lambda: bj.dropout(x, 0.5, seed=key, offset=1), "stands for seed and offset"),
        (lambda: bj.dropout(x, 0.5, seed=jax.numpy.ones(2)), "seed must be a number or a 0-d"),
    ):
        with pytest.raises(bc.BaracudaError, match=message):
            call()
