"""`baracuda_py.torch.nn` and `.optim` beside torch's own: values, gradients, state, torch.compile, a training run."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from baracuda_py.core.errors import InvalidProblemError, UnsupportedError  # noqa: E402
from baracuda_py.torch import nn, optim  # noqa: E402

F = torch.nn.functional
F64 = torch.float64


def same_as(ours: Any, theirs: Any, *inputs: Any) -> None:
    """Outputs and all gradients of two modules with the same state are equal but for rounding."""
    theirs.load_state_dict(ours.state_dict())
    results = []
    for module in (ours, theirs):
        given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        y = module(*given)
        y.square().sum().backward()
        results.append([y, *(x.grad for x in given if x.requires_grad), *(p.grad for p in module.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8), (8,)])
@pytest.mark.parametrize("affine", [True, False])
def test_norms(shape: tuple[int, ...], affine: bool) -> None:
    x = torch.randn(shape, dtype=F64)
    for name in ("RMSNorm", "LayerNorm"):
        made = [getattr(m, name)(8, elementwise_affine=affine, dtype=F64) for m in (nn, torch.nn)]
        for p in made[0].parameters():
            torch.nn.init.normal_(p)
        same_as(*made, x)


def test_norm_of_two_axes_and_with_a_residual() -> None:
    x, r = torch.randn(2, 3, 4, 5, dtype=F64), torch.randn(2, 3, 4, 5, dtype=F64)
    norm = nn.LayerNorm((4, 5), dtype=F64)
    y, h = norm(x, r)
    torch.testing.assert_close(h, x + r)
    torch.testing.assert_close(y, F.layer_norm(x + r, (4, 5)))


def test_embedding() -> None:
    indices = torch.randint(0, 11, (4, 7))
    same_as(nn.Embedding(11, 6, padding_idx=2, dtype=F64), torch.nn.Embedding(11, 6, padding_idx=2, dtype=F64), indices)
    facts = {"max_norm": 1.0, "scale_grad_by_freq": True, "dtype": F64}
    same_as(nn.Embedding(11, 6, **facts), torch.nn.Embedding(11, 6, **facts), indices)
    bags = {"mode": "sum", "padding_idx": 3, "dtype": F64}
    same_as(nn.EmbeddingBag(11, 6, **bags), torch.nn.EmbeddingBag(11, 6, **bags), indices)
    with pytest.raises(UnsupportedError, match="sparse"):
        nn.Embedding(4, 4, sparse=True)


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu", "tanh"])
def test_linear(activation: str) -> None:
    class Theirs(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return getattr(torch if activation == "tanh" else F, activation)(super().forward(x))

    same_as(nn.Linear(6, 5, activation=activation, dtype=F64), Theirs(6, 5, dtype=F64), torch.randn(2, 3, 6, dtype=F64))
    with pytest.raises(InvalidProblemError, match="activation must be"):
        nn.Linear(2, 2, activation="square root")


def test_swiglu() -> None:
    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up, self.down = (torch.nn.Linear(*s, bias=False, dtype=F64) for s in ((6, 20), (10, 6)))

        def forward(self, x: Any) -> Any:
            gate, up = self.gate_up(x).chunk(2, -1)
            return self.down(F.silu(gate) * up)

    same_as(nn.SwiGLU(6, 10, dtype=F64), Theirs(), torch.randn(2, 3, 6, dtype=F64))


# -- attention ---------------------------------------------------------------------------------------------------------


class TorchAttention(torch.nn.Module):
    """What `nn.Attention` computes, from torch's parts."""

    def __init__(self, width: int, heads: int, kv_heads: int, causal: bool, base: float | None) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.causal, self.base = heads, kv_heads, width // heads, causal, base
        self.qkv = torch.nn.Linear(width, (heads + 2 * kv_heads) * self.dim, bias=False, dtype=F64)
        self.out = torch.nn.Linear(width, width, bias=False, dtype=F64)

    def turned(self, x: Any) -> Any:
        half = self.dim // 2
        places, pairs = (torch.arange(n, dtype=F64, device=x.device) for n in (x.shape[1], half))
        angle = places[:, None] * self.base ** (-pairs / half)
        cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x: Any, mask: Any = None) -> Any:
        heads = self.qkv(x).unflatten(-1, (-1, self.dim))
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), 2)
        if self.base is not None:
            q, k = self.turned(q), self.turned(k)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal and mask is None, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("base", [10000.0, None])
def test_attention(heads: int, kv_heads: int, causal: bool, base: float | None) -> None:
    width = heads * 8
    ours = nn.Attention(width, heads, num_kv_heads=kv_heads, causal=causal, rope_base=base, dtype=F64)
    same_as(ours, TorchAttention(width, heads, kv_heads, causal, base), torch.randn(2, 9, width, dtype=F64))


def test_packed_attention_is_that_of_each_sequence() -> None:
    module = nn.Attention(32, 4, num_kv_heads=2, dtype=F64)
    cu = torch.tensor([0, 5, 5, 12, 13], dtype=torch.int32)
    x = torch.randn(13, 32, dtype=F64, requires_grad=True)
    packed = module(x, cu_seqlens=cu, max_seqlen=7)
    packed.square().sum().backward()
    got, grads = x.grad.clone(), [p.grad.clone() for p in module.parameters()]
    x.grad = None
    module.zero_grad()
    parts = [module(x[None, a:b])[0] for a, b in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True) if b > a]
    torch.cat(parts).square().sum().backward()
    torch.testing.assert_close(packed, torch.cat(parts))
    for a, b in zip([got, *grads], [x.grad, *(p.grad for p in module.parameters())], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("base", [10000.0, None])
def test_attention_over_a_cache_is_that_of_the_whole(base: float | None) -> None:
    module = nn.Attention(32, 4, num_kv_heads=2, rope_base=base, dtype=F64)
    x = torch.randn(3, 11, 32, dtype=F64)
    cache = nn.KVCache(3, 16, 2, 8, dtype=F64)
    with torch.no_grad():
        want = module(x)
        got = torch.cat([module(x[:, a:b], cache=cache) for a, b in ((0, 4), (4, 5), (5, 6), (6, 9), (9, 11))], 1)
    torch.testing.assert_close(got, want)
    assert cache.lengths.tolist() == [11] * 3
    cache.reset()
    assert cache.lengths.tolist() == [0] * 3


def test_attention_says_what_does_not_go_together() -> None:
    with pytest.raises(InvalidProblemError, match="num_kv_heads must divide"):
        nn.Attention(32, 4, num_kv_heads=3)
    with pytest.raises(InvalidProblemError, match="num_heads must divide"):
        nn.Attention(30, 4)
    module, cache = nn.Attention(32, 4), nn.KVCache(1, 4, 4, 8)
    with pytest.raises(InvalidProblemError, match="cu_seqlens"):
        module(torch.zeros(3, 32), cu_seqlens=torch.tensor([0, 3], dtype=torch.int32), cache=cache)
    with pytest.raises(InvalidProblemError, match="without mask"):
        module(torch.zeros(1, 3, 32), cache=cache, mask=torch.zeros(3, 3))
    with pytest.raises(UnsupportedError):  # appended keys have no gradient
        module(torch.zeros(1, 3, 32), cache=cache)


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [True, False])
def test_cross_entropy(reduction: str, smoothing: float, weighted: bool) -> None:
    weight = torch.rand(7, dtype=F64) if weighted else None
    facts = {"weight": weight, "ignore_index": 3, "label_smoothing": smoothing, "reduction": reduction}
    same_as(
        nn.CrossEntropyLoss(**facts), torch.nn.CrossEntropyLoss(**facts),
        torch.randn(9, 7, dtype=F64), torch.randint(0, 7, (9,)),
    )  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_fused_linear_cross_entropy(reduction: str, with_bias: bool, chunk: int) -> None:
    x, w, b = torch.randn(2, 5, 6, dtype=F64), torch.randn(7, 6, dtype=F64), torch.randn(7, dtype=F64)
    targets = torch.randint(0, 7, (2, 5))
    targets[0, 1] = -100
    loss = nn.FusedLinearCrossEntropyLoss(label_smoothing=0.1, reduction=reduction, chunk_size=chunk)
    results = []
    for fused in (True, False):
        given = [t.clone().requires_grad_() for t in ((x, w, b) if with_bias else (x, w))]
        bias = given[2] if with_bias else None
        if fused:
            value = loss(given[0], given[1], targets, bias)
        else:
            logits = F.linear(given[0], given[1], bias).flatten(0, 1)
            value = F.cross_entropy(logits, targets.flatten(), label_smoothing=0.1, reduction=reduction)
        (3 * value).backward()
        results.append([value, *(t.grad for t in given)])
    for a, b_ in zip(*results, strict=True):
        torch.testing.assert_close(a, b_)


def test_fused_linear_cross_entropy_with_frozen_weights_and_bad_input() -> None:
    loss = nn.FusedLinearCrossEntropyLoss(chunk_size=2)
    x, w, targets = torch.randn(5, 6, requires_grad=True), torch.randn(7, 6), torch.randint(0, 7, (5,))
    loss(x, w, targets).backward()
    assert x.grad is not None and w.grad is None
    with pytest.raises(InvalidProblemError, match="targets must have shape"):
        loss(x, w, targets[:3])
    with pytest.raises(InvalidProblemError, match="reduction"):
        nn.FusedLinearCrossEntropyLoss(reduction="batch")
    with pytest.raises(InvalidProblemError, match="chunk_size"):
        nn.FusedLinearCrossEntropyLoss(chunk_size=0)


# -- AdamW -------------------------------------------------------------------------------------------------------------


def parameters(dtype: Any = F64) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5,), (), (2, 3, 4))
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=F64).to(dtype)) for s in shapes]


def walked(optimizer: Any, params: list[Any], steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for i in range(steps):
        for j, p in enumerate(params):
            late = i == 0 and j == 1  # takes its first step later than the others
            p.grad = None if late else torch.randn(p.shape, generator=generator, dtype=F64).to(p.dtype)
        optimizer.step()


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("capturable", [True, False])
def test_adamw(maximize: bool, capturable: bool) -> None:
    facts = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "maximize": maximize}
    ours, theirs = parameters(), parameters()
    walked(
        optim.AdamW([{"params": ours[:2]}, {"params": ours[2:], "lr": 0.02}], **facts, capturable=capturable), ours, 5
    )
    walked(torch.optim.AdamW([{"params": theirs[:2]}, {"params": theirs[2:], "lr": 0.02}], **facts), theirs, 5)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("capturable", [True, False])
def test_adamw_goes_on_from_its_own_state_and_from_torchs(capturable: bool) -> None:
    whole, parts, mixed = parameters(), parameters(), parameters()
    walked(optim.AdamW(whole), whole, 3)
    walked(first := optim.AdamW(parts, capturable=capturable), parts, 3)
    walked(theirs := torch.optim.AdamW(mixed), mixed, 3)
    generator_seed = 5
    walked(first, whole_copy := parts, 0)
    second, third = optim.AdamW(parts, capturable=capturable), optim.AdamW(mixed, capturable=capturable)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    third.load_state_dict({**theirs.state_dict(), "param_groups": second.state_dict()["param_groups"]})
    continued = optim.AdamW(whole)
    continued.load_state_dict(first.state_dict())
    for optimizer, params in ((continued, whole), (second, whole_copy), (third, mixed)):
        walked(optimizer, params, 2, generator_seed)
    for a, b, c in zip(whole, parts, mixed, strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)


def test_adamw_of_short_parameters_keeps_float32_moments() -> None:
    params = parameters(torch.bfloat16)
    walked(optimizer := optim.AdamW(params), params, 2)
    again = optim.AdamW(params)
    again.load_state_dict(optimizer.state_dict())
    for p in params:
        torch.testing.assert_close(again.state[p]["exp_avg"], optimizer.state[p]["exp_avg"], rtol=0, atol=0)
        assert again.state[p]["exp_avg_sq"].dtype == torch.float32


def test_adamw_with_a_clip_a_closure_and_bad_arguments() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = optim.AdamW([p], lr=torch.tensor(0.1), weight_decay=0.0)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure, grad_scale=torch.tensor(0.5)) == 3
    torch.testing.assert_close(p.detach(), torch.full((3,), 0.9))
    for bad in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1e-8}, {"weight_decay": -0.1}):
        with pytest.raises(InvalidProblemError, match=next(iter(bad))):
            optim.AdamW([p], **bad)
    p.grad = torch.ones(3).to_sparse()
    with pytest.raises(UnsupportedError, match="dense"):
        optimizer.step()


# -- a decoder ---------------------------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """A Llama block of our modules."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int, dtype: Any) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5, dtype=dtype), nn.RMSNorm(width, eps=1e-5, dtype=dtype)
        self.attention = nn.Attention(width, heads, num_kv_heads=kv_heads, dtype=dtype)
        self.mlp = nn.SwiGLU(width, hidden, dtype=dtype)

    def forward(self, x: Any, stream: Any) -> Any:
        y, stream = self.norm1(x, stream)
        y, stream = self.norm2(self.attention(y), stream)
        return self.mlp(y), stream


class Decoder(torch.nn.Module):
    """Embedding, blocks, and the loss of the next token."""

    def __init__(self, vocab: int = 17, width: int = 32, layers: int = 2, dtype: Any = F64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width, dtype=dtype)
        self.blocks = torch.nn.ModuleList([Block(width, 4, 2, 48, dtype) for _ in range(layers)])
        self.norm = nn.RMSNorm(width, eps=1e-5, dtype=dtype)
        self.loss = nn.FusedLinearCrossEntropyLoss(chunk_size=16)

    def forward(self, tokens: Any, targets: Any) -> Any:
        x = self.embedding(tokens)
        stream = torch.zeros_like(x)
        for block in self.blocks:
            x, stream = block(x, stream)
        y, _ = self.norm(x, stream)
        return self.loss(y, self.embedding.weight, targets)


def torch_loss(model: Decoder, tokens: Any, targets: Any) -> Any:
    """The same loss from torch's own functions and the decoder's weights."""
    stream = model.embedding.weight[tokens]
    for block in model.blocks:
        attention = TorchAttention(32, 4, 2, True, 10000.0).to(tokens.device)
        attention.load_state_dict(block.attention.state_dict())
        stream = stream + attention(F.rms_norm(stream, (32,), block.norm1.weight, 1e-5))
        gate, up = block.mlp.gate_up(F.rms_norm(stream, (32,), block.norm2.weight, 1e-5)).chunk(2, -1)
        stream = stream + block.mlp.down(F.silu(gate) * up)
    y = F.rms_norm(stream, (32,), model.norm.weight, 1e-5)
    return F.cross_entropy((y @ model.embedding.weight.T).flatten(0, 1), targets.flatten())


DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@DEVICES
def test_a_decoder_compiles_whole_and_its_loss_is_torchs(device: str) -> None:
    torch.manual_seed(0)
    model, backend = Decoder().to(device), "aot_eager" if device == "cpu" else "inductor"
    tokens = torch.randint(0, 17, (2, 12), device=device)
    x, y = tokens[:, :-1], tokens[:, 1:]
    want = torch_loss(model, x, y)
    eager = model(x, y)
    eager.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, fullgraph=True, backend=backend)(x, y)
    compiled.backward()
    torch.testing.assert_close(eager, want)
    torch.testing.assert_close(compiled, want)
    for a, p in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, a)


@DEVICES
def test_a_decoder_learns(device: str) -> None:
    torch.manual_seed(0)
    model = Decoder(dtype=torch.float32).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    text = torch.tensor([int(c) for c in "3141592653589793" * 4], device=device)
    x, y = text[None, :-1], text[None, 1:]
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 < 1.5 < losses[0]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_and_instance_norm(axes: int, affine: bool) -> None:
    x = torch.randn((4, 6, 5, 4, 3)[: axes + 2], dtype=F64)
    for kind in ("BatchNorm", "InstanceNorm"):
        for facts in ({}, {"momentum": None, "track_running_stats": True}, {"track_running_stats": False}):
            if kind == "InstanceNorm" and facts.get("momentum", 0) is None:
                continue
            made = [getattr(m, f"{kind}{axes}d")(6, affine=affine, dtype=F64, **facts) for m in (nn, torch.nn)]
            for p in made[0].parameters():
                torch.nn.init.normal_(p)
            same_as(*made, x)
            same_as(*made, 2 * x)
            for m in made:
                m(x + 1)
            for a, b in zip(made[0].buffers(), made[1].buffers(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
            same_as(*(m.eval() for m in made), x)
    alone = nn.InstanceNorm1d(6, dtype=F64)(x.reshape(4, 6, -1)[0])
    torch.testing.assert_close(alone, F.instance_norm(x.reshape(4, 6, -1)[:1])[0])


def test_group_norm() -> None:
    x = torch.randn(4, 6, 5, dtype=F64)
    same_as(nn.GroupNorm(3, 6, dtype=F64), torch.nn.GroupNorm(3, 6, dtype=F64), x)
