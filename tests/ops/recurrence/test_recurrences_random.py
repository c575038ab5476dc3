"""Ten random choices of options of each recurrence, against loops in float64 and torch's modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

SEEDS = range(10)
NAMES = {  # what a form of linear attention takes beside q, k and v, in its order
    "linear_attention": (), "simple_gla": ("g",), "gla": ("channels",), "delta_rule": ("beta",),
    "gated_delta_rule": ("g", "beta"), "kda": ("channels", "beta"), "rwkv6": ("channels", "bonus"),
    "rwkv7": ("channels", "a", "b"),
}  # fmt: skip


class Draw:
    """Random choices and arrays of a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def array(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Normal numbers, in the usual strides, turned, or apart."""
        made = scale * self.rng.standard_normal(shape)
        if len(shape) < 2 or self.of(True, False):
            return made
        return self.of(np.asfortranarray(made), np.repeat(made, 2, 0)[::2])

    def inner(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """The same, whose last axis lies dense."""
        whole = scale * self.rng.standard_normal((*shape[:-1], shape[-1] + self.of(0, 3)))
        return whole[..., : shape[-1]]

    def bounds(self, length: int, count: int) -> np.ndarray:
        """Bounds of packed sequences, some of them empty, before and behind which rows are nobody's."""
        made = np.sort(self.rng.integers(0, length + 1, count + 1))
        return made.astype(self.of(np.int32, np.int64))


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def attention(case: dict[str, Any], normalise: bool, scale: float, state: Any, bounds: list[Any], heads: int) -> Any:
    """A sequence after another, a head and a step at a time."""
    q, k, v = (np.repeat(case[n], heads // case[n].shape[2], 2) for n in "qkv")
    if normalise:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    y, states = np.zeros((*v.shape[:2], heads, v.shape[3])), state.copy()
    for n, (row, first, end) in enumerate(bounds):
        for h in range(heads):
            s = states[n, h]
            for t in range(first, end):
                at = row, t, h
                before = s
                decay = np.exp(case["g"][at]) if "g" in case else 1.0
                decay = np.exp(case["channels"][at])[:, None] if "channels" in case else decay
                s = decay * s
                error = v[at] if "beta" not in case else case["beta"][at] * (v[at] - k[at] @ s)
                if "a" in case:
                    s = s + np.outer(case["b"][at], case["a"][at] @ before)
                s = s + np.outer(k[at], error)
                seen = s if "bonus" not in case else before + np.outer(case["bonus"][h] * k[at], v[at])
                y[at] = scale * (q[at] @ seen)
            states[n, h] = s
    return y, states


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_linear_attention(name: str, seed: int) -> None:
    draw = Draw(100 * seed + len(name))
    packed = draw.of(True, False)
    batch, steps, d_k, d_v = 1 if packed else draw.of(1, 2), draw.of(0, 1, 5, 13), draw.of(1, 4, 7), draw.of(1, 3, 8)
    heads = draw.of(1, 2, 4)
    few = draw.of(1, heads)
    sizes = {"q": (draw.of(1, few), d_k), "k": (draw.of(few, heads), d_k), "v": (heads, d_v)}
    case: dict[str, Any] = {n: draw.inner(batch, steps, *size, scale=d_k**-0.5) for n, size in sizes.items()}
    shapes = {"g": (batch, steps, heads), "channels": (batch, steps, heads, d_k), "bonus": (heads, d_k)}
    for one in NAMES[name]:
        shape = shapes.get(one, (batch, steps, heads, *((d_k,) if one in "ab" else ())))
        case[one] = draw.inner(*shape, scale=d_k**-0.5 if one in ("a", "b") else 1.0)
        if one in ("g", "channels"):
            case[one] = np.where(draw.rng.random(shape) < 0.1, -np.inf, -np.abs(case[one]))
    states = draw.of(1, 3) if packed else batch
    bounds = draw.bounds(steps, states) if packed else None
    options: dict[str, Any] = {"scale": draw.of(None, 0.3, -1.7), "cu_seqlens": bounds, "output_final_state": True}
    first = draw.of(None, draw.inner(states, heads, d_k, d_v))
    if name != "gla":
        options["stepwise"] = draw.of(True, False)
    normalise = bool("beta" in case and draw.of(True, False))
    if "beta" in case:
        options["use_qk_l2norm"] = normalise
    scale = d_k**-0.5 if options["scale"] is None else options["scale"]
    if name == "rwkv7":
        options["scale"] = scale
    order = ("q", "channels", "k", "v", "a", "b") if name == "rwkv7" else ("q", "k", "v", *NAMES[name])
    got = getattr(bc, name)(*(case[n] for n in order), initial_state=first, **options)
    spans = [(n, 0, steps) for n in range(batch)] if bounds is None else [
        (0, int(bounds[n]), int(bounds[n + 1])) for n in range(states)
    ]  # fmt: skip
    start = np.zeros((states, heads, d_k, d_v)) if first is None else first
    for a, b in zip(got, attention(case, normalise, scale, start, spans, heads), strict=True):
        near(a, b)


@pytest.mark.parametrize("seed", SEEDS)
def test_causal_conv1d(seed: int) -> None:
    draw = Draw(seed)
    way = draw.of("alone", "packed", "numbers")
    batch, channels = 1 if way == "packed" else draw.of(1, 3), draw.of(1, 4, 5)
    length, width = draw.of(0, 1, 7, 19), draw.of(2, 3, 4, 6, 8)
    x, weight = draw.array(batch, channels, length), draw.array(channels, width)
    bias, active = draw.of(None, draw.array(channels)), draw.of(None, "silu", "swish")
    bounds = draw.bounds(length, draw.of(1, 4)) if way == "packed" else None
    numbers = np.sort(draw.rng.integers(-1, 3, (batch, length)), 1).astype(np.int32) if way == "numbers" else None
    states = batch if bounds is None else len(bounds) - 1
    first = None if way == "numbers" else draw.of(None, draw.array(states, channels, width - 1))
    final, turned = way != "numbers" and draw.of(True, False), draw.of(True, False)
    if bounds is not None:
        spans = [(0, int(bounds[n]), int(bounds[n + 1]), n) for n in range(states)]
    else:
        spans = [(n, 0, length, n) for n in range(batch)]
        if numbers is not None:
            spans = [
                (n, *np.searchsorted(numbers[n], [s, s + 1]).tolist(), n) for n in range(batch) for s in range(3)
            ]  # fmt: skip
    want, last = np.zeros(x.shape), np.zeros((states, channels, width - 1))
    for row, begin, end, n in spans:
        before = np.zeros((channels, width - 1)) if first is None else first[n]
        seen = np.concatenate([before, x[row, :, begin:end]], 1)
        for t in range(end - begin):
            z = (weight * seen[:, t : t + width]).sum(1) + (0 if bias is None else bias)
            want[row, :, begin + t] = z if active is None else silu(z)
        last[n] = seen[:, seen.shape[1] - width + 1 :]
    got = bc.causal_conv1d(
        x.swapaxes(1, 2) if turned else x, weight, bias, seq_idx=numbers, cu_seqlens=bounds, initial_states=first,
        return_final_states=final, activation=active, layout="bld" if turned else "bdl",
    )  # fmt: skip
    y, *rest = got if final else (got,)
    near(y.swapaxes(1, 2) if turned else y, want)
    if final:
        near(rest[0], last)


@pytest.mark.parametrize("seed", SEEDS)
def test_selective_scan(seed: int) -> None:
    draw = Draw(50 + seed)
    turns, packed = draw.of(True, False), draw.of(True, False)
    batch, groups, length = 1 if packed else draw.of(1, 3), draw.of(1, 2), draw.of(1, 2, 9, 17)
    dim, states = groups * draw.of(1, 3), draw.of(1, 3, 16)

    def numbers(*shape: int) -> np.ndarray:
        return draw.array(*shape) + (1j * draw.array(*shape) if turns else 0)

    u, delta = draw.array(batch, dim, length), np.abs(draw.array(batch, dim, length))
    A = -np.abs(draw.array(dim, states)) + (1j * draw.array(dim, states) if turns else 0)
    shapes = ((dim, states), (batch, states, length), (batch, groups, states, length))
    B, C = numbers(*draw.of(*shapes)), numbers(*draw.of(*shapes))
    D, bias, z = (draw.of(None, draw.array(*s)) for s in ((dim,), (dim,), (batch, dim, length)))
    soft = draw.of(True, False)
    bounds = draw.bounds(length, draw.of(1, 3)) if packed else None
    sequences = batch if bounds is None else len(bounds) - 1
    first = draw.of(None, numbers(sequences, dim, states))
    got = bc.selective_scan(
        u, delta, A, B, C, D, z, bias, soft, True, initial_state=first, cu_seqlens=bounds
    )  # fmt: skip

    def of_time(x: np.ndarray, row: int, c: int, t: int) -> np.ndarray:
        if x.ndim == 2:
            return x[c]
        return x[row, :, t] if x.ndim == 3 else x[row, c // (dim // x.shape[1]), :, t]

    want, last = np.zeros(u.shape), np.zeros((sequences, dim, states), A.dtype)
    for n in range(sequences):
        row, begin, end = (n, 0, length) if bounds is None else (0, int(bounds[n]), int(bounds[n + 1]))
        for c in range(dim):
            h = np.zeros(states, A.dtype) if first is None else first[n, c]
            for t in range(begin, end):
                dt = delta[row, c, t] + (0 if bias is None else bias[c])
                dt = np.log1p(np.exp(dt)) if soft else dt
                h = np.exp(dt * A[c]) * h + dt * u[row, c, t] * of_time(B, row, c, t)
                y = (h * of_time(C, row, c, t)).sum()
                y = (2 * y.real if turns else y) + (0 if D is None else D[c] * u[row, c, t])
                want[row, c, t] = y if z is None else y * silu(z[row, c, t])
            last[n, c] = h
    for a, b in zip(got, (want, last), strict=True):
        near(a, b)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_networks(kind: str, seed: int) -> None:
    torch = pytest.importorskip("torch")
    draw = Draw(10 * seed + len(kind))
    torch.manual_seed(seed)
    features, hidden, batch, steps = draw.of(1, 4), draw.of(1, 3, 6), draw.of(1, 4), draw.of(1, 5)
    projected = hidden - 1 if kind == "lstm" and hidden > 1 and draw.of(True, False) else 0
    packed = draw.of(True, False)
    facts = {"num_layers": draw.of(1, 2, 3), "bidirectional": draw.of(True, False)}
    first = {"batch_first": not packed and draw.of(True, False)}
    more = {"proj_size": projected} if kind == "lstm" else {"nonlinearity": kind[4:]} if kind[0] == "r" else {}
    made = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(kind, torch.nn.RNN)
    module = made(features, hidden, bias=draw.of(True, False), dtype=torch.float64, **facts, **first, **more)
    params = [getattr(module, name).detach().numpy() for names in module._all_weights for name in names]
    x = torch.tensor(draw.array(*((batch, steps) if first["batch_first"] else (steps, batch)), features))
    count = facts["num_layers"] * (2 if facts["bidirectional"] else 1)
    sizes = ((projected or hidden), hidden) if kind == "lstm" else (hidden,)
    hx = [torch.tensor(draw.array(count, batch, size)) for size in sizes]
    options: dict[str, Any] = {"has_biases": module.bias, **facts, **first}
    given = x
    if packed:
        lengths = torch.tensor(np.sort(draw.rng.integers(1, steps + 1, batch))[::-1].copy())
        given = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        options["batch_sizes"] = given.batch_sizes.tolist()
    held = [h.numpy() for h in hx]
    got = getattr(bc, kind)(
        (given.data if packed else x).numpy(), held if kind == "lstm" else held[0], params, **options
    )  # fmt: skip
    with torch.no_grad():
        output, rest = module(given, tuple(hx) if kind == "lstm" else hx[0])
    want = [output.data if packed else output, *(rest if kind == "lstm" else (rest,))]
    for a, b in zip(got, want, strict=True):
        near(a, b.numpy())
