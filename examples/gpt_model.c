#include "examples/gpt_model.h"

#include <math.h>
#include <stdio.h>

/* What the layers that are appended next have in common. */
struct builder {
  struct sl_model *model;
  const struct gpt_options *o;
  enum sl_init init;
  char group[24];             /* of a block's layers, "h3"; empty outside of blocks */
  char name[48], inputs[128]; /* of the layer */
  char stream[48];            /* the layer whose output is the residual stream */
  enum sl_status status;
};

static bool is_llama(const struct builder *b) { return b->o->style == GPT_STYLE_LLAMA; }

/* The options that all layers take: initial weights N(0, deviation); inputs NULL: the layer before.
 * Sets the layer's name. */
static struct sl_layer_options layer(struct builder *b, const char *name, const char *inputs,
                                     double deviation) {
  struct sl_layer_options options = {.inputs = inputs, .init = b->init};
  if (*b->group) options.group = b->group;
  snprintf(b->name, sizeof b->name, "%s%s%s", b->group, *b->group ? "." : "", name);
  if (deviation > 0 && b->init == SL_INIT_DEFAULT) {
    options.init = SL_INIT_NORMAL;
    options.deviation = (float)deviation;
  }
  return options;
}

static void norm(struct builder *b, const char *name) {
  const struct sl_layernorm_options options = {
      .layer = layer(b, name, b->stream, 0), .rms = is_llama(b), .epsilon = b->o->epsilon};
  if (b->status == SL_OK) b->status = sl_layernorm(b->model, b->name, &options);
}

static void dense(struct builder *b, const char *name, int64_t features,
                  enum sl_activation activation, double deviation) {
  const struct sl_dense_options options = {.layer = layer(b, name, NULL, deviation),
                                           .features = features,
                                           .no_bias = is_llama(b),
                                           .activation = activation,
                                           .positions = true};
  if (b->status == SL_OK) b->status = sl_dense(b->model, b->name, &options);
}

static void dropout(struct builder *b, const char *name) {
  const struct sl_dropout_options options = {.layer = layer(b, name, NULL, 0),
                                             .rate = b->o->dropout};
  if (b->status == SL_OK && b->o->dropout > 0) b->status = sl_dropout(b->model, b->name, &options);
}

/* The residual stream and the last layer's output. */
static void add(struct builder *b, const char *name, const char *branch) {
  snprintf(b->inputs, sizeof b->inputs, "%s,%s.%s", b->stream, b->group, branch);
  const struct sl_add_options options = {.layer = layer(b, name, b->inputs, 0)};
  if (b->status == SL_OK) b->status = sl_add(b->model, b->name, &options);
  snprintf(b->stream, sizeof b->stream, "%s", b->name);
}

static void attention(struct builder *b) {
  const struct gpt_options *o = b->o;
  const struct sl_attention_options options = {.layer = layer(b, "attention", NULL, 0),
                                               .heads = (int)o->heads,
                                               .kv_heads = (int)o->kv_heads,
                                               .rope_base = !is_llama(b)       ? 0
                                                            : o->rope_base > 0 ? o->rope_base
                                                                               : 10000.0f,
                                               .dropout = o->dropout,
                                               .context = o->context};
  if (b->status == SL_OK) b->status = sl_attention(b->model, b->name, &options);
}

int64_t gpt_inner_width(const struct gpt_options *o) {
  if (o->ffn) return o->ffn;
  return o->style == GPT_STYLE_LLAMA ? (o->width * 8 / 3 + 31) / 32 * 32 : 4 * o->width;
}

/* Layer i. The last product of each residual branch begins smaller, by the square root of the
 * number of branches, so that their sum begins at the same size whatever the depth (GPT-2). */
static void block(struct builder *b, int64_t i) {
  const struct gpt_options *o = b->o;
  const double usual = 0.02, last = usual / sqrt(2.0 * (double)o->layers);
  const int64_t head = o->width / o->heads, kv_heads = o->kv_heads ? o->kv_heads : o->heads;
  const int64_t ffn = gpt_inner_width(o);
  const bool drops = o->dropout > 0;
  snprintf(b->group, sizeof b->group, "h%lld", (long long)i);
  norm(b, "ln1");
  dense(b, "qkv", (o->heads + 2 * kv_heads) * head, SL_ACTIVATION_NONE, usual);
  attention(b);
  dense(b, "projection", o->width, SL_ACTIVATION_NONE, last);
  dropout(b, "drop1");
  add(b, "add1", drops ? "drop1" : "projection");
  norm(b, "ln2");
  dense(b, "fc", is_llama(b) ? 2 * ffn : ffn,
        is_llama(b) ? SL_ACTIVATION_NONE : SL_ACTIVATION_GELU_TANH, usual);
  const struct sl_swiglu_options gate = {.layer = layer(b, "gate", NULL, 0)};
  if (is_llama(b) && b->status == SL_OK) b->status = sl_swiglu(b->model, b->name, &gate);
  dense(b, "out", o->width, SL_ACTIVATION_NONE, last);
  dropout(b, "drop2");
  add(b, "add2", drops ? "drop2" : "out");
  *b->group = '\0';
}

static void embedding(struct builder *b) {
  const struct gpt_options *o = b->o;
  const struct sl_embedding_options words = {
      .layer = layer(b, "wte", NULL, 0.02), .vocabulary = (int)o->vocabulary, .features = o->width};
  if (b->status == SL_OK) b->status = sl_embedding(b->model, b->name, &words);
  snprintf(b->stream, sizeof b->stream, "wte");
  if (!is_llama(b)) {
    const struct sl_position_options positions = {.layer = layer(b, "wpe", NULL, 0.02),
                                                  .length = o->context};
    if (b->status == SL_OK) b->status = sl_position(b->model, b->name, &positions);
    snprintf(b->stream, sizeof b->stream, "wpe");
  }
  dropout(b, "drop");
  if (o->dropout > 0) snprintf(b->stream, sizeof b->stream, "drop");
}

enum sl_status gpt_build(struct sl_model *model, const struct gpt_options *options,
                         enum sl_init init) {
  struct builder b = {.model = model, .o = options, .init = init};
  embedding(&b);
  for (int64_t i = 0; i < options->layers && b.status == SL_OK; i++) block(&b, i);
  norm(&b, "lnf");
  struct sl_dense_options head = {.layer = layer(&b, "head", NULL, 0.02),
                                  .features = options->vocabulary,
                                  .no_bias = true,
                                  .positions = true};
  if (is_llama(&b) ? options->tied : !options->own_head) {
    head.layer = (struct sl_layer_options){.shares = "wte"};
  }
  if (b.status == SL_OK) b.status = sl_dense(model, b.name, &head);
  return b.status;
}
