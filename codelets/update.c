/* Optimizers' steps, one pass over memory: gradients are added, clipped and applied while they are
 * in the cache. Every SL__UPDATE row of ops.def becomes a kernel with its arithmetic of update.h.
 */
#include "codelets/update.h"

#include <stdlib.h>
#include <string.h>

#include "codelets/kernels/cache_prefetch.h"
#include "codelets/kernels/choice.h"
#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/weight_gradient.h"
#include "core/base/streaming.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

#define BLOCK 1024 /* elements that fit the first cache, with their state */

/* Values of state tensor k from `offset` on; any memory (`none`) where there are fewer states. */
SL__INLINE float *state_at(void *buffers[], int states, int k, int64_t offset, float *none) {
  return k < states ? (float *)sl__buffer(buffers, 1 + k) + offset : none;
}

/* Where a step writes n (up to BLOCK) parameters: in their place, or at first into `copy`. */
SL__INLINE float *begin_parameters(bool streams, float *p, int64_t n, float *copy) {
  if (streams && n > 0) memcpy(copy, p, (size_t)n * sizeof *p);
  return streams ? copy : p;
}

SL__INLINE void end_parameters(bool streams, float *p, int64_t n, const float *copy) {
  if (streams && n > 0) sl__stream_floats(p, copy, n);
}

/* Parameters that other cores have read are requested for writing, at once and ahead: else a core
 * asks twice for each line, first to read it and then for itself alone. */
SL__INLINE void prefetch_step(bool streams, float *p, float *a, float *b, int64_t n) {
  if (streams)
    sl__prefetch_for_read(p, n);
  else
    sl__prefetch_for_write(p, n);
  if (a) sl__prefetch_for_write(a, n);
  if (b) sl__prefetch_for_write(b, n);
}

/* Steps copy their rates: else the compiler must expect that writing a parameter changes them. */

/* A step with the gradient of a dense layer that is computed tile by tile, instead of one that is
 * stored: on the elements [first, end) of the layer's block. */
struct product_step {
  const void *rates;
  bool streams;
  float *param, *a, *b; /* of element `first`; none: NULL */
  int64_t first, end, in;
};

/* The elements of row r of a tile that belong to the step, from *from on; their number. */
SL__INLINE int64_t elements_of(const struct product_step *s, const struct sl__gradient_tile *tile,
                               int r, int64_t *from) {
  int64_t row = (tile->row + r) * s->in + tile->column, end = row + tile->columns;
  *from = row > s->first ? row : s->first;
  return (end < s->end ? end : s->end) - *from;
}

static struct sl__weight_gradient product_of(const struct sl__update_args *args, void *buffers[],
                                             int first) {
  struct sl__weight_gradient g = {
      args->product.rows, args->product.in, args->product.out, args->products, {{0}}};
  for (int t = 0; t < args->products; t++)
    g.term[t] = (struct sl__gradient_term){sl__buffer(buffers, first + 2 * t),
                                           sl__buffer(buffers, first + 2 * t + 1)};
  return g;
}

static struct product_step product_step_of(const struct sl__update_args *args, void *buffers[],
                                           int states, const void *rates) {
  int64_t from = args->u.first;
  return (struct product_step){.rates = rates,
                               .streams = args->u.streams,
                               .param = (float *)sl__buffer(buffers, 0) + args->param_first + from,
                               .a = state_at(buffers, states, 0, from, NULL),
                               .b = state_at(buffers, states, 1, from, NULL),
                               .first = args->product_first + from,
                               .end = args->product_first + from + args->count,
                               .in = args->product.in};
}

/* gradient [count] = the sum of the terms' gradients of the bias, from element `first` on. */
static void bias_gradients(const struct sl__weight_gradient *g, int64_t first, int64_t count,
                           float *gradient) {
  float next[BLOCK];
  for (int t = 0; t < g->terms; t++) {
    sl__bias_gradient(g->samples, count, g->term[t].dy + first, g->out, false, t ? next : gradient);
    for (int64_t i = 0; t && i < count; i++) gradient[i] += next[i];
  }
}

/* The weights by tiles, then the biases as if they were a tile's row. */
static void step_by_product(const struct sl__weight_gradient *g, const struct product_step *s,
                            sl__use_gradient_tile *use) {
  int64_t weights = g->out * g->in, end = s->end < weights ? s->end : weights;
  if (s->first < end)
    sl__weight_gradient(g, s->first / g->in, (end + g->in - 1) / g->in, use, (void *)s, 0);
  for (int64_t at = s->first > weights ? s->first : weights; at < s->end; at += BLOCK) {
    float gradient[BLOCK];
    int64_t n = s->end - at < BLOCK ? s->end - at : BLOCK;
    struct product_step bias = *s;
    bias.in = 0;
    bias_gradients(g, at - weights, n, gradient);
    const struct sl__gradient_tile tile = {0, at, 1, (int)n, gradient};
    use(&tile, &bias);
  }
}

#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  SL__SIMD static void name##_tile(const struct sl__gradient_tile *tile, void *data) {             \
    const struct product_step *s = data;                                                           \
    const struct sl__##name##_rates rates = *(const struct sl__##name##_rates *)s->rates;          \
    for (int r = 0; r < tile->rows; r++) {                                                         \
      int64_t from, n = elements_of(s, tile, r, &from);                                            \
      const float *gradient = tile->values + r * SL__SKINNY_GEMM_COLUMNS +                         \
                              (from - (tile->row + r) * s->in - tile->column);                     \
      float *p = s->param + (from - s->first), *a = states > 0 ? s->a + (from - s->first) : p,     \
            *b = states > 1 ? s->b + (from - s->first) : p, copy[BLOCK],                           \
            *to = begin_parameters(s->streams, p, n, copy);                                        \
      prefetch_step(s->streams, p + n, states > 0 ? a + n : NULL, states > 1 ? b + n : NULL, n);   \
      for (int64_t i = 0; i < n; i++) {                                                            \
        float none[2] = {0}, *ai = states > 0 ? &a[i] : &none[0],                                  \
              *bi = states > 1 ? &b[i] : &none[1];                                                 \
        sl__##name##_step(&rates, gradient[i], &to[i], ai, bi);                                    \
      }                                                                                            \
      end_parameters(s->streams, p, n, copy);                                                      \
    }                                                                                              \
  }                                                                                                \
  SL__SIMD static void name##_stored(void *buffers[], const struct sl__update_args *args,          \
                                     const struct sl__##name##_rates *begun, int end) {            \
    const struct sl__##name##_rates rates = *begun;                                                \
    float factor =                                                                                 \
        sl__clip_factor(args->u.max_norm, args->has_norm ? sl__buffer(buffers, end) : NULL);       \
    float gradient[BLOCK], copy[BLOCK];                                                            \
    int64_t last = args->u.first + args->count;                                                    \
    for (int64_t offset = args->u.first; offset < last; offset += BLOCK) {                         \
      int64_t n = last - offset < BLOCK ? last - offset : BLOCK;                                   \
      float *p = (float *)sl__buffer(buffers, 0) + args->param_first + offset;                     \
      float *to = begin_parameters(args->u.streams, p, n, copy);                                   \
      float *a = state_at(buffers, states, 0, offset, gradient),                                   \
            *b = state_at(buffers, states, 1, offset, gradient);                                   \
      prefetch_step(args->u.streams, p + n, states > 0 ? a + n : NULL, states > 1 ? b + n : NULL,  \
                    last - offset - n < BLOCK ? last - offset - n : BLOCK);                        \
      sl__sum_gradients(buffers, 1 + states, end, args->gradient_first + offset, n, factor,        \
                        gradient);                                                                 \
      for (int64_t i = 0; i < n; i++)                                                              \
        sl__##name##_step(&rates, gradient[i], &to[i], &a[i], &b[i]);                              \
      end_parameters(args->u.streams, p, n, copy);                                                 \
    }                                                                                              \
  }                                                                                                \
  SL__KERNEL void sl__##name##_cpu(void *buffers[], void *cl_arg) {                                \
    const struct sl__update_args *args = sl__args(cl_arg);                                         \
    const struct sl__##name##_rates rates = sl__##name##_begin(&args->u);                          \
    if (args->products) {                                                                          \
      const struct sl__weight_gradient g = product_of(args, buffers, 1 + states);                  \
      const struct product_step s = product_step_of(args, buffers, states, &rates);                \
      step_by_product(&g, &s, name##_tile);                                                        \
    } else {                                                                                       \
      name##_stored(buffers, args, &rates, sl__buffer_count(cl_arg) - args->has_norm);             \
    }                                                                                              \
    if (args->u.streams) sl__stream_end();                                                         \
  }
#include "codelets/ops.def"
#undef SL__OP

/* ---- submission -------------------------------------------------------------------------- */

/* The step's number keeps its value where the rates do not depend on it: on a GPU arguments that
 * are always the same are recorded (core/graph/graph_gpu.c). Rates are floats alone, without
 * padding. */
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  static void name##_renew(void *args, const struct sl__step_record *step) {                       \
    struct sl__update_args *a = args;                                                              \
    int64_t before = a->u.step;                                                                    \
    sl__update_renew(&a->u, step);                                                                 \
    struct sl__update same = a->u;                                                                 \
    same.step = before;                                                                            \
    const struct sl__##name##_rates now = sl__##name##_begin(&a->u);                               \
    const struct sl__##name##_rates then = sl__##name##_begin(&same);                              \
    if (!memcmp(&now, &then, sizeof now)) a->u.step = before;                                      \
  }
#include "codelets/ops.def"
#undef SL__OP

typedef void renew_function(void *args, const struct sl__step_record *step);

static renew_function *renew_of(const struct sl__op *op) {
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  if (op == &sl__op_##name) return name##_renew;
#include "codelets/ops.def"
#undef SL__OP
  return NULL;
}

/* The gradient of a dense layer's weights, if the same function of few samples would compute it:
 * then the bits stay. */
static bool absorb_input(void *args, const struct sl__op *writer, const void *writer_args,
                         int64_t first) {
  struct sl__update_args *a = args;
  const struct sl__dense_args *product = writer_args;
  if (writer != &sl__op_dense_backward_weight || product->implementation != SL__OWN) return false;
  if (a->products && (memcmp(&a->product, product, sizeof *product) || first != a->product_first))
    return false;
  a->product = *product;
  a->product_first = first;
  return sl__weight_gradient_fits(product->rows, ++a->products);
}

int sl__update_states(const struct sl__op *op) { return (int)strspn(op->modes, "m") - 1; }

enum sl_status sl__update(struct sl_context *context, struct sl__op *op, const struct sl__launch *l,
                          struct sl__tensor *param, struct sl__tensor *const *state, int count,
                          struct sl__tensor *const *gradients, struct sl__tensor *norm,
                          const struct sl__update *update) {
  struct sl__tensor *several[SL__STACK_BUFFERS], **tensors = several;
  struct sl__launch launch = *l;
  struct sl__update_args a = {.param_first = (int64_t)param->first,
                              .gradient_first = count > 0 ? (int64_t)gradients[0]->first : 0,
                              .has_norm = norm != NULL,
                              .u = *update};
  int states = sl__update_states(op), n = 0, all = 1 + states + count + (norm != NULL);
  if (count < 1) return sl__fail(SL_BAD_ARGUMENT, "%s: no gradient is given", op->codelet.name);
  if (update->step < 1)
    return sl__fail(SL_BAD_ARGUMENT, "%s: steps count from 1, not %lld", op->codelet.name,
                    (long long)update->step);
  if (all > SL__STACK_BUFFERS && !(tensors = sl__alloc((size_t)all, sizeof *tensors, "an update")))
    return SL_NO_MEMORY;
  tensors[n++] = param;
  for (int i = 0; i < states; i++) tensors[n++] = state[i];
  for (int i = 0; i < count; i++) tensors[n++] = gradients[i];
  enum sl_status status = sl__same_count(op->codelet.name, n, tensors, &a.count);
  if (update->count) a.count = update->count;
  launch.pieces = true;
  launch.renew = renew_of(op);
  launch.absorb_input = absorb_input;
  if (norm) tensors[n++] = norm;
  if (status == SL_OK)
    status = sl__submit(context, op, &launch, all, tensors, &a, sizeof a,
                        (double)a.count * (count + 4), (uint32_t)update->count);
  if (tensors != several) free(tensors);
  return status;
}
