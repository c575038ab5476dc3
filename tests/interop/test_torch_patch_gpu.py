"""Models of transformers patched, on a GPU: every family in float32 and bfloat16, compiled, and generating."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch_patch_models import MODELS, Tiny, pair  # noqa: E402

EVERY = pytest.mark.parametrize("tiny", MODELS, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
GENERATING = pytest.mark.parametrize(
    "tiny", [tiny for tiny in MODELS if tiny.family in ("llama", "qwen3", "gemma2", "gpt_oss")], ids=lambda t: t.family
)


def moved(batch: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    """A batch on the GPU, its floats in a dtype."""
    return {
        name: value.to("cuda", dtype if dtype is not None and value.is_floating_point() else None)
        for name, value in batch.items()
    }


def gradients(model: Any, batch: dict[str, Any]) -> Any:
    """The loss, and all gradients end to end, in float32 on the host."""
    loss = model.train()(**batch).loss
    loss.backward()
    held = [parameter.grad for parameter in model.parameters()]
    return loss.item(), torch.cat([g.float().cpu().flatten() for g in held if g is not None])


@pytest.mark.gpu
@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_step_is_that_of_the_model_as_it_was(tiny: Tiny, dtype: Any) -> None:
    """In bfloat16 not twice as far from float32 on the host as the model as it was, on the same GPU.

    In float32 both are as far as float32 goes: sums of some hundred terms in other orders.
    """
    model, ours = (one.to(dtype) for one in pair(tiny))
    truth = copy.deepcopy(model).float()
    batch = tiny.batch(labels=True, padded=True)
    wanted_loss, wanted = gradients(truth, batch)
    theirs_loss, theirs = gradients(model.cuda(), moved(batch, dtype))
    loss, found = gradients(ours.cuda(), moved(batch, dtype))
    unit = 64 * torch.finfo(torch.float32).eps if dtype == torch.float32 else 0.0
    assert abs(loss - wanted_loss) <= 2 * abs(theirs_loss - wanted_loss) + (unit or torch.finfo(dtype).eps) * abs(
        wanted_loss
    )
    assert float((found - wanted).norm()) <= 2 * float((theirs - wanted).norm()) + unit * float(wanted.norm())


@pytest.mark.gpu
@GENERATING
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_tokens_are_those_of_the_model_as_it_was(tiny: Tiny, cache: str) -> None:
    model, ours = (one.cuda() for one in pair(tiny))
    batch = moved(tiny.batch(padded=True))
    facts = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    facts |= {"cache_implementation": "static"} if cache == "static" else {}
    assert torch.equal(ours.generate(**batch, **facts), model.generate(**batch, **facts))


@pytest.mark.gpu
@GENERATING
def test_a_compiled_step_is_that_of_eager(tiny: Tiny) -> None:
    _, ours = (one.cuda() for one in pair(tiny))
    batch = moved(tiny.batch(labels=True))
    loss, wanted = gradients(ours, batch)
    ours.zero_grad()
    compiled = torch.compile(ours.train())
    again = compiled(**batch).loss
    again.backward()
    found = torch.cat([p.grad.cpu().flatten() for p in ours.parameters() if p.grad is not None])
    assert again.item() == pytest.approx(loss, rel=1e-5)
    assert float((found - wanted).norm()) <= 1e-4 * float(wanted.norm())
