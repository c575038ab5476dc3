"""`examples/expressions.py` without a GPU: every op agrees with torch, and runs without torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("element", ["float32", "float16"])
def test_the_five_agree_with_torch(capsys: pytest.CaptureFixture[str], element: str) -> None:
    pytest.importorskip("torch")
    from expressions import main

    assert main(["--rows", "8", "--columns", "33", "--element", element]) == 0
    assert capsys.readouterr().out.count("of torch") == 5


def test_they_run_on_numpy_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else find(name, *a))
    from expressions import main

    assert main(["--rows", "3", "--columns", "7"]) == 0
    assert "NumPy backend" in capsys.readouterr().out


def test_known_values() -> None:
    from expressions import attention, masked_mean, returns, snake

    x, mask = np.array([[1.0, 2.0, 6.0]]), np.array([[True, False, True]])
    assert masked_mean(mask, x) == 3.5
    np.testing.assert_allclose(snake(x, np.ones(3)), x + np.sin(x) ** 2)
    np.testing.assert_allclose(returns(mask, x), [[1.0, 2 + 0.99 * 6, 6.0]])
    one = np.ones((1, 1, 2, 4))
    ties = np.exp([0.0, 3.0])
    y = attention(one, one, one * [[1.0], [2.0]], bias=np.array([[0.0, 3.0, 9.0]]), is_causal=True)
    np.testing.assert_allclose(y[0, 0, :, 0], [1.0, (ties[1] + 2 * ties[0]) / ties.sum()])
