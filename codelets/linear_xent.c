/* The last layer of a model of words, and its loss: logits = x W^T + b, softmax and cross-entropy,
 * in chunks of rows. The scale of the loss is known before the forward pass, so a chunk's logits
 * become their gradient where they are, and dx, dW and db come at once: no more than a chunk of
 * logits ever exists. The chunks depend on shapes alone, and dW adds them up in their order. */
#include "codelets/linear_xent.h"

#include <string.h>

#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/choice.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/onednn.h"
#include "codelets/kernels/weight_gradient.h"
#include "core/base/error.h"
#include "core/runtime/failure.h"

/* Logits of a chunk, at most: 64 MB. Each chunk reads the weight twice and its gradient once and
 * writes that. Measured on one Zen 3 core, 640 rows of 256 inputs and 50,257 words, against
 * separate tasks of 930 ms: chunks of 2^24 logits 940 ms, of 2^23 1,140, of 2^22 1,660, of 2^20
 * 2,130. */
enum { MOST_LOGITS = 1 << 24 };

static int64_t forced_limit;

void sl__linear_xent_force(int64_t logits) {
  __atomic_store_n(&forced_limit, logits, __ATOMIC_RELAXED);
}

int64_t sl__linear_xent_limit(void) {
  int64_t forced = __atomic_load_n(&forced_limit, __ATOMIC_RELAXED);
  return forced ? forced : MOST_LOGITS;
}

/* The rows of a chunk: of as equal chunks as can be that hold at most `limit` values, with room for
 * one row more. */
static int64_t chunk_rows(int64_t rows, int64_t classes, int64_t limit) {
  const int64_t run = 16; /* rows that products take at a time */
  int64_t most = limit / classes - 1;
  if (most < 1) return 1;
  if (most > run) most -= most % run;
  int64_t chunks = (rows + most - 1) / most, each = (rows + chunks - 1) / chunks;
  each = (each + run - 1) / run * run;
  return each < most ? each : most;
}

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* The memory of one task. */
struct head {
  const float *x, *weight, *bias; /* bias: or NULL */
  const int32_t *labels;
  const float *class_weights;   /* or NULL */
  float *dx, *grad, *bias_grad; /* dx NULL: the loss only; bias_grad: or NULL */
  float *logits, *spare;
};

/* The loss of the rows [first, first + rows). */
static struct sl__xent_args xent_of(const struct sl__linear_xent_args *a, int64_t first,
                                    int64_t rows) {
  struct sl__xent_args xent = a->xent;
  xent.first = first;
  xent.rows = rows;
  return xent;
}

/* The rows [first, first + rows). add: the gradient of the parameters has earlier parts. */
static void one_chunk(const struct sl__linear_xent_args *a, const struct head *h, int64_t first,
                      int64_t rows, bool add, struct sl__xent_sums *sums) {
  enum sl__gemm who = sl__gemm_of(a->implementation);
  int64_t in = a->in, out = a->xent.classes;
  const float *x = h->x + first * in;
  const struct sl__xent_args xent = xent_of(a, first, rows);
  sl__gemm(who, false, true, rows, out, in, 1, x, in, h->weight, in, 0, h->logits, out);
  if (h->bias) sl__add_bias(h->logits, h->bias, rows, out, out);
  sl__xent_rows(&xent, h->logits, h->labels, h->class_weights, h->dx ? h->spare : NULL, sums);
  if (!h->dx) return;
  sl__gemm(who, false, false, rows, in, out, 1, h->logits, out, h->weight, in, 0,
           h->dx + first * in, in);
  sl__gemm(who, true, false, out, in, rows, 1, h->logits, out, x, in, add, h->grad, in);
  if (h->bias_grad) sl__bias_gradient(rows, out, h->logits, out, add, h->bias_grad);
}

/* What is float in bf16's passes, too: all but x, the weight, the biases and dx. */
static struct head head_of(void *buffers[], void *cl_arg, int gradients) {
  const struct sl__linear_xent_args *a = sl__args(cl_arg);
  struct head h = {.labels = sl__buffer(buffers, 2),
                   .spare = sl__buffer(buffers, sl__head_scratch(gradients))};
  h.logits = h.spare + a->xent.classes;
  if (a->xent.weighted) h.class_weights = sl__buffer(buffers, sl__head_weights(a, gradients));
  if (!gradients) return h;
  h.grad = sl__buffer(buffers, SL__HEAD_GRAD);
  if (a->bias == SL__BIAS_IN_BLOCK) h.bias_grad = h.grad + a->xent.classes * a->in;
  if (a->bias == SL__BIAS_ALONE) h.bias_grad = sl__buffer(buffers, SL__HEAD_BIAS_GRAD);
  return h;
}

static void run(void *buffers[], void *cl_arg, int gradients) {
  const struct sl__linear_xent_args *a = sl__args(cl_arg);
  int64_t rows = a->xent.rows;
  struct head h = head_of(buffers, cl_arg, gradients);
  struct sl__xent_sums sums = {0};
  h.x = sl__buffer(buffers, 0);
  h.weight = sl__buffer(buffers, 1);
  if (gradients) h.dx = sl__buffer(buffers, SL__HEAD_DX);
  if (a->bias == SL__BIAS_IN_BLOCK) h.bias = h.weight + a->xent.classes * a->in;
  if (a->bias == SL__BIAS_ALONE) h.bias = sl__buffer(buffers, sl__head_bias(gradients));
  for (int64_t first = 0; first < rows; first += a->chunk)
    one_chunk(a, &h, first, a->chunk < rows - first ? a->chunk : rows - first,
              first > 0 || sl__accumulate(cl_arg), &sums);
  sl__xent_stats(&sums, sl__buffer(buffers, 3));
}

SL__KERNEL void sl__linear_xent_cpu(void *buffers[], void *cl_arg) { run(buffers, cl_arg, 0); }

SL__KERNEL void sl__linear_xent_gradient_cpu(void *buffers[], void *cl_arg) {
  run(buffers, cl_arg, 2);
}

SL__KERNEL void sl__linear_xent_bias_gradient_cpu(void *buffers[], void *cl_arg) {
  run(buffers, cl_arg, 3);
}

/* ---- bf16 as it is ------------------------------------------------------------------------- */

/* Logits are floats, their gradient is bf16. */
struct head_bf16 {
  const uint16_t *x, *weight;
  uint16_t *dx;
  struct head of_floats; /* labels, biases, gradients of parameters, scratch */
};

/* [rows, out] floats become codes, from the memory's beginning on. */
static void narrow_rows(float *values, float *spare, int64_t rows, int64_t out) {
  uint16_t *codes = (uint16_t *)spare, *to = (uint16_t *)values;
  for (int64_t n = 0; n < rows; n++) {
    sl__bf16_narrow(values + n * out, codes, out);
    memcpy(to + n * out, codes, (size_t)out * sizeof *codes);
  }
}

/* Before the biases; false: oneDNN refuses the product. */
static bool chunk_logits(const struct sl__linear_xent_args *a, const uint16_t *x,
                         const uint16_t *weight, int64_t rows, float *logits) {
  const struct sl__onednn_product p = {
      .m = rows, .n = a->xent.classes, .k = a->in, .transpose_b = true, .wide = true};
  return sl__onednn_product(&p, x, weight, NULL, logits);
}

/* dx, which may be refused before anything is added up, and the parameters' gradients. */
static bool chunk_slopes(const struct sl__linear_xent_args *a, const struct head_bf16 *h,
                         int64_t first, int64_t rows, bool add) {
  int64_t in = a->in, out = a->xent.classes;
  const uint16_t *dlogits = (const uint16_t *)h->of_floats.logits;
  const struct sl__onednn_product of_x = {.m = rows, .n = in, .k = out},
                                  of_weight = {.m = out,
                                               .n = in,
                                               .k = rows,
                                               .transpose_a = true,
                                               .wide = true,
                                               .add = add};
  if (!sl__onednn_product(&of_x, dlogits, h->weight, NULL, h->dx + first * in) ||
      !sl__onednn_product(&of_weight, dlogits, h->x + first * in, NULL, h->of_floats.grad))
    return false;
  if (h->of_floats.bias_grad)
    sl__bias_gradient_bf16(rows, out, dlogits, add, h->of_floats.bias_grad);
  return true;
}

/* Behind chunk_logits. false: oneDNN refuses a product. */
static bool one_chunk_bf16(const struct sl__linear_xent_args *a, const struct head_bf16 *h,
                           int64_t first, int64_t rows, bool add, struct sl__xent_sums *sums) {
  const struct head *f = &h->of_floats;
  int64_t out = a->xent.classes;
  const struct sl__xent_args xent = xent_of(a, first, rows);
  if (f->bias) sl__add_bias(f->logits, f->bias, rows, out, out);
  sl__xent_rows(&xent, f->logits, f->labels, f->class_weights, h->dx ? f->spare : NULL, sums);
  if (!h->dx) return true;
  narrow_rows(f->logits, f->spare, rows, out);
  return chunk_slopes(a, h, first, rows, add);
}

/* The biases as floats. */
static const float *bias_of(const struct sl__linear_xent_args *a, void *buffers[], void *cl_arg,
                            int gradients) {
  int64_t out = a->xent.classes;
  int which = a->bias == SL__BIAS_ALONE ? sl__head_bias(gradients) : 1;
  if (!sl__is_bf16(cl_arg, which)) return sl__buffer(buffers, which);
  const uint16_t *codes = sl__buffer(buffers, which);
  float *bias = sl__bf16_room(out);
  if (bias) sl__bf16_widen(codes + (which == 1 ? out * a->in : 0), bias, out);
  return bias;
}

static bool run_bf16(void *buffers[], void *cl_arg, int gradients) {
  const struct sl__linear_xent_args *a = sl__args(cl_arg);
  int64_t rows = a->xent.rows;
  struct head_bf16 h = {.x = sl__buffer(buffers, 0),
                        .weight = sl__buffer(buffers, 1),
                        .of_floats = head_of(buffers, cl_arg, gradients)};
  struct sl__xent_sums sums = {0};
  if (a->implementation != SL__BF16) return false;
  if (gradients) h.dx = sl__buffer(buffers, SL__HEAD_DX);
  if (a->bias != SL__NO_BIAS) h.of_floats.bias = bias_of(a, buffers, cl_arg, gradients);
  for (int64_t first = 0; first < rows; first += a->chunk) {
    int64_t count = a->chunk < rows - first ? a->chunk : rows - first;
    if (chunk_logits(a, h.x + first * a->in, h.weight, count, h.of_floats.logits) &&
        one_chunk_bf16(a, &h, first, count, first > 0 || sl__accumulate(cl_arg), &sums))
      continue;
    if (!first) return false;
    sl__task_failed(SL_UNSUPPORTED, "linear_xent: oneDNN takes %lld rows of bf16, but not %lld",
                    (long long)a->chunk, (long long)count);
    break;
  }
  sl__xent_stats(&sums, sl__buffer(buffers, 3));
  return true;
}

bool sl__linear_xent_bf16(void *buffers[], void *cl_arg) { return run_bf16(buffers, cl_arg, 0); }

bool sl__linear_xent_gradient_bf16(void *buffers[], void *cl_arg) {
  return run_bf16(buffers, cl_arg, 2);
}

bool sl__linear_xent_bias_gradient_bf16(void *buffers[], void *cl_arg) {
  return run_bf16(buffers, cl_arg, 3);
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__linear_xent_args *a = args;
  a->xent.scale = step->scale[a->xent.part];
}

static bool has_count(const struct sl__tensor *tensor, int64_t count) {
  return !tensor || sl_shape_count(&tensor->shape) == count;
}

static enum sl_status check(const struct sl__linear_xent *t, struct sl__linear_xent_args *a) {
  struct sl__xent_args *xent = &a->xent;
  int64_t lines = t->x->shape.dim[0], in = t->x->shape.dim[t->x->shape.ndim - 1];
  int64_t block = sl_shape_count(&t->param->shape), each = in + (a->bias == SL__BIAS_IN_BLOCK);
  a->in = in;
  xent->classes = block / each;
  xent->rows = sl_shape_count(&t->x->shape) / in;
  xent->steps = xent->rows / lines;
  xent->columns = sl_shape_count(&t->targets->shape) / lines;
  if (xent->classes > 0 && block == xent->classes * each && t->targets->shape.dim[0] == lines &&
      t->from >= 0 && t->from + xent->steps <= xent->columns && has_count(t->stats, 4) &&
      has_count(t->bias, xent->classes) && has_count(t->class_weights, xent->classes) &&
      has_count(t->dx, xent->rows * in) && has_count(t->grad, block) &&
      has_count(t->bias_grad, xent->classes))
    return SL_OK;
  return sl__fail(SL_BAD_SHAPE,
                  "linear_xent: %lld rows of %lld inputs, %lld parameters and %lld labels do not "
                  "fit (or stats is not [4])",
                  (long long)xent->rows, (long long)in, (long long)block,
                  (long long)sl_shape_count(&t->targets->shape));
}

size_t sl__linear_xent_scratch(int64_t rows, int64_t classes) {
  int64_t chunk = chunk_rows(rows, classes, sl__linear_xent_limit());
  return (size_t)(chunk + 1) * (size_t)classes * sizeof(float);
}

enum sl_status sl__linear_xent(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__linear_xent *t) {
  struct sl__launch launch = *l;
  struct sl__linear_xent_args a = {
      .xent = {.from = t->from,
               .scale = t->scale,
               .smoothing = t->smoothing,
               .weighted = t->class_weights != NULL,
               .part = t->part},
      .bias = t->bias       ? SL__BIAS_ALONE
              : t->has_bias ? SL__BIAS_IN_BLOCK
                            : SL__NO_BIAS,
      .implementation = sl__reads_bf16(context, t->x) ? SL__BF16 : sl__product_choice(context)};
  struct sl__tensor *tensors[10] = {t->x, t->param, t->targets, t->stats};
  struct sl__op *op = &sl__op_linear_xent;
  enum sl_status status = check(t, &a);
  int count = 4;
  if (status != SL_OK) return status;
  a.chunk = chunk_rows(a.xent.rows, a.xent.classes, sl__linear_xent_limit());
  double products = t->dx ? 3 : 1;
  if (t->dx) {
    op = t->bias ? &sl__op_linear_xent_bias_gradient : &sl__op_linear_xent_gradient;
    tensors[count++] = t->dx;
    tensors[count++] = t->grad;
    if (t->bias) tensors[count++] = t->bias_grad;
  }
  status =
      sl__scratch(context, sl__linear_xent_scratch(a.xent.rows, a.xent.classes), &tensors[count++]);
  if (status != SL_OK) return status;
  if (t->bias) tensors[count++] = t->bias;
  if (t->class_weights) tensors[count++] = t->class_weights;
  launch.renew = renew;
  return sl__submit(
      context, op, &launch, count, tensors, &a, sizeof a,
      (2 * products * (double)a.in + 10) * (double)a.xent.rows * (double)a.xent.classes,
      (uint32_t)a.chunk);
}
