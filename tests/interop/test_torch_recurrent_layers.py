"""Layers of recurrences in baracuda_py.torch.nn: beside transformers' own, step by step, packed, padded and decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = pytest.importorskip("baracuda_py.torch.nn")
from recurrent_layer_formulas import delta_net, gla, normed, retention, rwkv7  # noqa: E402

from baracuda_py import InvalidProblemError, UnsupportedError  # noqa: E402

F = torch.nn.functional
HIDDEN = 12


def same(got: Any, wanted: Any, most: float = 2e-5) -> None:
    """Within `most` of the largest."""
    assert got.shape == wanted.shape
    assert float((got - wanted).detach().abs().max()) <= most * max(float(wanted.detach().abs().max()), 1e-3)


def moved(layer: Any, seed: int = 0) -> Any:
    """A layer whose parameters are off their initial values."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in layer.parameters():
            one.add_(0.2 * torch.randn(one.shape, generator=generator, dtype=one.dtype))
    return layer


def tokens(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, HIDDEN, generator=torch.Generator().manual_seed(1), dtype=dtype)


# Beside transformers


def mamba() -> tuple[Any, Any, dict[str, str]]:
    t = pytest.importorskip("transformers")
    config = t.MambaConfig(hidden_size=HIDDEN, state_size=5, num_hidden_layers=1, time_step_rank=3)
    from transformers.models.mamba.modeling_mamba import MambaMixer

    return nn.Mamba(HIDDEN, d_state=5, dt_rank=3), MambaMixer(config, 0), {}


def mamba2(groups: int = 2, limit: Any = None) -> tuple[Any, Any, dict[str, str]]:
    t = pytest.importorskip("transformers")
    more = {} if limit is None else {"time_step_limit": limit}
    config = t.Mamba2Config(
        hidden_size=HIDDEN, state_size=5, num_hidden_layers=1, num_heads=4, head_dim=6, n_groups=groups, chunk_size=4,
        layer_norm_epsilon=1e-5, **more,
    )  # fmt: skip
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    given = {} if limit is None else {"dt_limit": limit}
    return nn.Mamba2(HIDDEN, d_state=5, headdim=6, ngroups=groups, **given), Mamba2Mixer(config, 0), {}


@pytest.mark.parametrize("make", [mamba, mamba2, lambda: mamba2(1, (0.1, 0.7))], ids=["mamba", "mamba2", "limited"])
def test_state_spaces_are_those_of_transformers(make: Callable[[], Any]) -> None:
    ours, theirs, _ = make()
    moved(theirs)
    ours.load_state_dict(theirs.state_dict())
    x = tokens(2, 9)
    a, b = (x.clone().requires_grad_() for _ in range(2))
    got, wanted = ours(a), theirs.eval()(b)
    same(got, wanted)
    weights = tokens(2, 9).roll(1, 0)
    (got * weights).sum().backward()
    (wanted * weights).sum().backward()
    same(a.grad, b.grad, 1e-4)
    for name, one in theirs.named_parameters():
        same(ours.get_parameter(name).grad, one.grad, 1e-4)


@pytest.mark.parametrize("make", [mamba, mamba2, lambda: mamba2(2, (0.1, 0.7))], ids=["mamba", "mamba2", "limited"])
@pytest.mark.parametrize("prompt", [1, 2, 6])
def test_state_spaces_decode(make: Callable[[], Any], prompt: int) -> None:
    """A prompt and then steps give what the whole sequence does; the prompt may be shorter than the convolution."""
    ours = moved(make()[0])
    ours.layer_idx, x = 3, tokens(2, 8)
    params = nn.InferenceParams(8, 2)
    with torch.no_grad():
        wanted, parts = ours(x), [ours(x[:, :prompt], inference_params=params)]
        for t in range(prompt, 8):
            params.seqlen_offset = t
            parts.append(ours(x[:, t : t + 1], inference_params=params))
    same(torch.cat(parts, 1), wanted)
    assert set(params.key_value_memory_dict) == {3}


def test_mamba2_of_fewer_channels_and_other_forms() -> None:
    """A gated unit beside the state space, skips of channels, no norm; packed, as rows, and decoded."""
    layer = moved(nn.Mamba2(HIDDEN, 5, headdim=4, d_ssm=8, D_has_hdim=True, rmsnorm=False, layer_idx=0))
    x = tokens(1, 9)
    with torch.no_grad():
        wanted = torch.cat([layer(x[:, :4]), layer(x[:, 4:])], 1)
        bounds = torch.tensor([0, 4, 9], dtype=torch.int32)
        params = nn.InferenceParams()
        same(layer(x, cu_seqlens=bounds, inference_params=params), wanted)
        same(layer(x.reshape(9, HIDDEN), seqlen=9), layer(x)[0])
        params.seqlen_offset = 5
        after = tokens(2, 1)
        got = layer(after, inference_params=params)
        whole = [layer(torch.cat([x[:, part], after[n : n + 1]], 1))[:, -1:] for n, part in
                 enumerate((slice(0, 4), slice(4, 9)))]  # fmt: skip
        same(got, torch.cat(whole))


def gated_delta_net() -> tuple[Any, Any]:
    t = pytest.importorskip("transformers")
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    config = t.Qwen3NextConfig(
        hidden_size=HIDDEN, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=3,
        linear_value_head_dim=6, rms_norm_eps=1e-5, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        layer_types=["linear_attention"],
    )  # fmt: skip
    theirs = moved(Qwen3NextGatedDeltaNet(config, 0))
    ours = nn.GatedDeltaNet(HIDDEN, expand_v=2, head_dim=3, num_heads=2, num_v_heads=4, layer_idx=0)
    held = theirs.state_dict()
    mixed = held["in_proj_qkvz.weight"].unflatten(0, (2, -1)).split([3, 3, 12, 12], 1)
    b, a = held["in_proj_ba.weight"].unflatten(0, (2, -1)).split([2, 2], 1)
    parts = dict(zip(("q_proj", "k_proj", "v_proj", "g_proj"), mixed, strict=True)) | {"b_proj": b, "a_proj": a}
    conv = held["conv1d.weight"].split([6, 6, 24])
    ours.load_state_dict(
        {f"{name}.weight": one.flatten(0, 1) for name, one in parts.items()}
        | {f"{n}_conv1d.weight": one for n, one in zip("qkv", conv, strict=True)}
        | {"A_log": held["A_log"], "dt_bias": held["dt_bias"], "o_norm.weight": held["norm.weight"],
           "o_proj.weight": held["out_proj.weight"]}
    )  # fmt: skip
    return ours, theirs


def kimi() -> tuple[Any, Any]:
    t = pytest.importorskip("transformers")
    modelling = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    config = t.KimiLinearConfig(
        hidden_size=HIDDEN, linear_num_heads=2, linear_head_dim=4, rms_norm_eps=1e-5, num_hidden_layers=1,
        layer_types=["linear_attention"],
    )  # fmt: skip
    theirs = modelling.KimiLinearDeltaAttention(config, 0)
    with torch.no_grad():
        for name, one in theirs.named_parameters():
            if name.startswith("forget_gate."):
                one.uniform_(0.1, 0.9)
    moved(theirs)
    ours = nn.KimiDeltaAttention(HIDDEN, head_dim=4, num_heads=2, layer_idx=0)
    held = theirs.state_dict()
    same_names = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "b_proj.weight", "o_norm.weight", "o_proj.weight")
    conv = held["conv1d.weight"].chunk(3)
    ours.load_state_dict(
        {name: held[name] for name in same_names}
        | {f"{n}_conv1d.weight": one for n, one in zip("qkv", conv, strict=True)}
        | {"f_proj.0.weight": held["forget_gate.f_a_proj.weight"],
           "f_proj.1.weight": held["forget_gate.f_b_proj.weight"],
           "A_log": held["forget_gate.A_log"].flatten(), "dt_bias": held["forget_gate.dt_bias"],
           "g_proj.0.weight": held["g_a_proj.weight"], "g_proj.1.weight": held["g_b_proj.weight"],
           "g_proj.1.bias": torch.zeros(8)}
    )  # fmt: skip
    return ours, theirs


@pytest.mark.parametrize("make", [gated_delta_net, kimi])
def test_delta_nets_are_those_of_transformers(make: Callable[[], Any]) -> None:
    ours, theirs = make()
    a, b = (tokens(2, 9).requires_grad_() for _ in range(2))
    got, wanted = ours(a)[0], theirs(b)
    same(got, wanted)
    weights = tokens(2, 9).roll(1, 0)
    (got * weights).sum().backward()
    (wanted * weights).sum().backward()
    same(a.grad, b.grad, 1e-4)
    same(ours.A_log.grad, next(p for n, p in theirs.named_parameters() if n.endswith("A_log")).grad.flatten(), 1e-4)
    same(ours.o_proj.weight.grad, list(theirs.parameters())[-1].grad, 1e-4)


# Step by step, in float64

LAYERS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "delta": (lambda: nn.DeltaNet(hidden_size=HIDDEN, num_heads=3, layer_idx=0), delta_net),
    "delta-elu": (
        lambda: nn.DeltaNet(hidden_size=HIDDEN, num_heads=2, use_gate=True, qk_activation="elu", qk_norm="sum",
                            conv_bias=True, allow_neg_eigval=True, layer_idx=0),
        delta_net,
    ),
    "gla": (
        lambda: nn.GatedLinearAttention(hidden_size=HIDDEN, num_heads=2, gate_low_rank_dim=3, clamp_min=-0.06,
                                        layer_idx=0),
        gla,
    ),
    "gla-shared": (
        lambda: nn.GatedLinearAttention(hidden_size=HIDDEN, num_heads=2, num_kv_heads=1, gate_low_rank_dim=3,
                                        clamp_min=-1.0, use_short_conv=True, conv_size=3, feature_map="relu",
                                        gate_fn="sigmoid", elementwise_affine=False, layer_idx=0),
        gla,
    ),
    "retention": (lambda: nn.MultiScaleRetention(hidden_size=HIDDEN, num_heads=3, layer_idx=0), retention),
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", LAYERS)
CACHED = [*LAYERS, "gated-delta", "kimi"]


def of(name: str) -> Any:
    if name == "gated-delta":
        return moved(nn.GatedDeltaNet(HIDDEN, expand_v=1.5, head_dim=4, num_heads=2, use_gate=False, layer_idx=0))
    if name == "kimi":
        return moved(nn.KimiDeltaAttention(HIDDEN, head_dim=4, num_heads=2, num_v_heads=4, layer_idx=0))
    return moved(LAYERS[name][0]())


@EVERY
def test_layers_are_their_formulas(name: str) -> None:
    layer = of(name).double()
    a, b = (tokens(2, 7, dtype=torch.float64).requires_grad_() for _ in range(2))
    weights = tokens(2, 7, dtype=torch.float64).roll(1, 0)
    got, wanted = layer(a)[0], LAYERS[name][1](layer, b)
    same(got, wanted, 1e-10)
    grads = torch.autograd.grad((got * weights).sum(), [a, *layer.parameters()])
    for found, right in zip(
        grads, torch.autograd.grad((wanted * weights).sum(), [b, *layer.parameters()]), strict=True
    ):
        same(found, right, 1e-9)


@pytest.mark.parametrize("name", CACHED)
def test_layers_decode(name: str) -> None:
    """A prompt in two pieces, and then a step at a time."""
    layer, x, cache = of(name).eval(), tokens(2, 9), nn.RecurrentCache()
    with torch.no_grad():
        wanted, parts = layer(x)[0], []
        for first, last in ((0, 2), (2, 6), (6, 7), (7, 8), (8, 9)):
            y, _, back = layer(x[:, first:last], past_key_values=cache, use_cache=True)
            assert back is cache
            parts.append(y)
        same(torch.cat(parts, 1), wanted)
        assert cache.get_seq_length(0) == 9 and len(cache) == 1
        cache.reorder(torch.tensor([1, 1]))
        y = layer(x[[1, 1], :1], past_key_values=cache, use_cache=True)[0]
        assert torch.equal(y[0], y[1])


@pytest.mark.parametrize("name", CACHED)
def test_layers_pack(name: str) -> None:
    """Padding on the left and bounds of packed sequences give what each sequence does alone."""
    layer, x = of(name), tokens(2, 8)
    alone = [layer(x[:1, 3:])[0], layer(x[1:])[0]]
    mask = torch.ones(2, 8)
    mask[0, :3] = 0
    got = layer(x, mask)[0]
    same(got[:1, 3:], alone[0])
    same(got[1:], alone[1])
    assert not got[0, :3].any()
    row = torch.cat([x[:1, 3:], x[1:]], 1)
    same(layer(row, cu_seqlens=torch.tensor([0, 5, 13], dtype=torch.int32))[0], torch.cat(alone, 1))


@pytest.mark.parametrize("first", [True, False])
def test_rwkv7(first: bool) -> None:
    layer = moved(nn.RWKV7Attention(hidden_size=HIDDEN, head_dim=4, layer_idx=0 if first else 1, value_dim=18)).double()
    a, b = (tokens(2, 6, dtype=torch.float64).requires_grad_() for _ in range(2))
    values = torch.randn(2, 6, 18, dtype=torch.float64)
    got, _, _, seen = layer(a, v_first=values)
    wanted = rwkv7(layer, b, values)
    same(got, wanted, 1e-10)
    grads = torch.autograd.grad(got.square().sum(), [a, *layer.parameters()])
    for found, right in zip(grads, torch.autograd.grad(wanted.square().sum(), [b, *layer.parameters()]), strict=True):
        same(found, right, 1e-9)
    same(seen, layer.v_proj(a + (F.pad(a, (0, 0, 1, 0))[:, :-1] - a) * layer.x_v) if first else values, 1e-12)
    cache = nn.RecurrentCache()
    with torch.no_grad():
        parts = [
            layer(a[:, t:u], past_key_values=cache, use_cache=True, v_first=values[:, t:u])[0]
            for t, u in ((0, 3), (3, 4), (4, 6))
        ]
    same(torch.cat(parts, 1), got, 1e-10)


# Parts


def test_norms_with_a_gate() -> None:
    x, z, weight = (
        torch.randn(3, 8, dtype=torch.float64),
        torch.randn(3, 8, dtype=torch.float64),
        torch.randn(8).double(),
    )
    for before, size in ((True, None), (False, 4), (True, 4)):
        norm = nn.RMSNormGated(8, group_size=size, norm_before_gate=before, dtype=torch.float64)
        norm.load_state_dict({"weight": weight})
        u = x if before else x * F.silu(z)
        g = u.unflatten(-1, (-1, size or 8))
        wanted = (g / (g.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(-2) * weight
        same(norm(x, z), wanted * F.silu(z) if before else wanted, 1e-12)
    fused = nn.FusedRMSNormGated(8, activation="sigmoid", dtype=torch.float64)
    h = x + z
    y, kept = fused(x, z, residual=z, prenorm=True)
    same(kept, h, 1e-14)
    same(y, normed(fused, h, z), 1e-12)
    assert "eps" in repr(fused) and "group_size" in repr(norm)


def test_short_convolution() -> None:
    layer = nn.ShortConvolution(6, 3, bias=True)
    x = torch.randn(2, 7, 6)
    wanted = F.silu(F.conv1d(x.transpose(1, 2), layer.weight, layer.bias, padding=2, groups=6)[..., :7]).transpose(1, 2)
    y, cache = layer(x[:, :5], output_final_state=True)
    assert cache.shape == (2, 6, 3)
    with torch.no_grad():
        after, _ = layer.step(x[:, 5:6], None, cache)
        last, _ = layer(x[:, 6:], cache=cache)
    same(torch.cat([y, after, last], 1), wanted)
    mask = torch.tensor([[1, 1, 0, 1, 1, 1, 1]] * 2)
    same(layer(x, residual=x, mask=mask)[0], layer(x * mask[..., None])[0] + x)


def test_what_is_refused() -> None:
    x = tokens(2, 3)
    with pytest.raises(InvalidProblemError, match="layer_idx"):
        nn.DeltaNet(hidden_size=HIDDEN)(x, past_key_values=nn.RecurrentCache())
    with pytest.raises(InvalidProblemError, match="layer_idx"):
        nn.Mamba(HIDDEN)(x, inference_params=nn.InferenceParams())
    with pytest.raises(InvalidProblemError, match="attention_mask"):
        nn.DeltaNet(hidden_size=HIDDEN)(x, torch.ones(2, 2))
    with pytest.raises(InvalidProblemError, match="multiple of 5"):
        nn.GatedLinearAttention(hidden_size=HIDDEN, num_heads=5)
    with pytest.raises(InvalidProblemError, match="v_first"):
        nn.RWKV7Attention(hidden_size=HIDDEN, head_dim=4, layer_idx=1)(x)
    with pytest.raises(InvalidProblemError, match="activation"):
        nn.FusedRMSNormGated(8, activation="gelu")
    with pytest.raises(InvalidProblemError, match="ngroups"):
        nn.Mamba2(HIDDEN, headdim=6, ngroups=3)
    with pytest.raises(InvalidProblemError, match="step"):
        nn.Mamba(HIDDEN).step(x, None, None)
    with pytest.raises(UnsupportedError, match="process_group"):
        nn.Mamba2(HIDDEN, headdim=6, process_group=object())
    with pytest.raises(UnsupportedError, match="cu_seqlens"):
        nn.Mamba2(HIDDEN, headdim=6)(x, seq_idx=torch.zeros(2, 3, dtype=torch.int32))
