#pragma once
// bits       bits of all elements together; of bool they are one bit. Functors of baracuda/reduce_axes.cuh, over elements T.
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

template <class T> struct Bits {
  using State = conditional<sizeof(T) == 8, u64, u32>;
  using Result = T;
  static BARACUDA_D T fill() { return T(0); }
  static BARACUDA_D State empty() { return 0; }
  template <class A> static BARACUDA_D State leaf(A x) { return static_cast<State>(x); }
  static BARACUDA_D Result finish(State s, const Reduced&) { return static_cast<T>(s); }
};
template <class T> struct XorSum : Bits<T> {  // of bool, whether an odd number is true
  using typename Bits<T>::State;
  using Lane = Fold<XorSum>;
  static BARACUDA_D State merge(State a, State b) { return a ^ b; }
};
template <class T> struct BitsOfAny : Bits<T> {
  using typename Bits<T>::State;
  using Lane = Fold<BitsOfAny>;
  static BARACUDA_D State merge(State a, State b) { return a | b; }
};
template <class T> struct BitsOfAll : Bits<T> {  // of no elements every bit
  using typename Bits<T>::State;
  using Lane = Fold<BitsOfAll>;
  static BARACUDA_D T fill() { return static_cast<T>(~0ll); }
  static BARACUDA_D State empty() { return ~State(0); }
  static BARACUDA_D State merge(State a, State b) { return a & b; }
};

}  // namespace baracuda::kinds
