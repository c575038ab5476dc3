"""`examples/quantize_gpt.py` on the NumPy backend, and on a GPU: GPTQ against its definition, a short run, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SCHEMES = ["int8 W8A8", "int8 W8A16", "fp8 e4m3", "int4 nearest", "int4 GPTQ", "nf4"]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with small models and rates of a call."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import quantize_gpt
    import train_gpt

    small = {"layers": 2, "d": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "context": 32, "batch": 8, "eval_batches": 2}
    presets = {name: dataclasses.replace(preset, **small, warmup=5) for name, preset in train_gpt.PRESETS.items()}
    monkeypatch.setattr(train_gpt, "PRESETS", presets)
    monkeypatch.setattr(quantize_gpt, "SPELL", 0.0)
    return quantize_gpt


def problem(n: int, k: int, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """W [n, k] and inputs [tokens, k] of which neighbours agree."""
    rng = np.random.default_rng(k)
    inputs = rng.standard_normal((tokens, k)).cumsum(axis=1) / np.sqrt(np.arange(1, k + 1))
    return rng.standard_normal((n, k)).astype(np.float32), inputs


def by_definition(weight: np.ndarray, inputs: np.ndarray, group: int, damping: float) -> tuple[Any, Any]:
    """Column by column: the rest of W is solved for anew, by least squares over the damped inputs, after each."""
    n, k = weight.shape
    hessian = inputs.T @ inputs
    hessian += damping * np.mean(np.diagonal(hessian)) * np.eye(k)
    w, codes, scales = weight.astype(np.float64), np.empty((n, k)), np.empty((n, k // group), np.float16)
    for j in range(k):
        if j % group == 0:
            scales[:, j // group] = np.abs(w[:, j : j + group]).max(axis=1).astype(np.float32) / 7
        scale = scales[:, j // group].astype(np.float64)
        codes[:, j] = np.clip(np.rint(w[:, j] / scale), -8, 7)
        error = w[:, j] - codes[:, j] * scale
        rest = slice(j + 1, k)  # min over d of |(error, d) H (error, d)ᵀ|: d Hrr = -error hr
        w[:, rest] += np.outer(error, np.linalg.solve(hessian[rest, rest], hessian[rest, j]))
    return codes, scales


def test_gptq_is_its_definition(example: Any) -> None:
    from gptq import gptq

    weight, inputs = problem(12, 48, 200)
    codes, scales = gptq(weight, inputs.T @ inputs, 16, damping=0.02)
    want, want_scales = by_definition(weight, inputs, 16, 0.02)
    assert codes.dtype == np.int8 and scales.dtype == np.float16
    np.testing.assert_array_equal(codes, want)
    np.testing.assert_array_equal(scales, want_scales)
    assert codes.min() < -6 and codes.max() == 7


@pytest.mark.parametrize("tokens", [20, 500])
def test_gptq_beats_rounding_to_nearest(example: Any, tokens: int) -> None:
    """On the calibration inputs, of fewer and of more tokens than columns: by outputs, and as `output_error` says."""
    from gpt_quantized import INT4
    from gptq import gptq, output_error

    weight, inputs = problem(24, 64, tokens)
    hessian = inputs.T @ inputs
    codes, scales = gptq(weight, hessian, 32)
    own = codes * np.repeat(scales.astype(np.float64), 32, axis=1)
    nearest = INT4.nearest(weight, 32).values()
    off = [np.linalg.norm(inputs @ (weight - w).T) / np.linalg.norm(inputs @ weight.T) for w in (own, nearest)]
    assert off[0] < 0.7 * off[1]
    np.testing.assert_allclose([output_error(weight, w, hessian) for w in (own, nearest)], off, rtol=1e-6)


def test_gptq_of_independent_inputs_is_rounding_to_nearest(example: Any) -> None:
    """Errors that nothing can make up for; rows of zeros and inputs that never come have codes of 0 and no NaN."""
    from gpt_quantized import INT4, Stored
    from gptq import gptq

    weight, _ = problem(8, 32, 1)
    weight[3] = 0
    for hessian in (np.diag(np.arange(32.0)), np.zeros((32, 32))):
        codes, scales = gptq(weight, hessian, 16)
        nearest = INT4.nearest(weight, 16)
        np.testing.assert_array_equal(bc.pack_codes(codes.view(np.uint8), 4), nearest.codes)
        np.testing.assert_array_equal(scales, nearest.scales)
        own = Stored("int4", nearest.codes, scales)
        np.testing.assert_array_equal(own.values(), codes * np.repeat(scales.astype(np.float32), 16, axis=1))


def test_layers_by_stored_weights_are_the_model_of_their_values(example: Any) -> None:
    """Forward pass and decoding, of every format that takes x as it is."""
    import train_gpt
    from gpt_model import Decoder
    from gpt_quantized import SCHEMES as schemes

    model = Decoder(train_gpt.PRESETS["cpu"], np, seed=2)
    tokens = np.random.default_rng(0).integers(0, 256, (2, 6)).astype(np.int32)
    for scheme in schemes:
        if scheme.dynamic or scheme.calibrated:
            continue
        stored = scheme.layers(model, 32)
        dense = Decoder(model.preset, np, seed=2)
        for name, layer in stored.items():
            dense.matrices[name][...] = layer.values().T
        seen = model.with_stored(stored)
        want = dense.forward(tokens)[0]
        np.testing.assert_allclose(seen.forward(tokens)[0], want, rtol=0, atol=1e-5 * np.abs(want).max())
        cache = seen.cache(2, 6)
        got = np.stack([seen.decode(tokens[:, i], np.full(2, i), cache) for i in range(6)], axis=1)
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not model.stored


def check(report: dict[str, Any], said: str, element: str) -> None:
    """What must be so of every run."""
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == [element, *SCHEMES]
    for name, row in rows.items():
        (line,) = (line for line in said.splitlines() if line.startswith(f"{name} "))
        assert f"{row['nbytes'] / 1e6:.2f} " in line and f" {row['loss']:.4f} " in line
        assert row["forward"] > 0 and row["decode"] > 0
    base = rows[element]
    assert all(abs(rows[name]["loss"] / base["loss"] - 1) < 0.01 for name in SCHEMES[:2])
    assert all(abs(row["loss"] / base["loss"] - 1) < 0.1 for row in rows.values())
    assert base["bits"] == {"float32": 32, "bfloat16": 16}[element]
    assert all(8 < rows[name]["bits"] < 9 for name in SCHEMES[:3])
    assert all(rows[name]["bits"] == 4.5 for name in SCHEMES[3:])
    assert all(rows[name]["nbytes"] < base["nbytes"] for name in SCHEMES)
    assert len(report["errors"]) == 8
    for name, (own, nearest) in report["errors"].items():
        assert 0 < own < nearest < 0.2, name


def test_a_short_run(example: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = str(ROOT / "baracuda_py" / "core")
    report = example.run(["--device", "cpu", "--steps", "40", "--text", text, "--out", str(tmp_path)])
    said = capsys.readouterr()
    check(report, said.out, "float32")
    assert report["rows"][0]["loss"] < 4.5, "the model has learnt nothing"
    assert (tmp_path / "quantize_gpt.png").read_bytes().startswith(b"\x89PNG")
    assert "with GPTQ" in said.out and "quantising" in said.err
    assert all(f", {name}]" in said.err for name in ("float32", *SCHEMES)), "the bar says what is measured"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--group", "48"), "--group must be a multiple of 8 that divides 64 and 96, got 48"),
        (("--group", "4"), "--group must be at least 8"),
        (("--calibration", "0"), "--calibration must be at least 1"),
        (("--steps", "0"), "--steps must be at least 1"),
    ],
)
def test_bad_requests(
    example: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    assert example.main(["--device", "cpu", "--out", str(tmp_path), *argv], run=example.run) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and not said.out


@pytest.mark.gpu
@pytest.mark.parametrize(("preset", "element"), [("cpu", "float32"), ("gpu", "bfloat16")])
def test_on_a_gpu(example: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, preset: str, element: str) -> None:
    report = example.run(["--preset", preset, "--steps", "40", "--out", str(tmp_path)])
    check(report, capsys.readouterr().out, element)
