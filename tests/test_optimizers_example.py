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
