"""A Llama-style decoder whose forward, backward, optimizer and generation are baracuda_py calls and nothing else.

Activations have shape [batch, context, …] or its flat view [tokens, …]; weights are [in, out]. Master weights,
moments and gradients are float32; `compute` (float32 or bfloat16) is what activations and matrix products use.
Arrays come from `xp`: NumPy on the CPU, CuPy on a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import baracuda_py as bc

Weights = dict[str, Any]
Attend = Callable[[int, Any, Any, Any], Any]  # attention of a layer: (layer, q, k, v) → [tokens, heads, head_dim]


@dataclass(frozen=True)
class Preset:
    """Model and training recipe."""

    d: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    context: int
    batch: int
    steps: int
    learning_rate: float
    compute: str
    eval_batches: int
    warmup: int = 50
    vocab: int = 256
    eps: float = 1e-5

    @property
    def fused_loss(self) -> bool:
        """Whether logits, of which a token has far more than numbers of its state, are never whole in memory."""
        return self.vocab >= 8 * self.d

    @property
    def head_dim(self) -> int:
        return self.d // self.heads

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    def parameters(self) -> int:
        """Number of weights."""
        layer = self.d * (self.qkv + self.d + 3 * self.ffn + 2)
        return 2 * self.vocab * self.d + self.layers * layer + self.d

    def memory(self, on_cpu: bool) -> int:
        """Rough peak bytes of a training step: weights, moments, gradients, saved activations, temporaries."""
        tokens = self.batch * self.context
        width = 4 if self.compute == "float32" else 2
        saved = tokens * self.layers * (8 * self.d + self.qkv + 3 * self.ffn) * width
        logits = 0 if self.fused_loss else 2 * self.vocab
        working = tokens * (6 * self.ffn + 4 * self.d + logits) * width
        if on_cpu:  # the reference works in float64, a temporary a step, and materialises the scores
            working = working * 4 + 4 * 8 * self.batch * self.heads * self.context**2
        return self.parameters() * (16 + width) + saved + working


PRESETS = {
    "cpu": Preset(
        d=128, layers=2, heads=4, kv_heads=2, ffn=352, context=128, batch=16, steps=250,
        learning_rate=3e-3, compute="float32", eval_batches=8,
    ),
    "gpu": Preset(
        d=512, layers=8, heads=8, kv_heads=4, ffn=1408, context=1024, batch=32, steps=1740,
        learning_rate=1.5e-3, compute="bfloat16", eval_batches=8,
    ),
}  # fmt: skip


class Decoder:
    """Weights, their AdamW state, and the model's passes."""

    def __init__(self, preset: Preset, xp: Any, seed: int = 0) -> None:
        self.preset, self.xp = preset, xp
        self.products: bc.PlanPreference | None = None  # what the model asks of its matrix products
        self.attention: bc.PlanPreference | None = None  # and of attention
        self.same_bits = False  # whether training and generation make the same calls, whose bits then agree
        self.stored: Mapping[str, Callable[[Any], Any]] = {}  # products x → x @ W in place of those by a matrix
        rng = np.random.default_rng(seed)
        p = preset

        def matrix(rows: int, cols: int, scale: float = 1.0) -> Any:
            return xp.asarray(rng.normal(0.0, 0.02 * scale, (rows, cols)).astype(np.float32))

        residual = (2 * p.layers) ** -0.5  # keeps the residual stream's variance independent of depth
        self.matrices: Weights = {"embedding": matrix(p.vocab, p.d), "head": matrix(p.d, p.vocab)}
        self.norms: Weights = {"final": xp.ones(p.d, np.float32)}
        for i in range(p.layers):
            self.matrices[f"qkv{i}"] = matrix(p.d, p.qkv)
            self.matrices[f"out{i}"] = matrix(p.d, p.d, residual)
            self.matrices[f"up{i}"] = matrix(p.d, 2 * p.ffn)
            self.matrices[f"down{i}"] = matrix(p.ffn, p.d, residual)
            self.norms[f"attention{i}"] = xp.ones(p.d, np.float32)
            self.norms[f"mlp{i}"] = xp.ones(p.d, np.float32)
        self.copies = None if p.compute == "float32" else {k: bc.cast(w, p.compute) for k, w in self.matrices.items()}
        self.one = xp.ones(1, np.int64)
        self.moments = {k: (xp.zeros_like(w), xp.zeros_like(w)) for k, w in (self.matrices | self.norms).items()}

    @property
    def weights(self) -> Weights:
        """The matrices in the compute element."""
        return self.copies or self.matrices

    def with_stored(self, stored: Mapping[str, Callable[[Any], Any]]) -> Decoder:
        """This model with other products in its layers, by the names of their matrices; all else is shared."""
        twin = copy.copy(self)
        twin.stored = stored
        return twin

    def with_same_bits(self) -> Decoder:
        """This model, of which a token has the same logits, bit for bit, in a training step and in a server's."""
        twin = copy.copy(self)
        twin.same_bits = True
        twin.products = twin.attention = bc.PlanPreference(same_bits=True)
        return twin

    def linear(self, x: Any, name: str) -> Any:
        """x @ W of a layer."""
        if name in self.stored:
            return self.stored[name](x)
        return bc.matmul(x, self.weights[name], preference=self.products)

    # -- training --------------------------------------------------------------------------------------

    def forward(self, tokens: Any) -> tuple[Any, Weights]:
        """Logits [tokens, vocab] and what the backward pass needs."""
        x, saved = self._trunk(tokens)
        return bc.matmul(x, self.weights["head"], preference=self.products), saved

    def _trunk(self, tokens: Any) -> tuple[Any, Weights]:
        """What the head multiplies, [tokens, d], and what the backward pass needs."""
        p, saved = self.preset, {}
        flat = (tokens.size, p.d)
        branch, stream = bc.embedding(tokens, self.weights["embedding"]).reshape(flat), None
        for i in range(p.layers):
            branch, stream = self._norm(f"attention{i}", branch, stream, saved)
            branch = self.linear(self._attention(i, branch, tokens.shape, saved), f"out{i}")
            branch, stream = self._norm(f"mlp{i}", branch, stream, saved)
            packed = saved[f"packed{i}"] = self.linear(branch, f"up{i}")
            hidden = saved[f"hidden{i}"] = bc.swiglu(*self._halves(packed))
            branch = self.linear(hidden, f"down{i}")
        branch, _ = self._norm("final", branch, stream, saved)
        return branch, saved

    def _halves(self, packed: Any) -> tuple[Any, Any]:
        """The columns of the gate, and of what it lets through."""
        return packed[:, : self.preset.ffn], packed[:, self.preset.ffn :]

    def _norm(self, name: str, branch: Any, stream: Any, saved: Weights) -> tuple[Any, Any]:
        """stream += branch, then its RMSNorm; keeps (stream, rstd, result)."""
        y, rstd, h = self._rms_norm(name, branch, stream)
        saved[name] = (h, rstd, y)
        return y, h

    def _rms_norm(self, name: str, branch: Any, stream: Any) -> tuple[Any, Any, Any]:
        """(result, rstd, sum) of the RMSNorm of stream + branch; the first branch starts the stream."""
        weight, eps = self.norms[name], self.preset.eps
        if stream is None:
            y, rstd = bc.rms_norm(branch, weight, eps=eps, return_rstd=True)
            return y, rstd, branch
        y, h, rstd = bc.rms_norm(branch, weight, stream, eps=eps, return_h=True, return_rstd=True)
        return y, rstd, h

    def _attention(self, i: int, x: Any, shape: tuple[int, int], saved: Weights) -> Any:
        p = self.preset
        qkv = self.linear(x, f"qkv{i}")
        q, k, v = self._heads(qkv, shape)
        bc.rope(q, x2=k, out=(q, k))
        y = self.xp.empty((*shape, p.heads, p.head_dim), qkv.dtype)
        saved[f"sdpa{i}"] = (q, k, v, y, self._causal(q, k, v, y))
        return y.reshape(x.shape)

    def _causal(self, q: Any, k: Any, v: Any, y: Any) -> Any:
        """Causal attention to y [batch, context, heads, head_dim]; log Σ exp [batch, heads, context]."""
        heads_first = {"y": y.transpose(0, 2, 1, 3)}
        return bc.flash_sdpa(
            q, k, v, is_causal=True, return_lse=True, out=heads_first, preference=self.attention
        )[1]  # fmt: skip

    def _heads(self, qkv: Any, shape: tuple[int, int]) -> tuple[Any, Any, Any]:
        """q, k, v as [batch, heads, context, head_dim] views of the packed projection."""
        p = self.preset
        packed = qkv.reshape(*shape, p.heads + 2 * p.kv_heads, p.head_dim).transpose(0, 2, 1, 3)
        return packed[:, : p.heads], packed[:, p.heads : p.heads + p.kv_heads], packed[:, p.heads + p.kv_heads :]

    def loss(self, tokens: Any, targets: Any) -> Any:
        """Mean cross-entropy in nats, a 0-d array."""
        x, _ = self._trunk(tokens)
        head, targets = self.weights["head"], targets.reshape(-1)
        if self.preset.fused_loss:
            return bc.linear_cross_entropy(x, head.T, targets)
        return bc.cross_entropy(bc.matmul(x, head), targets)

    def _loss_and_gradients(self, x: Any, targets: Any, loss: Any) -> tuple[Any, Any, Any]:
        """The loss, in `loss` if given, and the gradients of what the head multiplies and, in float32, of the head."""
        head, out = self.weights["head"], {} if loss is None else {"loss": loss}
        if self.preset.fused_loss:
            dhead = self.xp.empty_like(head)
            wanted = {"return_dx": True, "return_dweight": True, "out": out | {"dweight": dhead.T}}
            loss, dx, _ = bc.linear_cross_entropy(x, head.T, targets, **wanted)
            return loss, dx, self._wide(dhead)
        loss, dlogits = bc.cross_entropy(bc.matmul(x, head), targets, return_dlogits=True, out=out)
        return loss, bc.matmul(dlogits, head.T), product(x.T, dlogits)

    def _wide(self, gradient: Any) -> Any:
        """A gradient in float32."""
        return gradient if self.preset.compute == "float32" else bc.cast(gradient, "float32")

    def loss_and_gradients(self, tokens: Any, targets: Any, loss: Any = None) -> tuple[Any, Weights]:
        """The loss, in `loss` if given, and float32 gradients of every weight."""
        x, saved = self._trunk(tokens)
        loss, dx, dhead = self._loss_and_gradients(x, targets.reshape(-1), loss)
        return loss, {"head": dhead} | self._backward(tokens, dx, saved)

    def gradients(self, tokens: Any, dlogits: Any, saved: Weights) -> Weights:
        """Float32 gradients of every weight, of those of `forward`'s logits and what it saved."""
        dx = bc.matmul(dlogits, self.weights["head"].T)
        return {"head": product(saved["final"][2].T, dlogits)} | self._backward(tokens, dx, saved)

    def _backward(self, tokens: Any, dx: Any, saved: Weights) -> Weights:
        """Gradients of all weights but the head, of the gradient of what that multiplies."""
        p, grads = self.preset, {}
        dstream = self._norm_backward("final", dx, None, saved, grads)
        for i in reversed(range(p.layers)):
            dhidden = self.layer_gradients(f"down{i}", saved[f"hidden{i}"], dstream, grads)
            packed = saved[f"packed{i}"]
            dpacked = self.xp.empty_like(packed)
            dgate, dup = self._halves(dpacked)
            bc.swiglu_backward(dhidden, *self._halves(packed), out={"dgate": dgate, "dup": dup})
            dbranch = self.layer_gradients(f"up{i}", saved[f"mlp{i}"][2], dpacked, grads)
            dstream = self._norm_backward(f"mlp{i}", dbranch, dstream, saved, grads)
            dbranch = self._attention_backward(i, dstream, tokens.shape, saved, grads)
            dstream = self._norm_backward(f"attention{i}", dbranch, dstream, saved, grads)
        dweight = bc.embedding_backward(dstream.reshape(*tokens.shape, p.d), tokens, num_embeddings=p.vocab)
        grads["embedding"] = self._wide(dweight)
        return grads

    def _norm_backward(self, name: str, dy: Any, dstream: Any, saved: Weights, grads: Weights) -> Any:
        h, rstd, _ = saved[name]
        dx, grads[name] = bc.rms_norm_backward(dy, h, rstd, self.norms[name], dstream)
        return dx

    def _attention_backward(self, i: int, dstream: Any, shape: tuple[int, int], saved: Weights, grads: Weights) -> Any:
        p = self.preset
        q, k, v, y, lse = saved[f"sdpa{i}"]
        dy = self.layer_gradients(f"out{i}", y.reshape(dstream.shape), dstream, grads).reshape(y.shape)
        dqkv = self.xp.empty((dstream.shape[0], p.qkv), dy.dtype)
        dq, dk, dv = self._heads(dqkv, shape)
        heads_first = (0, 2, 1, 3)
        bc.flash_sdpa_backward(
            q, k, v, y.transpose(heads_first), lse, dy.transpose(heads_first), is_causal=True, out=(dq, dk, dv)
        )
        bc.rope_backward(dq, dy2=dk, out=(dq, dk))
        return self.layer_gradients(f"qkv{i}", saved[f"attention{i}"][2], dqkv, grads)

    def layer_gradients(self, name: str, x: Any, dy: Any, grads: Weights) -> Any:
        """The gradient of what a layer multiplies; that of its matrix, in float32, goes to `grads`."""
        grads[name] = product(x.T, dy)
        return bc.matmul(dy, self.weights[name].T)

    def update(self, grads: Weights, step: Any, learning_rate: Any) -> None:
        """Clip the global gradient norm to 1 and take an AdamW step; only matrices decay.

        `step` (1 for the first) and `learning_rate` are numbers or 0-d arrays.
        """
        names = list(grads)
        _, clip = bc.global_norm([grads[n] for n in names], max_norm=1.0, return_clip_factor=True)
        for group, decay in ((self.matrices, 0.1), (self.norms, 0.0)):
            bc.adam_step(
                list(group.values()),
                [grads[n] for n in group],
                [self.moments[n][0] for n in group],
                [self.moments[n][1] for n in group],
                [self.copies[n] for n in group] if self.copies and group is self.matrices else None,
                lr=learning_rate, step=step, grad_scale=clip, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=decay,
            )  # fmt: skip

    # -- generation ------------------------------------------------------------------------------------

    def cache(self, batch: int, length: int) -> list[tuple[Any, Any]]:
        """Key and value caches, one pair a layer: [batch, kv_heads, length, head_dim]."""
        p = self.preset
        shape = (batch, p.kv_heads, length, p.head_dim)
        element = self.weights["head"].dtype
        return [(self.xp.zeros(shape, element), self.xp.zeros(shape, element)) for _ in range(p.layers)]

    def decode(self, tokens: Any, positions: Any, cache: list[tuple[Any, Any]]) -> Any:
        """Logits [batch, vocab] for one token of every sequence, at `positions` (int64 [batch]); extends the caches."""
        lengths = bc.add(positions, self.one)

        def attend(i: int, q: Any, k: Any, v: Any) -> Any:
            bc.rope_kv_append(q, k, v, positions, *cache[i], out=q)
            return bc.flash_decoding(q[:, :, 0], *cache[i], lengths)

        return self.infer(tokens, (tokens.size, 1), attend)

    def infer(self, tokens: Any, shape: tuple[int, int], attend: Attend, rows: Any = None) -> Any:
        """Logits [tokens, vocab]; `attend` gets q, k, v of [shape[0], heads, shape[1], head_dim] before rope.

        rows: of which tokens the logits are wanted, int64; None: of all.
        """
        p, w = self.preset, self.weights
        branch, stream = bc.embedding(tokens, w["embedding"]), None
        for i in range(p.layers):
            branch, _, stream = self._rms_norm(f"attention{i}", branch, stream)
            y = attend(i, *self._heads(self.linear(branch, f"qkv{i}"), shape))
            branch = self.linear(y.reshape(tokens.size, p.d), f"out{i}")
            branch, _, stream = self._rms_norm(f"mlp{i}", branch, stream)
            branch = self.linear(self._gated(branch, i), f"down{i}")
        branch, _, _ = self._rms_norm("final", branch, stream)
        return self.linear(branch if rows is None else bc.embedding(rows, branch), "head")

    def _gated(self, x: Any, i: int) -> Any:
        """silu of the gate, times what it lets through; training never makes one launch of it."""
        if self.same_bits or f"up{i}" in self.stored:
            return bc.swiglu(*self._halves(self.linear(x, f"up{i}")))
        gate, up = self._halves(self.weights[f"up{i}"])
        return bc.gemm(x, gate, activation="silu", up=up, preference=self.products)

    def generate(
        self, prompt: bytes, count: int, *, temperature: float, top_k: int, top_p: float = 1.0, seed: int
    ) -> tuple[bytes, Any]:
        """The prompt with `count` bytes after it, and the logprob of each of these, float32 [count].

        A replay a token: everything a token needs stays on the device, the cut-offs of each row among it.
        """
        xp, total = self.xp, len(prompt) + count
        text, logprobs = xp.zeros(total, np.int64), xp.zeros(total, np.float32)
        text[: len(prompt)] = xp.asarray(list(prompt))
        cache, logprob = self.cache(1, total), xp.zeros(1, np.float32)
        cuts = {
            "temperature": xp.full(1, temperature, np.float32), "top_k": xp.full(1, top_k, np.int64),
            "top_p": xp.full(1, top_p, np.float32),
        }  # fmt: skip

        def step(token: Any, position: Any) -> None:
            logits = self.decode(token, position, cache)
            drawn = {"ids": token, "logprob": logprob}
            bc.sample(logits, **cuts, seed=seed, offset=position[0], return_logprob=True, out=drawn)
            bc.add(position, self.one, out=position)

        self.fill(text, len(prompt), step, range(total - 1), (logprobs, logprob))
        return bytes(text.tolist()), logprobs[len(prompt) :]

    def fill(
        self, text: Any, given: int, step: Callable[[Any, Any], None], places: Iterable[int], *kept: tuple[Any, Any]
    ) -> None:
        """Write `text` (int64) on after its first `given` bytes; `places` are the positions to decode, 0 and on.

        step(token, position) makes of a token the next one and moves the position; it is captured once and replayed.
        kept: arrays as long as the text, each with what step writes beside a token, of one element.
        """
        token, position, replay = self.xp.zeros(1, np.int64), self.xp.zeros(1, np.int64), None
        for at in places:
            if at < given:
                token[...] = text[at : at + 1]
            if replay is None:
                replay = bc.graph(step, token, position)  # runs the first token, too
            else:
                replay()
            if at >= given - 1:
                for whole, one in ((text, token), *kept):
                    whole[at + 1 : at + 2] = one


def product(a: Any, b: Any) -> Any:
    """a @ b accumulated and returned in float32: a weight's gradient."""
    return bc.matmul(a, b, out_element="float32")
