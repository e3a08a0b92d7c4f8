/* ONNX's operators with weights but without windows (Gemm, MatMul, Gather, BatchNormalization), and
 * Dropout. */
#include <float.h>
#include <string.h>

#include "nn/formats/onnx_operators.h"

/* ONNX's momentum is the weight of the past, ours that of the new value. 0.9f becomes exactly 0.1f,
 * the layer's default, which its option's 0 is. 1 becomes the least number above 0: the
 * value of a step is lost in rounding, and the statistics stay as they are. */
static enum sl_status get_momentum(const reader *r, const node_of *node, float *momentum) {
  float kept;
  enum sl_status status = sl__onnx_get_real(r, node, "momentum", 0.9f, &kept);
  if (status != SL_OK) return status;
  if (!(kept >= 0 && kept <= 1))
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "attribute momentum is %g; it must be from 0 to 1",
                           (double)kept);
  *momentum = kept == 1 ? FLT_MIN : (float)(1.0 - sl__short_real(kept));
  if (*momentum == 0.1f) *momentum = 0;
  return SL_OK;
}

enum sl_status sl__onnx_read_batchnorm(reader *r, const node_of *node) {
  static const char *const parts[] = {NULL, "weight", "bias", "running_mean", "running_var"};
  const struct sl__onnx_tensor *t[5];
  struct sl_batchnorm_options o = {0};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_whole(r, node, 0, &x));
  SL__TRY(sl__onnx_must_be(r, node, "training_mode", 0, 0));
  SL__TRY(sl__onnx_must_be(r, node, "spatial", 1, 1));
  if (node->outputs > 1 && *node->output[1])
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "is exported for training; export it in "
                           "evaluation mode");
  SL__TRY(sl__onnx_get_epsilon(r, node, &o.epsilon));
  SL__TRY(get_momentum(r, node, &o.momentum));
  for (int i = 1; i < 5; i++) SL__TRY(sl__onnx_take_weight(r, node, i, 1, &t[i]));
  SL__TRY(sl__onnx_append(r, node, t[1]->name, &sl__batchnorm_kind, &o, &x, 1));
  for (int i = 1; i < 5; i++)
    SL__TRY(sl__onnx_set(r, node, parts[i], t[i]->reals, t[i]->count, NULL));
  status = sl__onnx_give_first(r, node, &x);
out:
  return status;
}

/* A layer's weight may be shared once, and only if it is the layer's only parameter. */
static bool may_give(const reader *r, int layer) {
  const struct sl__layer *from = &r->model->layers[layer];
  return from->params.count == 1 && !from->is_tied;
}

/* Is the weight the first embedding's table, transposed? An exporter may transpose it itself: then
 * only the equal values show it. */
static bool is_table(const reader *r, const struct sl__onnx_tensor *weight, bool transposed) {
  const struct sl__onnx_tensor *table = r->embedding;
  if (!table || !may_give(r, r->embedding_layer)) return false;
  if (r->own || !transposed || weight->dim[0] != table->dim[1] || weight->dim[1] != table->dim[0])
    return false;
  for (int64_t i = 0; i < table->dim[0]; i++)
    for (int64_t k = 0; k < table->dim[1]; k++)
      if (table->reals[i * table->dim[1] + k] != weight->reals[k * table->dim[0] + i]) return false;
  return true;
}

/* The earlier layer whose weight is the same tensor, or the one that this is the transpose of; -1:
 * none. Fills `how`, so that later layers find this tensor. */
static int find_tied(const reader *r, const struct sl__onnx_tensor *weight, bool transposed,
                     struct sl__onnx_setting *how) {
  bool back = transposed && weight->transposed;
  how->matrix = back ? weight->transposed : weight;
  how->transposed = transposed && !back;
  for (int i = 0; i < r->setting_count; i++) {
    const struct sl__onnx_setting *s = &r->settings[i];
    if (s->matrix == how->matrix && s->transposed == how->transposed && may_give(r, s->layer))
      return s->layer;
  }
  return is_table(r, weight, transposed) ? r->embedding_layer : -1;
}

struct dense {
  const struct sl__onnx_tensor *weight; /* [O, I], or transposed: [I, O] */
  const float *bias;
  const char *bias_name;
  const node_of *last;
  bool transposed, positions;
};

static enum sl_status append_dense(reader *r, const node_of *node, const value_of *x,
                                   const struct dense *d) {
  const struct sl__onnx_tensor *w = d->weight;
  int64_t features = w->dim[d->transposed], inputs = w->dim[!d->transposed];
  const node_of *last = d->last;
  enum sl_status status;
  struct sl_dense_options o = {.features = features,
                               .no_bias = !d->bias,
                               .positions = d->positions,
                               .activation = sl__onnx_fuse(r, node, &last)};
  if (x->view.dim[x->view.ndim - 1] != inputs)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its weight takes %lld values, its input has %lld",
                           (long long)inputs, (long long)x->view.dim[x->view.ndim - 1]);
  struct sl__onnx_setting how = {.columns = d->transposed ? inputs : 0};
  int from = find_tied(r, w, d->transposed, &how);
  if (from >= 0) o.layer.shares = r->model->layers[from].name;
  const char *name = w->name && strstr(w->name, ".weight") ? w->name : d->bias_name;
  SL__TRY(sl__onnx_append(r, node, name, &sl__dense_kind, &o, x, 1));
  if (from < 0) SL__TRY(sl__onnx_set(r, node, "weight", w->reals, w->count, &how));
  if (d->bias) SL__TRY(sl__onnx_set(r, node, "bias", d->bias, features, NULL));
  value_of seen = {.view = r->model->layers[r->model->count - 1].out, .order = x->order};
  status = sl__onnx_give_first(r, last, &seen);
out:
  return status;
}

enum sl_status sl__onnx_read_gemm(reader *r, const node_of *node) {
  struct dense d = {.last = node};
  int64_t transposed;
  float alpha, beta;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, 2, &d.weight));
  SL__TRY(sl__onnx_must_be(r, node, "transA", 0, 0));
  SL__TRY(sl__onnx_get_whole(r, node, "transB", 0, &transposed));
  SL__TRY(sl__onnx_get_real(r, node, "alpha", 1, &alpha));
  SL__TRY(sl__onnx_get_real(r, node, "beta", 1, &beta));
  if (alpha != 1 || beta != 1)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attributes alpha and beta are %g and %g; only 1 is supported",
                           (double)alpha, (double)beta);
  if (x.view.ndim != 1 || x.order != SL__ONNX_BATCH_FIRST)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "takes a matrix, not %d dimensions",
                           x.view.ndim + 1);
  d.transposed = !transposed;
  SL__TRY(sl__onnx_read_bias(r, node, 2, d.weight->dim[d.transposed], &d.bias));
  d.bias_name = d.bias ? node->input[2] : NULL;
  status = append_dense(r, node, &x, &d);
out:
  return status;
}

/* Finds an Add of one constant a feature after a MatMul: its bias. */
static void find_bias(reader *r, const node_of *node, int64_t features, struct dense *d) {
  const node_of *add = node->outputs ? sl__onnx_only_user(r, node->output[0]) : NULL;
  if (!add || strcmp(add->op, "Add") != 0 || add->inputs != 2 || !sl__onnx_belongs(r, add, node))
    return;
  for (int i = 0; i < 2; i++) {
    const struct sl__onnx_tensor *t = sl__onnx_constant(r, add, i);
    if (!t || !t->reals || t->count != features || !t->ndim || t->dim[t->ndim - 1] != features)
      continue;
    if (t->ndim > 2) continue; /* would make the output larger */
    d->bias = t->reals;
    d->bias_name = add->input[i];
    d->last = add;
    r->done[add - r->graph.node] = true;
    return;
  }
}

enum sl_status sl__onnx_read_matmul(reader *r, const node_of *node) {
  struct dense d = {.last = node, .transposed = true};
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_take_weight(r, node, 1, 2, &d.weight));
  if (x.view.ndim > 1 && x.order == SL__ONNX_BATCH_FIRST) SL__TRY(sl__onnx_make_view(r, node, &x));
  d.positions = sl_shape_equal(&x.view, sl__onnx_shape_of(r, &x)) && (r->own || x.view.ndim > 1);
  if (!d.positions && (x.view.ndim != 1 || x.order != SL__ONNX_BATCH_FIRST))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "takes a reshaped input of %d dimensions",
                           x.view.ndim + 1);
  if (x.order > SL__ONNX_TIME_FIRST) /* an axis of directions */
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "takes a recurrent operator's output with its "
                           "axis of directions");
  find_bias(r, node, d.weight->dim[1], &d);
  status = append_dense(r, node, &x, &d);
out:
  return status;
}

enum sl_status sl__onnx_read_gather(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *table;
  enum sl_status status;
  value_of tokens;
  if (sl__onnx_constant(r, node, 1)) return sl__onnx_read_pick(r, node);
  SL__TRY(sl__onnx_take_plain(r, node, 1, &tokens));
  SL__TRY(sl__onnx_take_weight(r, node, 0, 2, &table));
  SL__TRY(sl__onnx_must_be(r, node, "axis", 0, 0));
  if (!sl__onnx_is_tokens(r, &tokens) ||
      !sl_shape_equal(&tokens.view, sl__onnx_shape_of(r, &tokens)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its indices are not the model's input of whole numbers");
  struct sl_embedding_options o = {.vocabulary = table->dim[0], .features = table->dim[1]};
  struct sl__onnx_setting how = {.matrix = table};
  SL__TRY(sl__onnx_append(r, node, table->name, &sl__embedding_kind, &o, &tokens, 1));
  SL__TRY(sl__onnx_set(r, node, "weight", table->reals, table->count, &how));
  if (!r->embedding) {
    r->embedding = table;
    r->embedding_layer = r->model->count - 1;
  }
  value_of seen = {.view = r->model->layers[r->model->count - 1].out, .order = tokens.order};
  status = sl__onnx_give_first(r, node, &seen);
out:
  return status;
}

enum sl_status sl__onnx_read_dropout(reader *r, const node_of *node) {
  const struct sl__onnx_tensor *ratio = sl__onnx_constant(r, node, 1);
  const struct sl__onnx_tensor *training = sl__onnx_constant(r, node, 2);
  struct sl_dropout_options o;
  enum sl_status status;
  value_of x;
  SL__TRY(sl__onnx_take_plain(r, node, 0, &x));
  SL__TRY(sl__onnx_get_real(r, node, "ratio", 0.5f, &o.rate));
  o.layer = (struct sl_layer_options){0};
  if (ratio && ratio->reals && ratio->count == 1) o.rate = ratio->reals[0];
  if ((sl__onnx_has(node, 1) && !(ratio && ratio->reals && ratio->count == 1)) ||
      (sl__onnx_has(node, 2) &&
       !(training && training->wholes && training->count == 1 && !training->wholes[0])))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its ratio must be a constant, training_mode "
                           "false or left out");
  SL__TRY(sl__onnx_append(r, node, NULL, &sl__dropout_kind, &o, &x, 1));
  status = sl__onnx_give_first(r, node, &x);
out:
  return status;
}
