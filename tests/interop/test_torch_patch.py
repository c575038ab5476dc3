"""`baracuda_py.torch.patch`: what it takes, what it says, what it leaves, and how modules are called."""

from __future__ import annotations

import copy
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch_patch_models import BY_NAME, LLAMA, MODELS, Tiny, close, loss_of, pair, same_gradients  # noqa: E402  # fmt: skip
from transformers.models.llama import modeling_llama as llama  # noqa: E402

from baracuda_py import InvalidProblemError  # noqa: E402
from baracuda_py.torch import patch as frame  # noqa: E402
from baracuda_py.torch.patch import FAMILIES, patch, patch_classes, unpatch, unpatch_classes  # noqa: E402

pytestmark = pytest.mark.usefixtures("nothing_patched")


# What is given to it


def test_wrong_operands() -> None:
    with pytest.raises(InvalidProblemError, match=r"model must be a torch\.nn\.Module, got 3"):
        patch(3)
    with pytest.raises(InvalidProblemError, match="model must be"):
        unpatch("llama")
    for one in (patch_classes, unpatch_classes):
        with pytest.raises(InvalidProblemError, match=r"family must be one of bamba, .*, got 'lama'"):
            one("lama")
        with pytest.raises(InvalidProblemError, match="family must be one of"):
            one([])
    model = LLAMA.make()
    with pytest.raises(InvalidProblemError, match="attention must be True or False, got 'sdpa'"):
        patch(model, attention="sdpa")  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match="loss must be True or False, got 1"):
        patch(model, loss=1)  # type: ignore[arg-type]
    patch(model)
    with pytest.raises(InvalidProblemError, match="skip_logits must be None, True or False, got 'yes'"):
        model(**LLAMA.batch(labels=True), skip_logits="yes")


def test_nothing_known() -> None:
    report = patch(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)))
    assert not report.entries and str(report).startswith("nothing was replaced")


# What it says


def test_report_in_the_order_of_the_model() -> None:
    report = patch(LLAMA.make())
    assert str(report).splitlines() == [
        "   1 LlamaForCausalLM → linear_cross_entropy(lm_head)",
        "   2 LlamaMLP → gated(gate_proj, up_proj, down_proj, act_fn)",
        "   5 LlamaRMSNorm → rms_norm(variance_epsilon, 0, promoted)",
        "   1 modeling_llama → rope(half, first)",
        "   1 LlamaForCausalLM → flash_sdpa",
    ]
    assert report.entries[1].path == "model.layers.0.mlp" and report.entries[1].replaced


def test_parts_that_are_asked_to_stay() -> None:
    model = LLAMA.make()
    report = patch(model, attention=False, loss=False)
    assert [entry.reason for entry in report.kept] == ["loss=False"]
    assert model.config._attn_implementation == "eager"
    assert model.train()(**LLAMA.batch(labels=True)).logits is not None


def test_an_activation_without_a_unit() -> None:
    model = LLAMA.make(hidden_act="mish")
    ours = copy.deepcopy(model)
    report = patch(ours)
    assert {entry.reason for entry in report.kept} == {"its activation MishActivation has no unit here"}
    close(loss_of(ours), loss_of(model), "loss")


def test_an_activation_that_comes_later() -> None:
    model, ours = pair(LLAMA)
    for one in (model, ours):
        one.model.layers[0].mlp.act_fn = torch.nn.Mish()
    close(loss_of(ours), loss_of(model), "loss")
    patch_classes("llama")
    made = LLAMA.make(hidden_act="mish")
    found = loss_of(made)
    unpatch_classes("llama")
    close(found, loss_of(LLAMA.make(hidden_act="mish")), "loss")


def test_a_subclass_stays() -> None:
    class Norm(llama.LlamaRMSNorm):  # type: ignore[misc]
        def forward(self, hidden_states: Any) -> Any:
            return 2 * super().forward(hidden_states)

    model = LLAMA.make()
    model.model.norm = Norm(32)
    wanted = model(**LLAMA.batch()).logits
    report = patch(model)
    assert [(entry.path, entry.reason) for entry in report.kept] == [("model.norm", "a subclass of LlamaRMSNorm")]
    assert type(model.model.norm) is Norm and "Norm stays: a subclass of LlamaRMSNorm" in str(report)
    close(model(**LLAMA.batch()).logits, wanted, "logits")


def test_a_class_that_is_made_from_ours() -> None:
    """As `fully_shard` makes one: it has our forward, and no way back."""
    model = LLAMA.make()
    patch(model)
    norm = model.model.norm
    norm.__class__ = type("FSDPLlamaRMSNorm", (type(norm),), {})
    kind = type(norm)
    assert not patch(model).kept and type(norm) is kind
    with pytest.raises(InvalidProblemError, match=r"model\.norm has a class made from the patched one"):
        unpatch(model)
    norm.__class__ = kind.__base__
    unpatch(model)


def test_a_second_call_changes_nothing() -> None:
    model = LLAMA.make()
    first = patch(model)
    kinds, function = [type(m) for m in model.modules()], llama.apply_rotary_pos_emb
    assert patch(model) == first
    assert [type(m) for m in model.modules()] == kinds and llama.apply_rotary_pos_emb is function


def test_the_page_names_every_family() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cookbook" / "transformers.md").read_text()
    rows = re.findall(r"^\| (`.*`) \|", page, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) == len(set(names)) + 1 and set(names) == set(FAMILIES)  # siglip is Gemma 3's, too
    assert f"```\n{patch(LLAMA.make())}\n```" in page


# What it leaves


def test_two_models_of_one_family() -> None:
    function = llama.apply_rotary_pos_emb
    one, other = LLAMA.make(0), LLAMA.make(1)
    patch(one)
    patch(other)
    ours = llama.apply_rotary_pos_emb
    assert ours is not function
    unpatch(one)
    assert llama.apply_rotary_pos_emb is ours
    unpatch(copy.deepcopy(other))
    assert llama.apply_rotary_pos_emb is ours
    unpatch(other)
    assert llama.apply_rotary_pos_emb is function


def test_a_copy_is_taken_back_alone() -> None:
    model = LLAMA.make(attn_implementation="sdpa")
    patch(model)
    again = copy.deepcopy(model)
    unpatch(again)
    assert again.config._attn_implementation == "sdpa" and type(again.model.norm) is llama.LlamaRMSNorm
    assert model.config._attn_implementation == "baracuda" and type(model.model.norm) is not llama.LlamaRMSNorm


def test_parts_with_attentions_of_their_own() -> None:
    tiny = BY_NAME["Qwen2VLForConditionalGeneration"]
    model = tiny.make(attn_implementation={"": "sdpa", "text_config": "sdpa", "vision_config": "eager"})
    before = [model.config.text_config._attn_implementation, model.config.vision_config._attn_implementation]
    assert before == ["sdpa", "eager"]
    patch(model)
    unpatch(model)
    assert [model.config.text_config._attn_implementation, model.config.vision_config._attn_implementation] == before


def test_a_part_with_attention_of_its_own() -> None:
    """Gemma 4 hears by attention that is not asked for by name: its masks are those that it reads."""
    tiny = BY_NAME["Gemma4ForConditionalGeneration"]
    sounds = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "output_proj_dims": 32}
    model = tiny.make(audio_config=sounds, attn_implementation=None)
    ours = copy.deepcopy(model)
    reasons = {entry.path: entry.reason for entry in patch(ours).kept}
    assert reasons in ({}, {"model.audio_tower": "it asks for no attention by name"})  # by the version of transformers
    sound, heard = torch.randn(2, 40, 128), torch.arange(40) < torch.tensor([[40], [20]])
    with torch.no_grad():
        found, wanted = (one.model.audio_tower(sound, heard).last_hidden_state for one in (ours, model))
    close(found[0], wanted[0], "whole")
    close(found[1, :5], wanted[1, :5], "half")


def test_classes() -> None:
    forwards = {kind: kind.forward for kind in (llama.LlamaRMSNorm, llama.LlamaMLP, llama.LlamaForCausalLM)}
    function = llama.apply_rotary_pos_emb
    model = LLAMA.make()
    wanted = loss_of(model)
    wanted.backward()
    report = patch_classes("llama")
    assert len(report.replaced) == 4 and patch_classes("llama") == report
    made = LLAMA.make(attn_implementation="baracuda")
    assert type(made.model.norm) is llama.LlamaRMSNorm
    loss = loss_of(made)
    loss.backward()
    close(loss, wanted, "loss")
    same_gradients(made, model)
    assert len(patch(made).replaced) == 9  # which leaves classes that have ours already
    assert type(made.model.norm) is llama.LlamaRMSNorm
    unpatch_classes("llama")
    assert all(kind.forward is forward for kind, forward in forwards.items())
    assert llama.apply_rotary_pos_emb is not function  # the model has been patched since
    unpatch(made)
    assert llama.apply_rotary_pos_emb is function


@pytest.mark.parametrize("tiny", MODELS, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
def test_classes_of_every_family(tiny: Tiny) -> None:
    model = tiny.make()
    wanted = loss_of(model, tiny)
    wanted.backward()
    report = patch_classes(tiny.family)
    try:
        assert {entry.kind for entry in report.kept} <= {"LayerNorm"}
        ours = tiny.make(attn_implementation="baracuda")
        found = loss_of(ours, tiny)
        found.backward()
    finally:
        unpatch_classes(tiny.family)
    close(found, wanted, "loss")
    same_gradients(ours, model)


def test_classes_of_torch_stay() -> None:
    report = patch_classes("gpt2")
    unpatch_classes("gpt2")
    assert [(entry.kind, entry.reason) for entry in report.kept] == [
        ("LayerNorm", "a class of torch, which is replaced in models only")
    ]


def test_attention_without_a_patch() -> None:
    frame.register()
    model, ours = LLAMA.make(), LLAMA.make(attn_implementation="baracuda")
    close(ours(**LLAMA.batch(padded=True)).logits[1], model(**LLAMA.batch(padded=True)).logits[1], "logits")


# How its modules are called


def test_signatures_and_names_of_arguments() -> None:
    model, ours = pair(BY_NAME["GptOssForCausalLM"])
    for one, other in zip(model.modules(), ours.modules(), strict=True):
        assert inspect.signature(one.forward) == inspect.signature(other.forward)
    x = torch.randn(3, 32)
    given = {"router_indices": torch.tensor([[0, 3], [4, 1], [2, 2]]), "routing_weights": torch.rand(3, 2)}
    experts = ours.model.layers[0].mlp.experts
    wanted = model.model.layers[0].mlp.experts(x, *given.values())
    close(experts(hidden_states=x, **given), wanted, "by name")
    close(experts(x, given["router_indices"], routing_weights=given["routing_weights"]), wanted, "by place and name")
    norm = pair(BY_NAME["GPT2LMHeadModel"])[1].transformer.ln_f
    close(norm(input=x), torch.nn.functional.layer_norm(x, (32,), norm.weight, norm.bias, norm.eps), "norm")
