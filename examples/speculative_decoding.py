"""Speculative decoding over a paged KV cache: several bytes a forward pass, and the text of plain greedy decoding.

    python examples/speculative_decoding.py                # preset cpu on the NumPy backend: half a minute on 2 cores
    python examples/speculative_decoding.py --preset gpu   # on a CUDA device

The model of train_gpt.py is trained briefly, then continues held-out text: plainly, a pass a byte, and with drafts.
Where the end of the text has occurred before, what followed then is proposed (prompt lookup, Saxena 2023); several
continuations make a tree (SpecInfer, Miao et al. 2023) that one pass verifies: the longest path that the model itself
takes is kept, and one byte more. In float32 both texts must agree; in bfloat16 the first difference is shown.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_data import load
from gpt_model import PRESETS, Decoder
from gpt_train import train
from gpt_tree import Tree, draft
from train_gpt import Parser, choose_device, describe, main, require

import baracuda_py as bc

STEPS = {"cpu": 60, "gpu": 300}  # of training: enough for text that is not noise


class PagedCache:
    """Keys and values of every layer in pages [kv_heads, page_size, head_dim], and the pages nobody holds."""

    def __init__(self, model: Decoder, pages: int, page_size: int, seed: int = 0) -> None:
        self.xp, self.page_size = model.xp, page_size
        self.layers = model.cache(pages, page_size)
        self.free = np.random.default_rng(seed).permutation(pages).tolist()  # scattered, as after hours of service


class Sequence:
    """The pages that one text holds, in order, and its page table [1, pages] on the device."""

    def __init__(self, cache: PagedCache, room: int) -> None:
        self.cache = cache
        self.held: list[int] = []
        self.table = cache.xp.full((1, -(-room // cache.page_size)), -1, np.int32)

    def reserve(self, length: int) -> None:
        """Pages for `length` tokens."""
        while len(self.held) * self.cache.page_size < length:
            if not self.cache.free:
                raise MemoryError("all pages of the cache are held")
            self.held.append(self.cache.free.pop())
            self.table[0, len(self.held) - 1] = self.held[-1]

    def release(self) -> None:
        """Give the pages back."""
        self.cache.free += self.held
        self.held.clear()
        self.table[...] = -1


@dataclasses.dataclass(frozen=True)
class Decoded:
    """The prompt and what follows, the passes that took, and their seconds."""

    text: bytes
    passes: int
    seconds: float
    drafted: int = 0  # nodes verified besides the roots


def now(xp: Any) -> float:
    """The time once everything queued is done."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()
    return time.perf_counter()


def plain(model: Decoder, sequence: Sequence, prompt: bytes, count: int) -> Decoded:
    """A pass a byte: its key and value are appended to the pages, then its query attends to them all."""
    from tqdm import trange

    xp, table, layers = model.xp, sequence.table, sequence.cache.layers
    text = xp.asarray(list(prompt + bytes(count)))
    began = now(xp)

    def step(token: Any, position: Any) -> None:
        lengths = bc.add(position, model.one)

        def attend(i: int, q: Any, k: Any, v: Any) -> Any:
            bc.rope(q, position, x2=k, out=(q, k))
            bc.paged_kv_append(k[:, :, 0], v[:, :, 0], *layers[i], table, position)
            return bc.batch_paged_decode(q[:, :, 0], *layers[i], page_table=table, lengths=lengths)

        bc.sample(model.infer(token, (1, 1), attend), temperature=0.0, seed=0, out=token)
        bc.add(position, model.one, out=position)

    def places() -> Iterator[int]:
        nonlocal began
        for at in trange(len(text) - 1, desc="plain", unit="byte"):
            sequence.reserve(at + 1)
            if at == len(prompt) - 1:
                began = now(xp)
            yield at

    model.fill(text, len(prompt), step, places())
    return Decoded(bytes(text.tolist()), count, now(xp) - began)


class Verifier:
    """The model over a tree of at most `nodes` tokens after a text in the cache: two graphs, a pass and an append."""

    def __init__(self, model: Decoder, sequence: Sequence, nodes: int) -> None:
        self.model, self.sequence, self.nodes, self.length, xp = model, sequence, nodes, 0, model.xp
        self.inputs = xp.zeros((2, nodes), np.int64)  # tokens and positions: the root's is the length of the context
        self.mask = xp.zeros((nodes, nodes), bool)
        self.accepted = xp.zeros(2 + nodes, np.int64)  # 0, how many nodes are accepted, and which
        self._pass = bc.graph(self._forward, self.inputs, self.mask)  # of nothing yet
        self._append = bc.graph(self._append_accepted, self.accepted)

    def _forward(self, inputs: Any, mask: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        """The model's next token at every node, and the nodes' keys and values: [1, kv_heads, nodes, head_dim]."""
        xp, table, layers = self.model.xp, self.sequence.table, self.sequence.cache.layers
        tokens, positions, context, new = inputs[0], inputs[1], inputs[1, :1], []

        def attend(i: int, q: Any, k: Any, v: Any) -> Any:
            heads, d = q.shape[1] * self.nodes, q.shape[3]
            queries, y = xp.empty(q.shape, q.dtype), xp.empty((2, *q.shape), q.dtype)
            lse = xp.empty((2, *q.shape[:3]), np.float32)
            bc.rope(q, positions, x2=k, out=(queries, k))
            # all nodes see the whole context: their queries are so many more heads of one query, which share its reads
            rows, state = queries.reshape(1, heads, d), (y[0].reshape(1, heads, d), lse[0].reshape(1, heads))
            bc.batch_paged_decode(rows, *layers[i], page_table=table, lengths=context, return_lse=True, out=state)
            # of the tree, which is in no page yet, they see their ancestors; the two parts are then merged
            bc.flash_sdpa(queries, k, v, mask, return_lse=True, out=(y[1], lse[1]))
            new.append((k, v))
            return bc.cascade_merge_states(y[:, 0].transpose(2, 0, 1, 3), lse[:, 0].transpose(2, 0, 1))[0]

        logits = self.model.infer(tokens, (1, self.nodes), attend)
        return bc.sample(logits, temperature=0.0, seed=0), new

    def _append_accepted(self, accepted: Any) -> None:
        """Keys and values of the accepted nodes, in the order of the path, to the sequence's pages."""
        bounds, path, p = accepted[:2], accepted[2:], self.model.preset
        for cache, new in zip(self.sequence.cache.layers, self._pass.outputs[1], strict=True):
            rows = [bc.embedding(path, part[0].transpose(1, 0, 2).reshape(self.nodes, -1)) for part in new]
            k, v = (part.reshape(self.nodes, p.kv_heads, p.head_dim) for part in rows)
            bc.paged_kv_append(k, v, *cache, self.sequence.table, self.inputs[1, :1], bounds)

    def verify(self, tree: Tree) -> list[int]:
        """The token that the model would take after each node."""
        inputs = np.full((2, self.nodes), [[0], [self.length]])
        inputs[:, : len(tree.tokens)] += [tree.tokens, tree.depths]
        self.inputs[...] = self.model.xp.asarray(inputs)
        self.mask[...] = self.model.xp.asarray(tree.mask(self.nodes))
        return self._pass()[0].tolist()

    def accept(self, path: list[int]) -> None:
        """Append a path of the tree that was verified last."""
        self.sequence.reserve(self.length + len(path))
        self.accepted[: 2 + len(path)] = self.model.xp.asarray([0, len(path), *path])
        self._append()
        self.length += len(path)


def speculative(model: Decoder, sequence: Sequence, prompt: bytes, count: int, *, branches: int, depth: int) -> Decoded:
    """Draft, verify, keep what the model agrees with; the prompt goes in as trees that are chains."""
    from tqdm import tqdm

    verifier = Verifier(model, sequence, 1 + branches * depth)
    for at in range(0, len(prompt) - 1, verifier.nodes):
        chain = prompt[at : min(at + verifier.nodes, len(prompt) - 1)]
        verifier.verify(Tree(chain[0], chain[1:]))
        verifier.accept(list(range(len(chain))))
    text, passes, drafted, began = bytearray(prompt), 0, 0, now(model.xp)
    with tqdm(total=count, desc="speculative", unit="byte") as bar:
        while (left := len(prompt) + count - len(text)) > 0:
            tree = draft(text, branches, min(depth, left - 1))
            best = verifier.verify(tree)
            path = tree.follow(best)
            verifier.accept(path)
            text += bytes(best[node] for node in path)
            passes, drafted = passes + 1, drafted + len(tree.tokens) - 1
            bar.update(len(path))
    return Decoded(bytes(text), passes, now(model.xp) - began, drafted)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="60, of preset gpu 300")
    parser.add_argument("--float32", action="store_true", help="decode with the float32 master weights")
    parser.add_argument("--prompt", type=int, metavar="BYTES", help="of held-out text (default: half the context)")
    parser.add_argument("--tokens", type=int, help="bytes to decode (default: half the context)")
    parser.add_argument("--branches", type=int, default=4, help="continuations in a tree, at most (default: 4)")
    parser.add_argument("--depth", type=int, default=8, help="bytes of a continuation, at most (default: 8)")
    parser.add_argument("--page-size", type=int, default=16, help="tokens of a page (default: 16)")
    return parser.checked(argv, steps=1, prompt=1, tokens=1, branches=1, depth=1, page_size=1, seed=0)


def report(model: Decoder, slow: Decoded, fast: Decoded, count: int) -> None:
    """The table, and whether the texts are the same: in float32 they must be."""
    print(f"{'':12}  passes  bytes a pass  bytes/s")
    for name, made in (("plain", slow), ("speculative", fast)):
        print(f"{name:12}  {made.passes:6}  {count / made.passes:12.2f}  {count / made.seconds:7,.0f}")
    print(f"{fast.drafted / fast.passes:.1f} bytes drafted a pass, {count / fast.passes - 1:.2f} of them taken")
    if slow.text == fast.text:
        print(f"the same text, all {count} bytes")
        return
    at = next(i for i, (a, b) in enumerate(zip(slow.text, fast.text, strict=True)) if a != b)
    logits = bc.cast(model.forward(model.xp.asarray([list(slow.text[:at])]))[0][-1], "float32")
    a, b = (float(logits[text[at]]) for text in (slow.text, fast.text))
    print(f"the same text for {at - len(slow.text) + count} bytes, then bytes whose logits are {a:.4f} and {b:.4f}")
    assert model.copies, "in float32 the texts must be the same"


def run(argv: list[str] | None = None) -> tuple[Decoded, Decoded]:
    """Train, decode both ways, report."""
    asked = options(argv)
    require("tqdm")
    device, xp = choose_device(asked.device)
    name = asked.preset or ("cpu" if device.kind == "cpu" else "gpu")
    preset = dataclasses.replace(PRESETS[name], steps=asked.steps or STEPS[name])
    corpus = load(asked.text, preset.context)
    model = Decoder(preset, xp, asked.seed)
    losses, _ = train(model, corpus, asked.seed)
    if asked.float32:
        model.copies = None
    print(f"loss {losses[-1]:.2f}, decoding in {model.weights['head'].dtype} on {describe(device)}")
    half = preset.context // 2
    prompt, count = corpus.held_out[: asked.prompt or half].tobytes(), asked.tokens or half
    room = len(prompt) + count
    cache = PagedCache(model, 2 * -(-room // asked.page_size), asked.page_size, asked.seed)  # one for both texts
    slow = plain(model, Sequence(cache, room), prompt, count)
    fast = speculative(model, Sequence(cache, room), prompt, count, branches=asked.branches, depth=asked.depth)
    print(f"--- continuation ---\n{fast.text[len(prompt) :].decode('utf-8', 'replace')}\n--------------------")
    report(model, slow, fast, count)
    return slow, fast


if __name__ == "__main__":
    raise SystemExit(main(run=run))
