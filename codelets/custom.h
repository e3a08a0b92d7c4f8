/* Layers that the program registered: their tasks' arguments, for CPU and CUDA. */
#ifndef SL_CODELETS_CUSTOM_H
#define SL_CODELETS_CUSTOM_H

#include <string.h>

#include "codelets/codelets.h"
#include "core/base/error.h"
#include "core/runtime/failure.h"

/* It holds pointers, unlike other operations' arguments: these tasks stay in their process. The
 * shapes of the inputs' samples follow the struct. */
struct sl__custom_args {
  const struct sl__custom *layer;
  struct sl_shape y, saved; /* of the tensors, rows in front */
  int32_t input;
  bool training;
};

static inline const struct sl_shape *sl__custom_inputs(const struct sl__custom_args *a) {
  return (const struct sl_shape *)(a + 1);
}

static inline struct sl_shape sl__of_sample(const struct sl_shape *shape) {
  struct sl_shape sample;
  memset(&sample, 0, sizeof sample);
  sample.ndim = shape->ndim ? shape->ndim - 1 : 0;
  memcpy(sample.dim, shape->dim + 1, (size_t)sample.ndim * sizeof *sample.dim);
  return sample;
}

/* x [inputs]: the inputs are the buffers from number `first` on. */
static inline struct sl_layer_task sl__custom_task(const struct sl__custom_args *a, void *buffers[],
                                                   int first, const float **x) {
  struct sl_layer_task task;
  memset(&task, 0, sizeof task);
  task.options = a->layer->options;
  task.rows = a->y.dim[0];
  task.input_count = a->layer->inputs;
  task.out = sl__of_sample(&a->y);
  task.saved_shape = sl__of_sample(&a->saved);
  for (int i = 0; i < task.input_count; i++) x[i] = (const float *)sl__buffer(buffers, first + i);
  task.in = sl__custom_inputs(a);
  task.x = x;
  task.input = a->input;
  task.training = a->training;
  return task;
}

static inline struct sl_layer_task sl__custom_forward_task(const struct sl__custom_args *a,
                                                           void *buffers[], const float **x) {
  struct sl_layer_task task = sl__custom_task(a, buffers, a->saved.ndim ? 3 : 2, x);
  const float *param = (const float *)sl__buffer(buffers, 0);
  for (int i = 0; i < a->layer->params; i++) task.param[i] = param + a->layer->offset[i];
  task.y = (float *)sl__buffer(buffers, 1);
  if (a->saved.ndim) task.saved = (float *)sl__buffer(buffers, 2);
  return task;
}

/* All buffers except the output, buffer 1. */
static inline struct sl_layer_task sl__custom_backward_task(const struct sl__custom_args *a,
                                                            void *buffers[], const float **x) {
  struct sl_layer_task task = sl__custom_task(a, buffers, 4, x);
  const float *param = (const float *)sl__buffer(buffers, 0);
  for (int i = 0; i < a->layer->params; i++) task.param[i] = param + a->layer->offset[i];
  task.dy = (const float *)sl__buffer(buffers, 2);
  task.y = (float *)sl__buffer(buffers, 3);
  if (a->saved.ndim) task.saved = (float *)sl__buffer(buffers, 4 + task.input_count);
  return task;
}

/* Bytes of the output that a kernel adds to. */
static inline size_t sl__custom_dx_bytes(const struct sl__custom_args *a) {
  return (size_t)(a->y.dim[0] * sl_shape_count(&sl__custom_inputs(a)[a->input])) * sizeof(float);
}
static inline size_t sl__custom_grad_bytes(const struct sl__custom_args *a) {
  return (size_t)a->layer->total * sizeof(float);
}

/* Records a kernel's return value: a waiting thread gets it as the task's failure. A number that is
 * no status is a failure, too. */
static inline void sl__custom_ended(const struct sl__custom_args *a, enum sl_status status,
                                    const struct sl_layer_task *task) {
  if (status == SL_OK) return;
  enum sl_status known = sl__known_status(status);
  if (*task->message)
    sl__task_failed(known, "%s: %.*s", a->layer->kind->name, (int)sizeof task->message - 1,
                    task->message);
  else
    sl__task_failed(known, "%s: its kernel returned %s (%d) and left no message",
                    a->layer->kind->name, sl_status_name(status), (int)status);
}

#endif
