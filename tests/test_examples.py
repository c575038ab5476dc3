"""`examples/train_gpt.py` on the NumPy backend: text, gradients, decoding, a short run, and every bad request."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty small texts, sub-folders included."""
    for i in range(30):
        path = tmp_path / "text" / ("deep" if i % 3 else "") / f"{i:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([65 + i]) * 40)
    return tmp_path / "text"


def tiny(**changes: Any) -> Any:
    """A preset small enough for finite differences: every part of the model, no two sizes alike."""
    from gpt_model import Preset

    made = Preset(
        d=24, layers=2, heads=6, kv_heads=3, ffn=20, context=7, batch=2, steps=2, learning_rate=1e-3,
        compute="float32", eval_batches=1, vocab=17,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def batch(preset: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, preset.vocab, (2, preset.batch, preset.context)).astype(np.int32)
    return tokens[0], tokens[1]


def decoder(preset: Any, scale: float = 10.0) -> Any:
    """A model whose weights are large enough that no branch is lost in rounding; norms are not all ones."""
    from gpt_model import Decoder

    model = Decoder(preset, np, seed=3)
    rng = np.random.default_rng(4)
    for weight in model.matrices.values():
        weight *= np.float32(scale)
    for weight in model.norms.values():
        weight += rng.normal(0, 0.2, weight.shape).astype(np.float32)
    return model


# -- text -----------------------------------------------------------------------------------------------------------


def test_every_tenth_file_is_held_out(folder: Path) -> None:
    from gpt_data import load

    (folder / "binary.bin").write_bytes(b"\0" * 400)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.txt").write_bytes(b"#" * 400)
    corpus = load(str(folder), context=8)
    order = sorted(path for path in folder.rglob("*.txt") if "__pycache__" not in path.parts)
    held_out = b"".join(path.read_bytes() for path in order[9::10])
    assert corpus.held_out.tobytes() == held_out and len(held_out) == 120
    assert len(corpus.train) == 27 * 40
    assert not set(corpus.train.tobytes()) & set(held_out)


def test_standard_library_is_the_default_text() -> None:
    from gpt_data import load

    corpus = load(None, context=128)
    assert len(corpus.train) > 5e6 and len(corpus.held_out) > 5e5
    assert b"site-packages" not in corpus.source.encode()


def test_batches_are_the_text_and_the_byte_after_it(folder: Path) -> None:
    from gpt_data import load

    corpus = load(str(folder), context=8)
    text = corpus.train.tobytes()
    tokens, targets = corpus.batch(np.random.default_rng(0), 5, 8)
    assert tokens.shape == targets.shape == (5, 8) and tokens.dtype == np.int32
    np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
    assert all(bytes(row.tolist()) in text for row in np.concatenate([tokens, targets[:, -1:]], axis=1))
    first, second = (list(corpus.evaluation(2, 8, 3)) for _ in range(2))
    assert len(first) == 3
    for (a, b), (c, d) in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(b, d)


# -- the model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocab", "fused_loss"), [(17, False), (192, True)])
def test_gradients_against_finite_differences(vocab: int, fused_loss: bool) -> None:
    """d loss along a random direction in each weight, central differences of the float32 loss."""
    preset = tiny(vocab=vocab)
    assert preset.fused_loss is fused_loss
    model = decoder(preset)
    tokens, targets = batch(preset)
    loss, grads = model.loss_and_gradients(tokens, targets)
    assert float(loss) == pytest.approx(float(model.loss(tokens, targets)), rel=1e-6)
    weights = model.matrices | model.norms
    assert set(grads) == set(weights)
    rng = np.random.default_rng(5)
    for name, weight in weights.items():
        grad = grads[name]
        assert grad.shape == weight.shape and grad.dtype == np.float32
        noise = rng.standard_normal(weight.shape).astype(np.float32)
        direction = noise / np.linalg.norm(noise) + grad / np.linalg.norm(grad)  # so that the slope is not near zero
        kept, step, ends = weight.copy(), np.float32(0.02), []
        for sign in (1, -1):
            weight[...] = kept + sign * step * direction
            ends.append(float(model.loss(tokens, targets)))
        weight[...] = kept
        slope = (ends[0] - ends[1]) / (2 * float(step))
        assert slope == pytest.approx(float(np.sum(grad * direction)), rel=0.02), name


def test_update_is_adamw_with_clipping() -> None:
    """Two steps against the formula in float64; only matrices decay."""
    preset = tiny()
    model = decoder(preset)
    want = {n: w.astype(np.float64) for n, w in (model.matrices | model.norms).items()}
    moments = {n: (np.zeros_like(w), np.zeros_like(w)) for n, w in want.items()}
    for step in (1, 2):
        _, grads = model.loss_and_gradients(*batch(preset, step))
        model.update(grads, step, 1e-2)
        norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
        assert norm > 1, "the clip is not exercised"
        for name, w in want.items():
            g = grads[name].astype(np.float64) / (norm + 1e-6)
            first, second = moments[name]
            first += 0.1 * (-first + g)
            second += 0.05 * (-second + g * g)
            w *= 1 - (1e-2 * 0.1 if name in model.matrices else 0)
            w -= 1e-2 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.95**step)) + 1e-8)
    for name, w in (model.matrices | model.norms).items():
        np.testing.assert_allclose(w, want[name], rtol=2e-4, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_decoding_with_the_cache_is_the_forward_pass(compute: str) -> None:
    preset = tiny(compute=compute)
    from gpt_model import Decoder

    model = Decoder(preset, np, seed=3)
    tokens, _ = batch(preset)
    want = model.forward(tokens)[0].reshape(preset.batch, preset.context, preset.vocab)
    cache = model.cache(preset.batch, preset.context)
    got = np.stack([model.decode(tokens[:, i], np.full(preset.batch, i), cache) for i in range(preset.context)], axis=1)
    scale = np.abs(want.astype(np.float32)).max()
    close = {"float32": 2e-6, "bfloat16": 2e-2}[compute] * scale
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=0, atol=close)


@pytest.mark.parametrize(("vocab", "fused_loss"), [(17, False), (192, True)])
def test_mixed_precision_trains(vocab: int, fused_loss: bool) -> None:
    """bfloat16 copies follow the float32 masters, gradients are float32, the loss of one batch falls."""
    preset = tiny(compute="bfloat16", vocab=vocab)
    assert preset.fused_loss is fused_loss
    from gpt_model import Decoder

    model = Decoder(preset, np, seed=3)
    data = batch(preset)
    losses = []
    for step in range(12):
        loss, grads = model.loss_and_gradients(*data)
        assert {g.dtype for g in grads.values()} == {np.dtype(np.float32)}
        model.update(grads, step + 1, 1e-2)
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.3
    for name, copy in model.copies.items():
        np.testing.assert_array_equal(copy, bc.cast(model.matrices[name], "bfloat16"))


def test_generation_follows_the_seed() -> None:
    from gpt_model import Decoder

    model = Decoder(tiny(vocab=256), np)
    runs = [model.generate(b"ab", 9, temperature=1.0, top_k=0, seed=seed)[0] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert all(text[:2] == b"ab" and len(text) == 11 for text in runs)
    greedy = [model.generate(b"ab", 5, temperature=0.0, top_k=0, seed=seed) for seed in (1, 2)]
    assert greedy[0][0] == greedy[1][0] and not greedy[0][1].any()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.8, 20, 1.0), (1.3, 0, 0.6), (0.7, 9, 0.5)]
)
def test_generated_bytes_come_with_their_logprobs(temperature: float, top_k: int, top_p: float) -> None:
    """Against the softmax of the forward pass over what the cut-offs keep, for each byte."""
    from gpt_model import Decoder

    model, count = Decoder(tiny(vocab=256), np, seed=4), 7
    text, logprobs = model.generate(b"ab", count, temperature=temperature, top_k=top_k, top_p=top_p, seed=3)
    assert logprobs.shape == (count,) and logprobs.dtype == np.float32
    tokens = np.frombuffer(text, np.uint8)[None, :-1].astype(np.int64)
    logits = model.forward(tokens)[0].reshape(-1, 256)[1:].astype(np.float64)
    for row, byte, logprob in zip(logits, text[2:], logprobs, strict=True):
        order = np.argsort(-row, kind="stable")[: top_k or None]
        weight = np.exp((row[order] - row[order[0]]) / temperature)
        before = np.cumsum(weight) - weight
        kept = before < top_p * weight.sum()
        share = weight[kept] / weight[kept].sum()
        assert logprob == pytest.approx(np.log(share[order[kept].tolist().index(byte)]), abs=1e-3)


def small_gpu_run(folder: Path) -> tuple[Any, Any]:
    """A bfloat16 preset that fits a test, three chunks of steps long, and its text."""
    from gpt_data import load

    preset = tiny(
        d=64, heads=4, kv_heads=2, ffn=96, context=32, batch=4, steps=45, warmup=5, vocab=256, compute="bfloat16"
    )
    return preset, load(str(folder), preset.context)


@pytest.mark.gpu
def test_captured_training_is_eager_training(folder: Path) -> None:
    """Losses of every step and all weights, bit for bit: inputs arrive in order and nothing is overwritten early."""
    import cupy
    from gpt_model import Decoder
    from gpt_train import learning_rate, train

    preset, corpus = small_gpu_run(folder)
    model, eager = Decoder(preset, cupy), Decoder(preset, cupy)
    losses, _ = train(model, corpus, seed=3)
    rng, want = np.random.default_rng(3), []
    for step in range(preset.steps):
        loss, grads = eager.loss_and_gradients(*map(cupy.asarray, corpus.batch(rng, preset.batch, preset.context)))
        eager.update(grads, step + 1, learning_rate(preset, step))
        want.append(float(loss))
    assert losses == want and losses[-1] < losses[0] - 1
    for name, weight in (model.matrices | model.norms).items():
        cupy.testing.assert_array_equal(weight, (eager.matrices | eager.norms)[name])


@pytest.mark.gpu
def test_captured_generation_is_eager_decoding(folder: Path) -> None:
    import cupy
    from gpt_model import Decoder

    preset, _ = small_gpu_run(folder)
    model, text = Decoder(preset, cupy, seed=5), list(b"some prompt")
    got, logprobs = model.generate(bytes(text), 20, temperature=0.9, top_k=30, seed=8)
    cache, prompt, want = model.cache(1, len(text) + 20), len(text), []
    for at in range(prompt + 19):
        logits = model.decode(cupy.asarray([text[at]]), cupy.asarray([at]), cache)
        if at >= prompt - 1:
            options = {"temperature": 0.9, "top_k": 30, "seed": 8, "offset": at, "return_logprob": True}
            ids, logprob = bc.sample(logits, **options)
            text.append(int(ids[0]))
            want.append(float(logprob[0]))
    np.testing.assert_allclose(logprobs.get(), want, rtol=1e-5)
    assert got == bytes(text)


# -- the host -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
@pytest.mark.parametrize(
    "example",
    [
        "train_gpt",
        "train_ssm",
        "train_moe",
        "train_parallel",
        "generate",
        "speculative_decoding",
        "quantize_gpt",
        "batch_invariant",
        "serve",
    ],
)
def test_blas_has_one_thread_unless_told(example: str, given: dict[str, str], threads: str) -> None:
    """Told before NumPy loads it: spinning threads starve each other where other processes want the cores, too."""
    code = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'numpy': print(os.environ.get('OPENBLAS_NUM_THREADS')); raise SystemExit\n"
        f"sys.meta_path.insert(0, Watch()); import {example}"
    )
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environ = {k: v for k, v in os.environ.items() if k not in names}
    environ |= {"PYTHONPATH": str(EXAMPLES)} | given
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{threads}\n", done.stderr


# -- the script -----------------------------------------------------------------------------------------------------


def test_five_steps_end_to_end(tmp_path: Path) -> None:
    """A fresh process: the loss falls, the curve is a PNG, the sample has its length, SKUs are those of the backend."""
    code = "import json, train_gpt; print('\\n' + json.dumps(train_gpt.run()))"
    command = [sys.executable, "-c", code, "--device", "cpu", "--steps", "5", "--sample", "8", "--out", str(tmp_path)]
    path = os.pathsep.join((str(EXAMPLES), str(EXAMPLES.parent)))
    # one BLAS thread: spinning threads starve each other where tests share the cores
    environ = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    *report, last = done.stdout.decode().splitlines()
    figures = json.loads(last)
    assert len(figures["losses"]) == 5
    assert figures["losses"][0] == pytest.approx(np.log(256), abs=0.1)
    assert figures["losses"][-1] < figures["losses"][0] - 0.1
    assert 4 < figures["held_out"] < figures["losses"][0]
    assert (tmp_path / "train_gpt.png").read_bytes().startswith(b"\x89PNG")
    text = "\n".join(report)
    assert f"held-out loss {figures['held_out']:.4f} nats/byte" in text and "--- sample ---\ndef " in text
    assert f"ran on the NumPy backend, {len(figures['skus'])} kernel SKUs:" in text
    ops = {sku.split("/")[0].split("[")[0] for sku in figures["skus"]}
    assert all(sku.endswith("/numpy") for sku in figures["skus"])
    assert {
        "attention.flash_sdpa", "attention.flash_sdpa_backward", "attention.flash_decoding", "attention.rope",
        "attention.rope_backward", "attention.rope_kv_append", "embedding.embedding", "embedding.embedding_backward",
        "gated.gated_activation", "gated.gated_activation_backward", "gemm.gemm", "loss.cross_entropy",
        "norm.rms_norm", "norm.rms_norm_backward", "optimizer.adam_step", "optimizer.global_norm", "random.sample",
    } <= ops  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line on stderr of a request that is refused before it trains."""
    import train_gpt

    status = train_gpt.main(["--device", "cpu", *argv])
    said = capsys.readouterr()
    assert status in (1, 2) and not said.out
    assert said.err.startswith("error: ") and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--steps", "0"), "--steps must be at least 1"),
        (("--steps", "many"), "argument --steps: invalid int value: 'many'"),
        (("--sample", "-1"), "--sample must be at least 0"),
        (("--temperature", "nan"), "--temperature must be at least 0"),
        (("--temperature", "-0.5"), "--temperature must be at least 0"),
        (("--top-k", "-3"), "--top-k must be at least 0"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--preset", "huge"), "argument --preset: invalid choice: 'huge'"),
        (("--nope",), "unrecognized arguments: --nope"),
        (("--device", "tpu"), "device must be"),
        (("--text", "/nowhere/at/all"), "/nowhere/at/all is not a folder that can be read"),
    ],
)
def test_bad_requests(capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    assert message in refused(capsys, "--out", str(tmp_path), *argv)


def test_folders_that_cannot_serve(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ("--out", str(tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    assert "holds too little text: 0 files" in refused(capsys, *out, "--text", str(tmp_path / "empty"))
    assert "at least 130 bytes" in refused(capsys, *out, "--text", str(folder))
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in refused(capsys, *out, "--text", str(tmp_path / "file"))
    assert "File exists" in refused(capsys, "--out", str(tmp_path / "file"), "--text", str(folder))

    def denied(path: Any, *_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", denied)
        assert f"cannot read {folder}: Permission denied" in refused(capsys, *out, "--text", str(folder))
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert f"cannot read {folder / '00.txt'}: Permission denied" in refused(capsys, *out, "--text", str(folder))


def test_missing_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_py.core import device

    device.cuda_device.cache_clear()
    monkeypatch.setattr(device, "driver_device_count", lambda: 0)
    message = refused(capsys, "--device", "cuda:0")
    device.cuda_device.cache_clear()
    assert "a CUDA device was asked for, but the driver reports none" in message


def test_too_big_a_preset(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import train_gpt

    monkeypatch.setattr(train_gpt, "free_memory", lambda device: 2**28)
    assert "preset gpu needs about" in (message := refused(capsys, "--preset", "gpu"))
    assert "cpu has 0.2 GiB free; try --preset cpu" in message
    monkeypatch.setattr(train_gpt, "free_memory", lambda device: 2**20)
    assert refused(capsys, "--preset", "cpu").endswith("0.0 GiB free\n")


def test_memory_estimate_covers_the_cpu_preset() -> None:
    """The estimate is above what a step of NumPy allocates, and not by much."""
    import tracemalloc

    from gpt_model import Decoder

    preset = tiny(d=64, heads=4, kv_heads=2, ffn=176, context=64, batch=8, vocab=256)

    def train() -> None:
        model = Decoder(preset, np)
        for step in (1, 2):
            model.update(model.loss_and_gradients(*batch(preset))[1], step, 1e-3)

    train()  # modules are imported, and plans kept
    tracemalloc.start()
    train()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < preset.memory(on_cpu=True) < 3 * peak


def test_missing_packages(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "tqdm" else find(name, *a))
    assert "this example needs tqdm: pip install 'baracuda_py[examples]'" in refused(capsys)
