"""Continuous batching: which tokens of which requests the next forward pass takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from ..core.checked import whole
from ..core.errors import InvalidProblemError
from .batch import Batch
from .pages import OutOfPagesError, PageAllocator
from .prefix import PrefixTree
from .sequence import Request, Sequence, token_list


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
        twin.logprobs = sequence.logprobs.copy()
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

    def schedule(self, draft: Callable[[Sequence, int], Iterable[int]] | None = None) -> Batch | None:
        """The next step, or None where nothing runs or waits. O(tokens of the step + pages of its sequences).

        Its sequences have their pages when this returns. Run it, then tell `update` what was drawn.
        draft(sequence, most): up to `most` tokens that may follow those of a sequence (`prompt_lookup`). They are tried
        in the same step, with what the others leave of its budget and of the free pages; None: nothing is drafted.
        Where it raises, all that run wait again.
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
        try:
            drafts = {} if draft is None else self._drafted(counts, budget, draft)
        except BaseException:  # of the caller's function: nothing of the step will be done
            while self.running:
                self._preempt()
            self._read()
            raise
        self._batch = Batch.of(counts, drafts, copies, self.allocator.page_size, self.table_width)
        return self._batch

    def update(self, batch: Batch, ids: Iterable[int], logprobs: Iterable[float] | None = None) -> list[Sequence]:
        """What was drawn for each of batch.rows, in order; returns the sequences that are finished now.

        A sequence takes what its first row drew, and while that is the token that was drafted there, what the next one
        did: the tokens that it would get without drafts. logprobs: of the ids, which sequences then keep.
        Takes the batch that was scheduled last, or what `placed` made of it. Finished sequences give their pages back;
        those that are full stay in the tree of prefixes. O(tokens of the step), and of prompts and texts that end.
        """
        drawn = [whole("ids", token, 0) for token in token_list(ids)]
        known = None if logprobs is None else [float(one) for one in token_list(logprobs)]
        if self._batch is None or batch.sequences != self._batch.sequences:
            raise InvalidProblemError("update takes the batch that was scheduled last, once")
        rows = len(self._batch.rows)
        if len(drawn) != rows:
            raise InvalidProblemError(f"{len(drawn)} ids were given, and {rows} rows are drawn from")
        if known is not None and len(known) != rows:
            raise InvalidProblemError(f"{len(known)} logprobs were given, and {rows} rows are drawn from")
        bounds, self._batch = self._batch.qo_indptr.tolist(), None
        self._read()
        tried = dict(zip(batch.sampling, batch.drafts, strict=True))
        for at, sequence in enumerate(batch.sequences):
            before = sequence.cached
            sequence.cached += bounds[at + 1] - bounds[at] - len(tried.get(sequence, ()))
            if before < sequence.prompt_length <= sequence.cached:
                self._keep(sequence)
        first = 0
        for sequence, draft in tried.items():
            end = first + len(draft) + 1
            self._take(sequence, draft, drawn[first:end], None if known is None else known[first:end])
            first = end
        finished = [sequence for sequence in batch.sampling if sequence.finished]
        for sequence in finished:
            self._keep(sequence)
            self._release(sequence)
        self.running = [sequence for sequence in self.running if not sequence.finished]
        return finished

    def _drafted(
        self, counts: dict[Sequence, int], budget: int, draft: Callable[[Sequence, int], Iterable[int]]
    ) -> dict[Sequence, tuple[int, ...]]:
        """Drafts of those that are sampled, within a budget, what their texts may have, and the pages that are free."""
        drafts, size = {}, self.allocator.page_size
        for sequence, count in counts.items():
            end, pages = sequence.cached + count, sequence.pages
            left = sequence.prompt_length + sequence.request.max_tokens - 1 - end
            most = min(budget, left, (len(pages) + self.allocator.available) * size - end)
            if count == sequence.pending and most > 0:
                found = tuple(whole("draft", token, 0) for token in islice(draft(sequence, most), most))
                pages += self.allocator.allocate(self.allocator.pages_for(end + len(found)) - len(pages))
                drafts[sequence] = found
                budget -= len(found)
        return drafts

    def _take(self, sequence: Sequence, draft: tuple[int, ...], drawn: list[int], logprobs: list[float] | None) -> None:
        """Append what was drawn, as far as the drafted tokens before it are those; give the rest's pages back."""
        for i, token in enumerate(drawn):
            sequence.append(token)
            if logprobs is not None:
                sequence.logprobs.append(logprobs[i])
            if sequence.finished or draft[i : i + 1] != (token,):
                break
        sequence.cached = len(sequence.tokens) - 1
        kept = self.allocator.pages_for(sequence.cached)
        self.allocator.free(sequence.pages[kept:])
        del sequence.pages[kept:]

    def _read(self) -> None:
        """Pages that were held for copies to read are so no longer."""
        self.allocator.free(self._sources)
        self._sources = []

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
