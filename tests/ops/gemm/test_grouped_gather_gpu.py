"""Products of rows that an index names, of real sizes: against float64, and the bits of rows brought together."""

from __future__ import annotations

import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
MODELS = {  # experts, top, d, f, unit, order
    "qwen3-30b-a3b": (64, 8, 2048, 768, "swiglu", "gate_first"),
    "gpt-oss-20b": (32, 4, 2880, 2880, "swiglu_oai", "interleaved"),
    "plain": (16, 2, 1024, 1032, "gelu_tanh", "gate_first"),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_against_rows_brought_together(gated: bool, turned: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    sources, total, groups, n, k = 1000, 5001, 24, 1032, 2056

    def normal(*shape: int):  # type: ignore[no-untyped-def]
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * k**-0.25

    x, rows = normal(sources, k), torch.randint(-1, sources + 1, (total,), device="cuda")
    ends = torch.randint(0, total, (groups,), device="cuda").sort().values
    weights = [normal(groups, k, n).contiguous() if turned else normal(groups, n, k).mT for _ in range(1 + gated)]
    more = {"up": weights[1]} if gated else {}
    y = bc.grouped_gather_gemm(x, rows, weights[0], ends, activation="silu", **more)
    there = (rows >= 0) & (rows < sources)
    a = torch.where(there[:, None], x[torch.where(there, rows, 0)], 0)
    assert torch.equal(y, bc.grouped_gemm_epilogue(a, weights[0], ends, activation="silu", **more))
    bounds = [0, *ends.tolist()]
    for g in range(groups):
        own = slice(bounds[g], bounds[g + 1])
        wanted = torch.nn.functional.silu(a[own].double() @ weights[0][g].double())
        wanted = wanted * (a[own].double() @ weights[1][g].double()) if gated else wanted
        assert float((y[own].double() - wanted).norm()) <= 4e-3 * float(wanted.norm())
    assert not y[bounds[-1] :].any()


@pytest.mark.parametrize("model", MODELS)
def test_moe_has_the_bits_of_rows_brought_together(model: str) -> None:
    """`moe` without a gradient against the launches that it takes where its operands are not for the gather."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    experts, top, d, f, unit, order = MODELS[model]

    def normal(*shape: int):  # type: ignore[no-untyped-def]
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * shape[-1] ** -0.5

    chosen = torch.rand(700, experts, device="cuda").topk(top)
    x, weights = normal(700, d), chosen.values
    gate_up, down = normal(experts, f if model == "plain" else 2 * f, d), normal(experts, d, f)
    y = bc.moe(x, chosen.indices, weights, gate_up, down, activation=unit, order=order)
    apart = torch.empty(700 * d + 1, device="cuda", dtype=torch.bfloat16)[1:].reshape(700, d).copy_(x)
    assert torch.equal(y, bc.moe(apart, chosen.indices, weights, gate_up, down, activation=unit, order=order))
