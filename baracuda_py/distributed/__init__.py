"""Several ranks: communicators, and collectives whose sums have one order.

import numpy as np, baracuda_py as bc
def step(comm):
    return bc.distributed.all_reduce(np.full(3, comm.rank), comm)
bc.distributed.run_ranks(step, 4)  # four threads; each returns [6, 6, 6]
"""

from .buckets import all_reduce_gradients as all_reduce_gradients
from .collectives import all_gather as all_gather
from .collectives import all_reduce as all_reduce
from .collectives import all_to_all as all_to_all
from .collectives import all_to_all_v as all_to_all_v
from .collectives import barrier as barrier
from .collectives import broadcast as broadcast
from .collectives import permute as permute
from .collectives import receive as receive
from .collectives import reduce as reduce
from .collectives import reduce_scatter as reduce_scatter
from .collectives import send as send
from .collectives import send_receive as send_receive
from .communicator import Communicator as Communicator
from .context_recurrence import context_linear_attention as context_linear_attention
from .context_recurrence import context_selective_scan as context_selective_scan
from .descriptors import AllGatherDescriptor as AllGatherDescriptor
from .descriptors import AllReduceDescriptor as AllReduceDescriptor
from .descriptors import AllToAllDescriptor as AllToAllDescriptor
from .descriptors import AllToAllVDescriptor as AllToAllVDescriptor
from .descriptors import BroadcastDescriptor as BroadcastDescriptor
from .descriptors import PermuteDescriptor as PermuteDescriptor
from .descriptors import ReduceDescriptor as ReduceDescriptor
from .descriptors import ReduceOp as ReduceOp
from .descriptors import ReduceScatterDescriptor as ReduceScatterDescriptor
from .descriptors import SendReceiveDescriptor as SendReceiveDescriptor
from .errors import AbortedError as AbortedError
from .errors import DistributedError as DistributedError
from .errors import MismatchError as MismatchError
from .errors import RankLostError as RankLostError
from .errors import TimedOutError as TimedOutError
from .expert_parallel import ExpertRoute as ExpertRoute
from .expert_parallel import expert_combine as expert_combine
from .expert_parallel import expert_dispatch as expert_dispatch
from .expert_parallel import expert_parallel_moe as expert_parallel_moe
from .fused_norm import all_reduce_residual_rms_norm as all_reduce_residual_rms_norm
from .launch import run_ranks as run_ranks
from .linear import column_parallel_linear as column_parallel_linear
from .linear import column_parallel_linear_backward as column_parallel_linear_backward
from .linear import row_parallel_linear as row_parallel_linear
from .linear import row_parallel_linear_backward as row_parallel_linear_backward
from .linear_loss import vocab_parallel_linear_cross_entropy as vocab_parallel_linear_cross_entropy
from .plan import AllGatherPlan as AllGatherPlan
from .plan import AllReducePlan as AllReducePlan
from .plan import AllToAllPlan as AllToAllPlan
from .plan import AllToAllVPlan as AllToAllVPlan
from .plan import BroadcastPlan as BroadcastPlan
from .plan import CollectiveArgs as CollectiveArgs
from .plan import PermutePlan as PermutePlan
from .plan import ReducePlan as ReducePlan
from .plan import ReduceScatterPlan as ReduceScatterPlan
from .plan import SendReceivePlan as SendReceivePlan
from .ring_attention import ring_attention as ring_attention
from .ring_gradient import ring_attention_backward as ring_attention_backward
from .sequence_shards import gather_sequence as gather_sequence
from .sequence_shards import previous_positions as previous_positions
from .sequence_shards import shard_sequence as shard_sequence
from .shares import TreeSum as TreeSum
from .ulysses import ulysses_attention as ulysses_attention
from .vocabulary import vocab_parallel_cross_entropy as vocab_parallel_cross_entropy
from .vocabulary import vocab_parallel_embedding as vocab_parallel_embedding
from .vocabulary import vocab_parallel_embedding_backward as vocab_parallel_embedding_backward
from .world import communicator as communicator
from .zero import distributed_adam_step as distributed_adam_step
from .zero import zero_shard as zero_shard
from .zero import zero_shard_size as zero_shard_size
from .zero import zero_step as zero_step
