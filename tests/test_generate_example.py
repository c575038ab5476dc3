"""`examples/generate.py` on the NumPy backend, from torch tensors, and on a GPU: every logprob by its definition."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
COUNT = 6


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a small model as the presets."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import generate

    small = {n: dataclasses.replace(p, layers=1, d=32, heads=4, ffn=48) for n, p in generate.PRESETS.items()}
    monkeypatch.setattr(generate, "PRESETS", small)
    return generate


def model_of(example: Any, xp: Any = np, seed: int = 0) -> Any:
    """Weights so large that bytes differ in probability."""
    model = example.Decoder(example.PRESETS["cpu"], xp, seed)
    for name, weight in model.matrices.items():
        weight *= np.float32(40 if name == "embedding" else 15)
    return model


def distribution(logits: np.ndarray, text: bytes, want: Any) -> np.ndarray:
    """log of the probabilities a request draws with, one cut-off after the other."""
    z = logits.astype(np.float64)
    seen = list({*text})
    z[seen] = np.where(z[seen] > 0, z[seen] / want.repetition, z[seen] * want.repetition)
    z[[v for v in range(256) if v not in want.allowed]] = -np.inf
    if want.temperature == 0:
        kept = np.arange(256) == z.argmax()
    else:
        z /= want.temperature
        p = np.exp(z - z.max())
        kept = p >= want.min_p
        order = np.argsort(-z, kind="stable")
        order = order[kept[order]][: want.top_k or None]
        sums = np.cumsum(p[order] / p[order].sum())
        order = order[: np.searchsorted(sums, want.top_p) + 1] if want.top_p < 1 else order
        kept = np.isin(np.arange(256), order)
    z = np.where(kept, z, -np.inf)
    return z - z.max() - np.log(np.exp(z - z.max()).sum())


def check(example: Any, model: Any, drawn: list[Any], top_n: int) -> None:
    for want, row in zip(example.REQUESTS, drawn, strict=True):
        assert len(row.text) == COUNT and {*row.text} <= {*want.allowed}
        text = want.prompt + row.text
        logits = model.forward(np.array([list(text)]))[0]
        for at, byte in enumerate(row.text):
            place = len(want.prompt) + at
            logp = distribution(logits[place - 1], text[:place], want)
            np.testing.assert_allclose(row.logprobs[at], logp[byte], rtol=1e-4, atol=1e-4)
            likely = np.sort(logp)[::-1][:top_n]
            np.testing.assert_allclose(row.top_logprobs[at], likely, rtol=1e-4, atol=1e-4)
            ids = row.top_ids[at][likely > -np.inf]
            np.testing.assert_allclose(logp[ids], likely[likely > -np.inf], rtol=1e-4, atol=1e-4)


def test_every_row_is_drawn_as_it_asks(example: Any) -> None:
    model = model_of(example)
    drawn = example.generate(model, example.REQUESTS, COUNT, 4)
    check(example, model, drawn, 4)
    greedy, *others = drawn
    assert greedy.text == model.generate(b"def ", COUNT, temperature=0.0, top_k=0, seed=9)[0][4:]
    assert any((row.logprobs < row.top_logprobs[:, 0]).any() for row in others), "some draw is not the likeliest"


def test_a_row_does_not_depend_on_what_is_beside_it(example: Any) -> None:
    model = model_of(example, seed=1)
    drawn = example.generate(model, example.REQUESTS, COUNT)
    for request, row in zip(example.REQUESTS, drawn, strict=True):
        (alone,) = example.generate(model, (request,), COUNT)
        assert alone.text == row.text
        np.testing.assert_allclose(alone.logprobs, row.logprobs, rtol=1e-5, atol=1e-5)
    other = dataclasses.replace(example.REQUESTS[3], seed=77)
    assert example.generate(model, (other,), COUNT)[0].text != drawn[3].text


def test_torch_tensors_give_the_same(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    ours = example.run(["--device", "cpu", "--steps", "3"])
    said = capsys.readouterr().out
    theirs = example.run(["--device", "cpu", "--steps", "3", "--torch"])
    assert said == capsys.readouterr().out and said.count("most likely") == 3 * len(example.REQUESTS)
    assert [row.text for row in ours] == [row.text for row in theirs]
    assert "temperature 0.8, top_k 40, seed 1" in said and "16 bytes allowed" in said


def test_training_first(example: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    trained = []
    monkeypatch.setattr(example, "train", lambda model, corpus, seed: trained.append(model.preset.steps))
    assert example.main(["--device", "cpu", "--steps", "1", "--train", "7"], run=example.run) == 0 and trained == [7]


def test_bad_options_are_one_line(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--steps", "--top-n"):
        assert example.main([option, "0"], run=example.run) == 2
        assert f"error: {option} must be at least 1" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("tensors", [False, True])
def test_on_a_gpu(example: Any, tensors: bool) -> None:
    """The logprobs are those of the NumPy backend's logits."""
    import cupy

    hand = pytest.importorskip("torch").from_dlpack if tensors else None
    drawn = example.generate(model_of(example, cupy), example.REQUESTS, COUNT, 4, hand)
    check(example, model_of(example), drawn, 4)
