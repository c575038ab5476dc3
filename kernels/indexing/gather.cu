// gather     y = x picked along one axis by an index an element (gather) or a position (take). Schedule gather.
#include <baracuda/gather.cuh>

namespace baracuda {

template <int BYTES, class P> BARACUDA_D void gather(const P& p) { gather_words_of<BYTES>(p); }

}  // namespace baracuda
