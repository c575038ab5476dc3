#pragma once
// counts     counts and truth: functors of baracuda/reduce_axes.cuh, over elements T.
#include <baracuda/complex.cuh>
#include <baracuda/reduce_axes.cuh>

namespace baracuda::kinds {

template <class T> struct CountNonzero {
  using State = i64;
  using Result = i64;
  using Lane = Fold<CountNonzero>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return 0; }
  template <class A> static BARACUDA_D State leaf(A x) { return x != A(0); }  // NaN counts
  static BARACUDA_D State merge(State a, State b) { return a + b; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s; }
};

template <class T> struct L0Norm : CountNonzero<T> {
  using Result = part_t<T>;
  static BARACUDA_D Result finish(i64 s, const Reduced&) { return cast<Result>(s); }
};

template <class T> struct Any {
  using State = u32;
  using Result = bool;
  using Lane = Fold<Any>;
  static BARACUDA_D T fill() { return T(0.0f); }
  static BARACUDA_D State empty() { return 0; }
  template <class A> static BARACUDA_D State leaf(A x) { return x != A(0); }  // NaN is true
  static BARACUDA_D State merge(State a, State b) { return a | b; }
  static BARACUDA_D Result finish(State s, const Reduced&) { return s != 0; }
};

template <class T> struct All : Any<T> {
  using Lane = Fold<All>;
  static BARACUDA_D T fill() { return T(1.0f); }
  static BARACUDA_D u32 empty() { return 1; }
  static BARACUDA_D u32 merge(u32 a, u32 b) { return a & b; }
};

}  // namespace baracuda::kinds
