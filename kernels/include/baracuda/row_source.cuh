#pragma once
// row_source where the rows of a tile begin in global memory. A source has `row(r)`; `from(row)` and `columns(c)`, the
//            source that begins there; and `walk<STEP>(row, column, rows)`, whose next() gives rows row, row + STEP, …
//            from `column` on, and beyond `rows` any valid address. Some have cursor(row, column), a position from
//            which down<STEP>() walks.
#include <baracuda/opaque.cuh>

namespace baracuda {

template <class T> struct Strided {
  const T* first;
  i64 stride;  // from row to row, in elements

  struct Walk {
    const T* at;
    i64 by;
    BARACUDA_D const T* next() {
      const T* const now = at;
      at += by;
      return now;
    }
  };
  // The same walk with one running address: else the compiler keeps the distance of every row, and a producer has few
  // registers.
  struct Down {
    static constexpr bool looks_up = false;
    const T* at;
    i64 by;
    BARACUDA_D const T* next() {
      const T* const now = at;
      at = opaque(at + by);
      return now;
    }
  };
  struct Cursor {
    const T* at;
    i64 stride;
    template <int STEP> BARACUDA_D Down down() const { return {at, STEP * stride}; }
    BARACUDA_D void move(int rows) { at += rows * stride; }
  };
  BARACUDA_D const T* row(int r) const { return first + r * stride; }
  BARACUDA_D Cursor cursor(int row, int column) const { return {first + row * stride + column, stride}; }
  BARACUDA_D Strided from(i64 row) const { return {first + row * stride, stride}; }
  BARACUDA_D Strided columns(int c) const { return {first + c, stride}; }
  template <int STEP> BARACUDA_D Walk walk(int row, int column, int) const {
    return {first + row * stride + column, STEP * stride};
  }
};

}  // namespace baracuda
