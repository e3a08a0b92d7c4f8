/* Causal attention of several heads (Vaswani et al., arXiv 1706.03762), which may share keys and
 * values in groups (arXiv 2305.13245), with rotary position embedding (arXiv 2104.09864). */
#include <math.h>

#include "codelets/attention.h"
#include "core/base/hash.h"
#include "nn/onnx_graph.h"

static int kv_heads_of(const struct sl_attention_options *o) {
  return o->kv_heads ? o->kv_heads : o->heads;
}

/* Values of a head. */
static int64_t dims_of(const struct sl__layer *layer) {
  const struct sl_attention_options *o = layer->options;
  return layer->in[0].dim[1] / (o->heads + 2 * (int64_t)kv_heads_of(o));
}

/* Values of a head that its position turns. */
static int64_t rope_dims_of(const struct sl__layer *layer) {
  const struct sl_attention_options *o = layer->options;
  if (!(o->rope_base > 0)) return 0;
  return o->rope_dims ? o->rope_dims : dims_of(layer);
}

static int64_t context_of(const struct sl__layer *layer) {
  const struct sl_attention_options *o = layer->options;
  return o->context ? o->context : layer->in[0].dim[0];
}

static enum sl_status check_heads(const struct sl__layer *layer) {
  const struct sl_attention_options *o = layer->options;
  int64_t width = layer->in[0].dim[1];
  if (o->heads < 1 || o->heads > width)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "heads is %d; it must be from 1 to its input's %lld", o->heads,
                          (long long)width);
  if (o->kv_heads < 0 || o->heads % kv_heads_of(o))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "kv_heads is %d; it must divide the %d heads",
                          o->kv_heads, o->heads);
  int64_t parts = o->heads + 2 * (int64_t)kv_heads_of(o);
  if (width % parts)
    return sl__layer_fail(layer, SL_BAD_SHAPE,
                          "its input has %lld values a step; %d heads and %d of keys and of values "
                          "need a multiple of %lld",
                          (long long)width, o->heads, kv_heads_of(o), (long long)parts);
  if (width / parts > SL__ATTENTION_MOST_DIMS)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "a head has %lld values; the most is %d",
                          (long long)(width / parts), SL__ATTENTION_MOST_DIMS);
  return SL_OK;
}

static enum sl_status check_options(const struct sl__layer *layer) {
  const struct sl_attention_options *o = layer->options;
  int64_t steps = layer->in[0].dim[0];
  if (!(o->rope_base >= 0 && isfinite(o->rope_base)))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "rope_base is %g; it must be above 0 and finite, or 0 for no rotation",
                          (double)o->rope_base);
  if (o->rope_dims && !(o->rope_base > 0))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT, "rope_dims is %d; it needs a rope_base",
                          o->rope_dims);
  if (o->rope_dims < 0 || rope_dims_of(layer) % 2 || rope_dims_of(layer) > dims_of(layer))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "rope_dims is %lld; it must be even, and at most a head's %lld values",
                          (long long)rope_dims_of(layer), (long long)dims_of(layer));
  if (!(o->dropout >= 0 && o->dropout < 1))
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "dropout is %g; it must be at least 0 and below 1", (double)o->dropout);
  if (context_of(layer) < steps || context_of(layer) > INT32_MAX)
    return sl__layer_fail(layer, SL_BAD_ARGUMENT,
                          "context is %lld; it must be from a sample's %lld steps to %d",
                          (long long)o->context, (long long)steps, INT32_MAX);
  return SL_OK;
}

static enum sl_status infer(struct sl__layer *layer) {
  const struct sl_attention_options *o = layer->options;
  char text[96];
  enum sl_status status;
  SL__TRY(sl__input_alone(layer));
  if (layer->in[0].ndim != 2)
    return sl__layer_fail(layer, SL_BAD_SHAPE, "takes time steps [T, (H + 2 Hkv) D], not %s",
                          sl_shape_text(&layer->in[0], text, sizeof text));
  SL__TRY(check_heads(layer));
  SL__TRY(check_options(layer));
  int64_t steps = layer->in[0].dim[0], dims = dims_of(layer);
  layer->out = SL_SHAPE(steps, o->heads * dims);
  layer->saved = SL_SHAPE(steps, o->heads);
  layer->saved_per_row = layer->wide_saved = true;
  layer->over_time = true;
  layer->context = context_of(layer);
  layer->state = SL_SHAPE(layer->context, 2 * (int64_t)kv_heads_of(o) * dims);
  layer->state_is_cache = true;
  layer->flops = 2.0 * (double)steps * (double)(steps + 1) * (double)o->heads * (double)dims;
out:
  return status;
}

static struct sl__attention attention_of(const struct sl__layer *layer, const struct sl__pass *p) {
  const struct sl_attention_options *o = layer->options;
  struct sl__attention a = {.heads = o->heads,
                            .kv_heads = kv_heads_of(o),
                            .rope_dims = (int)rope_dims_of(layer),
                            .rope_base = o->rope_base,
                            .position = p->position,
                            .context = layer->context};
  if (p->training && !layer->is_frozen)
    a.dropout =
        (struct sl__dropout){.rate = o->dropout,
                             .seed = p->context->seed,
                             .stream = sl__stream(SL__STREAM_DROPOUT, sl__hash_name(layer->name)),
                             .step = p->step,
                             .first = (uint64_t)p->first_row};
  return a;
}

static enum sl_status forward(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl__attention a = attention_of(layer, p);
  return sl__attention_forward(p->context, &p->launch, p->x[0], p->y, p->saved, p->state, &a);
}

static enum sl_status backward_data(const struct sl__layer *layer, struct sl__pass *p) {
  const struct sl__attention a = attention_of(layer, p);
  p->launch.accumulate = p->add_dx[0];
  return sl__attention_backward(p->context, &p->launch, p->x[0], p->y, p->saved, p->dy, p->dx[0],
                                p->state, p->dstate, &a);
}

/* ---- ONNX ---------------------------------------------------------------------------------- */

/* Values [first, first + count) of the last axis. `part` names its constants, too. */
static const char *write_range(struct sl__onnx_writer *w, const char *part, const char *x,
                               int64_t first, int64_t count) {
  const int64_t end = first + count, axis = -1;
  char suffix[48];
  snprintf(suffix, sizeof suffix, "%s_from", part);
  const char *starts = sl__onnx_wholes(w, suffix, &first, 1);
  snprintf(suffix, sizeof suffix, "%s_to", part);
  const char *ends = sl__onnx_wholes(w, suffix, &end, 1);
  snprintf(suffix, sizeof suffix, "%s_axis", part);
  const char *axes = sl__onnx_wholes(w, suffix, &axis, 1);
  return sl__onnx_node(w, part, "Slice", SL__ONNX_NAMES(x, starts, ends, axes), NULL);
}

/* The cosines or the sines of all steps, [T, 1, 1, pairs]. */
static const char *write_turns(const struct sl__layer *layer, struct sl__onnx_writer *w,
                               const char *name, bool sines) {
  const struct sl_attention_options *o = layer->options;
  int64_t steps = layer->in[0].dim[0], pairs = rope_dims_of(layer) / 2;
  const struct sl__attention a = {.rope_base = o->rope_base, .rope_dims = 2 * (int)pairs};
  float *values;
  const char *turns = sl__onnx_reals(w, name, &SL_SHAPE(steps, 1, 1, pairs), &values);
  for (int64_t i = 0; values && i < steps * pairs; i++) {
    struct sl__turn t = sl__turn_of((double)(i / pairs) * sl__rope_turns(&a, i % pairs));
    values[i] = sines ? t.sin : t.cos;
  }
  return turns;
}

/* A part's name: "q" and "cos" as "q_cos". */
struct part {
  char name[32];
};
static struct part part_of(const char *which, const char *what) {
  struct part part;
  snprintf(part.name, sizeof part.name, "%s_%s", which, what);
  return part;
}

/* x [N, T, Hkv, heads, D] of queries ("q") or keys ("k"), each head's first values turned. */
static const char *write_rope(const struct sl__layer *layer, struct sl__onnx_writer *w,
                              const char *which, const char *x, const char *cosines,
                              const char *sines) {
  int64_t turned = rope_dims_of(layer), half = turned / 2, rest = dims_of(layer) - turned;
  const struct sl__onnx_attribute last[] = {SL__ONNX_WHOLE("axis", -1), {0}};
  const char *a = write_range(w, part_of(which, "first").name, x, 0, half);
  const char *b = write_range(w, part_of(which, "second").name, x, half, half);
#define NODE(what, op, ...)                                                                        \
  sl__onnx_node(w, part_of(which, what).name, op, SL__ONNX_NAMES(__VA_ARGS__), NULL)
  const char *ac = NODE("first_cos", "Mul", a, cosines), *bs = NODE("second_sin", "Mul", b, sines),
             *bc = NODE("second_cos", "Mul", b, cosines), *as = NODE("first_sin", "Mul", a, sines),
             *first = NODE("turned_first", "Sub", ac, bs),
             *second = NODE("turned_second", "Add", bc, as);
#undef NODE
  const char *plain = rest ? write_range(w, part_of(which, "plain").name, x, turned, rest) : NULL;
  return sl__onnx_node(w, part_of(which, "turned").name, "Concat",
                       SL__ONNX_NAMES(first, second, plain), last);
}

/* heads of x's values from `first` on as [N, T, Hkv, heads / Hkv, D]. */
static const char *write_heads(const struct sl__layer *layer, struct sl__onnx_writer *w,
                               const char *which, int64_t first, int64_t heads) {
  const struct sl_attention_options *o = layer->options;
  int64_t dims = dims_of(layer), kv = kv_heads_of(o);
  const int64_t shape[] = {0, 0, kv, heads / kv, dims};
  const char *range = write_range(w, which, sl__onnx_input(w, 0), first * dims, heads * dims);
  const char *to = sl__onnx_wholes(w, part_of(which, "shape").name, shape, 5);
  return sl__onnx_node(w, part_of(which, "heads").name, "Reshape", SL__ONNX_NAMES(range, to), NULL);
}

static const char *write_mask(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  int64_t steps = layer->in[0].dim[0];
  float *queries, *keys;
  const char *from = sl__onnx_reals(w, "queries", &SL_SHAPE(steps, 1), &queries);
  const char *to = sl__onnx_reals(w, "keys", &SL_SHAPE(steps), &keys);
  for (int64_t t = 0; queries && keys && t < steps; t++) queries[t] = keys[t] = (float)t;
  return sl__onnx_node(w, "mask", "LessOrEqual", SL__ONNX_NAMES(to, from), NULL);
}

/* softmax(mask(q k^T / sqrt(D))); q [N, Hkv, heads, T, D], k [N, Hkv, 1, D, T] */
static const char *write_softmax(const struct sl__layer *layer, struct sl__onnx_writer *w,
                                 const char *q, const char *k) {
  const struct sl__onnx_attribute last[] = {SL__ONNX_WHOLE("axis", -1), {0}};
  const char *scale = sl__onnx_scalar(w, "scale", (float)(1 / sqrt((double)dims_of(layer))));
  const char *never = sl__onnx_scalar(w, "never", -INFINITY);
  const char *products = sl__onnx_node(w, "products", "MatMul", SL__ONNX_NAMES(q, k), NULL);
  const char *scores = sl__onnx_node(w, "scores", "Mul", SL__ONNX_NAMES(products, scale), NULL);
  const char *masked = sl__onnx_node(w, "masked", "Where",
                                     SL__ONNX_NAMES(write_mask(layer, w), scores, never), NULL);
  return sl__onnx_node(w, "softmax", "Softmax", SL__ONNX_NAMES(masked), last);
}

static const char *onnx_write(const struct sl__layer *layer, struct sl__onnx_writer *w) {
  const struct sl_attention_options *o = layer->options;
  int64_t heads = o->heads, kv = kv_heads_of(o);
  const struct sl__onnx_attribute rows[] = {SL__ONNX_LIST("perm", 0, 2, 3, 1, 4), {0}};
  const struct sl__onnx_attribute columns[] = {SL__ONNX_LIST("perm", 0, 2, 3, 4, 1), {0}};
  const struct sl__onnx_attribute back[] = {SL__ONNX_LIST("perm", 0, 3, 1, 2, 4), {0}};
  const char *q = write_heads(layer, w, "q", 0, heads), *k = write_heads(layer, w, "k", heads, kv),
             *v = write_heads(layer, w, "v", heads + kv, kv);
  if (rope_dims_of(layer)) {
    const char *cosines = write_turns(layer, w, "cos", false),
               *sines = write_turns(layer, w, "sin", true);
    q = write_rope(layer, w, "q", q, cosines, sines);
    k = write_rope(layer, w, "k", k, cosines, sines);
  }
  q = sl__onnx_node(w, "q_rows", "Transpose", SL__ONNX_NAMES(q), rows);
  k = sl__onnx_node(w, "k_columns", "Transpose", SL__ONNX_NAMES(k), columns);
  v = sl__onnx_node(w, "v_rows", "Transpose", SL__ONNX_NAMES(v), rows);
  const char *p = write_softmax(layer, w, q, k);
  const char *y = sl__onnx_node(w, "values", "MatMul", SL__ONNX_NAMES(p, v), NULL);
  y = sl__onnx_node(w, "steps", "Transpose", SL__ONNX_NAMES(y), back);
  const char *to = sl__onnx_wholes(w, "shape", (const int64_t[]){0, 0, layer->out.dim[1]}, 3);
  return sl__onnx_node(w, NULL, "Reshape", SL__ONNX_NAMES(y, to), NULL);
}

static const struct sl_field fields[] = {SL_FIELD(sl_attention_options, INT, heads),
                                         SL_FIELD(sl_attention_options, INT, kv_heads),
                                         SL_FIELD(sl_attention_options, FLOAT, rope_base),
                                         SL_FIELD(sl_attention_options, INT, rope_dims),
                                         SL_FIELD(sl_attention_options, FLOAT, dropout),
                                         SL_FIELD(sl_attention_options, INT64, context),
                                         {0}};

const struct sl__layer_kind sl__attention_kind = {
    .name = "attention",
    .about = "Causal attention of H heads: queries, keys, values [T, (H + 2 Hkv) D] -> [T, H D]",
    .keys =
        "heads: H; required\n"
        "kv_heads: Hkv, heads of keys and values, which divides H; H\n"
        "rope_base: of the rotary position embedding, often 10000; none\n"
        "rope_dims: values of a head that it turns; all\n"
        "dropout: of the probabilities, from 0 to below 1; 0\n"
        "context: steps of the longest sequence; T\n",
    .options_size = sizeof(struct sl_attention_options),
    .fields = fields,
    .infer = infer,
    .forward = forward,
    .backward_data = backward_data,
    .onnx_write = onnx_write};

enum sl_status sl_attention(struct sl_model *model, const char *name,
                            const struct sl_attention_options *options) {
  return sl__layer_append(model, name, &sl__attention_kind, options);
}
