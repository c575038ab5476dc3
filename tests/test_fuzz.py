"""A seeded fuzz of the public API, over every plan and every function, without a GPU.

Each case is a right problem with one to three things changed: descriptor fields, operands, scalars, outputs,
preferences. The outcome is a result or a `BaracudaError`; before an error nothing was written and nothing launched;
beside a result nothing but the outputs changed; the same call again ends the same way; nothing warns, nothing hangs.
The CUDA path runs on fake devices and the recording launcher, with real `cupy.ndarray`s over host memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import random
import re
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from fuzz_values import NAMES, NOT_NAMES, PREFERENCES, VALUES, Hostile, fake_tensor, nearby, operand

import baracuda_py as bc
from baracuda_py.core import BaracudaError, registry
from baracuda_py.core import arrays as readers
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import driver_device_count, fake_device
from baracuda_py.core.plan import Plan
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.draw import SeededDraw, combinations, fill, make_case
from baracuda_py.testing.launches import capabilities
from baracuda_py.testing.operands import Operands, operands

PLANS = registry.plans()
FUNCTIONS = {n: f for n in bc.__all__ if inspect.isfunction(f := getattr(bc, n)) and hasattr(f, "plan")}
DESCRIPTOR_CASES, HOST_CASES, CUDA_CASES, FUNCTION_CASES = 120, 150, 150, 75
SECONDS = 10.0  # of the processor; no case takes a tenth of it
FAKE = fake_tensor()


def test_there_are_thirty_thousand_cases() -> None:
    assert len(PLANS) * (DESCRIPTOR_CASES + HOST_CASES + CUDA_CASES) + len(FUNCTIONS) * FUNCTION_CASES >= 30_000


class Hangs(BaseException):
    """A case that took too long."""


@contextlib.contextmanager
def watched(what: Callable[[], str]) -> Iterator[None]:
    """No case may take `SECONDS`, wait for six times as long, or warn; what fails inside says which case it was."""

    def stop(*_: Any) -> None:
        raise Hangs

    main = threading.current_thread() is threading.main_thread()
    if main:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 6 * SECONDS)
    start = time.process_time()
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            yield
        assert not heard, f"{what()}: warned {heard[0].message}"
        assert (took := time.process_time() - start) < SECONDS, f"{what()}: took {took:.1f} s"
    except Hangs:
        raise AssertionError(f"{what()}: hangs") from None
    finally:
        if main:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def outcome(act: Callable[[], Any], what: Callable[[], str], may: tuple[type[BaseException], ...] = ()) -> Any:
    """The result, or the `BaracudaError`; anything else fails the test."""
    try:
        return act()
    except BaracudaError as error:
        str(error).encode()  # every stream can print it
        assert str(error), what()
        return error
    except may as error:
        return error
    except TypeError as error:  # Python's own, of a call that does not fit the signature
        if any(said in str(error) for said in ("unexpected keyword", "missing", "positional", "multiple values")):
            return error
        raise AssertionError(f"{what()}: {type(error).__name__}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{what()}: {type(error).__name__}: {error}") from error


def text(value: Any) -> str:
    """A value in a failure's message."""
    try:
        shown = repr(value)
    except Exception:
        shown = f"<{type(value).__name__} without text>"
    return shown if len(shown) < 200 else f"{shown[:200]}…"


def bases(plan: type[Plan], count: int = 5) -> list[tuple[Any, Operands]]:
    """Right problems of a plan with small operands; of one, floats are of any kind."""
    pairs = combinations(plan)
    found = []
    for i in range(count):
        kind, element = pairs[i * 7 % len(pairs)]
        case = make_case(plan, SeededDraw(1000 + i, element, kind), special=i == 3, plain=i % 2 == 0)
        found.append((case, operands(case)))
    return found


def restore(ready: Operands) -> None:
    """Every operand's bytes as they were laid out."""
    for _, _, one in ready.items():
        one.buffer[:] = one.before


def seeded(name: str) -> random.Random:
    return random.Random(zlib.crc32(name.encode()))


def pick(rng: random.Random) -> Any:
    value = rng.choice(VALUES)
    return np.array(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", PLANS)
def test_descriptors(name: str) -> None:
    """Mutated descriptors: refused, or chosen for, explained and measured, whatever their size."""
    plan, rng = PLANS[name], seeded(f"{name} descriptors")
    problems = bases(plan)
    devices = ["cpu", *(fake_device(cc) for cc in capabilities(plan)), fake_device(7.5), 2**40, "cuda:99", "gpu", None]
    for _ in range(DESCRIPTOR_CASES):
        case, ready = rng.choice(problems)
        fields = {f.name: getattr(case.desc, f.name) for f in dataclasses.fields(case.desc)}
        for field in rng.sample(sorted(fields), min(len(fields), rng.choice([1, 1, 2, 3]))):
            fields[field] = pick(rng) if rng.random() < 0.3 else nearby(fields[field], rng)
        preference, device, drop = rng.choice(PREFERENCES), rng.choice(devices), rng.random() < 0.05
        if drop:
            fields.pop(rng.choice(sorted(fields)))

        def what(fields: Any = fields, device: Any = device) -> str:
            return f"{name} {text(fields)} on {text(device)}"

        def act(fields: Any = fields, device: Any = device, preference: Any = preference, ready: Any = ready) -> Any:
            desc = plan.descriptor(**fields)
            chosen = plan.select(desc, preference(), device=device)
            return hash(desc), chosen.workspace_size(), str(chosen.sku), chosen.explain(), chosen.precision_guarantee

        with watched(what):
            first, second = outcome(act, what), outcome(act, what)
        assert str(first) == str(second), what()


@pytest.mark.parametrize("world", ["cpu", "cuda"])
@pytest.mark.parametrize("name", PLANS)
def test_operands(name: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutated operands of a right problem: a result that touches only outputs, or an error that touches nothing."""
    plan, rng = PLANS[name], seeded(f"{name} {world}")
    monkeypatch.setattr(readers, "_device_of", lambda pointer: 0)  # no driver to ask
    problems = bases(plan)
    wrap: Callable[[Any], Any] = pointer_view if world == "cuda" else lambda a: a
    ordinal = -1 if world == "cpu" else 0
    for i in range(HOST_CASES if world == "cpu" else CUDA_CASES):
        case, ready = problems[i % len(problems)]
        preference = rng.choice(PREFERENCES) if rng.random() < 0.1 else lambda: None
        device: Any = "cpu" if world == "cpu" else fake_device(rng.choice(capabilities(plan)))
        state = rng.getstate()
        given: dict[str, Any] = {}
        extra: list[Any] = []

        def what(ready: Any = ready, given: Any = given, extra: Any = extra, device: Any = device) -> str:
            return f"{ready} on {device}: {text(given)} {text(extra)}"

        def act(case: Any = case, ready: Any = ready, given: Any = given, extra: Any = extra, device: Any = device,
                preference: Any = preference, state: Any = state) -> Any:  # fmt: skip
            rng.setstate(state)
            given.clear()
            fields = ready.fields(wrap)
            own = [one.view for _, _, one in ready.items()]
            for field in rng.sample(sorted(fields), min(len(fields), rng.choice([1, 1, 1, 2]))):
                given[field] = "…being made"
                given[field] = _in_place_of(fields[field], ready.laid.get(field), own, rng, ordinal)
            chosen = plan.select(case.desc, preference(), device=device)
            if rng.random() < 0.5:
                chosen.prepare(ready.args(wrap))  # so that a layout already known meets the wrong call
            workspace = rng.choice([None, None, None, wrap(np.zeros(8, np.uint8)), "x", 5, TORN])
            stream = rng.choice([None, None, None, 7, -1, 2**64, True, 0.5, "x", Hostile()])
            extra[:] = [workspace, stream]
            args: Any = plan.args(**(fields | given))
            args = rng.choice([args] * 20 + [None, "args", list(fields.values())])
            verdict = chosen.can_implement(args)
            try:
                rng.choice([chosen.run, chosen.run, lambda *a: chosen.bind(*a)()])(args, workspace, stream)
            except BaracudaError as error:
                assert not verdict or _of_the_call(error), f"can_implement says {verdict.sku}, run raised {error!r}"
                raise
            assert verdict, f"can_implement refused ({verdict.reason}), run did not"
            return verdict.sku

        with recording() as record, watched(what):
            found: list[Any] = []
            for _ in range(2 if i % 4 == 0 else 1):
                restore(ready)
                found.append(outcome(act, what))
                failed = isinstance(found[-1], BaseException)
                if failed or world == "cuda":
                    assert (harm := ready.damage(writes=False)) is None, f"{what()}: {found[-1]!r}, but {harm}"
                else:
                    _guards(ready, given, what)
                assert not (failed and record.launches), f"{what()}: launched before {found[-1]!r}"
            assert len({_said(one) for one in found}) == 1, f"{what()}: {found[0]!r}, then {found[-1]!r}"
        restore(ready)


TORN = np.zeros((4, 4), np.float32)[:, ::2]


def _of_the_call(error: BaracudaError) -> bool:
    """Whether the error is of the workspace or the stream, which `can_implement` is not given."""
    return any(name in str(error) for name in ("workspace", "stream"))


def _said(found: Any) -> str:
    """An outcome without the addresses in it."""
    return type(found).__name__ + re.sub("0x[0-9a-f]+", "", str(found))


def _in_place_of(value: Any, laid: Any, own: list[np.ndarray], rng: random.Random, ordinal: int) -> Any:
    """Something else for one field of Args."""
    if laid is None or rng.random() < 0.05:
        return FAKE if rng.random() < 0.2 else pick(rng)
    if not isinstance(laid, list):
        return operand(laid.view, own, rng, ordinal)
    items = list(value)
    if items and rng.random() < 0.8:
        at = rng.randrange(len(items))
        items[at] = operand(laid[at].view, own, rng, ordinal)
        return rng.choice([items, tuple(items)])
    return rng.choice([items[:-1], items * 2, None, dict(enumerate(items)), iter(items), items[0] if items else 0])


def _guards(ready: Operands, given: dict[str, Any], what: Callable[[], str]) -> None:
    """After a result: bytes outside the views as they were, inputs too unless an output was laid over them."""
    shared = any(s.writes for s in arrays_of(ready.case.plan.args) if s.name in given)
    for spec, _, one in ready.items():
        assert (harm := one.damage(spec.writes or shared)) is None, f"{what()}: {spec.name}: {harm}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """Mutated calls of the functional layer: an array of the caller's package, or an error that wrote nothing."""
    function, rng = FUNCTIONS[name], seeded(name)
    plan, parameters = function.plan, inspect.signature(function).parameters
    fixed = getattr(function, "fixed", {}).get("kind")
    pairs = [p for p in combinations(plan) if fixed in (None, p[0])] or [(fixed, None)]
    problems = []
    for i in range(3):
        kind, element = pairs[i % len(pairs)]
        if element is None:
            element = next(e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind))
        draw = SeededDraw(2000 + i, element, kind)
        case = fill(plan, plan.case(draw), draw.seed(), plain=True, kind=kind)
        problems.append((case, operands(case)))
    cuda = driver_device_count() == 0  # with a GPU, what claims to be on it would be launched on
    for i in range(FUNCTION_CASES):
        case, ready = problems[i % len(problems)]
        fields = ready.fields()
        own = [one.view for _, _, one in ready.items()]
        kwargs = {n: v for n, v in fields.items() if n in parameters}
        kwargs |= {n: v for f in dataclasses.fields(case.desc) if (n := f.name) in parameters
                   for v in (getattr(case.desc, n),) if n not in kwargs and n != "element"}  # fmt: skip
        options = [n for n in parameters if parameters[n].kind is not inspect.Parameter.VAR_KEYWORD] + ["nonsense"]
        state = rng.getstate()
        given: dict[str, Any] = {}

        def what(given: Any = given, case: Any = case) -> str:
            return f"{name} of {case}: {text(given)}"

        def act(kwargs: Any = kwargs, ready: Any = ready, given: Any = given, own: Any = own, state: Any = state,
                options: Any = options, parameters: Any = parameters) -> Any:  # fmt: skip
            rng.setstate(state)
            given.clear()
            if "layout" in parameters and rng.random() < 0.2:
                given["layout"] = "nhd" if "cache" in name or "paged" in name else "bshd"
            for field in rng.sample(options, min(len(options), rng.choice([0, 1, 1, 1, 2]))):
                laid = ready.laid.get(field)
                given[field] = "…being made"
                if field == "preference":
                    given[field] = rng.choice(PREFERENCES)()
                elif field == "out":
                    given[field] = operand(rng.choice(own), own, rng, -1, cuda) if own else pick(rng)
                elif laid is not None and not isinstance(laid, list):
                    given[field] = operand(laid.view, own, rng, -1, cuda)
                else:
                    given[field] = _small(pick(rng))
            return function(**(kwargs | given))

        with watched(what):
            found: list[Any] = []
            for _ in range(2 if i % 4 == 0 else 1):
                restore(ready)
                found.append(outcome(act, what, (MemoryError,)))
                if isinstance(found[-1], BaseException):
                    assert (harm := ready.damage(writes=False)) is None, f"{what()}: {found[-1]!r}, but {harm}"
                else:
                    changes = not {"out", "max_norm"}.isdisjoint(given)  # max_norm shortens rows of a table in place
                    _guards(ready, dict.fromkeys(fields) if changes else given, what)
            assert type(found[0]) is type(found[-1]), f"{what()}: {found[0]!r}, then {found[-1]!r}"
        restore(ready)


def _small(value: Any) -> Any:
    """No sizes between what is quick and what no machine has: a filled gigabyte shows nothing."""
    whole = isinstance(value, (int, np.integer)) and value is not True
    return type(value)(5) if whole and 16 < value < 2**62 else value


@pytest.mark.parametrize("value", range(len(VALUES)))
def test_helpers_take_any_value(value: int) -> None:
    given = VALUES[value]
    for function in (bc.alibi_slopes, bc.fake_device):
        with watched(lambda: text(given)):
            outcome(partial(function, given), partial(text, given))


def _formulas(name: str, other: str) -> list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]]:
    """Ways to a formula with a name: what it is, how it is made and called, and what its result should be."""
    x, tall = np.linspace(0.5, 2, 6, dtype=np.float32).reshape(2, 3), np.ones((3, 3), np.float32)
    heads, both = x.reshape(1, 1, 2, 3), {other: x, name: x}
    mixed = np.exp(2 * heads @ heads.swapaxes(-1, -2) / 3**0.5)
    return [
        ("array", lambda: bc.elementwise(f"{other} * {name}"), lambda f: f(**both), x * x),
        ("number", lambda: bc.elementwise(f"{other} * {name}", **{name: 2.0}), lambda f: f(x), 2 * x),
        ("output", lambda: bc.elementwise(f"{name} = {other} * 2; z_ = {other}"),
         lambda f: f(x)[0] if len(f.outputs) > 1 else 2 * f(x), 2 * x),  # an underscore: no output
        ("traced", lambda: bc.elementwise(lambda a: {name: a * 2}), lambda f: f(x), 2 * x),
        ("reduce", lambda: bc.reduce(f"sum({other} * {name})", axis=-1), lambda f: f(**both), (x * x).sum(-1)),
        ("scan", lambda: bc.scan(f"cumsum({other}) * {name}"), lambda f: f(**{other: x, name: 2.0}), 2 * x.cumsum(-1)),
        ("product", lambda: bc.product(f"x * {name}"), lambda f: f(x, tall, **{name: x}), x @ tall * x),
        ("convolution", lambda: bc.conv_formula(f"x * {name}"),
         lambda f: f(x[None], np.eye(2, dtype=np.float32)[..., None], **{name: x}), (x * x)[None]),
        ("attention", lambda: bc.attention(f"s * {name}"), lambda f: f(heads, heads, heads, **{name: 2.0}),
         mixed @ heads / mixed.sum(-1, keepdims=True)),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_operands_of_formulas_have_any_name_or_are_refused(seed: int) -> None:
    """Identifiers of every sort, and what is none: a right result, or an error of this package that says what to do."""
    rng = random.Random(seed)
    for name in (*rng.sample(NAMES, 12), *rng.sample(NOT_NAMES, 8)):
        other = rng.choice([one for one in NAMES if one != name and not one.startswith("_")])
        for way, make, use, wanted in _formulas(name, other):

            def what(way: str = way, name: str = name, other: str = other) -> str:
                return f"{way} of {name!r} and {other!r}"

            with watched(what):
                made = outcome(make, what)
                made = made if isinstance(made, BaseException) else outcome(partial(use, made), what)
            if isinstance(made, BaseException):
                known = name in NOT_NAMES or "give the operand another name" in str(made) or "underscore" in str(made)
                assert known and isinstance(made, BaracudaError), f"{what()}: {made!r}"
            else:
                np.testing.assert_allclose(made, wanted, rtol=1e-5, err_msg=what())
