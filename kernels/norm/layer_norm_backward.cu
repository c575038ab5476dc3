// layer_norm_backward  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dh,  dweight = sum over rows of dy * xhat,
// dbias = sum over rows of dy;  xhat = (x - mean) * rstd, g = dy * weight
//
// Persistent blocks pass once over dy and x (`pipe`) and leave partial sums of dweight and dbias, which `combine` adds.
// Rows too long for a ring in shared memory take two kernels: sums by columns, then dx row by row. See backward.cuh.
#include "backward.cuh"

namespace baracuda {

template <class T, class W, int THREADS, int LANES, int CHUNKS, int ROWS, int STAGES, bool WIDE, class P>
BARACUDA_D void layer_norm_backward_pipe(const P& p) {
  norm::pipe<T, W, THREADS, LANES, CHUNKS, ROWS, STAGES, true, WIDE>(p);
}

template <class T, class W, int THREADS, bool WIDE, class P> BARACUDA_D void layer_norm_backward_loop(const P& p) {
  norm::loop<T, W, THREADS, true, WIDE>(p);
}

template <class T, int THREADS, bool WIDE, class P> BARACUDA_D void layer_norm_backward_columns(const P& p) {
  norm::columns<T, THREADS, true, WIDE>(p);
}

template <class T, class W, int THREADS, class P> BARACUDA_D void layer_norm_backward_combine(const P& p) {
  norm::combine<T, W, THREADS, true>(p);
}

}  // namespace baracuda
