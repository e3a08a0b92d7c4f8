/* A loss of the program's own (struct sl_own_loss): its function computes the value and the
 * gradient of a row. */
#include "codelets/custom_loss.h"

#include <math.h>

#include <starling/data.h>

#include "codelets/codelets.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

static bool has_nan(const float *values, int64_t size) {
  for (int64_t i = 0; i < size; i++)
    if (isnan(values[i])) return true;
  return false;
}

/* Has the label the largest output, the first of equals? */
static bool is_right(const struct sl_loss_row *row) {
  for (int64_t i = 0; i < row->size; i++)
    if (row->y[i] > row->y[row->label] || (row->y[i] == row->y[row->label] && i < row->label))
      return false;
  return true;
}

/* Fills in the row's target; false: it does not count. */
static bool find_target(const struct sl__custom_loss_args *a, const void *targets, int64_t n,
                        struct sl_loss_row *row) {
  int64_t at = sl__custom_loss_target(a, n);
  if (a->own.takes_labels) {
    row->label = ((const int32_t *)targets)[at];
    return row->label >= 0 && row->label < a->size;
  }
  row->target = (const float *)targets + at * a->size;
  return !has_nan(row->target, a->size);
}

static void run(void *buffers[], const struct sl__custom_loss_args *a, float *dlogits) {
  const float *logits = sl__buffer(buffers, 0);
  float *stats = sl__buffer(buffers, 2);
  double loss = 0;
  int64_t counted = 0, right = 0;
  enum sl_status status = SL_OK;
  for (int64_t n = 0; n < a->rows; n++) {
    float *dy = dlogits ? dlogits + n * a->size : NULL;
    struct sl_loss_row row = {
        .user = a->own.user, .size = a->size, .y = logits + n * a->size, .dy = dy};
    bool counts = status == SL_OK && find_target(a, sl__buffer(buffers, 1), n, &row);
    for (int64_t i = 0; dy && i < a->size; i++) dy[i] = 0;
    if (!counts) continue;
    status = a->own.row(&row);
    sl__custom_loss_ended(a, status, row.message);
    loss += row.loss;
    counted++;
    right += a->own.takes_labels && is_right(&row);
    for (int64_t i = 0; dy && i < a->size; i++) dy[i] *= a->scale;
  }
  stats[0] = (float)loss;
  stats[1] = (float)(a->own.takes_labels ? right : counted);
  stats[2] = (float)counted;
  stats[3] = 0;
}

SL__KERNEL void sl__custom_loss_cpu(void *buffers[], void *cl_arg) {
  run(buffers, sl__args(cl_arg), NULL);
}

SL__KERNEL void sl__custom_loss_gradient_cpu(void *buffers[], void *cl_arg) {
  run(buffers, sl__args(cl_arg), sl__buffer(buffers, 3));
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__custom_loss_args *a = args;
  a->scale = step->scale[a->part];
}

/* Rows whose losses fit a GPU worker's scratch memory, beside a row of targets of this size. */
static const int64_t most_gpu_rows = 1 << 22;

static bool has_cuda(const struct sl__custom_loss_args *a, const struct sl__loss_task *t) {
  return a->own.rows_cuda && t->logits->type == SL_F32 && a->rows <= most_gpu_rows &&
         a->size <= most_gpu_rows;
}

enum sl_status sl__custom_loss(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__loss_task *t, const struct sl_own_loss *own) {
  int64_t lines = t->logits->shape.dim[0];
  struct sl__custom_loss_args a = {.own = *own,
                                   .size = t->logits->shape.dim[t->logits->shape.ndim - 1],
                                   .from = t->from,
                                   .scale = t->scale,
                                   .part = t->part};
  struct sl__launch launch = *l;
  int64_t width = own->takes_labels ? 1 : a.size;
  a.rows = sl_shape_count(&t->logits->shape) / a.size;
  a.steps = a.rows / lines;
  a.columns = sl_shape_count(&t->targets->shape) / width / lines;
  if (t->targets->shape.dim[0] != lines || t->from < 0 || t->from + a.steps > a.columns)
    return sl__fail(SL_BAD_SHAPE, "loss %s: %lld rows of outputs, but %lld of targets", own->name,
                    (long long)a.rows, (long long)(a.columns * lines));
  sl__place_here(&launch.place, has_cuda(&a, t));
  if (launch.place.where == STARPU_CPU && !starpu_cpu_worker_get_count())
    return sl__fail(SL_NO_DEVICE,
                    "loss %s needs a CPU worker: it has no CUDA function, or activations are bf16, "
                    "or a slice has more than %lld rows; let STARPU_NCPU be 1 or more",
                    own->name, (long long)most_gpu_rows);
  launch.renew = renew;
  launch.varies = true; /* its functions are called in every step */
  return sl__submit(context, t->dlogits ? &sl__op_custom_loss_gradient : &sl__op_custom_loss,
                    &launch, t->dlogits ? 4 : 3,
                    (struct sl__tensor *[]){t->logits, t->targets, t->stats, t->dlogits}, &a,
                    sizeof a, 10.0 * (double)a.rows * (double)a.size, 0);
}
