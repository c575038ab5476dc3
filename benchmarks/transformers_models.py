"""Models of transformers with random weights, as the two benchmarks of `patch` build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

VOCABULARY = 128256
Apply = Callable[[Any], Any]


def llama(layers: int, **facts: Any) -> Any:
    """A Llama of Llama 3.2's width (2048, 32 heads of 64 over 8 of keys), bf16, of `layers` layers, on the GPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=8192, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, tie_word_embeddings=False, **facts,
    )  # fmt: skip
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)


def liger(model: Any) -> None:
    """Liger-Kernel's patch of an instance."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama(model=model)


def ours(model: Any) -> None:
    """Ours."""
    from baracuda_py.torch.patch import patch

    print(patch(model))


def nothing(model: Any) -> None:
    """The model as it is."""
