"""Bad arguments of functions of the host: the error of this package, with its words, or Python's of the signature."""

from __future__ import annotations

import inspect
import math
import random
import signal
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.calls.exported import is_exported
from baracuda_py.testing import exercise

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CONDITION = X > 2

GOOD: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "two numbers": (lambda: bc.where(CONDITION[0], -6, 2), [2, 2, 2]),
    "two numbers beyond a narrow integer": (lambda: bc.where(CONDITION[1], 300, -300), [300, 300, 300]),
}


@pytest.mark.parametrize("name", GOOD)
def test_where_takes_two_numbers(name: str) -> None:
    call, right = GOOD[name]
    assert call().dtype == np.int64 and call().tolist() == right


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "where": (lambda: bc.where(CONDITION, 2**70, 2), r"a must lie in \[-\d+, \d+\] as it meets int64"),
    "arange to inf": (lambda: bc.arange(0, math.inf), "stop must be finite, got inf"),
    "arange of nan": (lambda: bc.arange(math.nan, 2.0), "start must be finite"),
    "arange of tiny steps": (lambda: bc.arange(0, 10, 1e-320), "more than an array has elements"),
    "arange beyond a float": (lambda: bc.arange(10**400), "stop must be a number"),
    "range_closed": (lambda: bc.range_closed(0, 1e300), "more than an array has elements"),
    "range_closed by 0": (lambda: bc.range_closed(0, 3, 0), "step must not be 0"),
    "qkv_project": (lambda: bc.qkv_project(X, (None,), X, X, kind="int4"), "w_q must have codes"),
    "qkv_project of nothing": (lambda: bc.qkv_project(X, X, {}, X, kind="int4"), "w_k must have codes, .* got nothing"),
    "transpose": (lambda: bc.transpose(X, 0.5, 1), "axis must be an integer, got 0.5"),
    "exercise": (lambda: exercise("x"), "op must be a Plan class or a formula, got 'x'"),
    "exercise a check": (lambda: exercise(bc.RMSNormPlan, "x"), "check must be a function"),
    "warm": (lambda: bc.warm(["rms_norm"]), "plans must be Plan classes, got 'rms_norm'"),
    "warm a target": (lambda: bc.warm([bc.RMSNormPlan], ["hopper"]), "targets must be names such as"),
    "warm workers": (lambda: bc.warm([bc.RMSNormPlan], workers=1.5), "workers must be an integer"),
    "gradient's spacing": (lambda: bc.gradient(X, spacing=2), "'spacing'; give it by position"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_says_what_is_wrong(name: str) -> None:
    call, said = BAD[name]
    with pytest.raises(bc.BaracudaError, match=said):
        call()


def test_no_error_suggests_the_word_that_it_refuses() -> None:
    """Of every function: a positional parameter by name, where it cannot be given so."""
    for name in bc.__all__:
        function = getattr(bc, name)
        if not inspect.isfunction(function):
            continue
        for word, one in inspect.signature(function).parameters.items():
            if one.kind is one.VAR_POSITIONAL:
                try:
                    function(X, **{word: 2})
                except TypeError as error:
                    assert f"did you mean {word}=" not in str(error), name


def test_a_trace_that_records_nothing_is_refused() -> None:
    torch = pytest.importorskip("torch")
    for x in (torch.ones(3, 4), torch.tensor(1.0)):
        for function in (bc.silu, bc.nn.functional.silu):
            with pytest.raises(bc.UnsupportedError, match=r"torch\.jit\.trace records no op"):
                torch.jit.trace(function, x)


# What stands in the place of an argument: numbers where arrays are due, no numbers, huge ones, floats for integers.
VALUES: list[Any] = [
    0, -1, 3, 1.5, -2.0, math.inf, -math.inf, math.nan, 2**50, 2**62, 2**63, 10**400, 1e300, "x", "", b"x", None, True,
    (), (1.5,), (2**62, 2**62), (-1,), [[1], [2, 3]], {}, 1j, np.float32(2), np.int64(3), X, X[0], np.array(2),
    np.array([0, 1]), np.array(["a"]), [X, X], (X,), object(),
]  # fmt: skip
HOST = {n: f for n in bc.__all__ if inspect.isfunction(f := getattr(bc, n)) and is_exported(f)}
CASES = 25
BY_PYTHON = ("unexpected keyword", "missing", "positional", "multiple values")  # of a call that fits no signature


class _Late(BaseException):
    """A call that takes too long."""


def _late(*_: Any) -> None:
    raise _Late


def test_there_are_functions_of_the_host() -> None:
    assert len(HOST) > 100


@pytest.mark.parametrize("name", HOST)
def test_bad_arguments_of_functions_of_the_host(name: str) -> None:
    _called_with_anything(name, HOST[name], CASES)


def test_bad_arguments_of_all_other_functions() -> None:
    """Those of plans, which the fuzz of `test_fuzz.py` calls with right problems that are changed: here with none."""
    others = {n: f for n in bc.__all__ if inspect.isfunction(f := getattr(bc, n)) and n not in HOST and n != "warm"}
    assert len(others) > 1000
    for name, function in others.items():
        _called_with_anything(name, function, 5)


def _called_with_anything(name: str, function: Callable[..., Any], cases: int) -> None:
    """A result, or an error with words of ours; whatever is given, and in little time."""
    rng = random.Random(zlib.crc32(name.encode()))
    parameters = list(inspect.signature(function).parameters.values())
    before = signal.signal(signal.SIGALRM, _late)
    try:
        for _ in range(cases):
            args = [rng.choice(VALUES) for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
            args = args[: rng.randint(0, len(args))] if rng.random() < 0.3 else args
            args[:1] = [X for _ in args[:1]] if rng.random() < 0.5 else args[:1]
            given = {p.name: rng.choice(VALUES) for p in parameters if p.kind is p.KEYWORD_ONLY and rng.random() < 0.2}
            signal.alarm(30)
            try:
                function(*args, **given)
            except bc.BaracudaError as error:
                assert str(error)
            except TypeError as error:
                assert any(said in str(error) for said in BY_PYTHON), f"{name}{args!r}{given!r}: {error}"
            except Exception as error:
                raise AssertionError(f"{name}{args!r}{given!r}: {type(error).__name__}: {error}") from error
            except _Late:
                raise AssertionError(f"{name}{args!r}{given!r}: hangs") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
