"""Recurrences in patched models, by themselves: what the originals give, which calls go to them, packed sequences."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch_patch_models import BY_NAME, close, pair  # noqa: E402

from baracuda_py.torch.patch.recurrences import GATED_DELTA, KIMI_DELTA, MAMBA, MAMBA2  # noqa: E402

pytestmark = pytest.mark.usefixtures("nothing_patched")
FILES = {"mamba": MAMBA, "mamba2": MAMBA2, "qwen3_next": GATED_DELTA, "kimi_linear": KIMI_DELTA}


def both(family: str, name: str) -> tuple[Any, Any, list[Any]]:
    """Ours, the original, and the calls of the original that ours made."""
    modelling = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    original, calls = getattr(modelling, name), []

    def watched(*given: Any, **more: Any) -> Any:
        calls.append(name)
        return original(*given, **more)

    return FILES[family][name].make(watched), original, calls


def drawn(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + len(shape))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
def test_convolutions(dtype: Any, activation: Any) -> None:
    """An activation that is none of ours, and a weight of another element, go to the original."""
    ours, original, calls = both("mamba", "causal_conv1d_fn")
    x, weight, bias = drawn(2, 6, 9, dtype=dtype), drawn(6, 4, dtype=dtype), drawn(6, dtype=dtype)
    unit = 2e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(
        ours(x, weight, bias, activation=activation),
        original(x, weight, bias, activation=activation),
        atol=unit,
        rtol=unit,
    )
    assert bool(calls) == (activation == "gelu")
    ours(x, weight.double(), bias.double(), activation=activation)
    assert calls
    ours, original, calls = both("mamba", "causal_conv1d_update")
    for count in (1, 3):
        state = drawn(2, 6, 4, dtype=dtype)
        kept, new = state.clone(), drawn(2, 6, count, dtype=dtype, seed=1)
        got, wanted = ours(new, kept, weight, bias, activation), original(new, state, weight, bias, activation)
        torch.testing.assert_close(got, wanted, atol=unit, rtol=unit)
        assert torch.equal(kept, state) and bool(calls) == (activation == "gelu")
    ours(new, kept, weight.requires_grad_(), bias, activation)
    assert calls


def scan(dtype: Any, steps: int) -> dict[str, Any]:
    return {
        "hidden_states": drawn(2, 6, steps, dtype=dtype), "dt": drawn(2, 6, steps, dtype=dtype, seed=1),
        "A": -drawn(6, 3).abs(), "B": drawn(2, 3, steps, dtype=dtype, seed=2),
        "C": drawn(2, 3, steps, dtype=dtype, seed=3), "D": drawn(6), "z": drawn(2, 6, steps, dtype=dtype, seed=4),
        "delta_softplus": True, "delta_bias": drawn(6, seed=5),
    }  # fmt: skip


def test_scans() -> None:
    ours, original, calls = both("mamba", "mamba_selective_scan")
    given = scan(torch.float32, 7)
    for got, wanted in zip(
        ours(**given, return_last_state=True), original(**given, return_last_state=True), strict=True
    ):
        close(got, wanted, "scan")
    assert not calls
    ours(**{**given, "z": given["z"].double()})
    assert calls
    ours, original, calls = both("mamba", "mamba_selective_state_update")
    step = {n: x[..., 0] if torch.is_tensor(x) and x.dim() == 3 else x for n, x in given.items()}
    step["dt_softplus"], step["dt_bias"] = step.pop("delta_softplus"), step.pop("delta_bias")
    state = drawn(2, 6, 3)
    kept = state.clone()
    close(ours(kept, **step), original(state, **step), "step")
    close(kept, state, "state")
    assert not calls
    ours(kept, **{**step, "D": step["D"].clone().requires_grad_()})
    assert calls


def test_duality() -> None:
    ours, original, calls = both("mamba2", "mamba2_chunk_scan")
    given = {
        "hidden_states": drawn(1, 9, 4, 6), "dt": drawn(1, 9, 4), "A": -drawn(4).abs(), "B": drawn(1, 9, 2, 3),
        "C": drawn(1, 9, 2, 3, seed=1), "D": drawn(4), "dt_bias": drawn(4, seed=2), "dt_softplus": True,
        "chunk_size": 4, "dt_limit": (0.2, 1.0), "initial_states": drawn(1, 4, 6, 3), "return_final_states": True,
    }  # fmt: skip
    for got, wanted in zip(ours(**given), original(**given), strict=True):
        close(got, wanted, "duality")
    assert not calls
    packed = {**given, "initial_states": None, "return_final_states": False}
    parts = []
    for first, last in ((0, 4), (4, 9)):
        cut = {n: packed[n][:, first:last] for n in ("hidden_states", "dt", "B", "C")}
        parts.append(original(**{**packed, **cut}))
    close(ours(**packed, cu_seq_lens_q=torch.tensor([0, 4, 9])), torch.cat(parts, 1), "packed")
    with pytest.raises(ValueError, match="packed"):
        ours(**packed, seq_idx=torch.zeros(1, 9, dtype=torch.int32))
    ours, original, calls = both("mamba2", "mamba2_selective_state_update")
    numbers = {n: given[n][:, None].expand(-1, 6) for n in ("D", "dt_bias")}
    step = {
        "hidden_states": drawn(2, 4, 6), "dt": drawn(2, 4, 1).expand(-1, -1, 6),
        "A": given["A"][:, None, None].expand(-1, 6, 3), "B": drawn(2, 2, 3), "C": drawn(2, 2, 3, seed=1),
        "dt_softplus": True, **numbers,
    }  # fmt: skip
    state = drawn(2, 4, 6, 3)
    kept = state.clone()
    close(ours(kept, **step), original(state, **step), "step")
    close(kept, state, "state")
    assert not calls
    ours(kept, **{**step, "A": step["A"].contiguous()})
    assert calls


@pytest.mark.parametrize(
    ("family", "name", "channels"),
    [("qwen3_next", "torch_chunk_gated_delta_rule", False), ("qwen3_next", "torch_recurrent_gated_delta_rule", False),
     ("kimi_linear", "chunk_kimi_delta_attention", True), ("kimi_linear", "recurrent_kimi_delta_attention", True)],
)  # fmt: skip
def test_delta_rules(family: str, name: str, channels: bool) -> None:
    ours, original, calls = both(family, name)
    key_heads = 4 if channels else 2
    g = -drawn(2, 7, 4, 8).abs() if channels else -drawn(2, 7, 4).abs()
    given = {
        "query": drawn(2, 7, key_heads, 8), "key": drawn(2, 7, key_heads, 8, seed=1), "value": drawn(2, 7, 4, 6),
        "g": g, "beta": torch.sigmoid(drawn(2, 7, 4)), "initial_state": drawn(2, 4, 8, 6),
        "use_qk_l2norm_in_kernel": True,
    }  # fmt: skip
    got, wanted = ours(**given, output_final_state=True), original(**given, output_final_state=True)
    for one, other in zip(got, wanted, strict=True):
        close(one, other, name)
    assert ours(**given)[1] is None and not calls
    ours(**{**given, "query": given["query"].double()})
    assert calls


@pytest.mark.parametrize("name", ["Qwen3NextForCausalLM", "Mamba2ForCausalLM", "BambaForCausalLM"])
def test_padding_is_not_seen(name: str) -> None:
    """A padded sequence gives what it does alone."""
    _, ours = pair(BY_NAME[name])
    batch = BY_NAME[name].batch(padded=True)
    with torch.no_grad():
        got = ours(**batch).logits[:1, 3:]
        close(got, ours(batch["input_ids"][:1, 3:]).logits, "alone")


def test_bounds_keep_sequences_apart() -> None:
    """Where transformers' own fallbacks refuse them."""
    tiny = BY_NAME["Qwen3NextForCausalLM"]
    _, ours = pair(tiny)
    ids = tiny.batch()["input_ids"]
    parts = [ids[:1, :5], ids[1:, :7]]
    row = {"input_ids": torch.cat(parts, 1), "position_ids": torch.cat([torch.arange(5), torch.arange(7)])[None]}
    ends = torch.tensor([0, 5, 12], dtype=torch.int32)
    with torch.no_grad():
        wanted = torch.cat([ours(part, use_cache=False).logits for part in parts], 1)
        found = ours(**row, cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=7, max_length_k=7, use_cache=False)
    close(found.logits, wanted, "bounds")


@pytest.mark.parametrize("name", ["MambaForCausalLM", "Mamba2ForCausalLM", "Qwen3NextForCausalLM"])
def test_numbers_of_sequences_alone_are_refused(name: str) -> None:
    """As the model as it was does, and not ignored by one of its functions."""
    family = BY_NAME[name].family
    own = next(n for n in FILES[family] if n not in ("causal_conv1d_fn", "causal_conv1d_update"))
    index, convolution = torch.zeros(1, 5, dtype=torch.int32), both(family, "causal_conv1d_fn")[0]
    if family == "mamba":
        with pytest.raises(ValueError, match="packed"):
            convolution(drawn(1, 6, 5), drawn(6, 4), seq_idx=index)
        return
    assert convolution(drawn(1, 6, 5), drawn(6, 4), seq_idx=index).shape == (1, 6, 5)
    given = [drawn(1, 5, 2, 4), drawn(1, 5, 2), -drawn(2).abs(), drawn(1, 5, 2, 3), drawn(1, 5, 2, 3), 4]
    if family == "qwen3_next":
        given = [drawn(1, 5, 2, 4), drawn(1, 5, 2, 4), drawn(1, 5, 2, 3), -drawn(1, 5, 2).abs(), drawn(1, 5, 2)]
    with pytest.raises(ValueError, match="packed"):
        both(family, own)[0](*given, seq_idx=index)


def test_a_file_that_has_other_names() -> None:
    """Every function that is known is there in this version of transformers."""
    for family, functions in FILES.items():
        modelling = import_module(f"transformers.models.{family}.modeling_{family}")
        assert all(hasattr(modelling, name) for name in functions), family
