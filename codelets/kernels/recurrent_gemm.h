/* The state's product of a recurrent layer: few rows by the same matrix in every time step. The
 * matrix is packed once for all steps, in units of 64 columns. It may exceed a core's caches: every
 * second step takes the units from last to first, since the step before has left its last ones in
 * the second-level cache, and while a unit is multiplied the next one is prefetched. */
#ifndef SL_CODELETS_KERNELS_RECURRENT_GEMM_H
#define SL_CODELETS_KERNELS_RECURRENT_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "codelets/kernels/skinny_gemm.h"
#include "core/runtime/submit.h"

enum { SL__RECURRENT_GEMM_ROWS = 32 }; /* maximum number of rows */

/* The columns of the matrix are those of `gates` gates (1, 2 or 4), one gate behind the other; a
 * unit has as many columns of each. */
struct sl__recurrent_gemm {
  int64_t gates, columns, length; /* columns of one gate; length of a sum */
};

static inline int64_t sl__recurrent_gemm_units(const struct sl__recurrent_gemm *g) {
  int64_t each = SL__SKINNY_GEMM_COLUMNS / g->gates;
  return (g->columns + each - 1) / each;
}

/* Floats of memory for the packed matrix, which begins at sl__line_begin of it. */
static inline int64_t sl__recurrent_gemm_floats(const struct sl__recurrent_gemm *g) {
  return sl__recurrent_gemm_units(g) * SL__SKINNY_GEMM_COLUMNS * g->length + 16;
}

/* Is this product faster than a library's, with the packing? weights: the number of all that a step
 * reads. The answer depends on the processor, so the submit function asks, and the kernel's
 * arguments have it. */
bool sl__recurrent_gemm_pays(int64_t rows, int64_t steps, int64_t weights);

/* Packs units of the matrix W^T, where W [gates columns, length] has a layer's layout; or of a
 * matrix [length, columns] of one gate. most_lanes as in skinny_gemm.h. */
void sl__recurrent_gemm_pack(const struct sl__recurrent_gemm *g, const float *weight,
                             struct sl__work_range units, float *to, int most_lanes);
void sl__recurrent_gemm_pack_plain(const struct sl__recurrent_gemm *g, const float *matrix,
                                   struct sl__work_range units, float *to, int most_lanes);

/* The k-th step's product: y [rows, gates columns] = x matrix or, with `add`, += it, for these
 * units' columns. Rows of x and y are x_pitch and y_pitch apart. The bits of a column depend
 * neither on k nor on the units. */
void sl__recurrent_gemm_step(const struct sl__recurrent_gemm *g, const float *packed,
                             struct sl__work_range units, int64_t k, int64_t rows, const float *x,
                             int64_t x_pitch, bool add, float *y, int64_t y_pitch, int most_lanes);

#endif
