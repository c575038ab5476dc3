"""ONNX's backend node tests: no case that passed may stop passing, and none may change status unnoticed."""

from __future__ import annotations

import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'baracuda_py[test]'")

from . import onnx_backend, scoreboard  # noqa: E402
from .scoreboard import Expected, Outcome  # noqa: E402


def _check(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = onnx_backend.outcomes(device)
    with capsys.disabled():
        print(f"\n{onnx_backend.SUITE} {onnx.__version__} on {device}")
        print(scoreboard.table(found, onnx_backend.FAMILIES, onnx_backend.OPS))
    wrong = scoreboard.differences(scoreboard.load(onnx_backend.EXPECTED), found, onnx.__version__)
    assert not wrong, "\n".join([*wrong, "if this is meant: python -m tests.suites.onnx_backend --update"])


def test_node_cases(capsys: pytest.CaptureFixture[str]) -> None:
    _check("CPU", capsys)


@pytest.mark.gpu
def test_node_cases_on_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    _check("CUDA", capsys)


def test_driver_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong result, a wrong dtype and a crash are disagreements; they are seen as differences."""
    case = next(case for case in onnx_backend.node_cases() if case.name == "test_relu")
    broken = (lambda n: n[0], lambda n: n[0].clip(0).astype("float64"), lambda n: 1 / 0)
    for handler in broken:
        monkeypatch.setitem(onnx_backend.OPS, "Relu", handler)
        outcome = onnx_backend.run_case(case)
        assert outcome.status == "disagrees" and outcome.why
        assert scoreboard.differences(Expected("1", {"test_relu": "passed"}, {}), {"test_relu": outcome}, "1")


def test_every_handler_serves_a_case() -> None:
    used = {outcome.op for outcome in onnx_backend.outcomes().values() if outcome.status == "passed"}
    assert set(onnx_backend.OPS) <= used


def test_differences() -> None:
    expected = Expected("1", {"a": "passed", "b": "not_implemented", "c": "disagrees"}, {"c": ""})
    same = {name: Outcome("Op", status) for name, status in expected.statuses.items()}
    assert scoreboard.differences(expected, same, "1") == ["c: disagrees without a reason"]
    newly = same | {"b": Outcome("Op", "passed"), "d": Outcome("Op", "passed")}
    assert scoreboard.differences(expected, newly, "1")[:2] == ["b: not_implemented → passed", "d: not listed → passed"]
    assert scoreboard.differences(expected, newly, "2")[0] == "b: not_implemented → passed"
    del newly["a"]
    assert "a: passed → gone" in scoreboard.differences(expected, newly, "1")
