"""`examples/serve.py` on the NumPy backend, with pages to spare and with too few, and on a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a small model."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import serve

    small = {n: dataclasses.replace(p, layers=2, d=64, heads=4, ffn=96) for n, p in serve.PRESETS.items()}
    monkeypatch.setattr(serve, "PRESETS", small)
    return serve


def test_every_text_is_what_it_is_alone(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report = example.run(["--device", "cpu", "--steps", "10"])
    assert report["differ"] == report["wrong"] == []
    together, alone = report["computed"]
    assert together < 0.8 * alone, "prefixes are reused"
    said = capsys.readouterr().out
    assert "12 of 12 texts are those of the requests served one by one" in said
    assert "6 of 6 greedy texts are those of a dense cache" in said


@pytest.mark.parametrize(("pages", "budget"), [(8, 5), (6, 100), (64, 1)])
def test_neither_pages_nor_budget_change_a_text(example: Any, pages: int, budget: int) -> None:
    wide = example.run(["--device", "cpu", "--steps", "8", "--requests", "7", "--budget", "64"])
    tight = example.run(
        ["--device", "cpu", "--steps", "8", "--requests", "7", "--pages", str(pages), "--budget", str(budget)]
    )
    assert tight["texts"] == wide["texts"] and len({*tight["texts"]}) > 4


def test_a_change_fails_the_run(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that go to another cell than their own."""
    plain = bc.paged_kv_append
    monkeypatch.setattr(bc, "paged_kv_append", lambda *a, slot_mapping: plain(*a, slot_mapping=slot_mapping // 2))
    with pytest.raises(SystemExit, match="every text must be the same"):
        example.run(["--device", "cpu", "--steps", "6", "--requests", "4"])


def test_a_fork_goes_on_with_shared_pages(example: Any) -> None:
    """Two continuations of one prompt by other seeds: each is what it is alone."""
    model = example.Decoder(example.PRESETS["cpu"], np, 1)
    model.products = bc.PlanPreference(batch_invariant=True)
    params = [bc.serving.SamplingParams(seed=seed) for seed in (5, 6)]
    requests = [bc.serving.Request(b"def softmax(x):", 9, one) for one in params]
    server = example.Server(model, 12)
    first = server.scheduler.add(requests[0])
    server.step()
    first.tokens.pop()  # the token that the two do not share
    twin = server.scheduler.fork(first, requests[1])
    first.cached = twin.cached = first.cached - 1
    while server.step():
        pass
    alone = example.Server(model, 12, reuse=False).serve(requests, 1)
    assert [first.generated, twin.generated] == [one.generated for one in alone]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--steps", "0"], "--steps"), (["--steps", "100"], "--steps must be at most"), (["--budget", "0"], "--budget"),
        (["--pages", "2"], "can have 2"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line(
    example: Any, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.main([*argv, "--device", "cpu"], run=example.run) in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["cpu", "gpu"])
def test_on_a_gpu(example: Any, preset: str) -> None:
    report = example.run(["--preset", preset, "--float32", "--steps", "12"])
    assert report["differ"] == report["wrong"] == []
    report = example.run(["--preset", preset, "--float32", "--steps", "12", "--pages", "8", "--budget", "9"])
    assert report["differ"] == report["wrong"] == []
