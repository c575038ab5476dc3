"""Sections of rope and qk_norm_rope on a GPU, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "sections", [{"mrope_section": (16, 24, 24)}, {"mrope_section": (24, 20, 20), "mrope_interleaved": True}]
)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_is_numpys(sections: dict[str, Any], pairing: str) -> None:
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((2, heads, 300, 128)).astype(np.float32) for heads in (8, 2))
    positions = rng.integers(0, 100_000, (3, 2, 300))
    device = [cupy.asarray(a) for a in (q, k)]
    facts: dict[str, Any] = {"positions": cupy.asarray(positions), "pairing": pairing, **sections}
    plain = bc.rope(device[0], x2=device[1], **facts)
    normed = bc.qk_norm_rope(*device, **facts)
    facts["positions"] = positions
    for got, want in zip((*plain, *normed), (*bc.rope(q, x2=k, **facts), *bc.qk_norm_rope(q, k, **facts)), strict=True):
        np.testing.assert_allclose(got.get(), want, rtol=1e-5, atol=1e-5)
