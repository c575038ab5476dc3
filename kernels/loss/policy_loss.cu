// policy_loss  the clipped losses of loss/policy_terms.cuh of [rows, tokens], and their sums.
//   policy_rows      a block for each chunk of 2048 tokens of a row: what it adds up, and the tokens' losses
//   policy_finish    one block: the loss and what goes with it from the chunks' sums
//   policy_gradient  a block for each chunk: dpolicy and dentropy
//
// What fixes the order of every sum: thread i of a chunk adds its tokens i, i + 256, … in that order, the threads' sums
// are a tree of neighbours; chunks of a row and rows of the batch are added in an order that their numbers alone fix.
#include "loss/policy_terms.cuh"

namespace baracuda {

// f(t, token) for a thread's tokens first + i, first + i + 256, … below `end`, in that order.
template <class T, class Row, class F>
BARACUDA_D void for_tokens(const Row& row, i64 first, i64 end, u32 reads, const F& f) {
  constexpr int some = policy_in_flight<T>;
  PolicyStrands<T> strands(row.p, row.row, first + threadIdx.x, reads);
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x), left = static_cast<int>(end - first); at < left;
       at += some * policy_threads) {
    PolicyToken<T> token[some];
#pragma unroll
    for (int u = 0; u < some; ++u) strands.next(token[u], at + u * policy_threads < left);
#pragma unroll
    for (int u = 0; u < some; ++u) {
      if (at + u * policy_threads < left) f(first + at + u * policy_threads, token[u]);
    }
  }
}

// p.what: 0 the tokens that count and the logarithms of their ratios, 1 the losses, 2 the slopes of a sequence's ratio.
template <class T, class P> BARACUDA_D void policy_rows(const P& p) {
  using A = acc_t<T>;
  const i64 index = blockIdx.x;
  const PolicyRow<T, P> row{p, index / p.chunks};
  const i64 first = index % p.chunks * policy_chunk, end = min<i64>(p.tokens, first + policy_chunk);
  const A shared = p.what != 0 && p.per_sequence ? row.row_ratio() : A(0);
  const A scale = p.what == 2 ? row.scale() : A(1);
  u32 reads = p.per_sequence ? reads_ratio : no_reads;
  if (p.what == 1) {
    reads = reads_ratio | reads_advantage | (p.reference != nullptr ? reads_reference : no_reads) |
            (p.entropy != nullptr ? reads_entropy : no_reads);
  } else if (p.what == 2) {
    reads = reads_advantage;
  }
  PolicySums<A> sums{};
  for_tokens<T>(row, first, end, reads, [&](i64 t, const PolicyToken<T>& token) {
    PolicySums<A> own{};
    if (row.counts(token)) {
      own.count = A(1);
      if (p.what == 0) {
        if (p.per_sequence) own.loss = row.log_ratio(token);
      } else if (p.what == 2) {
        own.loss = row.gradient(token, scale) * row.term(token, shared).slope;
      } else {
        const A moved = row.log_ratio(token);
        const PolicyTerm<A> term = row.term(token, p.per_sequence ? shared : moved);
        own.loss = term.loss, own.clipped = term.clipped ? A(1) : A(0), own.moved = math::expm1(moved) - moved;
        A slope;
        if (p.reference != nullptr) row.away(token, own.away, slope);
        if (p.reference != nullptr && p.beta != 0) own.loss += static_cast<A>(p.beta) * own.away;
        if (p.entropy != nullptr) own.loss -= static_cast<A>(p.bonus) * PolicyToken<T>::value(token.entropy);
      }
    }
    if (p.loss != nullptr) static_cast<T*>(p.loss)[row.row * p.loss_step[0] + t * p.loss_step[1]] = cast<T>(own.loss);
    sums = AddPolicySums::apply(sums, own);
  });
  sums = block_reduce<AddPolicySums, policy_threads>(sums);
  if (threadIdx.x == 0) static_cast<PolicySums<A>*>(p.parts)[index] = sums;
}

// Groups of p.lanes threads, 1 or a warp, take rows in turn; a thread of a group takes every p.lanes-th chunk.
template <class T, class P> BARACUDA_D void policy_finish(const P& p) {
  using A = acc_t<T>;
  constexpr int threads = 512, some = sizeof(A) == 8 ? 4 : 8;  // rows whose sums are read at once
  const auto* const parts = static_cast<const PolicySums<A>*>(p.parts);
  const int lane = static_cast<int>(threadIdx.x) % p.lanes, groups = threads / p.lanes;
  PolicySums<A> total{};
#pragma unroll 1
  for (i64 r0 = threadIdx.x / p.lanes; r0 < p.rows; r0 += some * groups) {
    PolicySums<A> sum[some];
#pragma unroll
    for (int u = 0; u < some; ++u) {
      const i64 r = r0 + u * groups;
      sum[u] = r < p.rows && lane < p.chunks ? parts[r * p.chunks + lane] : PolicySums<A>{};
    }
#pragma unroll
    for (int u = 0; u < some; ++u) {
      const i64 r = r0 + u * groups;
      if (r >= p.rows) break;
#pragma unroll 1
      for (i64 c = lane + p.lanes; c < p.chunks; c += p.lanes) {
        sum[u] = AddPolicySums::apply(sum[u], parts[r * p.chunks + c]);
      }
      if (p.lanes == warp_size) sum[u] = warp_reduce<AddPolicySums>(sum[u]);
      if (p.by_row) sum[u].loss /= sum[u].count < A(1) ? A(1) : sum[u].count;
      if (lane == 0) total = AddPolicySums::apply(total, sum[u]);
    }
  }
  total = block_reduce<AddPolicySums, threads>(total);
  if (threadIdx.x != 0) return;
  const A every = total.count < A(1) ? A(1) : total.count;
  if (p.loss != nullptr) *static_cast<A*>(p.loss) = total.loss / (p.by_count ? every : static_cast<A>(p.divisor));
  if (p.clip_fraction != nullptr) *static_cast<A*>(p.clip_fraction) = total.clipped / every;
  if (p.approx_kl != nullptr) *static_cast<A*>(p.approx_kl) = total.moved / every;
  if (p.kl != nullptr) *static_cast<A*>(p.kl) = total.away / every;
  if (p.total != nullptr) *static_cast<A*>(p.total) = total.count;
}

// p.slopes: the chunks' sums of the slopes by the ratio of their sequence, where it has one.
template <class T, class P> BARACUDA_D void policy_gradient(const P& p) {
  using A = acc_t<T>;
  const i64 index = blockIdx.x;
  const PolicyRow<T, P> row{p, index / p.chunks};
  const i64 first = index % p.chunks * policy_chunk, end = min<i64>(p.tokens, first + policy_chunk);
  const A scale = row.scale(), shared = p.per_sequence ? row.whole(p.slopes).loss / row.tokens() : A(0);
  const bool drawn_back = p.reference != nullptr && p.beta != 0;
  const u32 reads = (p.per_sequence ? no_reads : reads_ratio | reads_advantage) |
                    (drawn_back ? reads_policy | reads_reference : no_reads);
  for_tokens<T>(row, first, end, reads, [&](i64 t, const PolicyToken<T>& token) {
    A dpolicy = A(0), dentropy = A(0);
    if (row.counts(token)) {
      const A g = row.gradient(token, scale);
      dpolicy = p.per_sequence ? shared : g * row.term(token, row.log_ratio(token)).slope;
      if (drawn_back) {
        A value, slope;
        row.away(token, value, slope);
        dpolicy += g * static_cast<A>(p.beta) * slope;
      }
      dentropy = -(g * static_cast<A>(p.bonus));
    }
    if (p.dpolicy != nullptr)
      static_cast<T*>(p.dpolicy)[row.row * p.out_step[0][0] + t * p.out_step[0][1]] = cast<T>(dpolicy);
    if (p.dentropy != nullptr)
      static_cast<T*>(p.dentropy)[row.row * p.out_step[1][0] + t * p.out_step[1][1]] = cast<T>(dentropy);
  });
}

}  // namespace baracuda
