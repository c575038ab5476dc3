"""Continuous batching: which tokens of which requests the next forward pass takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..core.checked import whole
from ..core.errors import InvalidProblemError
from .batch import Batch
from .pages import OutOfPagesError, PageAllocator
from .prefix import PrefixTree
from .sequence import Request, Sequence


class Scheduler:
    """Shares out a budget of tokens a step among requests, and pages among their keys.

    Every step takes the next tokens of those that run, in the order in which they began, then of those that wait: one
    token of a text that is being generated, as much of a prompt as the budget leaves (chunked prefill). Where pages run
    out, cached prefixes that nobody uses are given up; then the youngest that runs gives its pages back and waits
    before all others. It keeps its tokens, and their keys are computed again. The oldest always goes on, so none waits
    for ever.

    prefixes: a tree of the same allocator; None: no prefix is reused. max_sequences: how many run at most. max_tokens:
    how many tokens a step has at most. table_width: columns of the page tables, by default as many as a step needs.
    """

    def __init__(
        self, allocator: PageAllocator, prefixes: PrefixTree | None = None, *, max_sequences: int = 256,
        max_tokens: int = 2048, table_width: int | None = None,
    ) -> None:  # fmt: skip
        if prefixes is not None and prefixes.allocator is not allocator:
            raise InvalidProblemError("prefixes must be a tree of the same allocator")
        self.allocator, self.prefixes = allocator, prefixes
        self.max_sequences = whole("max_sequences", max_sequences, 1)
        self.max_tokens = whole("max_tokens", max_tokens, 1)
        self.table_width = None if table_width is None else whole("table_width", table_width, 1)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._batch: Batch | None = None  # that was scheduled and is not updated yet
        self._sources: list[int] = []  # pages that its copies read, held until it is done

    def add(self, request: Request) -> Sequence:
        """A request that waits from now on. O(1).

        OutOfPagesError where its longest text would not fit even alone.
        """
        sequence = Sequence(request)
        self._fits(sequence)
        self.waiting.append(sequence)
        return sequence

    def fork(self, sequence: Sequence, request: Request | None = None) -> Sequence:
        """Another sequence with the same tokens so far, which shares the pages of this one, between two steps.

        Both go on by themselves: the last page is copied when one of them writes to it. request: what the new one's
        parameters, max_tokens and stop are of, by default the same; its prompt is not read. O(tokens).
        """
        self._between("fork")
        if sequence not in self.running or len(self.running) == self.max_sequences:
            raise InvalidProblemError("only a sequence that runs can be forked, and only while another one may run")
        twin = Sequence(sequence.request if request is None else request)
        twin.tokens, twin.prompt_length = sequence.tokens.copy(), sequence.prompt_length
        self._fits(twin)
        twin.pages, twin.cached = sequence.pages.copy(), sequence.cached
        self.allocator.share(twin.pages)
        self.running.append(twin)
        return twin

    def abort(self, sequence: Sequence) -> None:
        """Drop a sequence, between two steps; its pages are given back. O(sequences)."""
        self._between("abort")
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            raise InvalidProblemError("the sequence is finished, or of another scheduler")
        self._release(sequence)
        sequence.finished = "aborted"

    def schedule(self) -> Batch | None:
        """The next step, or None where nothing runs or waits. O(tokens of the step + pages of its sequences).

        Its sequences have their pages when this returns. Run it, then tell `update` what was drawn.
        OutOfPagesError where others hold so many pages that nobody can go on.
        """
        self._between("schedule")
        counts: dict[Sequence, int] = {}
        copies: list[tuple[int, int]] = []
        budget, preempted, at = self.max_tokens, False, 0
        while at < len(self.running) and budget:
            sequence = self.running[at]
            count = min(sequence.pending, budget)
            while at < len(self.running) and not self._extend(sequence, count, copies):
                self._preempt()  # the youngest: at last the sequence itself
                preempted = True
            if at < len(self.running):
                counts[sequence] = count
                budget -= count
                at += 1
        while self.waiting and budget and len(self.running) < self.max_sequences and not preempted:
            sequence = self.waiting[0]
            count = self._admit(sequence, budget, copies)
            if not count:
                break
            self.running.append(self.waiting.popleft())
            counts[sequence] = count
            budget -= count
        if not counts:
            if self.running or self.waiting:
                raise OutOfPagesError(
                    f"no sequence can go on: {self.allocator.available} of {self.allocator.num_pages} pages are free, "
                    "and others than its sequences hold the rest"
                )
            return None
        self._batch = Batch.of(counts, copies, self.allocator.page_size, self.table_width)
        return self._batch

    def update(self, batch: Batch, ids: Iterable[int]) -> list[Sequence]:
        """What was drawn for each of batch.sampling, in order; returns the sequences that are finished now.

        Takes the batch that was scheduled last, or what `placed` made of it. Finished sequences give their pages back;
        those that are full stay in the tree of prefixes. O(tokens of the step), and of prompts and texts that end.
        """
        drawn = [whole("ids", token, 0) for token in (ids.tolist() if hasattr(ids, "tolist") else ids)]
        if self._batch is None or batch.sequences != self._batch.sequences:
            raise InvalidProblemError("update takes the batch that was scheduled last, once")
        if len(drawn) != len(batch.sampling):
            raise InvalidProblemError(f"{len(drawn)} ids were given, and {len(batch.sampling)} sequences are sampled")
        bounds, self._batch = self._batch.qo_indptr.tolist(), None
        self.allocator.free(self._sources)
        self._sources = []
        for at, sequence in enumerate(batch.sequences):
            before = sequence.cached
            sequence.cached += bounds[at + 1] - bounds[at]
            if before < sequence.prompt_length <= sequence.cached:
                self._keep(sequence)
        for sequence, token in zip(batch.sampling, drawn, strict=True):
            sequence.append(token)
        finished = [sequence for sequence in batch.sampling if sequence.finished]
        for sequence in finished:
            self._keep(sequence)
            self._release(sequence)
        self.running = [sequence for sequence in self.running if not sequence.finished]
        return finished

    def _fits(self, sequence: Sequence) -> None:
        """Refuse what could not go on to its end even alone; of its last token no keys are kept."""
        needed = self.allocator.pages_for(sequence.prompt_length + sequence.request.max_tokens - 1)
        most = self.allocator.num_pages if self.table_width is None else min(self.allocator.num_pages, self.table_width)
        if needed > most:
            raise OutOfPagesError(f"a sequence needs up to {needed} pages, and can have {most}")

    def _between(self, what: str) -> None:
        if self._batch is not None:
            raise InvalidProblemError(f"{what} is for between two steps: update the batch that was scheduled first")

    def _admit(self, sequence: Sequence, budget: int, copies: list[tuple[int, int]]) -> int:
        """Give a waiting sequence what is cached of it and pages for its next tokens; how many these are, 0: none."""
        if self.prefixes is not None:
            sequence.pages = self.prefixes.match(sequence.tokens[:-1])
            sequence.cached = len(sequence.pages) * self.allocator.page_size
        count = min(sequence.pending, budget)
        if self._extend(sequence, count, copies):
            return count
        self._release(sequence)
        return 0

    def _extend(self, sequence: Sequence, count: int, copies: list[tuple[int, int]]) -> bool:
        """Pages for the next tokens, and a page of its own to write the first of them to, if there are enough."""
        pages, size = sequence.pages, self.allocator.page_size
        needed = self.allocator.pages_for(sequence.cached + count) - len(pages)
        last = sequence.cached // size
        shared = sequence.cached % size != 0 and self.allocator.references(pages[last]) > 1
        missing = needed + shared - self.allocator.available
        if missing > 0 and self.prefixes is not None:
            missing -= self.prefixes.evict(missing)
        if missing > 0:
            return False
        if shared:
            # What is copied from is held until the step is done: another copy of the step may not write to it.
            self.allocator.share([pages[last]])
            self._sources.append(pages[last])
            pair = self.allocator.copy_on_write(pages, last)
            assert pair is not None
            copies.append(pair)
        pages += self.allocator.allocate(needed)
        return True

    def _preempt(self) -> None:
        """The youngest that runs waits again, before all others."""
        sequence = self.running.pop()
        self._keep(sequence)
        self._release(sequence)
        self.waiting.appendleft(sequence)

    def _keep(self, sequence: Sequence) -> None:
        """The full pages of a sequence go into the tree."""
        if self.prefixes is not None:
            full = sequence.cached // self.allocator.page_size * self.allocator.page_size
            self.prefixes.insert(sequence.tokens[:full], sequence.pages)

    def _release(self, sequence: Sequence) -> None:
        self.allocator.free(sequence.pages)
        sequence.pages, sequence.cached = [], 0
