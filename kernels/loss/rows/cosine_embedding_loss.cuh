#pragma once
// cosine_embedding_loss  1 - cos(x, y) where the target is 1, max(0, cos - margin) where it is -1, else 0.
#include "loss/row_kinds.cuh"

namespace baracuda {

template <class T, class P> struct CosineEmbeddingRow {
  using A = acc_t<T>;
  struct State {
    A both, first, second;
  };
  static constexpr int operands = 2;
  const LossRow<T, P>& row;
  A target, scale, own[2];  // of slopes: sign / |x| |y|, and sign cos / |x|^2 and / |y|^2
  BARACUDA_D explicit CosineEmbeddingRow(const LossRow<T, P>& r)
      : row(r), target(r.number()), scale(0), own{A(0), A(0)} {}
  static BARACUDA_D State merge(State a, State b) { return {a.both + b.both, a.first + b.first, a.second + b.second}; }
  BARACUDA_D void add(State& s, i64, const A* x) const {
    s.both += x[0] * x[1], s.first += x[0] * x[0], s.second += x[1] * x[1];
  }
  BARACUDA_D A size(A squares) const { return squares + A(1e-12); }  // as PyTorch keeps it from 0
  BARACUDA_D A lengths(State s) const { return math::sqrt(size(s.first)) * math::sqrt(size(s.second)); }
  BARACUDA_D A loss(State s) const {
    const A cosine = s.both / lengths(s);
    if (target == A(1)) return A(1) - cosine;
    return target == A(-1) ? losses::at_least(cosine - row.margin(), A(0)) : A(0);
  }
  BARACUDA_D A weight() const { return A(1); }
  BARACUDA_D void settle(State s) {
    const A cosine = s.both / lengths(s);
    const A sign = target == A(1) ? A(-1) : target == A(-1) && cosine - row.margin() >= A(0) ? A(1) : A(0);
    scale = sign / lengths(s), own[0] = sign * cosine / size(s.first), own[1] = sign * cosine / size(s.second);
  }
  BARACUDA_D A slope(int n, i64, const A* x) const {
    return n == 0 ? scale * x[1] - own[0] * x[0] : scale * x[0] - own[1] * x[1];
  }
};

}  // namespace baracuda
