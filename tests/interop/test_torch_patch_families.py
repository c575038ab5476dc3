"""Every family that `baracuda_py.torch.patch` knows, against the same model as transformers has it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch_patch_models import MODELS, Tiny, close, pair, same_gradients  # noqa: E402

from baracuda_py.torch.patch import FAMILIES, patch, unpatch  # noqa: E402

EVERY = pytest.mark.parametrize("tiny", MODELS, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
GENERATING = [tiny for tiny in MODELS if tiny.kind in ("causal", "seq2seq")]
PACKING = [tiny for tiny in MODELS if tiny.rotary]


def test_every_family_has_a_model() -> None:
    assert {tiny.family for tiny in MODELS} == set(FAMILIES)


@EVERY
@pytest.mark.parametrize("padded", [False, True])
def test_results_and_gradients(tiny: Tiny, padded: bool) -> None:
    model, ours = pair(tiny)
    batch = tiny.batch(padded=padded)
    rows = tiny.seen(batch)
    with torch.no_grad():
        close(ours(**batch).logits[rows], model(**batch).logits[rows], "logits")
    batch = tiny.batch(labels=True, padded=padded)
    found, wanted = ours.train()(**batch), model.train()(**batch)
    assert found.logits is None or tiny.kind == "classes"
    close(found.loss, wanted.loss, "loss")
    found.loss.backward()
    wanted.loss.backward()
    same_gradients(ours, model)


@EVERY
def test_twenty_steps(tiny: Tiny) -> None:
    losses = []
    for one in pair(tiny):
        optimizer = torch.optim.SGD(one.train().parameters(), lr=0.02, momentum=0.5)
        losses.append([])
        for step in range(20):
            optimizer.zero_grad()
            loss = one(**tiny.batch(step % 2, labels=True)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(one.parameters(), 1.0)
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("tiny", GENERATING, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation(tiny: Tiny, cache: str | None) -> None:
    model, ours = pair(tiny)
    batch = tiny.batch(padded=True)
    batch.pop("decoder_input_ids", None)
    given = {"max_new_tokens": 5, "do_sample": False, "cache_implementation": cache}
    assert torch.equal(ours.generate(**batch, **given), model.generate(**batch, **given))


@pytest.mark.parametrize("tiny", PACKING, ids=lambda tiny: tiny.family)
def test_packed_sequences(tiny: Tiny) -> None:
    """Two sequences in one row: each as it is alone by their bounds, and as transformers has it by their positions."""
    model, ours = pair(tiny)
    ids = tiny.batch()["input_ids"]
    parts = [ids[:1, :5], ids[1:, :7]]
    row = {"input_ids": torch.cat(parts, 1), "position_ids": torch.cat([torch.arange(5), torch.arange(7)])[None]}
    ends = torch.tensor([0, 5, 12], dtype=torch.int32)
    bounds = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 7, "max_length_k": 7}
    with torch.no_grad():
        wanted = torch.cat([model(input_ids=part).logits for part in parts], 1)
        close(ours(**row, use_cache=False).logits, model(**row, use_cache=False).logits, "positions")
        close(ours(**row, **bounds, use_cache=False).logits, wanted, "bounds")
    found = ours.train()(**row, **bounds, labels=row["input_ids"], use_cache=False)
    close(found.loss, torch.nn.functional.cross_entropy(wanted[0, :-1], row["input_ids"][0, 1:]), "loss")


@EVERY
def test_bfloat16(tiny: Tiny) -> None:
    """Not farther from float32 than the model as it was."""
    model, ours = (one.to(torch.bfloat16) for one in pair(tiny))
    truth = copy.deepcopy(model).float()
    batch = tiny.batch(padded=True)
    lower = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in batch.items()}
    rows = tiny.seen(batch)
    with torch.no_grad():
        wanted = truth(**batch).logits[rows]
        found, theirs = (one(**lower).logits[rows].float() for one in (ours, model))
    assert float((found - wanted).norm()) <= 2 * float((theirs - wanted).norm())
    labelled = tiny.batch(labels=True)
    lower = {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in labelled.items()}
    wanted = truth.train()(**labelled).loss.item()
    loss = ours.train()(**lower).loss
    loss.backward()
    assert loss.item() == pytest.approx(wanted, rel=3e-2)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in ours.parameters())


@EVERY
def test_parameters_and_files(tiny: Tiny, tmp_path: Any) -> None:
    """state_dict, copies, pickles and folders are as they were; weights may be loaded later."""
    model, ours = pair(tiny)
    batch = tiny.batch()
    assert list(ours.state_dict()) == list(model.state_dict())
    with torch.no_grad():
        wanted = ours(**batch).logits
        for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            assert [type(m) for m in again.modules()] == [type(m) for m in ours.modules()]
            assert torch.equal(again(**batch).logits, wanted)
        ours.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path, attn_implementation="eager").eval()
        close(loaded(**batch).logits, wanted, "loaded")
        patch(loaded)
        assert torch.equal(loaded(**batch).logits, wanted)


@EVERY
def test_gradient_checkpointing(tiny: Tiny) -> None:
    model, ours = pair(tiny)
    for one in (model, ours):
        one.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        assert one.is_gradient_checkpointing
        one.train()(**tiny.batch(labels=True)).loss.backward()
    same_gradients(ours, model)


@EVERY
def test_unpatch(tiny: Tiny) -> None:
    model, ours = pair(tiny)
    unpatch(ours)
    assert [type(m) for m in ours.modules()] == [type(m) for m in model.modules()]
    for one, other in zip(ours.modules(), model.modules(), strict=True):
        config = getattr(one, "config", None)
        assert config is None or config._attn_implementation == other.config._attn_implementation == "eager"
    with torch.no_grad():
        assert torch.equal(ours(**tiny.batch()).logits, model(**tiny.batch()).logits)
