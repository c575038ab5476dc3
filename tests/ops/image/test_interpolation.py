"""interpolate, upsample, resize_image and scale_and_translate beside torch and JAX, values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
F = torch.nn.functional


def close(mine: Any, theirs: Any) -> None:
    assert mine.shape == theirs.shape
    np.testing.assert_allclose(np.asarray(mine.detach()), np.asarray(theirs.detach()), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("mode", "rank"),
    [("nearest", 1), ("nearest", 2), ("nearest-exact", 3), ("linear", 1), ("bilinear", 2), ("trilinear", 3),
     ("bicubic", 2), ("area", 2)],
)  # fmt: skip
@pytest.mark.parametrize(
    "more",
    [{"size": (9, 4, 5)}, {"scale_factor": 1.7}, {"scale_factor": (0.6, 1.3, 2.0)},
     {"scale_factor": 1.7, "recompute_scale_factor": True}],
)  # fmt: skip
def test_values_and_gradient_are_those_of_torch(mode: str, rank: int, more: dict[str, Any]) -> None:
    facts = {k: v[:rank] if isinstance(v, tuple) else v for k, v in more.items()}
    aligned = (None,) if mode in ("nearest", "nearest-exact", "area") else (False, True)
    for align in aligned:
        for antialias in (False, True) if mode in ("bilinear", "bicubic") else (False,):
            x = torch.randn((2, 3, 7, 6, 5)[: 2 + rank], dtype=torch.float64, requires_grad=True)
            y = bc.interpolate(x, mode=mode, align_corners=align, antialias=antialias, **facts)
            wanted = F.interpolate(x, mode=mode, align_corners=align, antialias=antialias, **facts)
            dy = torch.randn_like(wanted)
            close(y, wanted)
            close(torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(wanted, x, dy)[0])


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3", "lanczos5"])
@pytest.mark.parametrize("antialias", [False, True])
def test_resize_is_that_of_jax(method: str, antialias: bool) -> None:
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(0).standard_normal((7, 5, 3)).astype(np.float32)
    wanted = jax.image.resize(x, (4, 9, 3), method, antialias)
    np.testing.assert_allclose(bc.resize_image(x, (4, 9, 3), method, antialias), wanted, rtol=1e-4, atol=1e-5)
    if method != "nearest":
        facts = ((6, 9, 3), (0, 1), (0.7, 1.8), (1.5, -2.25), method, antialias)
        moved = jax.image.scale_and_translate(x, *facts[:2], np.float32(facts[2]), np.float32(facts[3]), *facts[4:])
        np.testing.assert_allclose(bc.scale_and_translate(x, *facts), moved, rtol=1e-4, atol=1e-5)


def test_nearest_takes_the_places_of_torch() -> None:
    for n in (3, 7, 10, 31):
        for m in (1, 2, 5, 13, 37):
            x = torch.arange(float(n)).reshape(1, 1, n)
            for mode in ("nearest", "nearest-exact"):
                assert torch.equal(bc.interpolate(x, m, mode=mode), F.interpolate(x, m, mode=mode)), (n, m, mode)


def test_wrong_calls_say_what_would_do() -> None:
    x = np.zeros((1, 2, 4, 5), np.float32)
    for call, word in (
        (lambda: bc.interpolate(x), "size and scale_factor"),
        (lambda: bc.interpolate(x, size=0), "size"),
        (lambda: bc.interpolate(x, scale_factor=0.1), "scale_factor"),
        (lambda: bc.interpolate(x, scale_factor=float("nan")), "scale_factor"),
        (lambda: bc.interpolate(x, size=3, mode="linear"), "spatial axes"),
        (lambda: bc.interpolate(x, size=3, mode="cubic"), "mode"),
        (lambda: bc.interpolate(x, size=3, align_corners=True), "align_corners"),
        (lambda: bc.interpolate(x, size=3, mode="area", antialias=True), "antialias"),
        (lambda: bc.interpolate(x[:, :, :0], size=3), "spatial axes"),
        (lambda: bc.resize_image(x, (1, 2, 4), "linear"), "shape"),
        (lambda: bc.scale_and_translate(x, x.shape, (2,), (0.0,), (0.0,), "linear"), "scale"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=word):
            call()


def test_out_and_channels_last() -> None:
    x = torch.randn(2, 8, 4, 5).to(memory_format=torch.channels_last)
    y = bc.interpolate(x, scale_factor=2, mode="bilinear")
    assert y.is_contiguous(memory_format=torch.channels_last)
    out = torch.empty(2, 8, 8, 10)
    assert bc.interpolate(x, scale_factor=2, mode="bilinear", antialias=True, out=out) is out
    torch.testing.assert_close(out, F.interpolate(x, scale_factor=2, mode="bilinear", antialias=True))
