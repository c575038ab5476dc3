"""What a model of a family calls in training and generation: ops with their fields and operands."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..core import registry
from ..core.args import Args, arrays_of, scalars_of
from ..core.device import Device
from ..core.element import ElementKind
from ..core.plan import Plan
from ..core.tensor import TensorRef, dense_strides
from ..core.unit import Unit
from ..core.warm import Job, jobs_of
from .families import Family, Sizes

TRAINED = (4, 2048)  # sequences and their tokens in a step of training
CACHED = 4096  # tokens that a cache holds
PROMPT = 512


@dataclass(frozen=True)
class Call:
    """An op, its fields but for the element, and its optional operands (`name` or `name:element`).

    apart: operands of four axes lie as torch has them after a projection, (batch, sequence, heads, columns).
    """

    op: str
    fields: dict[str, Any]
    given: tuple[str, ...] = ()
    apart: bool = False

    def args(self, element: ElementKind, device: Device) -> tuple[Plan, Args]:
        """The plan, and operands without memory."""
        cls = registry.plan(self.op)
        desc = cls.descriptor(**{"element": element, **self.fields})
        elements = {name: kind for name, _, kind in (word.partition(":") for word in self.given)}
        made: dict[str, Any] = {}
        count = itertools.count(1)
        for spec in arrays_of(cls.args):
            if not spec.required(desc) and spec.name not in elements:
                continue
            kind = ElementKind.of(elements.get(spec.name) or spec.elements(desc)[0])
            shapes = [spec.shape(desc, i) for i in range(len(getattr(desc, spec.many)) if spec.many else 1)]
            refs = [TensorRef(next(count) << 40, s, self._strides(s), kind, device=device.ordinal) for s in shapes]
            made[spec.name] = refs if spec.many else refs[0]
        defaults = {field.name: field.default for field in dataclasses.fields(cls.args)}
        unset = [s.name for s in scalars_of(cls.args) if defaults[s.name] in (dataclasses.MISSING, None)]
        return cls.select(desc, device=device), cls.args(**made, **dict.fromkeys(unset, 1))

    def _strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if not self.apart or len(shape) != 4:
            return dense_strides(shape)
        a, b, c, d = dense_strides((shape[0], shape[2], shape[1], shape[3]))
        return a, c, b, d


def calls(family: Family) -> Iterator[Call]:
    """Of every model of the family."""
    for sizes in family.sizes:
        batch, length = TRAINED
        for rows, trained in ((batch * length, True), (PROMPT, False), (1, False)):
            if trained or family.decodes:
                yield from _rows(family, sizes, rows, trained)
        yield from _attention(family, sizes, batch, length, trained=True)
        yield from _loss(sizes, batch * length)
        yield from _optimizer(sizes)
        if family.decodes:
            yield from _attention(family, sizes, 1, PROMPT, trained=False)
            yield from _decoding(family, sizes)


def _rows(family: Family, sizes: Sizes, rows: int, trained: bool) -> Iterator[Call]:
    """Embedding, norms, MLP, sums."""
    embedding = {"index_shape": (rows,), "num_embeddings": sizes.vocab, "embedding_dim": sizes.width}
    yield Call("embedding", embedding)
    stream, inner = (rows, sizes.width), (rows, sizes.hidden)
    norm = {"batch_shape": (rows,), "normalized_shape": (sizes.width,)}
    is_rms = family.norm == "rms_norm"
    affine = ["weight"] if is_rms else ["weight", "bias"]
    saved = ["rstd"] if is_rms else ["mean", "rstd"]
    offset = {"weight_offset": family.offset} if is_rms else {}
    for added in ([], ["residual", "h"]):
        yield Call(family.norm, norm | offset, (*affine, *added))
    act = {"kind": family.act, "shape": inner}
    op = "gated_activation" if family.gated else "unary"
    yield Call(op, act)
    for kind in ("add", "mul"):
        yield Call("binary", {"kind": kind, "shape": stream}, ("b",))
    if not trained:
        return
    yield Call("embedding_backward", embedding)
    for added in ([], ["residual", "h"]):
        yield Call(family.norm, norm | offset, (*affine, *saved, *added))
    for added in ([], ["dh"]):
        yield Call(
            f"{family.norm}_backward", norm | offset, (*affine[:1], "dx", *(f"d{name}" for name in affine), *added)
        )
    yield Call(f"{op}_backward", act, ("dgate", "dup") if family.gated else ())
    for to in ("float32", "float16", "bfloat16"):
        yield Call("cast", {"shape": stream, "to_element": to})
        yield Call("cast", {"shape": stream, "element": "float32", "to_element": to})
    if not family.rotary:
        yield Call("dropout", {"shape": stream, "p": 0.1}, ("mask",))


def _attention(family: Family, sizes: Sizes, batch: int, length: int, trained: bool) -> Iterator[Call]:
    """Rotary positions and attention of whole sequences, with and without a mask."""
    heads = {"batch_size": batch, "num_heads": sizes.heads}
    pair = heads | {"seq_len": length, "head_dim": sizes.head_dim, "num_heads2": sizes.kv_heads}
    if family.rotary:
        yield from _rotary("rope", pair, "x2", "y2")
        if trained:
            yield from _rotary("rope_backward", pair, "dy2", "dx2")
    problem = heads | {
        "num_kv_heads": sizes.kv_heads, "query_len": length, "key_len": length, "d_k": sizes.head_dim,
        "d_v": sizes.head_dim,
    }  # fmt: skip
    for fields in family.attention:
        for mask in ((), ("mask:bool",)):
            yield Call("flash_sdpa", problem | fields, mask, apart=True)
            if trained:
                yield Call("flash_sdpa", problem | fields, (*mask, "lse"), apart=True)
                yield Call("flash_sdpa_backward", problem | fields, (*mask, "dq", "dk", "dv"), apart=True)


def _rotary(op: str, pair: dict[str, Any], *both: str) -> Iterator[Call]:
    """Angles from positions, and from the tables of cosines and sines that Hugging Face's models make."""
    yield Call(op, pair, both, apart=True)
    yield Call(op, pair, (*both, "positions:int64"), apart=True)
    tables = {"table_shape": (pair["batch_size"], pair["seq_len"], pair["head_dim"])}
    for element in ("", ":float32"):
        yield Call(op, pair | tables, (*both, f"cos{element}", f"sin{element}"), apart=True)


def _decoding(family: Family, sizes: Sizes) -> Iterator[Call]:
    """One token of each sequence over a dense cache, and the choice of the next."""
    for batch in (1, 8):
        cache = {
            "batch_size": batch, "num_heads": sizes.heads, "num_kv_heads": sizes.kv_heads, "max_cache_len": CACHED,
            "d_k": sizes.head_dim, "d_v": sizes.head_dim,
        }  # fmt: skip
        for mask in ((), ("mask:bool",)):  # that of a cache of a fixed size
            yield Call("flash_decoding", cache, mask)
        yield Call("sample", {"batch_size": batch, "vocab_size": sizes.vocab}, ("ids",))
        for length in (PROMPT, 1):
            new = cache | {"new_len": length}
            kept = {k: v for k, v in new.items() if k != "num_kv_heads"} | {"num_heads": sizes.kv_heads}
            yield Call("kv_cache_append", kept)
            if family.rotary:
                yield Call("rope_kv_append", new)
        if family.rotary:
            pair = {
                "batch_size": batch, "num_heads": sizes.heads, "seq_len": 1, "head_dim": sizes.head_dim,
                "num_heads2": sizes.kv_heads,
            }  # fmt: skip
            yield from _rotary("rope", pair, "x2", "y2")
        yield Call("softmax", {"shape": (batch, sizes.vocab)})


def _loss(sizes: Sizes, rows: int) -> Iterator[Call]:
    """Of logits in the model's element and in float32, and without logits."""
    for element in ({}, {"element": "float32"}):
        loss = {"batch_shape": (rows,), "num_classes": sizes.vocab, "reduction": "mean", **element}
        yield Call("cross_entropy", loss)
        yield Call("cross_entropy", loss, ("stats", "total_weight"))
        yield Call("cross_entropy_backward", loss, ("total_weight",))
    fused = {"rows": rows, "hidden": sizes.width, "num_classes": sizes.vocab, "reduction": "mean"}
    yield Call("linear_cross_entropy", fused)
    yield Call("linear_cross_entropy", fused, ("lse", "total_weight", "dx", "dweight"))
    yield Call("linear_cross_entropy_backward", fused, ("total_weight", "dx", "dweight"))


def _optimizer(sizes: Sizes) -> Iterator[Call]:
    """Of parameters in the model's element, and of float32 ones with a copy in it."""
    shapes = ((sizes.width, sizes.width), (sizes.width,))
    yield Call("global_norm", {"shapes": shapes}, ("clip_factor",))
    yield Call("global_norm", {"shapes": shapes, "element": "float32"}, ("clip_factor",))
    yield Call("adam_step", {"shapes": shapes, "mode": "adamw"})
    yield Call("adam_step", {"shapes": shapes, "mode": "adamw", "element": "float32"})


def needed(family: Family, element: ElementKind, device: Device) -> list[Job]:
    """Every unit that the calls launch on a device, once."""
    found: dict[Unit, Job] = {}
    for call in calls(family):
        for job in jobs_of(*call.args(element, device)):
            found.setdefault(job.unit, job)
    return list(found.values())
