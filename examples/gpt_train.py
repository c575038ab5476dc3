"""The training loop: a step is one graph; batches, learning rate and step number reach it through device memory.

Nothing waits for the device: steps are queued a chunk ahead of it, and losses are read a chunk behind.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gpt_data import Corpus
from gpt_model import Decoder, Preset

import baracuda_py as bc

CHUNK = 20  # steps whose inputs travel to a GPU together


def learning_rate(preset: Preset, step: int) -> float:
    """Linear warm-up, then linear decay to 5 %."""
    if step < preset.warmup:
        return preset.learning_rate * (step + 1) / preset.warmup
    done = (step - preset.warmup) / max(1, preset.steps - preset.warmup)
    return preset.learning_rate * (1 - 0.95 * done)


class Inputs:
    """What changes from step to step, as one block of bytes that a single copy renews."""

    def __init__(self, preset: Preset, xp: Any) -> None:
        p = preset
        self.sizes = [8, 8, 4 * p.batch * p.context, 4 * p.batch * p.context]
        self.bytes = xp.empty(sum(self.sizes), np.uint8)
        self.step, self.rate, self.tokens, self.targets = self.views(self.bytes, p)

    def views(self, memory: Any, p: Preset) -> tuple[Any, ...]:
        """Step number (0-d int64), learning rate (0-d float64), tokens and targets (int32 [batch, context])."""
        ends = np.cumsum([0, *self.sizes])
        parts = [memory[a:b] for a, b in itertools.pairwise(ends)]
        kinds = ((np.int64, ()), (np.float64, ()), *((np.int32, (p.batch, p.context)),) * 2)
        return tuple(part.view(dtype).reshape(shape) for part, (dtype, shape) in zip(parts, kinds, strict=True))


class Feed:
    """The inputs of every step, in order, each a row of bytes where the training stream may read it."""

    def __init__(self, inputs: Inputs, preset: Preset, corpus: Corpus, xp: Any, seed: int) -> None:
        self.inputs, self.preset, self.corpus, self.xp = inputs, preset, corpus, xp
        self.rng = np.random.default_rng(seed)
        self.chunk = 1 if xp is np else CHUNK
        if xp is not np:
            shape = (self.chunk, inputs.bytes.size)
            self.side = xp.cuda.Stream(non_blocking=True)  # its copies wait for nothing but their own buffer
            self.buffers = [xp.empty(shape, np.uint8) for _ in range(2)]
            self.read: list[Any] = [None, None]

    def __iter__(self) -> Iterator[Any]:
        """Rows, chunk by chunk: yields (first step, rows)."""
        for number, first in enumerate(range(0, self.preset.steps, self.chunk)):
            host = self._host(first, min(self.chunk, self.preset.steps - first))
            yield first, host if self.xp is np else self._upload(host, number % 2)
            if self.xp is not np:
                self.read[number % 2] = self.xp.cuda.get_current_stream().record()

    def _host(self, first: int, count: int) -> np.ndarray:
        rows = np.empty((count, self.inputs.bytes.size), np.uint8)
        for i, row in enumerate(rows):
            step, rate, tokens, targets = self.inputs.views(row, self.preset)
            step[...], rate[...] = first + i + 1, learning_rate(self.preset, first + i)
            tokens[...], targets[...] = self.corpus.batch(self.rng, self.preset.batch, self.preset.context)
        return rows

    def _upload(self, host: np.ndarray, slot: int) -> Any:
        """Into the buffer whose last reader is done; the training stream waits for the copy, the host does not."""
        if self.read[slot] is not None:
            self.side.wait_event(self.read[slot])
        rows = self.buffers[slot][: len(host)]
        rows.set(host, stream=self.side)
        self.xp.cuda.get_current_stream().wait_event(self.side.record())
        return rows


class Losses:
    """The loss of every step: kept on the device, read a chunk behind."""

    def __init__(self, steps: int, feed: Feed) -> None:
        self.feed = feed
        self.device = feed.xp.empty(steps, np.float32)
        self.host: list[float] = []
        self.marks: list[tuple[int, Any]] = []

    def mark(self, stop: int) -> None:
        """Losses before step `stop` are queued; those of the mark before are read."""
        event = None if self.feed.xp is np else self.feed.xp.cuda.get_current_stream().record()
        self.marks.append((stop, event))
        if event is None or len(self.marks) > 1:
            self.take()

    def take(self) -> None:
        """Read up to the oldest mark."""
        stop, event = self.marks.pop(0)
        part = self.device[len(self.host) : stop]
        if event is not None:
            self.feed.side.wait_event(event)
            part = part.get(stream=self.feed.side)
        self.host += part.tolist()


Start = Callable[[Inputs, Any], Callable[[], Any]]


def drive(preset: Preset, corpus: Corpus, xp: Any, seed: int, start: Start) -> tuple[list[float], float]:
    """The loss of every step, and tokens per second.

    `start(inputs, loss)` takes the first step and returns the callable that takes each other: it reads `inputs` and
    writes `loss`, a 0-d array.
    """
    from tqdm import tqdm

    p = preset
    inputs, loss = Inputs(p, xp), xp.zeros((), np.float32)
    feed = Feed(inputs, p, corpus, xp, seed)
    losses = Losses(p.steps, feed)
    replay = None
    began = time.perf_counter()
    with tqdm(total=p.steps, unit="step", desc="training", mininterval=0.5) as bar:
        for first, rows in feed:
            for i, row in enumerate(rows):
                inputs.bytes[...] = row
                if replay is None:
                    replay = start(inputs, loss)
                else:
                    replay()
                losses.device[first + i] = loss
            losses.mark(first + len(rows))
            if losses.host:
                rate = p.batch * p.context * len(losses.host) / (time.perf_counter() - began)
                bar.set_postfix_str(f"loss {losses.host[-1]:.3f}, {rate:,.0f} tokens/s")
            bar.update(len(losses.host) - bar.n)
        while losses.marks:
            losses.take()
        bar.update(len(losses.host) - bar.n)
    return losses.host, p.batch * p.context * p.steps / (time.perf_counter() - began)


def graph_step(model: Decoder) -> Start:
    """A training step of the model as one graph."""

    def step(inputs: tuple[Any, ...], loss: Any) -> None:
        number, rate, tokens, targets = inputs
        _, grads = model.loss_and_gradients(tokens, targets, loss)
        model.update(grads, number, rate)

    return lambda inputs, loss: bc.graph(step, (inputs.step, inputs.rate, inputs.tokens, inputs.targets), loss)


def train(model: Decoder, corpus: Corpus, seed: int) -> tuple[list[float], float]:
    """Train with the preset's recipe: the loss of every step, and tokens per second."""
    return drive(model.preset, corpus, model.xp, seed, graph_step(model))


def held_out_loss(model: Decoder, corpus: Corpus) -> float:
    """Mean nats per byte over fixed windows of the held-out files."""
    p, xp = model.preset, model.xp
    batches = corpus.evaluation(p.batch, p.context, p.eval_batches)
    losses = [model.loss(xp.asarray(x), xp.asarray(y)) for x, y in batches]
    return float(np.mean([float(value) for value in losses]))
