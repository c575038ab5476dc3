"""BARACUDA_LOG, BARACUDA_DUMP with `replay`, and what BARACUDA_CHECK=1 says of results that are not finite."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.cli.main import main
from baracuda_py.cli.replay import Reader, again, load
from baracuda_py.core import dump, watch
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, NonFiniteWarning
from baracuda_py.core.finite import finite, poison, report, word

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, as the variables are read when functions and plans are made."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("BARACUDA_")} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], env=variables | environ, capture_output=True, text=True, timeout=120
    )


SETUP = "import numpy as np, baracuda_py as bc\nx = np.ones((4, 6), np.float32)\n"


# -- the log ----------------------------------------------------------------------------------------------------------


def test_every_call_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.log"
    code = SETUP + (
        "bc.rms_norm(x[:, ::2]); bc.softmax(x); bc.silu(x)\n"
        "plan = bc.SoftmaxPlan.select(bc.SoftmaxDescriptor(kind='softmax', shape=(3,), element='float32'))\n"
        "y = np.empty(3, np.float32); plan(x=np.zeros(3, np.float32), y=y, stream=0)\n"
        "bound = plan.bind(plan.args(x=np.zeros(3, np.float32), y=y)); bound(); bound()\n"
        "try: plan(x=x, y=y)\nexcept bc.InvalidProblemError: pass\n"
    )
    done = python(code, BARACUDA_LOG=str(path))
    assert done.returncode == 0, done.stderr
    lines = path.read_text().splitlines()
    assert len(lines) == 7 and not done.stderr
    assert "norm.rms_norm x=float32[4,3] strides (6,2) y=float32[4,3]  norm.rms_norm/numpy/" in lines[0]
    assert "softmax.softmax[softmax] x=float32[4,6] y=float32[4,6]" in lines[1] and lines[1].endswith(" us")
    assert "stream current" in lines[1] and "stream 0" in lines[3]
    assert "InvalidProblemError: x must have shape (3,)" in lines[6]


def test_the_log_goes_to_stderr() -> None:
    done = python(SETUP + "bc.silu(x)", BARACUDA_LOG="1")
    assert "elementwise.unary[silu] x=float32[4,6]" in done.stderr and done.stderr.count("\n") == 1
    assert python(SETUP + "bc.silu(x)", BARACUDA_LOG="0").stderr == ""
    assert "BARACUDA_LOG: got 'loud'" in python(SETUP + "bc.silu(x)", BARACUDA_LOG="loud").stderr


def test_nothing_stands_between_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wrapper of a function, no wrapper of a runner."""
    for name in ("BARACUDA_LOG", "BARACUDA_DUMP"):
        monkeypatch.delenv(name, raising=False)

    def function() -> None:
        """A function."""

    runner: Any = object()
    assert dump.dumped(function) is function and watch.watched(None, runner) is runner
    plan = bc.SoftmaxPlan.select(bc.SoftmaxDescriptor(kind="softmax", shape=(31, 7), element="float64"), device="cpu")
    assert type(plan.runner).__name__ == "NumpyRunner" and "run" not in vars(plan)


# -- dumps ------------------------------------------------------------------------------------------------------------


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        ("bc.rms_norm(x, x[:, :5])", "rms_norm", "InvalidProblemError"),
        ("bc.add(x, np.ones((4, 6), np.float16))", "add", "write add(a, cast(b, 'float32'))"),
        ("bc.where(x > 0, None, x)", "where", "required"),
        ("bc.sum(x, axis=2)", "sum", "axis must be in"),
        ("bc.adam_step([x], [x[:2]], [x], [x], step=1)", "adam_step", "InvalidProblemError"),
        ("bc.softmax(x, out=np.empty((4, 5), np.float32))", "softmax", "y must have shape (4, 6)"),
        ("bc.cast(x, 'float1')", "cast", "float1"),
        ("bc.softmax(x, dim=1)", "softmax", "did you mean axis="),
        ("bc.softmax(object())", "softmax", "InvalidProblemError"),
        ("bc.log_softmax(np.ones((3, 4), np.int8))", "log_softmax", "UnsupportedError"),
    ],
)
def test_a_failing_call_is_written_and_replayed(
    call: str, name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = python(SETUP + call, BARACUDA_DUMP=str(tmp_path / "dumps"))
    assert done.returncode == 1
    path = only(tmp_path / "dumps")
    assert f"BARACUDA_DUMP: {path}" in done.stderr and path.name.endswith(f"-{name}.npz")
    status = main(["replay", str(path), "--device", "cpu"])
    out = capsys.readouterr().out
    assert status == 1 and out.startswith(f"{name}, ") and says in out
    assert "the same error: " in out or "error: the call had a object" in out or "another error: BaracudaError" in out
    assert "numpy=" in out


def test_what_works_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A call that failed for want of nothing but the process it was in returns what it should."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    spread = np.zeros((3, 9), np.float32)[:, ::2][:, :4]
    spread[...] = x
    error = InvalidProblemError("then")
    path = dump.write(tmp_path, {"function": "sum"}, (spread,), {"axis": 1, "keepdims": True}, error)
    call, arrays = load(path)
    assert np.array_equal(again(call, arrays, "cpu"), x.sum(1, keepdims=True))
    assert main(["replay", str(path), "--device", "cpu"]) == 0
    assert "it works: float32[3, 1]" in capsys.readouterr().out
    assert main(["replay", str(path), "--show"]) == 0
    assert "numpy float32[3, 4] strides [9, 2]" in capsys.readouterr().out


@pytest.mark.parametrize("element", ["bfloat16", "float8_e4m3fn", "int8", "bool", "complex128", "float64", "uint64"])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[::-1, ::2], lambda a: a.T, lambda a: a[:1, :1].repeat(2, 0)])
def test_arrays_come_back_as_they_were(element: str, view: Any, tmp_path: Path) -> None:
    kind = ElementKind.of(element)
    x = view(np.arange(24).reshape(4, 6).astype(kind.dtype))
    given = (x, [x, None], {"k": (1.5, float("inf"))})
    call, arrays = load(dump.write(tmp_path, {"function": "f"}, given, {}, ValueError()))
    first, listed, mapping = (Reader(arrays, "cpu").value(one) for one in call["args"])
    for back in (first, listed[0]):
        assert back.dtype == x.dtype and back.shape == x.shape and back.tobytes() == x.tobytes()
        assert back.strides == x.strides
        assert back.ctypes.data % 16 == x.ctypes.data % 16
    assert listed[1] is None and mapping == {"k": (1.5, float("inf"))}


def test_a_call_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = SETUP + (
        "plan = bc.RMSNormPlan.select(bc.RMSNormDescriptor(batch_shape=4, normalized_shape=6, element='float32'))\n"
        "plan(x=x, y=x[:, :5])"
    )
    done = python(code, BARACUDA_DUMP=str(tmp_path))
    path = only(tmp_path)
    assert done.returncode == 1 and path.name.endswith("-RMSNormPlan.npz")
    assert main(["replay", str(path), "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert "the same error: InvalidProblemError: y must have shape (4, 6)" in out
    assert "problem  norm.rms_norm  RMSNormDescriptor(batch_shape=(4,)" in out


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = python(SETUP + "bc.sum(x, axis=2)", BARACUDA_DUMP=str(tmp_path / "file"))
    assert "axis must be in" in done.stderr and "BARACUDA_DUMP: not written: " in done.stderr


def test_what_is_no_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npz").write_text("not a zip")
    assert main(["replay", str(tmp_path / "x.npz")]) == 1
    assert "is no file of BARACUDA_DUMP" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none.npz")]) == 1
    assert "No such file" in capsys.readouterr().err


# -- checks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "1")


@pytest.mark.usefixtures("checked")
def test_what_is_not_finite_is_warned_of() -> None:
    x = np.ones((3, 5), np.float32)
    x[1, 2] = -1
    with pytest.warns(NonFiniteWarning, match=r"elementwise\.unary: y: 1 of 15 elements are NaN .* first at \(1, 2\)"):
        bc.log(x)
    with pytest.warns(NonFiniteWarning, match="1 of 1 elements"):
        bc.sum(np.full((2, 40000), 3e38, np.float32))
    with pytest.warns(NonFiniteWarning, match="complex_binary: y: "):
        bc.mul(np.complex128([1e200]), np.complex128([1e200j]))


@pytest.mark.usefixtures("checked")
def test_what_was_not_finite_before_is_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bc.log(np.float32([np.inf, 1.0]))
        bc.exp(np.float32([np.nan]))
        bc.add(np.int32([2**31 - 1]), 1)
        bc.silu(np.ones(4, np.float16))


def test_nothing_is_looked_at_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARACUDA_CHECK", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bc.log(-np.ones(3, np.float32))


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"])
def test_bits_of_every_float(element: str) -> None:
    kind = ElementKind.of(element)
    name = word(kind)
    assert name is not None
    largest = np.array([0.0, -0.0, 1.5, kind.limits.max, -kind.limits.max]).astype(kind.dtype).view(name)
    assert finite(largest, kind)
    nan = np.array([1.0, np.nan]).astype(kind.dtype)
    assert not finite(nan.view(name), kind)
    bits = np.zeros((2, 3), name)
    poison(bits)
    assert np.isnan(bits.view(kind.dtype).astype(np.float64)).all()
    bits[0] = 0
    with pytest.warns(NonFiniteWarning, match=r"op: y: 3 of 6 elements were not written; the first at \(1, 0\)"):
        report("op", "y", bits, kind, True)
    with pytest.warns(NonFiniteWarning, match="were not written"):
        report("op", "y", bits, kind, False)


def test_what_is_no_float_has_no_word() -> None:
    assert word(ElementKind.I32) is None and word(ElementKind.U8) is None and word(ElementKind.BOOL) is None
    assert word(ElementKind.C64) == "uint32"
