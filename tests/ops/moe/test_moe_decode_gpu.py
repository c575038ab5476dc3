"""Experts of few tokens at sizes of real models: against float64, and the bits of `moe` of many tokens."""

from __future__ import annotations

import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
MODELS = {  # experts, top, d, f, unit, order
    "qwen3-30b-a3b": (128, 8, 2048, 768, "swiglu", "gate_first"),
    "gpt-oss-20b": (32, 4, 2880, 2880, "swiglu_oai", "interleaved"),
    "mixtral, narrow": (8, 2, 4096, 1792, "swiglu", "gate_last"),
}


def layer(model: str, tokens: int, biases: bool, dtype: str = "bfloat16") -> tuple:
    """The operands of `moe`, from torch."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    experts, top, d, f, unit, order = MODELS[model]
    kind = getattr(torch, dtype)

    def normal(*shape: int, scale: float = 1.0):  # type: ignore[no-untyped-def]
        return torch.randn(shape, device="cuda", dtype=kind) * scale

    chosen = torch.rand(tokens, experts, device="cuda").topk(top)
    weights = chosen.values / chosen.values.sum(1, keepdim=True)
    bias = (normal(experts, 2 * f), normal(experts, d)) if biases else (None, None)
    given = (normal(tokens, d), chosen.indices, weights, normal(experts, 2 * f, d, scale=d**-0.5),
             normal(experts, d, f, scale=f**-0.5), *bias)  # fmt: skip
    return given, {"activation": unit, "order": order}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("tokens", [1, 16, 32])
@pytest.mark.parametrize("model", MODELS)
def test_few_tokens_against_float64_and_among_many(model: str, tokens: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    given, unit = layer(model, 300, model.startswith("gpt"), dtype)
    x, indices, weights, *rest = given
    many = bc.moe(x, indices, weights, *rest, **unit)
    few = bc.moe(x[:tokens], indices[:tokens], weights[:tokens], *rest, **unit)
    assert torch.equal(few, many[:tokens])
    first, second = (None if one is None else one.double() for one in rest[2:])
    for t in {0, tokens - 1}:
        own = indices[t]
        h = torch.einsum("kfd,d->kf", rest[0][own].double(), x[t].double())
        h = h if first is None else h + first[own]
        gate, up = bc.halves(h, unit["order"])
        if unit["activation"] == "swiglu_oai":
            gate, up = gate.clamp(max=7), up.clamp(-7, 7)
            h = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        else:
            h = torch.nn.functional.silu(gate) * up
        z = torch.einsum("kdf,kf->kd", rest[1][own].double(), h)
        z = z if second is None else z + second[own]
        wanted = (weights[t].double()[:, None] * z).sum(0)
        assert float((few[t].double() - wanted).norm() / wanted.norm()) < (6e-3 if dtype == "bfloat16" else 8e-4)


def test_it_takes_two_launches() -> None:
    given, unit = layer("qwen3-30b-a3b", 4, False)
    x, indices, weights, gate_up, down, *_ = given
    gate, up = bc.halves(gate_up, "gate_first", 1)
    y = bc.moe_decode(x, indices, weights, gate, down, up, activation="silu")
    torch = pytest.importorskip("torch")
    assert torch.equal(y, bc.moe(x, indices, weights, gate_up, down, **unit))
    desc = bc.MoeDecodeDescriptor(tokens=4, k=8, experts=128, d=2048, f=768, d_out=2048, element="bfloat16")
    args = bc.MoeDecodeArgs(x=x, indices=indices, weights=weights, gate=gate, up=up, down=down, y=y)
    verdict = bc.MoeDecodePlan.select(desc).can_implement(args)
    assert "/stream/" in str(verdict.sku)
    none = bc.moe(x, torch.full_like(indices, -1), weights, gate_up, down)
    assert not none.any()
