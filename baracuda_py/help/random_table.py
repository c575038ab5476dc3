"""Examples of the functions that draw, written by hand; tests run every one."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_LOGITS = f"{_RNG}logits = rng.standard_normal((3, 40), dtype=np.float32)\n"
_PROBS = f"{_LOGITS}probs = bc.softmax(logits)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 4), dtype=np.float32)\n"

_DRAWN = {
    "bernoulli": "0.25", "binomial": "10, 0.5", "chi_square": "3.0", "chisquare": "3.0", "chi2": "3.0",
    "generalized_normal": "1.5", "geometric": "0.25", "negative_binomial": "3, 0.5", "normal": "1.0, 2.0",
    "pareto": "1.0, 3.0", "poisson": "4.0", "random_beta": "2.0, 3.0", "random_f": "3.0, 5.0", "random_gamma": "2.0",
    "random_loggamma": "0.1", "standard_t": "3.0", "student_t": "3.0", "triangular": "-1.0, 0.0, 2.0",
    "uniform": "-1.0, 1.0", "wald": "1.0", "weibull": "1.0, 2.0", "weibull_min": "1.0, 2.0",
    **dict.fromkeys(
        ("cauchy", "double_sided_maxwell", "exponential", "gumbel", "laplace", "log_normal", "lognormal", "maxwell",
         "rademacher", "random_logistic", "rayleigh", "trunc_normal", "truncated_normal"), ""),
}  # fmt: skip

RANDOM: dict[str, str] = {
    "adjust_logits": f"""{_LOGITS}history = np.array([[3, 3, 7], [1, -1, -1], [0, 5, 39]])
y = bc.adjust_logits(logits, history, repetition=1.2, frequency=0.1)""",
    "ball": "d = 3\ny = bc.ball(d, shape=(4,), seed=7)",
    "beam_step": f"""{_RNG}logprobs = bc.log_softmax(rng.standard_normal((2, 3, 40), dtype=np.float32))
scores = np.zeros((2, 3), np.float32)
scores, parents, tokens = bc.beam_step(logprobs, scores)""",
    "categorical": f"{_LOGITS}ids = bc.categorical(logits, seed=7)",
    "choice": f"{_X}y = bc.choice(x[0], (2, 3), seed=7)",
    "dirichlet": "concentration = np.ones(4, np.float32)\ny = bc.dirichlet(concentration, shape=(3, 4), seed=7)",
    "multinomial": f"{_PROBS}ids = bc.multinomial(probs, 5, seed=7)",
    "multinomial_counts": "probs = np.float32([0.5, 0.25, 0.25])\ncounts = bc.multinomial_counts(10, probs, seed=7)",
    "multivariate_normal": """mean, scale_tril = np.float32([1, 2]), np.float32([[1, 0], [0.5, 2]])
y = bc.multivariate_normal(mean, scale_tril, shape=(5,), seed=7)""",
    "native_dropout": f"{_X}y, mask = bc.native_dropout(x, 0.25, seed=7)",
    "orthogonal": "n = 3\ny = bc.orthogonal(n, shape=(2,), seed=7)",
    "permutation": f"{_X}y = bc.permutation(x, seed=7)",
    "randperm": "n = 10\ny = bc.randperm(n, seed=7)",
    **{
        name: f"shape = (3, 4)\ny = bc.{name}({f'{given}, ' if given else ''}shape=shape, seed=7)"
        for name, given in _DRAWN.items()
    },
    **{f"{name}_like": f"{_X}y = bc.{name}_like(x, seed=7)" for name in ("rand", "randn")},
    **{name: f"shape = (3, 4)\ny = bc.{name}(shape, seed=7)" for name in ("rand", "randn", "bits")},
    "rng_uniform": "low = np.zeros((3, 4), np.float32)\ny = bc.rng_uniform(low, 2.0, seed=7)",
    "randint": "shape = (3, 4)\ny = bc.randint(1, 7, shape=shape, seed=7)",
    "randint_like": f"{_X}y = bc.randint_like(x, 7, seed=7)",
    "sample": f"""{_LOGITS}top_k = np.array([0, 5, 1], dtype=np.int32)
ids, logprob = bc.sample(logits, temperature=0.8, top_k=top_k, top_p=0.9, seed=7, return_logprob=True)""",
    "softmax_with_cut_offs": f"{_LOGITS}probs = bc.softmax_with_cut_offs(logits, top_k=5, min_p=0.1)",
    "token_logprobs": f"""{_LOGITS}tokens = np.array([0, 39, 5])
logprob, ids, best = bc.token_logprobs(logits, tokens, top_n=3)""",
    **{f"{name}_renorm": f"{_PROBS}y = bc.{name}_renorm(probs, {value})"
       for name, value in (("top_k", 5), ("top_p", 0.9), ("min_p", 0.1))},
    **{f"{name}_mask": f"{_LOGITS}y = bc.{name}_mask(logits, {value})"
       for name, value in (("top_k", 5), ("top_p", 0.9), ("min_p", 0.1), ("typical_p", 0.8), ("epsilon", 0.02),
                           ("eta", 0.02), ("top_n_sigma", 1.0))},
}  # fmt: skip
