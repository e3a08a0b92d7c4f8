/* Attention as a layer, against loops in double precision; what its options refuse. */
#include "tests/common/layer_check.h"

/* Heads that take their keys and values in groups, without rotation. */
static void reference(const struct sl__layer *layer, int64_t rows, const double *const *x,
                      const double *param, double *y) {
  const struct sl_attention_options *o = layer->options;
  int64_t steps = layer->in[0].dim[0], width = layer->in[0].dim[1], kv = o->kv_heads,
          dims = width / (o->heads + 2 * kv);
  (void)param;
  for (int64_t i = 0; i < rows * steps * o->heads; i++) {
    int64_t h = i % o->heads, q = i / o->heads % steps, group = h / (o->heads / kv);
    const double *row = x[0] + i / o->heads / steps * steps * width;
    const double *query = row + q * width + h * dims;
    double sum = 0, *to = y + i * dims;
    for (int64_t d = 0; d < dims; d++) to[d] = 0;
    for (int64_t k = 0; k <= q; k++) {
      const double *key = row + k * width + (o->heads + group) * dims;
      double p = exp(dot(query, key, dims) / sqrt((double)dims));
      sum += p;
      for (int64_t d = 0; d < dims; d++) to[d] += p * key[kv * dims + d];
    }
    for (int64_t d = 0; d < dims; d++) to[d] /= sum;
  }
}

static struct sl_model *model_of(struct sl_shape sample, struct sl_attention_options o) {
  struct sl_model *m = new_model(sample);
  OK(sl_attention(m, "attention", &o));
  return m;
}

static void values_and_gradients_match(void **state) {
  (void)state;
  check_layer(model_of(SL_SHAPE(5, 24), (struct sl_attention_options){.heads = 4, .kv_heads = 2}),
              2, reference);
  check_layer(model_of(SL_SHAPE(3, 9), (struct sl_attention_options){.heads = 1, .kv_heads = 1}), 3,
              reference);
}

static void refused(struct sl_shape sample, struct sl_attention_options o, enum sl_status status,
                    const char *text) {
  struct sl_model *m = new_model(sample);
  FAILS(sl_attention(m, "attention", &o), status, text);
  sl_model_free(m);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  const struct sl_shape x = SL_SHAPE(5, 24);
  refused(SL_SHAPE(24), (struct sl_attention_options){.heads = 2}, SL_BAD_SHAPE,
          "takes time steps");
  refused(x, (struct sl_attention_options){0}, SL_BAD_ARGUMENT, "heads is 0");
  refused(x, (struct sl_attention_options){.heads = 25}, SL_BAD_ARGUMENT, "heads is 25");
  refused(x, (struct sl_attention_options){.heads = 5}, SL_BAD_SHAPE, "a multiple of 15");
  refused(x, (struct sl_attention_options){.heads = 3, .kv_heads = 2}, SL_BAD_ARGUMENT,
          "kv_heads is 2; it must divide the 3 heads");
  refused(x, (struct sl_attention_options){.heads = 3, .kv_heads = 6}, SL_BAD_ARGUMENT,
          "kv_heads is 6");
  refused(SL_SHAPE(5, 3 * 257), (struct sl_attention_options){.heads = 1}, SL_BAD_SHAPE,
          "a head has 257 values; the most is 256");
  refused(x, (struct sl_attention_options){.heads = 2, .rope_base = -1}, SL_BAD_ARGUMENT,
          "rope_base is -1");
  refused(x, (struct sl_attention_options){.heads = 2, .rope_dims = 2}, SL_BAD_ARGUMENT,
          "it needs a rope_base");
  refused(x, (struct sl_attention_options){.heads = 2, .rope_base = 10, .rope_dims = 3},
          SL_BAD_ARGUMENT, "rope_dims is 3; it must be even");
  refused(x, (struct sl_attention_options){.heads = 2, .rope_base = 10, .rope_dims = 6},
          SL_BAD_ARGUMENT, "rope_dims is 6; it must be even, and at most a head's 4");
  refused(SL_SHAPE(5, 9), (struct sl_attention_options){.heads = 1, .rope_base = 10},
          SL_BAD_ARGUMENT, "rope_dims is 3");
  refused(x, (struct sl_attention_options){.heads = 2, .dropout = 1}, SL_BAD_ARGUMENT,
          "dropout is 1");
  refused(x, (struct sl_attention_options){.heads = 2, .context = 4}, SL_BAD_ARGUMENT,
          "context is 4; it must be from a sample's 5 steps");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_and_gradients_match),
                                     cmocka_unit_test(what_cannot_be_is_refused)};
  return cmocka_run_group_tests_name("attention layer", tests, open_operations, close_context);
}
