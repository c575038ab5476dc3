#pragma once
// jacobi     plane rotations of pairs of lines, as many at once as are disjoint, in an order that the size alone fixes.
//
// A sweep has each pair of n lines once: n - 1 rounds (n rounded up to even) of n / 2 pairs, those of a tournament where
// one player stays and the others move around a circle (Brent and Luk 1985).
#include "linalg/small.cuh"

namespace baracuda {

struct Tournament {
  int lines, players;

  BARACUDA_D explicit Tournament(int lines) : lines(lines), players(lines + (lines & 1)) {}
  BARACUDA_D int rounds() const { return players - 1; }
  BARACUDA_D int pairs() const { return players / 2; }
  // The lines of a pair of a round, low < high; false where one is no line.
  BARACUDA_D bool pair(int round, int number, int& low, int& high) const {
    const int circle = players - 1;
    int a = round + number, b = number == 0 ? circle : round - number + circle;
    a -= a >= circle ? circle : 0;
    if (number != 0) b -= b >= circle ? circle : 0;
    low = min(a, b), high = max(a, b);
    return high < lines;
  }
};

// x' = c x - conj(s) y, y' = s x + c y: unitary. As changes of x and y, with share = s / (1 + c): what is left of a small
// angle then has small errors (Rutishauser 1966).
template <class T> struct Rotation {
  T share, s;

  BARACUDA_D bool turns() const { return s != T{}; }
  BARACUDA_D Rotation conjugate() const { return {adjoint(share), adjoint(s)}; }
  BARACUDA_D void apply(T& x, T& y) const {
    const T before = x;
    x = minus_product(x, plus_product(y, share, x), s);
    y = plus_product(y, s, minus_product(before, y, share));
  }
};

// What makes two columns with products alpha = <x, x>, beta = <y, y> and gamma = <x, y> of a magnitude orthogonal, or the
// Hermitian 2x2 matrix of these diagonal: of the two angles the smaller.
template <class T, class R = part_t<T>> BARACUDA_D Rotation<T> rotation(R alpha, R beta, T gamma, R size) {
  const R tau = (beta - alpha) / (R(2) * size);
  const R t = math::copysign(R(1), tau) / (math::abs(tau) + math::sqrt(math::fma(tau, tau, R(1))));
  const R c = R(1) / math::sqrt(math::fma(t, t, R(1)));
  const T s = times_real(divided(gamma, size), t * c);
  return {divided(s, R(1) + c), s};
}

}  // namespace baracuda
