"""`examples/gpt_optimizers.py`: each learns a batch by heart, and working copies follow the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NAMES = ("adamw", "adamw8bit", "lion", "muon")


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_batch_is_learnt(name: str, compute: str) -> None:
    from gpt_model import Preset
    from gpt_optimizers import OPTIMIZERS

    assert sorted(OPTIMIZERS) == sorted(NAMES)
    preset = Preset(
        d=24, layers=1, heads=6, kv_heads=3, ffn=20, context=7, batch=2, steps=2, learning_rate=1e-2,
        compute=compute, eval_batches=1, vocab=17,
    )  # fmt: skip
    model: Any = OPTIMIZERS[name](preset, np, 3)
    tokens, targets = np.random.default_rng(0).integers(0, 17, (2, 2, 7)).astype(np.int32)
    losses = []
    for step in range(1, 16):
        loss, grads = model.loss_and_gradients(tokens, targets)
        losses.append(float(loss))
        model.update(grads, np.array(step), np.array(1e-2))
    assert losses[-1] < 0.85 * losses[0], losses
    if model.copies:
        for n, w in model.matrices.items():
            np.testing.assert_allclose(model.copies[n].astype(np.float32), w, rtol=2**-8, atol=0)


def test_layers_in_fp8() -> None:
    """Gradients are near those of bfloat16, and a batch is learnt."""
    from gpt_fp8 import in_fp8
    from gpt_model import Decoder, Preset

    preset = Preset(
        d=32, layers=1, heads=4, kv_heads=2, ffn=48, context=12, batch=3, steps=2, learning_rate=1e-2,
        compute="bfloat16", eval_batches=1, vocab=17,
    )  # fmt: skip
    model, plain = in_fp8(Decoder)(preset, np, 3), Decoder(preset, np, 3)
    tokens, targets = np.random.default_rng(0).integers(0, 17, (2, 3, 12)).astype(np.int32)
    (loss, grads), (want, known) = (one.loss_and_gradients(tokens, targets) for one in (model, plain))
    np.testing.assert_allclose(float(loss), float(want), rtol=1e-2)
    for name, gradient in known.items():
        off = np.linalg.norm(grads[name] - gradient) / np.linalg.norm(gradient)
        assert 0 < off < 0.15, (name, off)
    for step in range(1, 16):
        last, grads = model.loss_and_gradients(tokens, targets)
        model.update(grads, np.array(step), np.array(1e-2))
    assert float(last) < 0.85 * float(loss)
