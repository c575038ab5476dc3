"""Block masks on a GPU: every row has the bits that it has without, in a graph, too, and flex_attention's results."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def operands(d: int, dtype: Any, n: int = 1000) -> tuple[Any, ...]:
    torch.manual_seed(0)
    shapes = ((2, 4, n, d), (2, 2, n, d), (2, 2, n, d))
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes)
    return q, k, v, torch.randint(0, 5, (2, n), device="cuda", dtype=torch.int32).sort(-1).values


@pytest.mark.parametrize("blocks", [(128, 128), (64, 64), (16, 32)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("d", "dtype"), [(d, "bfloat16") for d in (32, 64, 96, 128, 192, 256)] + [(64, "float32")])
def test_the_same_bits(d: int, dtype: str, is_causal: bool, blocks: tuple[int, int]) -> None:
    q, k, v, doc = operands(d, getattr(torch, dtype))
    f = bc.attention("softcap(s, 30.0)", "doc[b, q] == doc[b, k] and q != 77")
    mask = f.block_mask(q, k, query_block=blocks[0], key_block=blocks[1], doc=doc)
    more: dict[str, Any] = {"doc": doc, "is_causal": is_causal}
    plain = f(q, k, v, return_lse=True, **more)
    for one, other in zip(f(q, k, v, block_mask=mask, return_lse=True, **more), plain, strict=True):
        assert torch.equal(one, other)
    dy = torch.randn_like(q)
    for one, other in zip(f.vjp(dy, q, k, v, block_mask=mask, **more), f.vjp(dy, q, k, v, **more), strict=True):
        assert torch.equal(one, other)


def test_in_a_graph() -> None:
    q, k, v, doc = operands(128, torch.bfloat16)
    f = bc.attention(mask="doc[b, q] == doc[b, k]")
    wanted = f(q, k, v, doc=doc, block_mask=f.block_mask(q, k, doc=doc))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(q, k, v, doc=doc, block_mask=f.block_mask(q, k, doc=doc))
    graph.replay()
    assert torch.equal(y, wanted)


def test_it_is_flex_attention() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v, doc = operands(64, torch.float16, 1024)
    f = bc.attention(mask="q >= k and doc[b, q] == doc[b, k]")
    made = flex.create_block_mask(lambda b, h, i, j: (i >= j) & (doc[b, i] == doc[b, j]), 2, None, 1024, 1024)
    wanted = flex.flex_attention(q, k, v, block_mask=made, enable_gqa=True)
    blocks = f.block_mask(q, k, doc=doc)
    torch.testing.assert_close(f(q, k, v, doc=doc, block_mask=blocks), wanted, rtol=2e-3, atol=2e-3)
    counts = made.kv_num_blocks + (0 if made.full_kv_num_blocks is None else made.full_kv_num_blocks)
    assert torch.equal((blocks.kinds != 0).sum(-1).int(), counts.int())
