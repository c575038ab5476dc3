"""`baracuda_py.torch` on a GPU: streams, graphs, memory and devices, which only CUDA has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from torch_leaves import block  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional


@pytest.mark.gpu
class TestOnGpu:
    """Streams, graphs, memory and devices, which only CUDA has."""

    def tensors(self, *shapes: tuple[int, ...]) -> list[Any]:
        return [torch.randn(*shape, device="cuda", requires_grad=True) for shape in shapes]

    def test_training_is_torchs(self) -> None:
        x, w = self.tensors((64, 256), (256,))
        y, z = bt.rms_norm(x, w), F.rms_norm(x, (256,), w, 1e-6)
        way = torch.randn_like(y)
        for a, b in zip(torch.autograd.grad(y, (x, w), way), torch.autograd.grad(z, (x, w), way), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        q = torch.randn(2, 64, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        ours = bt.flash_sdpa(q, q, q, is_causal=True, layout="bshd")
        theirs = F.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3, is_causal=True).transpose(1, 2)
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
        way = torch.randn_like(ours)
        torch.testing.assert_close(
            torch.autograd.grad(ours, q, way)[0], torch.autograd.grad(theirs, q, way)[0], rtol=5e-2, atol=5e-2
        )

    def test_the_plain_layer_routes(self) -> None:
        x, w = self.tensors((8, 64), (64,))
        for _ in range(3):  # the first call, and the prepared ones
            assert bc.rms_norm(x.detach(), w.detach()).requires_grad is False
            assert bc.rms_norm(x, w).requires_grad
        torch.autograd.grad(bc.rms_norm(x, w).sum(), (x, w))

    def test_another_stream(self) -> None:
        (x,) = self.tensors((1 << 20,))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = bt.exp(x)
            y.sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        torch.testing.assert_close(x.grad, x.detach().exp())
        with pytest.raises(bc.UnsupportedError, match="stream= is not torch's current one"):
            bt.exp(x, stream=side)
        with torch.cuda.stream(side):
            assert bt.exp(x, stream=side).requires_grad

    def test_a_graph_of_torch(self) -> None:
        x, w = self.tensors((32, 128), (128,))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())

        def step() -> Any:
            return torch.autograd.grad(bt.silu(bt.rms_norm(x, w)).sum(), (x, w))

        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            grads = step()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        want = torch.autograd.grad(F.silu(F.rms_norm(x, (128,), w, 1e-6)).sum(), (x, w))
        for a, b in zip(grads, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_memory_used_on_another_stream_is_not_given_away(self) -> None:
        side = torch.cuda.Stream()
        for _ in range(20):
            x = torch.full((1 << 22,), 2.0, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            y = bt.exp(x, stream=side)
            del x
            torch.full((1 << 22,), 7.0, device="cuda")  # may take x's memory, if that was let go
            side.synchronize()
            assert float(y.min()) == float(y.max()) and abs(float(y[0]) - np.exp(2.0)) < 1e-4

    def test_host_tensors_beside_cuda_ones(self) -> None:
        x, w = self.tensors((4, 8), (8,))
        for weight in (w.detach().cpu(), w.detach().cpu().requires_grad_()):
            for function in (bt.rms_norm, bc.rms_norm):
                with pytest.raises(bc.DeviceMismatchError, match="weight"):
                    function(x, weight)

    def test_compiled(self) -> None:
        torch._dynamo.reset()
        x, w, up = self.tensors((4, 8), (8,), (8, 16))
        compiled = torch.compile(block, fullgraph=True)
        way = torch.randn(4, 8, device="cuda")
        ours = torch.autograd.grad(compiled(x, w, up), (x, w, up), way)
        for a, b in zip(ours, torch.autograd.grad(block(x, w, up), (x, w, up), way), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)

    def test_reduced_overhead(self) -> None:
        torch._dynamo.reset()
        x, w = (t.detach() for t in self.tensors((4, 8), (8,)))
        compiled = torch.compile(lambda a, b: bt.silu(bt.rms_norm(a, b)) * 2, fullgraph=True, mode="reduce-overhead")
        for _ in range(4):
            torch.testing.assert_close(compiled(x, w), bt.silu(bt.rms_norm(x, w)) * 2)

    def test_autocast(self) -> None:
        q = torch.randn(1, 2, 64, 64, device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.float16):
            y = bt.flash_sdpa(q, q, q)
            assert y.dtype is torch.float16 and bt.softmax(y.detach()).dtype is torch.float32
        y.sum().backward()
        assert q.grad.dtype is torch.float32
