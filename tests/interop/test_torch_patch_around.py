"""What else is done to a model before `baracuda_py.torch.patch` or after it: loading, casting, compiling, wrapping."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch_patch_models import BY_NAME, LLAMA, MODELS, Tiny, close, loss_of, pair, same_gradients  # noqa: E402  # fmt: skip

from baracuda_py.torch.patch import FAMILIES, patch, unpatch  # noqa: E402
from baracuda_py.torch.patch.recurrences import Recurrence  # noqa: E402


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


def recurs(tiny: Tiny) -> bool:
    """Whether a family has recurrences, whose models take long to compile or have no attention."""
    rules = FAMILIES[tiny.family].functions.values()
    return any(isinstance(rule, Recurrence) for rule in rules) or tiny.family == "recurrent_gemma"


CAUSAL = [
    tiny for tiny in MODELS
    if tiny.kind == "causal" and tiny.inputs is None and not recurs(tiny)
]  # fmt: skip


@pytest.mark.parametrize("tiny", CAUSAL, ids=lambda tiny: f"{tiny.family}-{tiny.architecture}")
def test_a_compiled_model_has_no_mask_of_all_queries_and_keys(tiny: Tiny) -> None:
    """Where nothing but causality and windows hides keys, though transformers makes one while it is traced."""
    model, ours = pair(tiny)
    batch = {name: value for name, value in tiny.batch(labels=True).items() if name != "attention_mask"}
    masks: list[bool] = []

    def seen(module: Any, inputs: Any) -> Any:
        for node in module.graph.nodes:
            if "flash_sdpa" in str(node.target):
                masks.extend(isinstance(one, torch.fx.Node) for one in (*node.args[3:4], node.kwargs.get("mask")))
        return module.forward

    torch._dynamo.reset()  # models that were compiled before count against a limit of all
    found = torch.compile(ours.train(), backend=seen)(**batch, use_cache=False)
    wanted = model.train()(**batch, use_cache=False)
    close(found.loss, wanted.loss, "loss")
    found.loss.backward()
    wanted.loss.backward()
    same_gradients(ours, model)
    assert masks and not any(masks)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM"])
@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_a_compiled_model_keeps_the_mask_that_it_needs(name: str, kind: str) -> None:
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    batch = tiny.batch(labels=True, padded=True)
    if kind == "packed":
        del batch["attention_mask"]
        batch["position_ids"] = torch.tensor([[*range(5), *range(7)]]).expand(2, -1)
    torch._dynamo.reset()
    found = torch.compile(ours.train(), backend="eager")(**batch, use_cache=False)
    wanted = model.train()(**batch, use_cache=False)
    close(found.loss, wanted.loss, "loss")
    found.loss.backward()
    wanted.loss.backward()
    same_gradients(ours, model)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Gemma2ForCausalLM", "GptOssForCausalLM"])
def test_a_compiled_step_over_a_cache_of_a_fixed_size_is_decoding(name: str) -> None:
    """In one graph, of one kernel a layer that splits the keys, with the mask, the soft cap and the sinks."""
    tiny = BY_NAME[name]
    model, ours = pair(tiny)
    layers: list[str] = []

    def seen(module: Any, inputs: Any) -> Any:
        layers.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    torch._dynamo.reset()
    step = torch.compile(ours.forward, backend=seen, fullgraph=True)
    batch, tokens = tiny.batch(padded=True), []
    with torch.no_grad():
        for one, forward in ((model, model.forward), (ours, step)):
            ids, mask = batch["input_ids"], batch["attention_mask"]
            cache = transformers.StaticCache(config=one.config, max_cache_len=ids.shape[1] + 6)
            made = one(input_ids=ids, attention_mask=mask, past_key_values=cache)
            given: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
            said = []
            for n in range(4):
                said.append(made.logits[:, -1:].argmax(-1))
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
                given["position_ids"] = mask.sum(1, keepdim=True) - 1
                given["cache_position"] = torch.tensor([ids.shape[1] + n])
                made = forward(input_ids=said[-1], attention_mask=mask, **given)
            tokens.append(torch.cat(said, 1))
    assert torch.equal(*tokens)
    attention = [target for target in layers if "flash_" in target]
    assert attention and all("flash_decoding" in target for target in attention)
