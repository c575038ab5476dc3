"""`examples/one_answer.py` and `examples/zero_kl.py` on the NumPy backend, and on a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def small(module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a small model."""
    presets = {n: dataclasses.replace(p, layers=2, d=64, heads=4, ffn=96) for n, p in module.PRESETS.items()}
    monkeypatch.setattr(module, "PRESETS", presets)
    return module


@pytest.fixture
def one_answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    import one_answer

    return small(one_answer, monkeypatch)


@pytest.fixture
def zero_kl(monkeypatch: pytest.MonkeyPatch) -> Any:
    import zero_kl

    return small(zero_kl, monkeypatch)


def test_no_log_probability_differs(one_answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = one_answer.run(["--device", "cpu", "--tokens", "95", "--steps", "12", "--batch", "4"])
    assert [row.name for row in rows[:3]] == ["fastest", "one answer", "one answer, drafts"]
    assert all(row.total == 95 for row in rows) and rows[1].differ == rows[2].differ == 0
    assert rows[2].steps < rows[1].steps, "greedy texts repeat themselves, and drafts of that are taken"
    assert "agree in every bit of 95 log-probabilities" in capsys.readouterr().out


def test_a_query_that_looks_at_its_company_fails_the_run(one_answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bc.batch_paged_extend

    def sized(q: Any, *given: Any, **more: Any) -> Any:
        return plain(q * np.float32(1 + len(q) * 2.0**-20), *given, **more)

    monkeypatch.setattr(bc, "batch_paged_extend", sized)
    with pytest.raises(SystemExit, match="same bits were asked for"):
        one_answer.run(["--device", "cpu", "--tokens", "30", "--steps", "6", "--batch", "4"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [(["--tokens", "0"], "--tokens"), (["--steps", "100"], "--steps must be at most"), (["--batch", "0"], "--batch")],
)
def test_bad_options_are_one_line(
    one_answer: Any, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert one_answer.main([*argv, "--device", "cpu"], run=one_answer.run) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_the_loop_in_torch_is_of_the_same_model(one_answer: Any) -> None:
    torch = pytest.importorskip("torch")
    from gpt_torch import TorchDecoder

    model = one_answer.Decoder(one_answer.PRESETS["cpu"], np, 3)
    tokens = np.random.default_rng(0).integers(0, 256, (3, 20))
    want = model.forward(tokens)[0].reshape(3, 20, 256)
    peer = TorchDecoder(model)
    np.testing.assert_allclose(peer.forward(torch.from_numpy(tokens)), want, rtol=0, atol=1e-5)
    cache, parts = peer.cache(3, 20), []
    for at, end in ((0, 7), (7, 8), (8, 9)):
        parts.append(peer.forward(torch.from_numpy(tokens[:, at:end]), cache, at))
    np.testing.assert_allclose(torch.cat(parts, dim=1), want[:, :9], rtol=0, atol=1e-5)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_training_and_a_server_agree_in_other_elements(one_answer: Any, compute: str) -> None:
    """Prompts in chunks of all sizes, few pages, drafts: what is kept are the trainer's numbers."""
    from gpt_rollout import Rollouts, of_the_trainer

    preset = dataclasses.replace(one_answer.PRESETS["cpu"], compute=compute)
    model = one_answer.Decoder(preset, np, 1).with_same_bits()
    requests = one_answer.asked_for(60, 9, 2)
    for limits in ({"max_tokens": 7, "pages": 16}, {"max_tokens": 64, "pages": 64, "drafts": 3}):
        made = Rollouts(model, **limits).serve(requests, 3)
        for one, again in zip(made, of_the_trainer(model, made, 2), strict=True):
            np.testing.assert_array_equal(np.array(one.logprobs, np.float32), again)


def test_every_ratio_is_one_and_the_reward_rises(zero_kl: Any, capsys: pytest.CaptureFixture[str]) -> None:
    steps = zero_kl.run(["--device", "cpu", "--steps", "8", "--length", "10"])
    assert [step.off for step in steps] == [step.kl for step in steps] == [0.0] * 8
    assert np.mean([step.reward for step in steps[-2:]]) > np.mean([step.reward for step in steps[:2]])
    assert "every ratio was 1 and the KL 0" in capsys.readouterr().out


def test_other_bits_fail_the_run(zero_kl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_kl.Decoder, "with_same_bits", lambda self: self)
    with pytest.raises(SystemExit, match="server and trainer differ"):
        zero_kl.run(["--device", "cpu", "--steps", "8", "--length", "10"])


def test_gradients_of_logits_are_those_of_the_loss(zero_kl: Any) -> None:
    model = zero_kl.Decoder(zero_kl.PRESETS["cpu"], np, 1).with_same_bits()
    tokens, targets = np.random.default_rng(0).integers(0, 256, (2, 2, 9))
    _, want = model.loss_and_gradients(tokens, targets)
    logits, saved = model.forward(tokens)
    _, dlogits = bc.cross_entropy(logits, targets.reshape(-1), return_dlogits=True)
    got = model.gradients(tokens, dlogits, saved)
    assert got.keys() == want.keys()
    for name, one in want.items():
        np.testing.assert_allclose(got[name], one, rtol=0, atol=1e-6 * np.abs(one).max(), err_msg=name)


def test_advantages_are_within_a_group(zero_kl: Any) -> None:
    found = zero_kl.advantages(np.array([[0.0, 1.0], [0.5, 0.5]]))
    np.testing.assert_allclose(found, [-1, 1, 0, 0], atol=1e-3)


def test_zero_kl_refuses_bad_options(zero_kl: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, message in ((["--group", "1"], "--group"), (["--length", "1000"], "--length must be at most")):
        assert zero_kl.main([*argv, "--device", "cpu"], run=zero_kl.run) == 2
        assert message in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["cpu", "gpu"])
@pytest.mark.parametrize("more", [[], ["--float32"]])
def test_one_answer_on_a_gpu(one_answer: Any, preset: str, more: list[str]) -> None:
    rows = one_answer.run(["--preset", preset, "--tokens", "3000", "--steps", "40", "--batch", "24", *more])
    assert rows[1].differ == rows[2].differ == 0 and rows[1].total == 3000


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["cpu", "gpu"])
def test_zero_kl_on_a_gpu(zero_kl: Any, preset: str) -> None:
    steps = zero_kl.run(["--preset", preset, "--steps", "3"])
    assert all(step.off == step.kl == 0 for step in steps)
