#include "codelets/kernels/recurrent.h"

#include "codelets/kernels/choice.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/recurrent_gemm.h"
#include "codelets/kernels/skinny_gemm.h"
#include "core/base/error.h"
#include "core/base/simd.h"
#include "core/runtime/tensor.h"

/* In tiles that stay in the first-level cache. */
SL__SIMD void sl__transpose(const float *from, int64_t rows, int64_t columns, float *to) {
  enum { TILE = 16 };
  for (int64_t r = 0; r < rows; r += TILE)
    for (int64_t c = 0; c < columns; c += TILE) {
      int64_t r1 = r + TILE < rows ? r + TILE : rows, c1 = c + TILE < columns ? c + TILE : columns;
      for (int64_t k = c; k < c1; k++)
        for (int64_t i = r; i < r1; i++) to[k * rows + i] = from[i * columns + k];
    }
}

static bool is_packed(const struct sl_context *context, int64_t rows, int64_t steps,
                      int64_t weights) {
  bool pays = sl__recurrent_gemm_pays(rows, steps, weights);
  return rows <= SL__RECURRENT_GEMM_ROWS && sl__product_choice_with_own(context, pays) == SL__OWN;
}

enum sl_status sl__recurrent_check(struct sl_context *context, const char *name, int gates,
                                   int parts, const struct sl__tensor *x,
                                   const struct sl__tensor *saved, const struct sl__tensor *block,
                                   int time, struct sl__recurrent_args *a) {
  char xt[96], st[96];
  const int64_t *xd = x->shape.dim, *sd = saved->shape.dim, ways = time & SL__TIME_BOTH ? 2 : 1;
  if (x->shape.ndim == 3 && saved->shape.ndim == 3 && xd[0] == sd[0] && xd[1] == sd[1] &&
      sd[2] % (parts * ways) == 0) {
    int64_t hidden = sd[2] / (parts * ways);
    *a = (struct sl__recurrent_args){
        .rows = (int32_t)xd[0],
        .steps = (int32_t)xd[1],
        .in = (int32_t)xd[2],
        .hidden = (int32_t)hidden,
        .implementation = sl__product_choice(context),
        .time = time,
        .is_packed = is_packed(context, xd[0], xd[1], gates * hidden * hidden),
        .input_implementation = sl__product_choice_with_own(context, sl__skinny_gemm_pays(xd[2])),
        .data_implementation =
            sl__product_choice_with_own(context, sl__skinny_gemm_plain_pays(xd[0] * xd[1], xd[2]))};
    if (block->shape.dim[0] == ways * sl__recurrent_params(a, gates)) return SL_OK;
  }
  return sl__fail(SL_BAD_SHAPE, "%s: x %s, saved %s and %lld parameters do not fit", name,
                  sl_shape_text(&x->shape, xt, sizeof xt),
                  sl_shape_text(&saved->shape, st, sizeof st), (long long)block->shape.dim[0]);
}

void sl__recurrent_input(const struct sl__recurrent_args *a, int64_t columns, const float *x,
                         const float *w_ih, float *saved, int64_t width) {
  int64_t rows = (int64_t)a->rows * a->steps;
  if (a->input_implementation == SL__OWN)
    sl__skinny_gemm_product(rows, columns, a->in, x, w_ih, false, NULL, saved, width, 0,
                            sl__skinny_gemm_blocks(columns), 0);
  else
    sl__gemm(sl__gemm_of(a->input_implementation), false, true, rows, columns, a->in, 1, x, a->in,
             w_ih, a->in, 0, saved, width);
}

void sl__recurrent_input_gradient(const struct sl__recurrent_args *a, int64_t columns,
                                  const float *dgates, int64_t width, const float *w_ih, float *dx,
                                  bool add) {
  int64_t rows = (int64_t)a->rows * a->steps;
  if (a->data_implementation == SL__OWN)
    sl__skinny_gemm_plain(rows, a->in, columns, dgates, width, w_ih, add, dx, 0);
  else
    sl__gemm(sl__gemm_of(a->data_implementation), false, false, rows, a->in, columns, 1, dgates,
             width, w_ih, a->in, add, dx, a->in);
}

enum sl_status sl__recurrent_check_state(const char *name, int states,
                                         const struct sl__tensor *state, const struct sl__tensor *y,
                                         const struct sl__recurrent_args *a) {
  char have[2][96], want[2][96];
  int64_t width = sl__directions(a) * (int64_t)a->hidden;
  const struct sl_shape carried = SL_SHAPE(a->rows, states * width);
  const struct sl_shape out =
      a->time & SL__TIME_LAST ? SL_SHAPE(a->rows, width) : SL_SHAPE(a->rows, a->steps, width);
  if (sl_shape_equal(&state->shape, &carried) && sl_shape_equal(&y->shape, &out)) return SL_OK;
  return sl__fail(SL_BAD_SHAPE, "%s: the state is %s and y %s; they must be %s and %s", name,
                  sl_shape_text(&state->shape, have[0], sizeof *have),
                  sl_shape_text(&y->shape, have[1], sizeof *have),
                  sl_shape_text(&carried, want[0], sizeof *want),
                  sl_shape_text(&out, want[1], sizeof *want));
}
