"""What a serving loop needs around the ops: pages, prefixes, samplers, drafts, and the batch of each step.

    import baracuda_py as bc
    allocator = bc.serving.PageAllocator(num_pages=1024, page_size=16)
    scheduler = bc.serving.Scheduler(allocator, bc.serving.PrefixTree(allocator), max_tokens=512)
    sequence = scheduler.add(bc.serving.Request(prompt, max_tokens=100))
    while (batch := scheduler.schedule()) is not None:
        scheduler.update(batch, ids_of(batch))  # the model's step, which is the caller's

All of it is bookkeeping of the host, in Python and NumPy; none of it may be used by several threads at once.
"""

from .batch import Batch as Batch
from .drafts import prompt_lookup as prompt_lookup
from .pages import OutOfPagesError as OutOfPagesError
from .pages import PageAllocator as PageAllocator
from .prefix import PrefixTree as PrefixTree
from .samplers import Samplers as Samplers
from .samplers import SamplingParams as SamplingParams
from .scheduler import Scheduler as Scheduler
from .sequence import Request as Request
from .sequence import Sequence as Sequence
