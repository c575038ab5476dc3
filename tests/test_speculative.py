"""`examples/speculative_decoding.py` on the NumPy backend: trees, drafts, pages, and the text of plain decoding."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def random_model(seed: int, xp: Any = np, **changes: Any) -> Any:
    """A tiny model of grouped heads, its weights so large that the text depends on all of the context."""
    from gpt_model import Decoder, Preset

    preset = Preset(
        d=24, layers=2, heads=6, kv_heads=3, ffn=20, context=32, batch=2, steps=2, learning_rate=1e-3,
        compute="float32", eval_batches=1,
    )  # fmt: skip
    model = Decoder(dataclasses.replace(preset, **changes), xp, seed)
    for name, weight in model.matrices.items():
        weight *= np.float32(50 if name == "embedding" else 15)
    return model


def decoded(model: Any, prompt: bytes, count: int, page_size: int, **tree: int) -> tuple[Any, Any, Any, Any]:
    """Plain and speculative decoding in pages of one cache with none to spare: both results, both sequences."""
    from speculative_decoding import PagedCache, Sequence, plain, speculative

    room = len(prompt) + count
    cache = PagedCache(model, 2 * -(-(room - 1) // page_size), page_size, seed=page_size)
    sequences = Sequence(cache, room), Sequence(cache, room)
    slow = plain(model, sequences[0], prompt, count)
    return slow, speculative(model, sequences[1], prompt, count, **tree), *sequences


# -- trees ----------------------------------------------------------------------------------------------------------


def test_paths_share_their_beginnings() -> None:
    from gpt_tree import Tree

    tree = Tree(7, [1, 2, 3], [1, 4], [5], [1, 2, 3], [1, 4, 1])
    assert tree.tokens == [7, 1, 2, 3, 4, 5, 1]
    assert tree.parents == [-1, 0, 1, 2, 1, 0, 4]
    assert tree.depths == [0, 1, 2, 3, 2, 1, 3]


def test_a_node_sees_its_ancestors_and_itself() -> None:
    from gpt_tree import Tree

    rng = np.random.default_rng(0)
    tree = Tree(0, *(rng.integers(0, 2, 5).tolist() for _ in range(6)))
    nodes, size = len(tree.tokens), len(tree.tokens) + 3
    want = np.zeros((size, size), bool)
    for node in range(size):
        at = node
        while at >= 0:
            want[node, at] = True
            at = tree.parents[at] if at < nodes else -1
    got = tree.mask(size)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got.sum(1)[:nodes] - 1, tree.depths)
    np.testing.assert_array_equal(Tree(0, range(4)).mask(5), np.tri(5, dtype=bool))


def test_following_takes_the_models_tokens() -> None:
    from gpt_tree import Tree

    tree = Tree(7, [1, 2, 3], [1, 4], [5])
    assert tree.follow([1, 4, 0, 0, 9, 0]) == [0, 1, 4]
    assert tree.follow([1, 2, 3, 3, 0, 0]) == [0, 1, 2, 3]
    assert tree.follow([8, 2, 3, 3, 0, 0]) == [0]


def test_drafts_are_what_followed_earlier() -> None:
    from gpt_tree import draft

    text = b"abcX abcY abcX bc"  # bc was followed by "X b", by "Y a", and by "X a"
    tree = draft(text, branches=2, depth=3)
    assert bytes(tree.tokens) == b"cX bY a" and tree.parents == [-1, 0, 1, 2, 0, 4, 5]
    tree = draft(text, branches=3, depth=3)
    assert bytes(tree.tokens) == b"cX bY aa" and tree.parents == [-1, 0, 1, 2, 0, 4, 5, 2]
    overlapping = draft(b"aaabaa", branches=2, depth=2)  # aa was followed by "ba", and before that by "ab"
    assert bytes(overlapping.tokens) == b"abaab" and overlapping.parents == [-1, 0, 1, 0, 3]
    assert bytes(draft(b"xab", 3, 4).tokens) == b"b"
    assert bytes(draft(b"zababab", 1, 5).tokens) == b"bababa", "a draft that meets the end of the text repeats itself"
    assert bytes(draft(b"aaaa", 4, 3).tokens) == b"aaaa"
    assert draft(b"aaaa", 4, 0).tokens == [97]
    assert draft(b"a", 4, 3).tokens == [97]


@pytest.mark.parametrize("seed", range(5))
def test_a_draft_fits_its_branches(seed: int) -> None:
    from gpt_tree import draft

    text = bytes(np.random.default_rng(seed).integers(97, 100, 300).tolist())
    tree = draft(text, 4, 5)
    leaves = set(range(len(tree.tokens))) - set(tree.parents)
    assert 1 < len(leaves) <= 4 and {tree.depths[leaf] for leaf in leaves} == {5}
    for leaf in leaves:
        path, at = [], leaf
        while at >= 0:
            path.append(tree.tokens[at])
            at = tree.parents[at]
        assert bytes(path[::-1]) in text + text[-1:] * 5


# -- pages ----------------------------------------------------------------------------------------------------------


def test_no_page_is_held_twice() -> None:
    """Sequences that come, grow and go at random: a page has one holder, and the table is what is held."""
    from speculative_decoding import PagedCache, Sequence

    rng, cache = np.random.default_rng(0), PagedCache(random_model(0), 20, 3)
    texts = [Sequence(cache, 60) for _ in range(4)]
    refused = 0
    for _ in range(300):
        text = texts[rng.integers(4)]
        if rng.random() < 0.2:
            text.release()
        else:
            length = min(60, 3 * len(text.held) + int(rng.integers(0, 9)))
            try:
                text.reserve(length)
                assert len(text.held) == -(-length // 3)
            except MemoryError:
                refused += 1
                assert not cache.free
        held = [page for t in texts for page in t.held]
        assert sorted(held + cache.free) == list(range(20))
        for t in texts:
            assert t.table[0].tolist() == t.held + [-1] * (20 - len(t.held))
    assert refused > 10


# -- decoding -------------------------------------------------------------------------------------------------------


def route(tree: Any, node: int) -> list[int]:
    """The nodes from the root to one of them."""
    return [*route(tree, tree.parents[node]), node] if node else [0]


@pytest.mark.parametrize("page_size", [1, 4, 32])
def test_a_pass_over_a_tree_is_a_pass_over_each_of_its_paths(page_size: int) -> None:
    """Random trees, one after another, a random path of each accepted: every node against the forward pass."""
    from gpt_tree import Tree
    from speculative_decoding import PagedCache, Sequence, Verifier

    model, rng = random_model(page_size), np.random.default_rng(page_size)
    verifier = Verifier(model, Sequence(PagedCache(model, 40, page_size), 40), 25)
    text: list[int] = []
    for _ in range(3):
        tree = Tree(int(rng.integers(256)), *(rng.choice([3, 200], 6).tolist() for _ in range(4)))
        routes = [route(tree, node) for node in range(len(tree.tokens))]
        best = verifier.verify(tree)
        for leaf in set(range(len(tree.tokens))) - set(tree.parents):
            tokens = np.array([[*text, *(tree.tokens[node] for node in routes[leaf])]])
            logits = model.forward(tokens)[0][len(text) :]
            assert [best[node] for node in routes[leaf]] == logits.argmax(1).tolist()
        path = routes[rng.integers(len(routes))]
        verifier.accept(path)
        text += [tree.tokens[node] for node in path]
    assert len(text) == verifier.length > 6


@pytest.mark.parametrize(("seed", "page_size"), [(0, 1), (1, 3), (2, 16), (3, 64)])
def test_the_text_is_that_of_plain_decoding(seed: int, page_size: int) -> None:
    """And what the pages hold is the same, in the order of the table."""
    model = random_model(seed)
    prompt = bytes(np.random.default_rng(seed).integers(97, 100, 1 + 7 * seed).tolist())
    slow, fast, one, other = decoded(model, prompt, 16, page_size, branches=3, depth=1 + seed)
    assert fast.text == slow.text and fast.text.startswith(prompt) and len(fast.text) == len(prompt) + 16
    assert slow.passes == 16 and fast.passes <= 16
    assert len({*slow.text[len(prompt) :]}) > 2, "the text is too plain to tell"
    for keys_or_values in (part for layer in one.cache.layers for part in layer):
        a, b = (
            keys_or_values[s.held].transpose(0, 2, 1, 3).reshape(-1, 3 * 4)[: len(slow.text) - 1] for s in (one, other)
        )
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(a).max())


def test_plain_decoding_is_the_models_generation() -> None:
    model = random_model(7)
    slow, *_ = decoded(model, b"some prompt", 12, 4, branches=1, depth=1)
    assert slow.text == model.generate(b"some prompt", 12, temperature=0.0, top_k=0, seed=0)[0]


def counting() -> Any:
    """A model that counts, 0 to 7 and round again, whatever came before."""
    model = random_model(0, d=32, heads=4, kv_heads=2)
    for name in ("out0", "out1", "down0", "down1", "head"):
        model.matrices[name][:] = 0
    model.matrices["embedding"][:8] = np.eye(8, 32)
    model.matrices["head"][:8, :8] = np.roll(np.eye(8), 1, axis=1)
    return model


def test_repetition_takes_fewer_passes() -> None:
    slow, fast, *_ = decoded(counting(), bytes(range(8)) * 2, 40, 4, branches=2, depth=4)
    assert slow.text == fast.text == bytes(range(8)) * 7
    assert slow.passes == 40 and fast.passes == 8, "five bytes a pass: four drafted and one more"


def test_any_branch_can_be_the_one() -> None:
    """After 9 0 1 2 came 7, after 0 1 2 also 3 4: the second draft is right."""
    prompt = bytes([0, 1, 2, 3, 4, 9, 0, 1, 2, 7, 9, 0, 1, 2])
    for branches, passes in ((1, 2), (2, 1)):
        slow, fast, *_ = decoded(counting(), prompt, 3, 4, branches=branches, depth=4)
        assert slow.text == fast.text == prompt + bytes([3, 4, 5])
        assert fast.passes == passes


# -- the script -----------------------------------------------------------------------------------------------------


def test_a_short_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import gpt_model
    import speculative_decoding
    import train_gpt

    monkeypatch.setitem(gpt_model.PRESETS, "cpu", random_model(0).preset)
    made = []
    argv = ["--device", "cpu", "--steps", "1", "--prompt", "9", "--tokens", "6", "--branches", "2", "--depth", "2"]
    assert train_gpt.main(argv, run=lambda argv: made.append(speculative_decoding.run(argv))) == 0
    (slow, fast), said = made[0], capsys.readouterr().out
    assert slow.text == fast.text and len(fast.text) == 15
    assert "the same text, all 6 bytes" in said and re.search(r"^plain +6 +1\.00 ", said, re.M)
    assert re.search(rf"^speculative +{fast.passes} +{6 / fast.passes:.2f} ", said, re.M)


def test_texts_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """In bfloat16 the first difference is shown with its two logits; in float32 it is an error."""
    from speculative_decoding import Decoded, report

    slow, fast = Decoded(b"abcdef", 4, 1.0), Decoded(b"abcxyz", 2, 1.0, 6)
    model = random_model(0, compute="bfloat16")
    report(model, slow, fast, 4)
    logits = model.forward(np.array([list(b"abc")]))[0][-1].astype(np.float32)
    a, b = logits[ord("d")], logits[ord("x")]
    assert f"the same text for 1 bytes, then bytes whose logits are {a:.4f} and {b:.4f}\n" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="in float32 the texts must be the same"):
        report(random_model(0), slow, fast, 4)


def test_bad_requests(capsys: pytest.CaptureFixture[str]) -> None:
    from speculative_decoding import run
    from train_gpt import main

    for option in ("--page-size", "--branches", "--depth", "--tokens", "--prompt", "--steps"):
        assert main([option, "0"], run=run) == 2
        assert f"error: {option} must be at least 1" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize(("seed", "page_size"), [(0, 1), (1, 16), (3, 7)])
def test_the_text_is_that_of_plain_decoding_on_a_gpu(seed: int, page_size: int) -> None:
    """In float32, captured; and it is the text of the NumPy backend, whose logits are never close for these seeds."""
    import cupy

    prompt = b"abcabdabcabe" * 3
    slow, fast, *_ = decoded(random_model(seed, cupy), prompt, 60, page_size, branches=3, depth=4)
    assert fast.text == slow.text
    assert fast.text == decoded(random_model(seed), prompt, 60, page_size, branches=3, depth=4)[0].text
