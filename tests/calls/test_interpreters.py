"""Who serves a call: of plain arrays nobody, around a block an interpreter, of what stands for arrays that first."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.calls.call import Call, Entry
from baracuda_py.calls.functional import entry_of
from baracuda_py.calls.interpreters import innermost, interpreting

X = np.array([[1.0, -2.0, 3.0]], np.float32)


class Listener:
    """Notes the calls that it serves, and has them served as if it were not there."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def serve(self, call: Call) -> Any:
        self.calls.append(call)
        with interpreting(None):
            return call.entry.function(**call.keywords)


def test_an_interpreter_hears_of_all_calls_in_its_block() -> None:
    bc.silu(X)  # plain: what is found for it is known from now on
    listener = Listener()
    with interpreting(listener):
        made = bc.silu(X)
        bc.median(X, 1)  # written by hand: the calls inside of it
    np.testing.assert_array_equal(made, bc.silu(X))
    assert listener.calls[0].entry.name == "silu" and len(listener.calls) > 1
    assert all(isinstance(call.entry, Entry) for call in listener.calls)
    before = len(listener.calls)
    bc.silu(X)
    assert len(listener.calls) == before


def test_a_call_says_what_it_was_called_with() -> None:
    listener, out = Listener(), np.empty((1, 3), np.float32)
    with interpreting(listener):
        bc.layer_norm(X, np.ones(3, np.float32), eps=1e-3, out=out)
    (call,) = listener.calls
    assert call.arrays["x"] is X and call.arrays["bias"] is None and call.out is out
    assert call.given["eps"] == 1e-3 and call.stream is None and call.layout is None
    np.testing.assert_array_equal(bc.layer_norm(X, np.ones(3, np.float32), eps=1e-3), out)


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "BSHD"])
def test_the_same_call_by_keywords(layout: str) -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 4, 4, 8)).astype(np.float32)
    listener = Listener()
    with interpreting(listener):
        y, lse = bc.flash_sdpa(q, k, v, is_causal=True, layout=layout, return_lse=True)
    wanted = bc.flash_sdpa(q, k, v, is_causal=True, layout=layout, return_lse=True)
    np.testing.assert_array_equal(y, wanted[0])
    np.testing.assert_array_equal(lse, wanted[1])
    (call,) = listener.calls
    assert bool(call.turned) == (layout.lower() == "bshd")


def test_the_innermost_serves_and_a_block_ends_with_an_error() -> None:
    outer, inner = Listener(), Listener()
    with interpreting(outer):
        with pytest.raises(ValueError, match="mine"), interpreting(inner):
            bc.silu(X)
            raise ValueError("mine")
        assert innermost() is outer
        bc.silu(X)
    assert innermost() is None and len(outer.calls) == len(inner.calls) == 1


def test_other_threads_have_a_stack_of_their_own() -> None:
    listener = Listener()
    with interpreting(listener):
        thread = threading.Thread(target=bc.silu, args=(X,))
        thread.start()
        thread.join()
    assert not listener.calls


def test_symbols_come_first() -> None:
    listener = Listener()
    with interpreting(listener):
        formula = bc.elementwise(lambda x: bc.silu(x) + 1)
    assert not listener.calls
    np.testing.assert_allclose(formula(X), bc.silu(X) + 1, rtol=1e-6)


def test_a_call_that_is_refused_leaves_nothing_behind() -> None:
    entry = entry_of(bc.silu)
    for wrong in ("text", None, [X]):
        with pytest.raises(bc.BaracudaError):
            bc.silu(wrong)  # type: ignore[arg-type]
    assert all(found.plan.op == entry.plan.op for found in entry.cache.values())
    np.testing.assert_array_equal(bc.silu(X), bc.silu(X.copy()))


def test_what_wraps_an_array_of_jax_is_a_call_of_the_array() -> None:
    jax = pytest.importorskip("jax")

    class Wrapper:
        def __init__(self, value: Any) -> None:
            self.value, self.shape, self.dtype = value, value.shape, value.dtype

        def __jax_array__(self) -> Any:
            return self.value

    x = jax.numpy.asarray(X)
    assert (bc.silu(Wrapper(x)) == bc.silu(x)).all()
    assert (jax.jit(lambda a: bc.silu(Wrapper(a)))(x) == bc.silu(x)).all()
