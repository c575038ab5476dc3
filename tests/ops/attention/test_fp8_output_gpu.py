"""fp8 outputs of attention on a GPU: the output in 16 bits, times a scale on the device, cast; in a graph, too."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def cast(y: Any, scale: Any, kind: Any) -> Any:
    largest = torch.finfo(kind).max
    return (y.float() * scale).clamp(-largest, largest).to(kind)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_prefill(d: int, kind: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn((2, n, 1024, d), device="cuda", dtype=torch.bfloat16) for n in (8, 2, 2))
    y, lse = bc.flash_sdpa(q, k, v, is_causal=True, return_lse=True)
    scale, by_head = torch.tensor(37.5, device="cuda"), 2.0 ** torch.arange(8, device="cuda").float()
    fp8 = getattr(torch, kind)
    got, other = bc.flash_sdpa(q, k, v, is_causal=True, out_element=kind, out_scale=scale, return_lse=True)
    assert got.dtype is fp8 and torch.equal(got.float(), cast(y, scale, fp8).float()) and torch.equal(other, lse)
    got = bc.flash_sdpa(q, k, v, is_causal=True, out_element=kind, out_scale=by_head)
    assert torch.equal(got.float(), cast(y, by_head[:, None, None], fp8).float())


def test_decoding_in_a_graph() -> None:
    torch.manual_seed(1)
    q = torch.randn((4, 16, 128), device="cuda", dtype=torch.float16)
    k, v = (torch.randn((64, 2, 16, 128), device="cuda", dtype=torch.float16) for _ in range(2))
    table = torch.arange(64, device="cuda", dtype=torch.int32).reshape(4, 16)
    lengths, scale = torch.tensor([256, 1, 77, 130], device="cuda"), torch.tensor(2.0, device="cuda")
    given: dict[str, Any] = {"page_table": table, "lengths": lengths.int()}
    out = torch.empty((4, 16, 128), device="cuda", dtype=torch.float8_e4m3fn)

    def run() -> None:
        bc.batch_paged_decode(q, k, v, **given, out_element="float8_e4m3fn", out_scale=scale, out=out)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    y = bc.batch_paged_decode(q, k, v, **given)
    for factor in (2.0, 100.0):
        scale.fill_(factor)
        graph.replay()
        assert torch.equal(out.float(), cast(y, factor, torch.float8_e4m3fn).float())
