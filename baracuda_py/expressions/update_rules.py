"""The update rules that have names: formulas, the defaults of their numbers, and where each is from.

In all of them p is the parameter and g its gradient; t counts steps from 1, and one below 1 counts as 1. Where torch
has the optimiser, the formula is torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..calls.exported import exported
from ..core.checked import shown
from ..core.errors import InvalidProblemError

_L2 = "_g = g + weight_decay * p"
_FIRST = "m = fma(b1, m, (1 - b1) * _g)"
_SECOND = "v = fma(b2, v, (1 - b2) * _g * _g)"
_STEP = "_t = maximum(t, 1)"
_DECAYED = "_p = p * (1 - lr * weight_decay)"
_ROOT = "_d = fma(sqrt({v}), 1 / sqrt(1 - b2 ** _t), eps)"


class Rule(NamedTuple):
    """`text` makes the formula of the options' values; defaults are of numbers."""

    source: str
    text: Callable[..., str]
    options: Mapping[str, bool]
    defaults: Mapping[str, float]


def _lines(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _sgd(momentum: bool, nesterov: bool) -> str:
    if nesterov and not momentum:
        raise InvalidProblemError("nesterov=True needs momentum=True")
    if not momentum:
        return _lines(_L2, "p = p - lr * _g")
    buffer = "m = where(t <= 1, _g, beta * m + (1 - dampening) * _g)"
    return _lines(_L2, buffer, "p = p - lr * (_g + beta * m)" if nesterov else "p = p - lr * m")


def _adam(decoupled: bool, amsgrad: bool) -> str:
    return _lines(
        _STEP, _DECAYED if decoupled else "_p = p", "_g = g" if decoupled else _L2, _FIRST, _SECOND,
        "vmax = maximum(vmax, v)" if amsgrad else "", _ROOT.format(v="vmax" if amsgrad else "v"),
        "p = fma(-lr / (1 - b1 ** _t), m / _d, _p)",
    )  # fmt: skip


def _nadam(decoupled: bool) -> str:
    return _lines(
        _STEP, _DECAYED if decoupled else "_p = p", "_g = g" if decoupled else _L2, _FIRST, _SECOND,
        "_d = sqrt(v / (1 - b2 ** _t)) + eps", "_mu = b1 * (1 - 0.5 * 0.96 ** (_t * momentum_decay))",
        "_next = b1 * (1 - 0.5 * 0.96 ** ((_t + 1) * momentum_decay))",
        "p = _p - lr * (1 - _mu) / (1 - mu_product) * (_g / _d) - lr * _next / (1 - mu_product * _next) * (m / _d)",
    )  # fmt: skip


def _radam(decoupled: bool) -> str:
    return _lines(
        _STEP, _DECAYED if decoupled else "_p = p", "_g = g" if decoupled else _L2, _FIRST, _SECOND,
        "_c = 1 - b2 ** _t", "_most = 2 / (1 - b2) - 1", "_rho = _most - 2 * _t * b2 ** _t / _c",
        "_r = sqrt(_c * (_rho - 4) * (_rho - 2) * _most / ((_most - 4) * (_most - 2) * _rho))",
        "p = _p - lr / (1 - b1 ** _t) * m * where(_rho > 5, _r / (sqrt(v) + eps), 1)",
    )  # fmt: skip


def _rmsprop(centered: bool, momentum: bool) -> str:
    return _lines(
        _L2, "v = alpha * v + (1 - alpha) * _g * _g", "mean = alpha * mean + (1 - alpha) * _g" if centered else "",
        "_u = _g / (sqrt(v - mean * mean) + eps)" if centered else "_u = _g / (sqrt(v) + eps)",
        _lines("m = beta * m + _u", "p = p - lr * m") if momentum else "p = p - lr * _u",
    )  # fmt: skip


def _always(*parts: str) -> Callable[[], str]:
    return lambda: _lines(*parts)


_ADAM = {"lr": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
_RATE = "_rate = lr / (1 - b1 ** _t)"
RULES: Mapping[str, Rule] = {
    "sgd": Rule(
        "Robbins, Monro 1951; Sutskever et al. 2013", _sgd, {"momentum": False, "nesterov": False},
        {"lr": 1e-3, "beta": 0.9, "dampening": 0.0, "weight_decay": 0.0},
    ),
    "adam": Rule(
        "Kingma, Ba 2015; Reddi et al. 2018", lambda amsgrad: _adam(False, amsgrad), {"amsgrad": False}, _ADAM
    ),
    "adamw": Rule(
        "Loshchilov, Hutter 2019", lambda amsgrad: _adam(True, amsgrad), {"amsgrad": False},
        {**_ADAM, "weight_decay": 0.01},
    ),
    "sparse_adam": Rule(
        "Kingma, Ba 2015, of the rows that a gradient has; eps stands beside the root without a correction",
        _always(_STEP, _FIRST.replace("_g", "g"), _SECOND.replace("_g", "g"),
                "p = fma(-lr * sqrt(1 - b2 ** _t) / (1 - b1 ** _t), m / (sqrt(v) + eps), p)"), {},
        {"lr": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8},
    ),
    "adamax": Rule(
        "Kingma, Ba 2015", _always(_STEP, _L2, _FIRST, "u = maximum(b2 * u, abs(_g) + eps)", _RATE,
                                   "p = p - _rate * (m / u)"), {}, {**_ADAM, "lr": 2e-3},
    ),
    "nadam": Rule("Dozat 2016", _nadam, {"decoupled": False}, {**_ADAM, "lr": 2e-3, "momentum_decay": 4e-3}),
    "radam": Rule("Liu et al. 2020", _radam, {"decoupled": False}, _ADAM),
    "adagrad": Rule(
        "Duchi, Hazan, Singer 2011",
        _always(_STEP, _L2, "s = s + _g * _g", "p = p - lr / (1 + (_t - 1) * lr_decay) * (_g / (sqrt(s) + eps))"), {},
        {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10},
    ),
    "adadelta": Rule(
        "Zeiler 2012",
        _always(_L2, "v = rho * v + (1 - rho) * _g * _g", "_u = sqrt(delta + eps) / sqrt(v + eps) * _g",
                "delta = rho * delta + (1 - rho) * _u * _u", "p = p - lr * _u"), {},
        {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0},
    ),
    "rmsprop": Rule(
        "Tieleman, Hinton 2012; Graves 2013", _rmsprop, {"centered": False, "momentum": False},
        {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "beta": 0.9},
    ),
    "rprop": Rule(
        "Riedmiller, Braun 1993",
        _always("_s = g * last", "_f = where(_s > 0, grow, where(_s < 0, shrink, 1))",
                "size = clamp(size * _f, low, high)",
                "last = where(_s < 0, 0, g)", "p = p - sign(last) * size"), {},
        {"shrink": 0.5, "grow": 1.2, "low": 1e-6, "high": 50.0},
    ),
    "asgd": Rule(
        "Polyak, Juditsky 1992",
        _always(_L2, "p = p * (1 - lambd * eta) - eta * _g", "ax = where(mu == 1, p, ax + (p - ax) * mu)"), {},
        {"lambd": 1e-4, "weight_decay": 0.0},
    ),
    "lion": Rule(
        "Chen et al. 2023",
        _always("_u = sign(b1 * m + (1 - b1) * g)", "p = p * (1 - lr * weight_decay) - lr * _u",
                "m = b2 * m + (1 - b2) * g"), {}, {"lr": 1e-4, "b1": 0.9, "b2": 0.99, "weight_decay": 0.0},
    ),
    "adan": Rule(
        "Xie et al. 2022",
        _always(_STEP, "_c = where(t <= 1, 0, g - last)", _FIRST.replace("_g", "g"), "d = b2 * d + (1 - b2) * _c",
                "_w = g + b2 * _c", "v = b3 * v + (1 - b3) * _w * _w", "_d = fma(sqrt(v), 1 / sqrt(1 - b3 ** _t), eps)",
                "_u = (m / (1 - b1 ** _t) + b2 * d / (1 - b2 ** _t)) / _d",
                "p = (p - lr * _u) / (1 + lr * weight_decay)", "last = g"), {},
        {"lr": 1e-3, "b1": 0.98, "b2": 0.92, "b3": 0.99, "eps": 1e-8, "weight_decay": 0.0},
    ),
    "sophia": Rule(
        "Liu et al. 2023, Sophia-G: h is the estimate, bs the batch's size",
        _always("m = b1 * m + (1 - b1) * g", "_u = clamp(m / maximum(rho * bs * h, 1e-15), -1, 1)",
                "p = p * (1 - lr * weight_decay) - lr * _u"), {},
        {"lr": 1e-4, "b1": 0.965, "rho": 0.04, "bs": 1.0, "weight_decay": 0.1},
    ),
    "sophia_hessian": Rule(
        "Liu et al. 2023, of gradients at sampled labels", _always("h = b2 * h + (1 - b2) * g * g"), {}, {"b2": 0.99}
    ),
    "ademamix": Rule(
        "Pagliardini, Ablin, Grangier 2024",
        _always(_STEP, _FIRST.replace("_g", "g"), "slow = b3 * slow + (1 - b3) * g", _SECOND.replace("_g", "g"),
                _ROOT.format(v="v"), "p = p - lr * ((m / (1 - b1 ** _t) + alpha * slow) / _d + weight_decay * p)"), {},
        {**_ADAM, "b3": 0.9999, "alpha": 5.0},
    ),
    "schedule_free": Rule(
        "Defazio et al. 2024, AdamW: p is y, c the weight of this step's z in their average",
        _always(_STEP, _SECOND.replace("_g", "g"), _ROOT.format(v="v"), "_u = g / _d + weight_decay * p",
                "p = p + c * (z - p) + lr * (b1 * (1 - c) - 1) * _u", "z = z - lr * _u"), {},
        {"lr": 2.5e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
    ),
    "prodigy_moments": Rule(
        "Mishchenko, Defazio 2023: d is the estimate of the distance",
        _always("m = fma(b1, m, d * (1 - b1) * g)", "v = fma(b2, v, d * d * (1 - b2) * g * g)",
                "s = b3 * s + pace * g"),
        {}, {"b1": 0.9, "b2": 0.999, "b3": 0.9995},
    ),
    "prodigy_step": Rule(
        "Mishchenko, Defazio 2023", _always("p = p * (1 - weight_decay * rate) - rate * (m / (sqrt(v) + d * eps))"), {},
        {"eps": 1e-8, "weight_decay": 0.0},
    ),
    "lamb_direction": Rule(
        "You et al. 2020, LAMB: the direction u, to be scaled by the norms of p and u",
        _always(_STEP, _FIRST.replace("_g", "g"), _SECOND.replace("_g", "g"),
                "u = m / (1 - b1 ** _t) / (sqrt(v / (1 - b2 ** _t)) + eps) + weight_decay * p"), {},
        {"b1": 0.9, "b2": 0.999, "eps": 1e-6, "weight_decay": 0.01},
    ),
    "step_of_tensors": Rule("trust is a list of 0-d arrays", _always("p = p - lr * trust * u"), {}, {}),
    "muon_direction": Rule(
        "Jordan et al. 2024, Muon: the direction u, to be orthogonalised",
        lambda nesterov: _lines("m = m + (1 - beta) * (g - m)", "u = g + beta * (m - g)" if nesterov else "u = m"),
        {"nesterov": True}, {"beta": 0.95},
    ),
    "muon_step": Rule("Jordan et al. 2024", _always("p = p * (1 - lr * weight_decay) - rate * u"), {}, {}),
    "adafactor_step": Rule(
        "Shazeer, Stern 2018: rate is a list of 0-d arrays, u the direction",
        _always("p = p * (1 - decay) - rate * u"), {}, {"decay": 0.0},
    ),
    "lars": Rule(
        "You, Gitman, Ginsburg 2017: trust is a list of 0-d arrays",
        _always("m = beta * m + trust * (g + weight_decay * p)", "p = p - lr * m"), {},
        {"lr": 1e-3, "beta": 0.9, "weight_decay": 0.0},
    ),
    "ema": Rule("Polyak, Juditsky 1992", _always("average = decay * average + (1 - decay) * p"), {}, {"decay": 0.999}),
    "swa": Rule("Izmailov et al. 2018", _always("average = average + (p - average) / (n + 1)"), {}, {}),
    "accumulate": Rule("gradient accumulation", _always("total = total + g"), {}, {}),
}  # fmt: skip


@exported
def optimizer_rules() -> dict[str, str]:
    """The names that `bc.optimizer` takes in the place of a formula, and each rule's source."""
    return {name: rule.source for name, rule in RULES.items()}


def rule_text(name: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The formula of a rule, and the defaults of its numbers; `given` are options and defaults."""
    rule = RULES[name]
    options = dict(rule.options)
    numbers = dict(rule.defaults)
    for word, value in given.items():
        if word in options:
            if not isinstance(value, bool):
                raise InvalidProblemError(f"{word} of {name} is True or False, got {shown(value)}")
            options[word] = value
        else:
            numbers[word] = value
    text = rule.text(**options)
    words = set(_words(text))
    return text, {word: value for word, value in numbers.items() if word in words or word in given}


def _words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
