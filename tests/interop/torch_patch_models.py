"""Tiny models of transformers, one or more for each family that `baracuda_py.torch.patch` knows, and their inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from baracuda_py.torch.patch import patch

VOCAB = 67
IMAGE, VIDEO, START, END = 60, 61, 62, 63  # tokens of models that see images
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 5, "num_local_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


@dataclass(frozen=True)
class Tiny:
    """A model of a family: the class that is made, its config, and what it is called with beside tokens."""

    family: str
    architecture: str
    config: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[Any], dict[str, Any]] | None = None
    rotary: bool = False  # sequences may be packed into one row
    kind: str = "causal"  # or "seq2seq", "masked", "classes"

    def make(self, seed: int = 0, **more: Any) -> Any:
        """The model in evaluation, with plain attention, its parameters off their initial values."""
        made = getattr(transformers, self.architecture)
        torch.manual_seed(seed)
        model = made(made.config_class(**{**self.config, "attn_implementation": "eager", **more}))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        return model.eval()

    def batch(self, seed: int = 1, *, labels: bool = False, padded: bool = False) -> dict[str, Any]:
        """Two sequences; padded, the first begins with three tokens that nothing sees."""
        generator = torch.Generator().manual_seed(seed)
        if self.kind == "classes":
            given = {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
            return {**given, "labels": torch.tensor([1, 2])} if labels else given
        ids = torch.randint(3, 60, (2, 12), generator=generator)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if padded:
            given["attention_mask"][0, :3] = 0
        if self.inputs is not None:
            given |= self.inputs(ids)
        if "input_features" in given:
            del given["input_ids"], given["attention_mask"]
        targets = ids.clone()
        if self.kind == "seq2seq":
            targets = torch.randint(3, 60, (2, 7), generator=generator)
            given["decoder_input_ids"] = torch.roll(targets, 1, 1)
        targets[0, :4] = -100
        return {**given, "labels": targets} if labels else given

    def seen(self, batch: dict[str, Any]) -> Any:
        """Which rows of the logits count: those of tokens that are seen."""
        return batch["attention_mask"].bool() if self.kind in ("causal", "masked") else slice(None)


def _text(family: str, architecture: str, **more: Any) -> Tiny:
    return Tiny(family, architecture, {**SIZES, **more}, rotary=True)


def _image_of_qwen(ids: Any) -> dict[str, Any]:
    """An image of 4 x 4 patches, whose 2 x 2 tokens stand at the same place of both sequences."""
    ids[:, 3], ids[:, 4:8], ids[:, 8] = START, IMAGE, END
    generator = torch.Generator().manual_seed(3)
    return {
        "pixel_values": torch.randn(2 * 16, 3 * 2 * 4 * 4, generator=generator),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * 2),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }


def _qwen_vision(**more: Any) -> dict[str, Any]:
    return {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2, **more}


def _of_qwen(family: str, architecture: str, vision: dict[str, Any], **text: Any) -> Tiny:
    """With M-RoPE, of whose pairs each axis has some."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    config = {
        "text_config": {**SIZES, "rope_parameters": rope, **text}, "vision_config": vision, "image_token_id": IMAGE,
        "video_token_id": VIDEO, "vision_start_token_id": START, "vision_end_token_id": END,
    }  # fmt: skip
    return Tiny(family, architecture, config, _image_of_qwen)


def _image_of_gemma3(ids: Any) -> dict[str, Any]:
    ids[:, 3:7] = IMAGE
    generator = torch.Generator().manual_seed(3)
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator), "token_type_ids": (ids == IMAGE).long()}


def _image_of_gemma4(ids: Any) -> dict[str, Any]:
    """4 x 4 patches, pooled to 2 x 2 tokens."""
    ids[:, 3:7] = IMAGE
    generator = torch.Generator().manual_seed(3)
    at = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).reshape(1, 16, 2)
    return {
        "pixel_values": torch.rand(2, 16, 3 * 4 * 4, generator=generator), "image_position_ids": at.repeat(2, 1, 1),
        "mm_token_type_ids": (ids == IMAGE).int(),
    }  # fmt: skip


def _sound(ids: Any) -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(3))}


_VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
_GEMMA4 = {
    **SIZES, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB, "global_head_dim": 16,
    "num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "sliding_window": 5, "num_kv_shared_layers": 0, "final_logit_softcapping": 5.0,
}  # fmt: skip
_LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "head_dim": 4, "num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "n_routed_experts": 5, "first_k_dense_replace": 1,
}  # fmt: skip
_SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
_SCAN = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 5, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_LAYERS = {"layer_types": ["linear_attention", "full_attention"]}
_DUALITY = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_chunk_size": 4}
_GATED_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6,
}  # fmt: skip
_BERT = {**SIZES, "num_attention_heads": 4, "type_vocab_size": 2}
_T5 = {
    "vocab_size": VOCAB, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16, "pad_token_id": 0, "eos_token_id": 2,
    "decoder_start_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip

MODELS = (
    _text("llama", "LlamaForCausalLM"),
    _text("mistral", "MistralForCausalLM", sliding_window=5),
    _text("mixtral", "MixtralForCausalLM", **EXPERTS),
    _text("qwen2", "Qwen2ForCausalLM"),
    _text("qwen2_moe", "Qwen2MoeForCausalLM", **EXPERTS, shared_expert_intermediate_size=40),
    _of_qwen("qwen2_vl", "Qwen2VLForConditionalGeneration", _qwen_vision(embed_dim=16, hidden_size=32, mlp_ratio=2,
                                                                        hidden_act="quick_gelu")),
    _of_qwen("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
             _qwen_vision(hidden_size=16, out_hidden_size=32, intermediate_size=24, window_size=8,
                          fullatt_block_indexes=[1])),
    _text("qwen3", "Qwen3ForCausalLM"),
    _text("qwen3_moe", "Qwen3MoeForCausalLM", **EXPERTS, norm_topk_prob=True),
    _of_qwen("qwen3_vl", "Qwen3VLForConditionalGeneration",
             _qwen_vision(hidden_size=16, out_hidden_size=32, intermediate_size=24, deepstack_visual_indexes=[0],
                          num_position_embeddings=16)),
    _of_qwen("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration",
             _qwen_vision(hidden_size=16, out_hidden_size=32, intermediate_size=24, deepstack_visual_indexes=[0],
                          num_position_embeddings=16), **EXPERTS, decoder_sparse_step=1),
    _text("gemma", "GemmaForCausalLM"),
    _text("gemma2", "Gemma2ForCausalLM", **_SLIDING, final_logit_softcapping=5.0, attn_logit_softcapping=4.0),
    _text("gemma3", "Gemma3ForCausalLM", **_SLIDING, final_logit_softcapping=5.0),
    Tiny("gemma3", "Gemma3ForConditionalGeneration",
         {"text_config": {**SIZES, **_SLIDING}, "vision_config": {**_VISION, "image_size": 16, "patch_size": 4},
          "mm_tokens_per_image": 4, "image_token_index": IMAGE, "boi_token_index": START, "eoi_token_index": END},
         _image_of_gemma3),
    Tiny("gemma4", "Gemma4ForCausalLM", _GEMMA4, rotary=True),
    Tiny("gemma4", "Gemma4ForConditionalGeneration",
         {"text_config": {**_GEMMA4, "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2,
                          "moe_intermediate_size": 24},
          "vision_config": {**_VISION, "num_key_value_heads": 2, "head_dim": 8, "patch_size": 4,
                            "pooling_kernel_size": 2, "position_embedding_size": 16, "default_output_length": 4},
          "audio_config": None, "image_token_id": IMAGE, "video_token_id": VIDEO, "boi_token_id": START,
          "eoi_token_id": END}, _image_of_gemma4),
    _text("phi", "PhiForCausalLM", partial_rotary_factor=0.5, num_key_value_heads=4),
    _text("phi3", "Phi3ForCausalLM"),
    _text("glm", "GlmForCausalLM", partial_rotary_factor=0.5),
    _text("glm4", "Glm4ForCausalLM", partial_rotary_factor=0.5),
    _text("glm4_moe", "Glm4MoeForCausalLM", **EXPERTS, n_routed_experts=5, partial_rotary_factor=0.5, n_group=1,
          topk_group=1, first_k_dense_replace=1, use_qk_norm=True),
    _text("cohere", "CohereForCausalLM", use_qk_norm=True, logit_scale=0.3),
    _text("cohere2", "Cohere2ForCausalLM", **_SLIDING, logit_scale=0.3),
    _text("olmo2", "Olmo2ForCausalLM"),
    _text("gpt_oss", "GptOssForCausalLM", **EXPERTS, **_SLIDING),
    _text("gpt_neox", "GPTNeoXForCausalLM", rotary_pct=0.5),
    Tiny("gpt2", "GPT2LMHeadModel", {"vocab_size": VOCAB, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                     "bos_token_id": 1, "eos_token_id": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                                     "attn_pdrop": 0.0}),
    _text("deepseek_v2", "DeepseekV2ForCausalLM", **{**EXPERTS, **_LATENT}),
    _text("deepseek_v3", "DeepseekV3ForCausalLM", **{**EXPERTS, **_LATENT}),
    _text("deepseek_v3", "DeepseekV3ForCausalLM", **{**EXPERTS, **_LATENT, "q_lora_rank": None}, rope_interleave=False),
    Tiny("mamba", "MambaForCausalLM", _SCAN),
    Tiny("falcon_mamba", "FalconMambaForCausalLM", _SCAN),
    Tiny("mamba2", "Mamba2ForCausalLM", {**_SCAN, "num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 4}),
    Tiny("jamba", "JambaForCausalLM", {**SIZES, "num_experts": 5, "num_experts_per_tok": 2, "attn_layer_period": 2,
                                       "attn_layer_offset": 1, "mamba_d_state": 5}),
    Tiny("zamba", "ZambaForCausalLM", {**SIZES, "head_dim": 16, "num_key_value_heads": 4, "mamba_d_state": 5,
                                       "num_hidden_layers": 3, "layers_block_type":
                                       ["hybrid", "linear_attention", "hybrid"]}),
    Tiny("zamba2", "Zamba2ForCausalLM", {**SIZES, "head_dim": 16, "num_key_value_heads": 4, "mamba_d_state": 5,
                                         "n_mamba_heads": 4, "mamba_ngroups": 2, "chunk_size": 4, "use_mem_rope": True,
                                         "layers_block_type": ["linear_attention", "hybrid"]}),
    Tiny("bamba", "BambaForCausalLM", {**SIZES, **_DUALITY, "attn_layer_indices": [1]}),
    Tiny("falcon_h1", "FalconH1ForCausalLM", {**SIZES, **_DUALITY, "mamba_d_ssm": 64, "mamba_rms_norm": True,
                                              "mamba_norm_before_gate": False}),
    Tiny("nemotron_h", "NemotronHForCausalLM", {**SIZES, "layers_block_type": ["mamba", "attention"],
                                                "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2,
                                                "ssm_state_size": 5, "chunk_size": 4}),
    Tiny("granitemoehybrid", "GraniteMoeHybridForCausalLM",
         {**SIZES, **_DUALITY, "layer_types": ["mamba", "attention"], "num_local_experts": 5, "num_experts_per_tok": 2,
          "shared_intermediate_size": 40, "position_embedding_type": "rope"}),
    _text("qwen3_next", "Qwen3NextForCausalLM", **{**EXPERTS, **_LAYERS, **_GATED_DELTA}, decoder_sparse_step=2,
          shared_expert_intermediate_size=40, partial_rotary_factor=0.5),
    Tiny("olmo_hybrid", "OlmoHybridForCausalLM", {**SIZES, **_LAYERS, **_GATED_DELTA}),
    Tiny("kimi_linear", "KimiLinearForCausalLM",
         {**SIZES, **_LATENT, **_LAYERS, "linear_num_heads": 2, "linear_head_dim": 8, "num_experts": 5,
          "num_experts_per_tok": 2, "moe_intermediate_size": 24}),
    Tiny("lfm2", "Lfm2ForCausalLM", {**SIZES, "layer_types": ["conv", "full_attention"]}),
    Tiny("recurrent_gemma", "RecurrentGemmaForCausalLM",
         {**SIZES, "block_types": ["recurrent", "attention"], "lru_width": 32, "attention_window_size": 8}),
    Tiny("bert", "BertForMaskedLM", {**_BERT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
         kind="masked"),
    Tiny("bert", "BertLMHeadModel", {**_BERT, "is_decoder": True, "hidden_dropout_prob": 0.0,
                                     "attention_probs_dropout_prob": 0.0}),
    Tiny("t5", "T5ForConditionalGeneration", _T5, kind="seq2seq"),
    Tiny("t5", "T5ForConditionalGeneration", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
                                              "scale_decoder_outputs": False}, kind="seq2seq"),
    Tiny("vit", "ViTForImageClassification", {**_VISION, "image_size": 16, "patch_size": 4, "num_labels": 3,
                                              "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
         kind="classes"),
    Tiny("siglip", "SiglipForImageClassification",
         {"vision_config": {**_VISION, "image_size": 16, "patch_size": 4}, "num_labels": 3}, kind="classes"),
    Tiny("whisper", "WhisperForConditionalGeneration",
         {"vocab_size": VOCAB, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_mel_bins": 8,
          "max_source_positions": 12, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1,
          "eos_token_id": 2, "decoder_start_token_id": 1, "begin_suppress_tokens": None}, _sound, kind="seq2seq"),
)  # fmt: skip


def pair(tiny: Tiny, **more: Any) -> tuple[Any, Any]:
    """A model, and a copy of it that is patched whole."""
    model = tiny.make(**more)
    ours = copy.deepcopy(model)
    report = patch(ours)
    assert report.replaced and not report.kept, report
    return model, ours


def close(ours: Any, theirs: Any, what: str) -> None:
    """Within 2e-5 of the largest, or of 1e-3, the gradient of what the result does not depend on (a bias of keys)."""
    ours, theirs = ours.detach(), theirs.detach()
    assert float((ours - theirs).abs().max()) <= 2e-5 * max(float(theirs.abs().max()), 1e-3), what


def same_gradients(ours: Any, model: Any) -> None:
    theirs = dict(model.named_parameters())
    for name, parameter in ours.named_parameters():
        assert (parameter.grad is None) == (theirs[name].grad is None), name
        if parameter.grad is not None:
            close(parameter.grad, theirs[name].grad, name)


BY_NAME = {tiny.architecture: tiny for tiny in MODELS}
LLAMA = BY_NAME["LlamaForCausalLM"]
MIXTURES = [BY_NAME[name] for name in ("MixtralForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM")]


def loss_of(model: Any, tiny: Tiny = LLAMA, **more: Any) -> Any:
    return model.train()(**tiny.batch(labels=True), **more).loss
