/* All kernels of this backend as one code object. */
#include "backend/gpu/convert.cu"
#include "backend/gpu/simple.cu"
