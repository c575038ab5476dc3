"""An `out=` that a function of several calls cannot write is refused before the first of them, by its name."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from baracuda_py.calls import rehearsal
from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from tests.core.test_outs import in_place
from tests.interop.hand_written import operands_of
from tests.interop.second_device import Devices, two_devices

pytest.importorskip("cupy")
_NOT_HERE = {"orthogonal", "cho_factor"}  # cuSOLVER, which needs a GPU, factors; the second result is no array


def _takes_out(name: str) -> bool:
    function: Any = getattr(bc, name)
    hand_written = callable(function) and hasattr(function, "plan") and not hasattr(function, "entry")
    return hand_written and not isinstance(function, type) and "out" in inspect.signature(function).parameters


NAMES = sorted(n for n in EXPORTS if n not in _NOT_HERE and _takes_out(n) and not in_place(n))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Devices]:
    with two_devices(monkeypatch) as found:
        yield found


def leaves(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Where arrays are within lists, and the arrays."""
    if isinstance(value, (list, tuple)):
        for i, one in enumerate(value):
            yield from leaves(one, (*path, i))
    elif hasattr(value, "shape") and not isinstance(value, np.generic):
        yield path, value


def like(devices: Devices, made: Any, odd: tuple[int, ...], bad: Any, path: tuple[int, ...] = ()) -> Any:
    """Outputs like those that were made, but for one."""
    if isinstance(made, (list, tuple)):
        return tuple(like(devices, one, odd, bad, (*path, i)) for i, one in enumerate(made))
    return bad if path == odd else devices.array(np.zeros(made.shape, made.dtype), 0)


def wrong(devices: Devices, good: Any) -> Iterator[Any]:
    """Arrays in the place of a good one: of another extent, of an axis more, of another element."""
    shape, dtype = tuple(good.shape), np.dtype(good.dtype)
    if shape:
        yield devices.array(np.zeros((*shape[:-1], shape[-1] + 1), dtype), 0)
    yield devices.array(np.zeros((*shape, 2), dtype), 0)
    yield devices.array(np.zeros(shape, np.complex64 if dtype != np.complex64 else np.uint16), 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_out_is_refused_before_anything_is_launched(name: str, devices: Devices) -> None:
    import cupy

    function: Any = getattr(bc, name)
    devices.use(0)
    operands, facts = devices.array(list(operands_of(name)), 0)
    made = function(*operands, **facts)
    given = [one for _, one in leaves([operands, *facts.values()])]
    for path, good in leaves(made):
        for bad in wrong(devices, good):
            devices.forget()
            with pytest.raises(BaracudaError):
                function(*operands, **facts, out=like(devices, made, path, bad))
            assert not devices.record.launches and not devices.called
        nbytes = math.prod(good.shape) * np.dtype(good.dtype).itemsize
        for operand in given:
            if not 0 < nbytes <= operand.nbytes:
                continue
            devices.forget()
            over = cupy.ndarray(good.shape, good.dtype, operand.data)
            try:
                function(*operands, **facts, out=like(devices, made, path, over))
            except BaracudaError:
                assert not devices.record.launches and not devices.called
    launched = []
    for out in (None, like(devices, made, (-1,), None)):
        devices.forget()
        function(*operands, **facts, out=out)
        launched.append(len(devices.record.launches) + len(devices.called))
    assert launched[0] <= launched[1] <= launched[0] + len(list(leaves(made)))  # nothing runs twice


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_the_error_names_the_output_that_was_given() -> None:
    x = ones(3, 4)
    with pytest.raises(InvalidProblemError, match=r"^out\[0\]: .* must have shape"):
        bc.median(x, 1, out=(ones(5), np.zeros(3, np.int64)))
    with pytest.raises(InvalidProblemError, match=r"^out\[1\]: .* must be int64, got float32"):
        bc.median(x, 1, out=(ones(3), ones(3)))
    with pytest.raises(InvalidProblemError, match=r"^out: .* must be bool"):
        bc.isin(np.arange(4), np.arange(2), out=ones(4))


def test_nothing_is_written_before_an_error() -> None:
    values, x = np.full(3, 7, np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    with pytest.raises(InvalidProblemError):
        bc.median(x, 1, out=(values, ones(3)))
    assert (values == 7).all()


def test_an_output_over_what_a_later_call_reads_is_refused() -> None:
    """Every call by itself would take it: the indices would be written over x, from which the values are taken."""
    memory = np.arange(12, dtype=np.int64)
    x, before = memory.reshape(3, 4), memory.copy()
    with pytest.raises(InvalidProblemError, match=r"^out\[1\] overlaps an operand that is read after it is written"):
        bc.median(x, 1, out=(np.zeros(3, np.int64), memory[:3]))
    np.testing.assert_array_equal(memory, before)


def test_c_is_not_copied_over_an_operand_of_the_product(devices: Devices) -> None:
    import cupy

    devices.use(0)
    c, a, b = devices.array([ones(5), ones(4, 6), ones(6, 5)], 0)
    with pytest.raises(InvalidProblemError, match=r"^out: y overlaps b"):
        bc.addmm(c, a, b, out=cupy.ndarray((4, 5), np.float32, b.data))
    assert not devices.record.launches and not devices.called


def test_a_call_like_one_that_was_right_is_not_gone_through_again(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    serve = rehearsal.Rehearsal.serve
    monkeypatch.setattr(rehearsal.Rehearsal, "serve", lambda *call: (seen.append(1), serve(*call))[1])
    devices.use(0)
    x, out = devices.array([ones(3, 4), (ones(3), np.zeros(3, np.int64))], 0)
    bc.median(x, 1, out=out)
    first = len(seen)
    bc.median(x, 1, out=out)
    assert first and len(seen) == first
    with pytest.raises(InvalidProblemError):
        bc.median(x, 0, out=out)
    c, a, b = devices.array([ones(4, 4), ones(4, 4), ones(4, 4)], 0)
    for _ in range(2):
        bc.addmm(c, a, b, out=c)
        first, seen[:] = len(seen), []
    assert first == 0  # where an output lies over an operand, too
    with pytest.raises(InvalidProblemError, match="overlaps b"):
        bc.addmm(c, a, b, out=b)


@pytest.mark.parametrize("name", NAMES)
def test_an_output_over_an_operand_is_refused_or_right(name: str) -> None:
    function: Any = getattr(bc, name)
    operands, facts = operands_of(name)
    made = function(*operands, **facts)
    wanted = [(path, np.array(one)) for path, one in leaves(made)]
    for path, good in wanted:
        for number, (_, one) in enumerate(leaves([operands, *facts.values()])):
            if (one.shape, one.dtype) != (good.shape, good.dtype):
                continue
            again = copy.deepcopy([operands, facts])
            over = [a for _, a in leaves([again[0], *again[1].values()])][number]
            outs = tuple(over if p == path else np.zeros_like(a) for p, a in wanted)
            with contextlib.suppress(BaracudaError):
                got = function(*again[0], **again[1], out=outs if isinstance(made, (tuple, list)) else over)
                for (_, a), (_, want) in zip(leaves(got), wanted, strict=True):
                    np.testing.assert_array_equal(a, want)


def test_nothing_is_left_to_the_collector_of_cycles() -> None:
    """What a call was checked with would hold its arrays until then."""
    q = np.ones((1, 2, 4, 8), np.float32)
    out = np.empty_like(q)
    bc.flash_sdpa(q, q, q, out=out)
    gc.collect()
    gc.disable()
    try:
        bc.flash_sdpa(q, q, q, out=out)
        assert gc.collect() == 0
    finally:
        gc.enable()
