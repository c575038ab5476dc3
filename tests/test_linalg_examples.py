"""`examples/gaussian_process.py` and `examples/rigid_alignment.py`: what they find, gradients, bad requests."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of few points under the name of the preset."""
    import gaussian_process

    preset = dataclasses.replace(gaussian_process.PRESETS["cpu"], points=120, steps=40)
    monkeypatch.setattr(gaussian_process, "PRESETS", {"cpu": preset})


@pytest.mark.usefixtures("few")
def test_a_process_learns_and_knows_what_it_does_not_know() -> None:
    import gaussian_process

    found = gaussian_process.run(["--device", "cpu"])
    assert found["error"] < 0.25 and 0.8 < found["inside"] <= 1
    assert gaussian_process.run(["--device", "cpu"]) == found, "the same bits in every run"


def process(seed: int = 0) -> object:
    import gaussian_process

    rng = np.random.default_rng(seed)
    made = gaussian_process.GaussianProcess(*gaussian_process.points(gaussian_process.PRESETS["cpu"], 30, rng), np)
    made.logs += rng.standard_normal(made.logs.shape) / 4
    return made


def test_its_loss_is_the_logarithm_of_a_density() -> None:
    made = process()
    loss, _ = made.fit()
    k = made.between(made.x, made.x) + math.exp(2 * made.logs[1]) * np.eye(30)
    wanted = 0.5 * made.y @ np.linalg.solve(k, made.y) + 0.5 * np.linalg.slogdet(2 * np.pi * k)[1]
    assert loss == pytest.approx(wanted, rel=1e-10)


def test_its_gradient_is_that_of_differences() -> None:
    made, step = process(1), 1e-5
    _, gradient = made.fit()
    for i in range(len(gradient)):
        found = []
        for sign in (1, -1):
            made.logs[i] += sign * step
            found.append(made.fit()[0])
            made.logs[i] -= sign * step
        assert gradient[i] == pytest.approx((found[0] - found[1]) / (2 * step), rel=1e-6, abs=1e-7)


def test_predictions_are_those_of_the_joint_density() -> None:
    made = process(2)
    made.fit()
    others = np.random.default_rng(3).uniform(-2, 2, (7, 4))
    mean, deviation = made.predict(others)
    noise = math.exp(2 * made.logs[1])
    solved = np.linalg.solve(made.between(made.x, made.x) + noise * np.eye(30), made.between(made.x, others))
    left = made.between(others, others) + noise * np.eye(7) - made.between(others, made.x) @ solved
    np.testing.assert_allclose(mean, solved.T @ made.y, rtol=1e-9)
    np.testing.assert_allclose(deviation, np.sqrt(np.diag(left)), rtol=1e-7)


def test_clouds_are_aligned_and_never_mirrored() -> None:
    import rigid_alignment

    found = rigid_alignment.run(["--device", "cpu", "--pairs", "300"])
    assert found["angle"] < 0.02 and found["shift"] < 0.02 and found["proper"] == 1


def test_a_flat_cloud_is_turned_not_mirrored() -> None:
    import rigid_alignment

    rng = np.random.default_rng(4)
    p, turn = rng.standard_normal((50, 9, 3)), rigid_alignment.rotations(50, np, rng).astype(np.float64)
    p[..., 2] = 0
    found, _ = rigid_alignment.align(p, p @ turn.swapaxes(1, 2))
    np.testing.assert_allclose(found, turn, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.usefixtures("few")
def test_on_a_gpu() -> None:
    import gaussian_process
    import rigid_alignment

    assert gaussian_process.run(["--preset", "cpu"])["error"] < 0.25
    found = rigid_alignment.run(["--preset", "gpu", "--pairs", "100000"])
    assert found["angle"] < 0.03 and found["proper"] == 1


@pytest.mark.parametrize(("name", "option"), [("gaussian_process", "--steps"), ("rigid_alignment", "--pairs")])
def test_bad_requests_are_one_line(name: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    from train_gpt import main

    run = __import__(name).run
    assert main(["--device", "cpu", option, "0"], run) == 2
    assert capsys.readouterr().err == f"error: {option} must be at least 1, got 0\n"
