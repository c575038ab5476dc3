"""Which classes of transformers have a piece: a table of families, each a folder of `transformers.models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .experts import experts
from .gated import dense, gated, packed
from .gated_norms import RGLRU, gated_norm
from .loss import fused_head
from .norms import LAYER_NORM, layer_norm, rms_norm
from .piece import Piece
from .recurrences import CONVOLUTIONS, GATED_DELTA, KIMI_DELTA, MAMBA, MAMBA2, Recurrence
from .rotary import Rotary, of_complex_table, of_one, of_patches, to_halves

RMS, RMS_WIDE, RMS_T5 = rms_norm(), rms_norm(result="input"), rms_norm(result="weight")
GEMMA_NORM, GEMMA4_NORM = rms_norm("eps", offset=1.0, result="input"), rms_norm("eps", result="input")
GATED, PACKED, EXPERTS = gated(), packed(), experts()
HEAD, WRITTEN_OUT = fused_head(), fused_head(named=False)
TURN = "apply_rotary_pos_emb"
HALVES, PAIRS = Rotary(), Rotary("interleaved")
COHERE_PAIRS = Rotary("interleaved", "even", keeps=True)
SILU_LAST, SILU_FIRST, SIGMOID_LAST = gated_norm(), gated_norm(first=True), gated_norm("glu")
VISION = {"apply_rotary_pos_emb_vision": Rotary(keeps=True, form=of_patches)}


@dataclass(frozen=True)
class Family:
    """Classes of a modelling file → their pieces, and its functions → their conventions.

    attends: its models have attention.
    """

    classes: Mapping[str, Piece]
    functions: Mapping[str, Rotary | Recurrence] = field(default_factory=dict)
    attends: bool = True


def _family(classes: Mapping[str, Piece], rotary: Rotary = HALVES, /, **others: Rotary | Recurrence) -> Family:
    return Family(classes, {TURN: rotary, **others})


def _like_llama(prefix: str, norm: Piece = RMS, unit: Piece = GATED, **others: Piece) -> dict[str, Piece]:
    """The classes of a family that names them as Llama does; others: suffix of a name → its piece."""
    return {
        f"{prefix}RMSNorm": norm, f"{prefix}MLP": unit, f"{prefix}ForCausalLM": HEAD,
        **{f"{prefix}{suffix}": piece for suffix, piece in others.items()},
    }  # fmt: skip


def _text_of_images(prefix: str, **others: Piece) -> dict[str, Piece]:
    """The classes of Qwen3-VL's names: a text and a vision model under one head."""
    return {
        f"{prefix}TextRMSNorm": RMS, f"{prefix}TextMLP": GATED, f"{prefix}ForConditionalGeneration": HEAD,
        f"{prefix}VisionMLP": dense("linear_fc1", "linear_fc2", "act_fn"), "LayerNorm": LAYER_NORM,
        **{f"{prefix}{suffix}": piece for suffix, piece in others.items()},
    }  # fmt: skip


FAMILIES: dict[str, Family] = {
    "llama": _family(_like_llama("Llama")),
    "mistral": _family(_like_llama("Mistral")),
    "mixtral": _family({"MixtralRMSNorm": RMS, "MixtralExperts": EXPERTS, "MixtralForCausalLM": HEAD}),
    "qwen2": _family(_like_llama("Qwen2")),
    "qwen2_moe": _family(_like_llama("Qwen2Moe", Experts=EXPERTS)),
    "qwen2_vl": _family(
        {"Qwen2VLRMSNorm": RMS, "Qwen2MLP": GATED, "VisionMlp": dense("fc1", "fc2", "act"), "LayerNorm": LAYER_NORM,
         "Qwen2VLForConditionalGeneration": HEAD},
        **VISION,
    ),
    "qwen2_5_vl": _family(
        {"Qwen2_5_VLRMSNorm": RMS, "Qwen2MLP": GATED, "Qwen2_5_VLMLP": GATED,
         "Qwen2_5_VLForConditionalGeneration": HEAD},
        **VISION,
    ),
    "qwen3": _family(_like_llama("Qwen3")),
    "qwen3_moe": _family(_like_llama("Qwen3Moe", Experts=EXPERTS)),
    "qwen3_vl": _family(_text_of_images("Qwen3VL"), **VISION),
    "qwen3_vl_moe": _family(_text_of_images("Qwen3VLMoe", TextExperts=EXPERTS), **VISION),
    "gemma": _family(_like_llama("Gemma", GEMMA_NORM)),
    "gemma2": _family(_like_llama("Gemma2", GEMMA_NORM)),
    "gemma3": _family(_like_llama("Gemma3", GEMMA_NORM, ForConditionalGeneration=HEAD)),
    "gemma4": _family(
        {"Gemma4RMSNorm": GEMMA4_NORM, "Gemma4TextMLP": GATED, "Gemma4VisionMLP": GATED, "Gemma4TextExperts": EXPERTS,
         "Gemma4ForCausalLM": HEAD, "Gemma4ForConditionalGeneration": HEAD},
        Rotary(form=of_one),
    ),
    "siglip": Family({"SiglipMLP": dense("fc1", "fc2", "activation_fn"), "LayerNorm": LAYER_NORM}),
    "phi": _family(
        {"PhiMLP": dense("fc1", "fc2", "activation_fn"), "LayerNorm": LAYER_NORM, "PhiForCausalLM": HEAD}
    ),
    "phi3": _family(_like_llama("Phi3", unit=PACKED)),
    "glm": _family(_like_llama("Glm", unit=PACKED), PAIRS),
    "glm4": _family(_like_llama("Glm4", unit=PACKED), PAIRS),
    "glm4_moe": _family(_like_llama("Glm4Moe", Experts=EXPERTS)),
    "cohere": _family({"CohereLayerNorm": layer_norm(), "CohereMLP": GATED, "CohereForCausalLM": HEAD}, COHERE_PAIRS),
    "cohere2": _family(
        {"Cohere2LayerNorm": layer_norm(), "Cohere2MLP": GATED, "Cohere2ForCausalLM": HEAD}, COHERE_PAIRS
    ),
    "olmo2": _family(_like_llama("Olmo2", RMS_WIDE), Rotary(keeps=True)),
    "gpt_oss": _family(
        {"GptOssRMSNorm": RMS_WIDE, "GptOssExperts": experts(clamped=True), "GptOssForCausalLM": HEAD},
        Rotary(columns="all"),
    ),
    "gpt_neox": _family(
        {"GPTNeoXMLP": dense("dense_h_to_4h", "dense_4h_to_h", "act"), "LayerNorm": LAYER_NORM,
         "GPTNeoXForCausalLM": HEAD},
    ),
    "gpt2": Family(
        {"GPT2MLP": dense("c_fc", "c_proj dropout", "act", turned=True), "LayerNorm": LAYER_NORM,
         "GPT2LMHeadModel": HEAD}
    ),
    "deepseek_v2": Family(
        _like_llama("DeepseekV2", Experts=EXPERTS),
        {"apply_rotary_emb": Rotary("interleaved", "all", keeps=True, form=of_complex_table)},
    ),
    "deepseek_v3": _family(
        _like_llama("DeepseekV3", Experts=EXPERTS),
        apply_rotary_pos_emb_interleave=Rotary("interleaved", form=to_halves),
    ),
    "bert": Family(
        {"BertIntermediate": dense("dense", "", "intermediate_act_fn"), "LayerNorm": LAYER_NORM,
         "BertPredictionHeadTransform": dense("dense", "LayerNorm", "transform_act_fn"),
         "BertForMaskedLM": fused_head("cls.predictions.decoder", before="cls.predictions.transform", named=False),
         "BertLMHeadModel": fused_head("cls.predictions.decoder", before="cls.predictions.transform")}
    ),
    "t5": Family(
        {"T5LayerNorm": RMS_T5, "T5DenseActDense": dense("wi", "dropout wo", "act"),
         "T5DenseGatedActDense": gated("wi_0", "wi_1", "dropout wo", "act"), "T5ForConditionalGeneration": WRITTEN_OUT}
    ),
    "mamba": Family({"MambaRMSNorm": RMS, "MambaForCausalLM": HEAD}, MAMBA, attends=False),
    "falcon_mamba": Family({"FalconMambaRMSNorm": RMS, "FalconMambaForCausalLM": HEAD}, MAMBA, attends=False),
    "mamba2": Family(
        {"Mamba2RMSNorm": RMS, "MambaRMSNormGated": SILU_FIRST, "Mamba2ForCausalLM": HEAD}, MAMBA2, attends=False
    ),
    "jamba": Family(_like_llama("Jamba", Experts=EXPERTS), MAMBA),
    "zamba": Family(_like_llama("Zamba"), MAMBA),
    "zamba2": _family(
        {"Zamba2RMSNorm": RMS, "Zamba2RMSNormGated": SILU_FIRST, "Zamba2ForCausalLM": HEAD}, **MAMBA2
    ),
    "bamba": _family(_like_llama("Bamba", RMSNormGated=SILU_FIRST), **MAMBA2),
    "falcon_h1": _family(
        {"FalconH1RMSNorm": RMS, "FalconH1RMSNormGated": SILU_FIRST, "FalconH1ForCausalLM": HEAD}, **MAMBA2
    ),
    "nemotron_h": Family(
        {"NemotronHRMSNorm": RMS_WIDE, "NemotronHRMSNormGated": SILU_FIRST, "NemotronHForCausalLM": HEAD}, MAMBA2
    ),
    "granitemoehybrid": _family(
        {"GraniteMoeHybridRMSNorm": RMS, "GraniteMoeHybridRMSNormGated": SILU_FIRST,
         "GraniteMoeHybridExperts": EXPERTS, "GraniteMoeHybridForCausalLM": HEAD,
         "GraniteMoeHybridMLP": packed("input_linear", "output_linear", "activation")},
        **MAMBA2,
    ),
    "qwen3_next": _family(
        _like_llama("Qwen3Next", GEMMA_NORM, Experts=EXPERTS, RMSNormGated=SILU_LAST), **GATED_DELTA
    ),
    "olmo_hybrid": _family(
        _like_llama("OlmoHybrid", RMS_WIDE, RMSNormGated=SILU_LAST), Rotary(keeps=True), **GATED_DELTA
    ),
    "kimi_linear": Family(
        _like_llama("KimiLinear", Experts=EXPERTS, RMSNormGated=SIGMOID_LAST), KIMI_DELTA
    ),
    "lfm2": _family({"Lfm2RMSNorm": RMS, "Lfm2ForCausalLM": HEAD}, **CONVOLUTIONS),
    "recurrent_gemma": _family(
        {"RecurrentGemmaRMSNorm": GEMMA_NORM, "RecurrentGemmaMlp": GATED, "RecurrentGemmaRglru": RGLRU,
         "RecurrentGemmaForCausalLM": HEAD}
    ),
    "vit": Family({"ViTMLP": dense("fc1", "fc2", "activation_fn"), "LayerNorm": LAYER_NORM}),
    "whisper": Family(
        {"LayerNorm": LAYER_NORM, "WhisperForConditionalGeneration": fused_head("proj_out", named=False),
         "WhisperForCausalLM": fused_head("proj_out", named=False)}
    ),
}  # fmt: skip
