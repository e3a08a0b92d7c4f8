/* Layers that the program registered (starling/layer.h): one operation for each kind of kernel. */
#include "codelets/custom.h"

#include "codelets/codelets.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

static void run_forward(void *buffers[], const void *cl_arg) {
  const struct sl__custom_args *a = sl__args(cl_arg);
  const float *x[a->layer->inputs];
  struct sl_layer_task task = sl__custom_forward_task(a, buffers, x);
  sl__custom_ended(a, a->layer->kind->forward(&task), &task);
}

SL__KERNEL void sl__custom_forward_cpu(void *buffers[], void *cl_arg) {
  run_forward(buffers, cl_arg);
}

SL__KERNEL void sl__custom_forward_saving_cpu(void *buffers[], void *cl_arg) {
  run_forward(buffers, cl_arg);
}

SL__KERNEL void sl__custom_backward_data_cpu(void *buffers[], void *cl_arg) {
  const struct sl__custom_args *a = sl__args(cl_arg);
  const float *x[a->layer->inputs];
  struct sl_layer_task task = sl__custom_backward_task(a, buffers, x);
  task.dx = sl__buffer(buffers, 1);
  if (!sl__accumulate(cl_arg)) memset(task.dx, 0, sl__custom_dx_bytes(a));
  sl__custom_ended(a, a->layer->kind->backward_data(&task), &task);
}

SL__KERNEL void sl__custom_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__custom_args *a = sl__args(cl_arg);
  const float *x[a->layer->inputs];
  struct sl_layer_task task = sl__custom_backward_task(a, buffers, x);
  float *grad = sl__buffer(buffers, 1);
  for (int i = 0; i < a->layer->params; i++) task.grad[i] = grad + a->layer->offset[i];
  if (!sl__accumulate(cl_arg)) memset(grad, 0, sl__custom_grad_bytes(a));
  sl__custom_ended(a, a->layer->kind->backward_weight(&task), &task);
}

/* ---- submission -------------------------------------------------------------------------- */

/* A CPU if there is no kernel for a GPU; never another process, in which the kernels' addresses
 * have no meaning. */
static enum sl_status find_place(const struct sl__custom *layer, bool on_gpu,
                                 struct sl__launch *launch) {
  sl__place_here(&launch->place, on_gpu);
  if (launch->place.where != STARPU_CPU || starpu_cpu_worker_get_count()) return SL_OK;
  return sl__fail(SL_NO_DEVICE,
                  "layer %s (%s) needs a CPU worker: its kind has no CUDA kernel for this, or none "
                  "for bf16; let STARPU_NCPU be 1 or more",
                  launch->name, layer->kind->name);
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *const *x, bool on_gpu,
                             const struct sl__custom_args *a, int count,
                             struct sl__tensor *const *tensors) {
  const struct sl__custom *layer = a->layer;
  struct sl__launch launch = *l;
  launch.varies = true; /* a program's function may count its calls, or wait */
  enum sl_status status = find_place(layer, on_gpu, &launch);
  if (status != SL_OK) return status;
  _Alignas(8) char args[sizeof *a + (size_t)layer->inputs * sizeof(struct sl_shape)];
  struct sl_shape *in = (struct sl_shape *)(args + sizeof *a);
  memcpy(args, a, sizeof *a);
  for (int i = 0; i < layer->inputs; i++) in[i] = sl__of_sample(&x[i]->shape);
  return sl__submit(context, op, &launch, count, tensors, args, sizeof args,
                    layer->flops * (double)a->y.dim[0], layer->footprint);
}

static struct sl__custom_args args_of(const struct sl__custom *layer, const struct sl__tensor *y,
                                      const struct sl__tensor *saved) {
  struct sl__custom_args args = {.layer = layer, .y = y->shape};
  if (saved) args.saved = saved->shape;
  return args;
}

enum sl_status sl__custom_forward(struct sl_context *context, const struct sl__launch *l,
                                  const struct sl__custom *layer, struct sl__tensor *const *x,
                                  struct sl__tensor *param, struct sl__tensor *y,
                                  struct sl__tensor *saved, bool training) {
  struct sl__custom_args args = args_of(layer, y, saved);
  struct sl__tensor *tensors[3 + layer->inputs];
  int count = 2;
  args.training = training;
  tensors[0] = param ? param : x[0];
  tensors[1] = y;
  if (saved) tensors[count++] = saved;
  for (int i = 0; i < layer->inputs; i++) tensors[count++] = x[i];
  return submit(context, saved ? &sl__op_custom_forward_saving : &sl__op_custom_forward, l, x,
                layer->kind->forward_cuda && y->type == SL_F32, &args, count, tensors);
}

static enum sl_status backward(struct sl_context *context, struct sl__op *op,
                               const struct sl__launch *l, const struct sl__custom *layer,
                               bool has_cuda, int input, const struct sl__custom_buffers *b,
                               struct sl__tensor *result) {
  struct sl__custom_args args = args_of(layer, b->y, b->saved);
  struct sl__tensor *tensors[5 + layer->inputs];
  int count = 4;
  args.input = input;
  args.training = true;
  tensors[0] = b->param ? b->param : b->dy;
  tensors[1] = result;
  tensors[2] = b->dy;
  tensors[3] = b->y;
  for (int i = 0; i < layer->inputs; i++) tensors[count++] = b->x[i];
  if (b->saved) tensors[count++] = b->saved;
  return submit(context, op, l, b->x, has_cuda && b->y->type == SL_F32, &args, count, tensors);
}

enum sl_status sl__custom_backward_data(struct sl_context *context, const struct sl__launch *l,
                                        const struct sl__custom *layer,
                                        const struct sl__custom_buffers *b, int input,
                                        struct sl__tensor *dx) {
  return backward(context, &sl__op_custom_backward_data, l, layer,
                  layer->kind->backward_data_cuda != NULL, input, b, dx);
}

enum sl_status sl__custom_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                          const struct sl__custom *layer,
                                          const struct sl__custom_buffers *b,
                                          struct sl__tensor *grad) {
  return backward(context, &sl__op_custom_backward_weight, l, layer,
                  layer->kind->backward_weight_cuda != NULL, 0, b, grad);
}
