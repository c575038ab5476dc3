"""`examples/graph_conv.py` on the NumPy backend: it learns, its gradients are right, bad requests are one line."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict:
    """A graph of few nodes under the name of the preset."""
    import graph_conv

    made = {"cpu": dataclasses.replace(graph_conv.PRESETS["cpu"], nodes=700, epochs=40)}
    monkeypatch.setattr(graph_conv, "PRESETS", made)
    return made


def test_the_graph_tells_what_features_do_not(small: dict, capsys: pytest.CaptureFixture[str]) -> None:
    import graph_conv

    found = graph_conv.run(["--device", "cpu"])
    assert found["with the graph"] > 0.95 > found["without it"] + 0.2
    assert "ms an epoch" in capsys.readouterr().out
    assert graph_conv.run(["--device", "cpu"]) == found, "the same bits in every run"


@pytest.mark.gpu
def test_it_learns_on_a_device() -> None:
    import graph_conv

    assert graph_conv.run(["--preset", "cpu"])["with the graph"] > 0.95


def test_gradients_are_those_of_differences(small: dict) -> None:
    import graph_conv

    import baracuda_py as bc

    preset = dataclasses.replace(small["cpu"], nodes=40, features=6, hidden=5)
    a, x, _, told = graph_conv.graph(preset, np, 1)
    told[:9] = np.arange(9) % preset.communities
    model = graph_conv.Layers(a.with_values(a.values.astype(np.float64)), preset, np, 2)
    model.weights = [w.astype(np.float64) for w in model.weights]
    x = x.astype(np.float64)

    def loss(step: float, way: list) -> float:
        kept = model.weights
        model.weights = [w + step * one for w, one in zip(kept, way, strict=True)]
        made = bc.cross_entropy(model.logits(x), told, ignore_index=graph_conv.NONE)
        model.weights = kept
        return float(made)

    _, dlogits = bc.cross_entropy(model.logits(x), told, ignore_index=graph_conv.NONE, return_dlogits=True)
    made = model.gradients(dlogits)
    rng = np.random.default_rng(3)
    way = [rng.standard_normal(w.shape) for w in model.weights]
    wanted = (loss(1e-5, way) - loss(-1e-5, way)) / 2e-5
    np.testing.assert_allclose(sum((g * one).sum() for g, one in zip(made, way, strict=True)), wanted, rtol=1e-5)


def test_the_matrix_is_symmetric_and_normalised(small: dict) -> None:
    import graph_conv

    import baracuda_py as bc

    a, _, community, _ = graph_conv.graph(small["cpu"], np, 0)
    bc.sparse.check(a)
    dense = bc.sparse.to_dense(a)
    np.testing.assert_array_equal(dense, dense.T)
    assert np.linalg.eigvalsh(dense)[-1] == pytest.approx(1, abs=1e-5)
    inside = (community[:, None] == community) & (dense != 0)
    assert inside.sum() > 0.6 * (dense != 0).sum()


def test_bad_requests_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    import graph_conv

    for argv in (["--epochs", "0"], ["--device", "cuda:99"]):
        if argv[0] == "--device" and os.path.exists("/dev/nvidia0"):
            continue
        assert graph_conv.main(argv, run=graph_conv.run) in (1, 2)
        assert capsys.readouterr().err.startswith("error: ")
