/* A loss of the program's own (struct sl_own_loss): its function computes the value and the
 * gradient of a row. */
#include <math.h>

#include <starling/data.h>

#include "codelets/codelets.h"
#include "core/base/error.h"
#include "core/runtime/failure.h"

/* It holds pointers, unlike most operations' arguments: these tasks stay in their process. */
struct args {
  struct sl_own_loss own;
  int64_t rows, size;
  int64_t steps, columns,
      from; /* row n: line n / steps of the targets, position from + n % steps */
  float scale;
  int32_t part; /* of the loss */
};

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
static bool find_target(const struct args *a, const void *targets, int64_t n,
                        struct sl_loss_row *row) {
  int64_t at = n / a->steps * a->columns + a->from + n % a->steps;
  if (a->own.takes_labels) {
    row->label = ((const int32_t *)targets)[at];
    return row->label >= 0 && row->label < a->size;
  }
  row->target = (const float *)targets + at * a->size;
  return !has_nan(row->target, a->size);
}

/* A number that is no status is a failure, too. */
static void fail(const struct args *a, enum sl_status status, const struct sl_loss_row *row) {
  enum sl_status known = *sl_status_name(status) == '?' ? SL_BAD_ARGUMENT : status;
  if (*row->message)
    sl__task_failed(known, "loss %s: %.*s", a->own.name, (int)sizeof row->message - 1,
                    row->message);
  else
    sl__task_failed(known, "loss %s: its function returned %s (%d) and left no message",
                    a->own.name, sl_status_name(status), (int)status);
}

static void run(void *buffers[], const struct args *a, float *dlogits) {
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
    if (status != SL_OK) fail(a, status, &row);
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
  struct args *a = args;
  a->scale = step->scale[a->part];
}

enum sl_status sl__custom_loss(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__loss_task *t, const struct sl_own_loss *own) {
  int64_t lines = t->logits->shape.dim[0];
  struct args a = {.own = *own,
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
  sl__place_here(&launch.place, false);
  if (!starpu_cpu_worker_get_count())
    return sl__fail(SL_NO_DEVICE, "loss %s needs a CPU worker; let STARPU_NCPU be 1 or more",
                    own->name);
  launch.renew = renew;
  return sl__submit(context, t->dlogits ? &sl__op_custom_loss_gradient : &sl__op_custom_loss,
                    &launch, t->dlogits ? 4 : 3,
                    (struct sl__tensor *[]){t->logits, t->targets, t->stats, t->dlogits}, &a,
                    sizeof a, 10.0 * (double)a.rows * (double)a.size, 0);
}
