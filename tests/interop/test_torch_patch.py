"""`baracuda_py.torch.patch`: what it refuses, what it says, and what else may be done to a model before or after it."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch_patch_models import MODELS, Tiny, close, pair, same_gradients  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402

from baracuda_py import InvalidProblemError  # noqa: E402
from baracuda_py.torch import patch as frame  # noqa: E402
from baracuda_py.torch.patch import FAMILIES, patch, patch_classes, unpatch, unpatch_classes  # noqa: E402
from baracuda_py.torch.patch.attention import attention_forward  # noqa: E402
from baracuda_py.torch.patch.rotary import of_complex_table, of_one, of_patches  # noqa: E402

BY_NAME = {tiny.architecture: tiny for tiny in MODELS}
LLAMA = BY_NAME["LlamaForCausalLM"]
MOE = [BY_NAME[name] for name in ("MixtralForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM")]


def loss_of(model: Any, tiny: Tiny = LLAMA, **more: Any) -> Any:
    return model.train()(**tiny.batch(labels=True), **more).loss


@pytest.fixture(autouse=True)
def _nothing_stays() -> Any:
    """Functions of modelling files go back when the last user is unpatched; models that a test drops do so here."""
    yield
    frame._USERS.clear()
    for file in list(frame._FILES):
        frame._restore(file)


# What is given to it


def test_wrong_operands() -> None:
    with pytest.raises(InvalidProblemError, match=r"model must be a torch\.nn\.Module, got 3"):
        patch(3)
    with pytest.raises(InvalidProblemError, match="model must be"):
        unpatch("llama")
    for one in (patch_classes, unpatch_classes):
        with pytest.raises(InvalidProblemError, match=r"family must be one of bert, .*, got 'lama'"):
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


def test_labels_by_place() -> None:
    model, ours = pair(LLAMA)
    batch = LLAMA.batch(labels=True)
    places = list(inspect.signature(model.forward).parameters)
    given = [batch.get(name) for name in places[: places.index("labels") + 1]]
    close(ours.train()(*given).loss, model.train()(*given).loss, "loss")
    assert ours(*given).logits is None and ours(*given, skip_logits=False).logits is not None


def test_logits_that_are_asked_for() -> None:
    model, ours = pair(LLAMA)
    batch = LLAMA.batch(labels=True)
    assert ours.eval()(**batch).logits is not None and ours(**batch, skip_logits=True).logits is None
    found = ours.train()(**batch, skip_logits=False)
    wanted = model.train()(**batch)
    close(found.logits, wanted.logits, "logits")
    with torch.no_grad():
        close(ours(**batch, skip_logits=True).loss, wanted.loss, "loss")
    assert ours(**LLAMA.batch()).logits is not None


@pytest.mark.parametrize("tiny", MOE, ids=lambda tiny: tiny.family)
def test_results_as_a_tuple(tiny: Tiny) -> None:
    """What is left out is the logits, wherever they stand."""
    model, ours = (one.train() for one in pair(tiny))
    given = {**tiny.batch(labels=True), "return_dict": False, "use_cache": False, "output_router_logits": True}
    wanted, found = model(**given), ours(**given)
    assert len(found) == len(wanted) - 1
    close(found[0], wanted[0], "loss")
    close(found[1], wanted[1], "auxiliary loss")


@pytest.mark.parametrize("tiny", MOE, ids=lambda tiny: tiny.family)
def test_auxiliary_loss(tiny: Tiny) -> None:
    model, ours = pair(tiny)
    wanted, found = (loss_of(one, tiny, output_router_logits=True) for one in (model, ours))
    close(found, wanted, "loss")
    found.backward()
    wanted.backward()
    same_gradients(ours, model)


@pytest.mark.parametrize("items", [17, torch.tensor(17)])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Gemma2ForCausalLM", "CohereForCausalLM", "PhiForCausalLM"])
def test_losses_of_a_trainer(name: str, items: Any) -> None:
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    shifted = torch.roll(tiny.batch()["input_ids"], -1, 1)
    for more in ({"num_items_in_batch": items}, {"shift_labels": shifted}, {"logits_to_keep": 0}):
        close(loss_of(ours, tiny, **more), loss_of(model, tiny, **more), str(more))
    labels = tiny.batch()["input_ids"]
    for more in ({"ignore_index": int(labels[0, 5])}, {"ignore_index": int(labels[1, 2]), "num_items_in_batch": items}):
        found, wanted = (one(labels, labels=labels, **more).loss for one in (ours, model))
        close(found, wanted, str(more))


def test_a_loss_of_ones_own() -> None:
    def loss(logits: Any, labels: Any, vocab_size: int, **more: Any) -> Any:
        return logits.float().logsumexp(-1).mean()

    model, ours = pair(LLAMA)
    model.loss_function = ours.loss_function = loss
    found = ours.train()(**LLAMA.batch(labels=True))
    assert found.logits is not None
    close(found.loss, model.train()(**LLAMA.batch(labels=True)).loss, "loss")


def test_a_head_that_is_more_than_its_weight() -> None:
    model, ours = pair(LLAMA)
    calls = []
    ours.lm_head.register_forward_hook(lambda *given: calls.append(1))
    assert ours.train()(**LLAMA.batch(labels=True)).logits is not None and calls
    close(loss_of(ours), loss_of(model), "loss")


def test_what_else_is_done_to_logits_makes_them() -> None:
    from baracuda_py.torch.patch.loss import _Logits

    head, hidden = torch.nn.Linear(4, 7), torch.randn(2, 3, 4)
    logits, lazy = head(hidden), _Logits(hidden, head)
    labels = torch.tensor([0, 6, 2, -100, 3, 1])
    assert torch.equal(lazy.softmax(-1), logits.softmax(-1)) and lazy.shape == logits.shape
    assert torch.equal(torch.sigmoid(lazy), torch.sigmoid(logits))
    rest = {"label_smoothing": 0.1}, {"weight": torch.rand(7)}, {"reduction": "none"}, {"reduction": "sum"}
    for steps in (lambda x: x, lambda x: x * 3, lambda x: torch.tanh(x / 3) * 3, lambda x: torch.tanh(x) * 2):
        for more in rest:
            found, wanted = (
                torch.nn.functional.cross_entropy(steps(one).float().view(-1, 7), labels, **more)
                for one in (lazy, logits)
            )
            close(found, wanted, str(more))


def test_a_scaled_loss_in_float16() -> None:
    """Gradients below float16's range, which the scale lifts, are not lost before it does."""
    from baracuda_py.torch.patch.loss import _Logits

    torch.manual_seed(0)
    head, hidden, labels = torch.nn.Linear(8, 16, bias=False), torch.randn(4096, 8) * 1e-4, torch.randint(16, (4096,))
    torch.nn.functional.cross_entropy(head(hidden), labels).backward()
    half = copy.deepcopy(head).half()
    half.weight.grad = None
    (torch.nn.functional.cross_entropy(_Logits(hidden.half(), half), labels) * 2.0**14).backward()
    wanted = head.weight.grad
    assert float((half.weight.grad.float() / 2.0**14 - wanted).abs().max()) < 2e-2 * float(wanted.abs().max())


# Rotary positions


TURNING = [tiny for tiny in MODELS if FAMILIES[tiny.family].functions]


@pytest.mark.parametrize("tiny", TURNING, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions_are_served(tiny: Tiny, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None goes to the original, which holds for what a model does not do."""

    def original(*given: Any, **more: Any) -> Any:
        raise AssertionError("the original was called")

    modelling = import_module(f"transformers.models.{tiny.family}.modeling_{tiny.family}")
    ours = tiny.make().to(dtype)
    for name in FAMILIES[tiny.family].functions:
        monkeypatch.setattr(modelling, name, original)
    patch(ours)
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tiny.batch().items()}
    ours(**batch)
    unpatch(ours)


@pytest.mark.parametrize("tiny", TURNING, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
def test_functions_alone(tiny: Tiny) -> None:
    """Results and their elements are the original's, whatever those of the table are."""
    for name, rule in FAMILIES[tiny.family].functions.items():
        original = getattr(import_module(f"transformers.models.{tiny.family}.modeling_{tiny.family}"), name)
        ours = rule.make(original)
        for element, table in itertools.product((torch.float32, torch.bfloat16), repeat=2):
            q, k = torch.randn(2, 4, 6, 8).to(element), torch.randn(2, 2, 6, 8).to(element)
            angles = torch.randn(2, 6, 4)
            if rule.form is of_complex_table:
                given: tuple[Any, ...] = (q, k, torch.polar(torch.ones_like(angles), angles))
            elif rule.form is of_patches:
                angles = torch.cat([angles[0], angles[0]], -1)
                given = (q[0].transpose(0, 1), k[0].transpose(0, 1), angles.cos().to(table), angles.sin().to(table))
            else:
                both = {"first": torch.cat([angles, angles], -1), "even": angles.repeat_interleave(2, -1)}
                angles = both.get(rule.columns, angles)
                given = (q, *([] if rule.form is of_one else [k]), angles.cos().to(table), angles.sin().to(table))
            found, wanted = ours(*given), original(*given)
            for one, other in zip(*((y,) if torch.is_tensor(y) else y for y in (found, wanted)), strict=True):
                assert one.dtype == other.dtype
                torch.testing.assert_close(one, other, atol=1e-6 if one.dtype == torch.float32 else 6e-2, rtol=1e-5)


# Attention


def _heads(*, sinks: bool = False, bias: bool = False, **shape: int) -> dict[str, Any]:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    return {
        "query": q, "key": k, "value": v, "s_aux": torch.randn(4) if sinks else None,
        "position_bias": torch.randn(1, 4, 6, 6) if bias else None,
    }  # fmt: skip


@pytest.mark.parametrize("terms", [{}, {"sinks": True}, {"bias": True}])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_bounds_keep_sequences_apart(terms: dict[str, bool], window: int | None, causal: bool) -> None:
    """Whatever else the scores have."""
    given, module = _heads(**terms), torch.nn.Identity()
    ends = torch.tensor([0, 2, 6], dtype=torch.int32)
    y, _ = attention_forward(
        module, attention_mask=None, is_causal=causal, sliding_window=window, cu_seq_lens_q=ends, cu_seq_lens_k=ends,
        max_length_q=4, max_length_k=4, **given,
    )  # fmt: skip
    at = torch.arange(6)
    of = (at >= 2).long()
    seen = of[:, None] == of
    if causal:
        seen &= at <= at[:, None]
    if window is not None:
        seen &= (at - at[:, None]).abs() < window
    k, v = (given[name].repeat_interleave(2, 1) for name in ("key", "value"))
    scores = given["query"] @ k.mT * 8**-0.5 + (given["position_bias"] if terms.get("bias") else 0.0)
    scores = scores.masked_fill(~seen, -torch.inf)
    if terms.get("sinks"):
        scores = torch.cat([scores, given["s_aux"].view(1, 4, 1, 1).expand(1, 4, 6, 1)], -1)
    close(y, (scores.softmax(-1)[..., :6] @ v).transpose(1, 2), "y")


@pytest.mark.parametrize("terms", [{}, {"sinks": True}])
def test_bounds_of_queries_are_those_of_keys(terms: dict[str, bool]) -> None:
    given, module, ends = _heads(**terms), torch.nn.Identity(), torch.tensor([0, 2, 6])
    short = attention_forward(module, attention_mask=None, cu_seq_lens_q=ends, **given)[0]
    whole = attention_forward(
        module, attention_mask=None, cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=4, max_length_k=4, **given
    )[0]
    assert torch.equal(short, whole)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Gemma2ForCausalLM", "GptOssForCausalLM",
                                  "T5ForConditionalGeneration", "WhisperForConditionalGeneration",
                                  "ViTForImageClassification"])  # fmt: skip
def test_attention_weights(name: str) -> None:
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    wanted, found = (one(**tiny.batch(), output_attentions=True) for one in (model, ours))
    parts = [name for name in wanted if name.endswith("attentions")]
    assert parts
    for part in parts:
        for one, other in zip(found[part], wanted[part], strict=True):
            close(one, other, part)


def test_dropout_in_attention() -> None:
    ours = pair(LLAMA, attention_dropout=0.5)[1]
    torch.manual_seed(5)
    first, second = loss_of(ours).item(), loss_of(ours).item()
    torch.manual_seed(5)
    assert loss_of(ours).item() == first != second
    ours.eval()
    batch = LLAMA.batch()
    assert torch.equal(ours(**batch).logits, ours(**batch).logits)


# Experts


@pytest.mark.parametrize("tiny", MOE, ids=lambda tiny: tiny.family)
def test_experts(tiny: Tiny) -> None:
    """A number behind the last expert's adds nothing, and the gradients are those of the experts that are."""
    model, ours = pair(tiny)
    experts = [next(m for m in one.modules() if type(m).__name__.endswith("Experts")) for one in (ours, model)]
    where = torch.tensor([[0, 3], [4, 1], [2, 0], [1, 4]])
    found = []
    for one in experts:
        x, weights = torch.ones(4, 32).cumsum(0).div(9).requires_grad_(), torch.full((4, 2), 0.4, requires_grad=True)
        y = one(x, where, weights)
        y.square().sum().backward()
        found.append([y, x.grad, weights.grad, *(p.grad for p in one.parameters())])
    for one, other in zip(*found, strict=True):
        close(one, other, "experts")
    with torch.no_grad():
        x = torch.randn(3, 32)
        wanted = experts[0](x, torch.tensor([[0, 2]] * 3), torch.tensor([[0.5, 0.0]] * 3))
        close(experts[0](x, torch.tensor([[0, 5]] * 3), torch.tensor([[0.5, 0.7]] * 3)), wanted, "outside")
        assert torch.equal(experts[0](x, torch.tensor([[0, 2]] * 3), torch.tensor([[0.5, 0.0]] * 3)), wanted)


# What else there is


def test_weights_that_come_later(tmp_path: Any) -> None:
    """A model on the meta device is patched, and loaded after."""
    model = LLAMA.make()
    with torch.device("meta"):
        ours = type(model)(model.config)
    assert patch(ours).replaced
    ours.load_state_dict(model.state_dict(), assign=True)
    ours.model.rotary_emb = copy.deepcopy(model.model.rotary_emb)
    close(ours.eval()(**LLAMA.batch()).logits, model(**LLAMA.batch()).logits, "logits")


def test_a_pickle_in_another_process(tmp_path: Any) -> None:
    ours = pair(LLAMA)[1]
    (tmp_path / "model").write_bytes(pickle.dumps(ours))
    torch.save(ours(**LLAMA.batch()).logits, tmp_path / "logits")
    torch.save(LLAMA.batch(), tmp_path / "batch")
    code = f"""
import pickle, torch
model = pickle.load(open({str(tmp_path / "model")!r}, "rb"))
from baracuda_py.torch.patch import register
register()
logits = model(**torch.load({str(tmp_path / "batch")!r})).logits
torch.testing.assert_close(logits, torch.load({str(tmp_path / "logits")!r}))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_layer_that_is_kept_in_float32() -> None:
    """T5's wo, by which its other layers are converted."""
    for tiny in (tiny for tiny in MODELS if tiny.family == "t5"):
        model, ours = (one.to(torch.bfloat16) for one in pair(tiny))
        for one in (model, ours):
            for name, module in one.named_modules():
                if name.endswith(".wo"):
                    module.float()
        found, wanted = (one(**tiny.batch()).logits for one in (ours, model))
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, atol=0.1 * float(wanted.detach().abs().max()), rtol=0)


def test_autocast() -> None:
    for name in ("LlamaForCausalLM", "MixtralForCausalLM", "GptOssForCausalLM", "GPT2LMHeadModel", "CohereForCausalLM",
                 "DeepseekV3ForCausalLM", "T5ForConditionalGeneration"):  # fmt: skip
        tiny = BY_NAME[name]
        model, ours = pair(tiny)
        truth = loss_of(model, tiny)
        truth.backward()
        exact = [p.grad for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        distances = []
        for one in (ours, model):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(one, tiny)
            loss.backward()
            assert loss.item() == pytest.approx(truth.item(), rel=2e-2), name
            assert all(p.grad is None or p.grad.dtype == torch.float32 for p in one.parameters())
            pairs = [(p.grad, e) for p, e in zip(one.parameters(), exact, strict=True) if e is not None]
            distances.append(sum(float((g - e).square().sum()) for g, e in pairs) ** 0.5)
        assert distances[0] <= 2 * distances[1], name


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MixtralForCausalLM", "Gemma2ForCausalLM", "CohereForCausalLM",
                                  "GPT2LMHeadModel", "T5ForConditionalGeneration"])  # fmt: skip
def test_compiled(name: str) -> None:
    """In one graph, loss and gradients included."""
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    model.loss_type = ours.loss_type = "ForCausalLM"  # GPT-2's is found with a warning, which ends a graph
    batch = tiny.batch(labels=True)
    compiled = torch.compile(ours.train(), backend="aot_eager", fullgraph=True)
    found, wanted = compiled(**batch, use_cache=False), model.train()(**batch, use_cache=False)
    close(found.loss, wanted.loss, "loss")
    found.loss.backward()
    wanted.loss.backward()
    same_gradients(ours, model)


@pytest.mark.parametrize("first", ["patch", "adapter"])
def test_adapters(first: str) -> None:
    peft = pytest.importorskip("peft")
    model = LLAMA.make()
    ours = copy.deepcopy(model)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "gate_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    torch.manual_seed(0)
    model = peft.get_peft_model(model, config)
    if first == "patch":
        assert patch(ours).replaced
    torch.manual_seed(0)
    ours = peft.get_peft_model(ours, config)
    if first == "adapter":
        report = patch(ours)
        assert report.replaced and not report.kept
    wanted, found = loss_of(model), loss_of(ours)
    close(found, wanted, "loss")
    found.backward()
    wanted.backward()
    same_gradients(ours, model)
    assert ours.train()(**LLAMA.batch(labels=True)).logits is None
    unpatch(ours)
    assert ours.config._attn_implementation == "eager"
    with torch.no_grad():
        assert torch.equal(ours.eval()(**LLAMA.batch()).logits, model.eval()(**LLAMA.batch()).logits)


@pytest.mark.parametrize("first", ["patch", "hooks"])
def test_hooks_of_accelerate(first: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = LLAMA.make()
    ours = copy.deepcopy(model)
    if first == "patch":
        patch(ours)
    for module in (ours.model.norm, ours.model.layers[0].mlp, ours.lm_head):
        accelerate.hooks.add_hook_to_module(module, accelerate.hooks.AlignDevicesHook("cpu", io_same_device=True))
    if first == "hooks":
        kept = {entry.path: entry.reason for entry in patch(ours).kept}
        reason = "its forward was replaced by another package"
        assert kept == {"model.norm": reason, "model.layers.0.mlp": reason}
    wanted, found = loss_of(model), loss_of(ours)
    close(found, wanted, "loss")
    found.backward()
    wanted.backward()
    same_gradients(ours, model)


def test_weights_of_other_kinds_are_left_to_their_packages() -> None:
    class Shard(torch.Tensor):
        """What a sharded or quantised weight is: a tensor whose functions another package has."""

    model, ours = pair(LLAMA)
    for one in ours.modules():
        for name, parameter in list(one.named_parameters(recurse=False)):
            one._parameters[name] = parameter.detach().as_subclass(Shard)
    with torch.no_grad():
        close(ours(**LLAMA.batch()).logits.as_subclass(torch.Tensor), model(**LLAMA.batch()).logits, "logits")


def test_trainer(tmp_path: Any) -> None:
    """Its losses, those of its evaluation and the logits that it has there."""
    pytest.importorskip("accelerate")
    rows = [{"input_ids": row, "labels": row} for row in LLAMA.batch()["input_ids"].repeat(4, 1)]
    found = []
    for one in pair(LLAMA):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
            logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, seed=0, learning_rate=1e-3,
        )  # fmt: skip
        trainer = transformers.Trainer(model=one, args=arguments, train_dataset=rows, eval_dataset=rows)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        found.append([*losses, trainer.evaluate()["eval_loss"], trainer.predict(rows).predictions])
    assert found[1][:-1] == pytest.approx(found[0][:-1], rel=1e-4)
    assert found[1][-1] == pytest.approx(found[0][-1], abs=1e-3)
