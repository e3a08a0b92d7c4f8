/* Upsampling against a reference in double precision and its finite differences. */
#include "tests/common/layer_check.h"

/* The input's value at a place between its pixels along one axis: PyTorch's align_corners=False. */
static void neighbours(int64_t i, int64_t scale, int64_t size, bool bilinear, int64_t at[2],
                       double weight[2]) {
  double place = bilinear ? ((double)i + 0.5) / (double)scale - 0.5 : (double)(i / scale);
  if (place < 0) place = 0;
  at[0] = (int64_t)floor(place);
  at[1] = at[0] + 1 < size ? at[0] + 1 : size - 1;
  weight[1] = place - (double)at[0];
  weight[0] = 1 - weight[1];
}

static void upsampled(const struct sl__layer *layer, int64_t rows, const double *const *x,
                      const double *param, double *y) {
  (void)param;
  const struct sl_upsample2d_options *o = layer->options;
  int64_t h = layer->in[0].dim[1], w = layer->in[0].dim[2];
  int64_t high = layer->out.dim[1], wide = layer->out.dim[2];
  for (int64_t i = 0; i < rows * sl_shape_count(&layer->out); i++) {
    const double *plane = x[0] + i / (high * wide) * h * w;
    int64_t r[2], c[2];
    double rw[2], cw[2];
    neighbours(i / wide % high, o->scale_h, h, o->bilinear, r, rw);
    neighbours(i % wide, o->scale_w ? o->scale_w : o->scale_h, w, o->bilinear, c, cw);
    for (int a = 0; a < 2; a++)
      for (int b = 0; b < 2; b++) y[i] += rw[a] * cw[b] * plane[r[a] * w + c[b]];
  }
}

static void planes_grow(void **state) {
  (void)state;
  static const int64_t cases[][5] = {{1, 1, 2, 2}, {3, 4, 1, 1}, {3, 4, 2, 0},
                                     {5, 2, 3, 1}, {2, 7, 1, 4}, {1, 9, 5, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int bilinear = 0; bilinear < 2; bilinear++) {
      struct sl_model *m = new_model(SL_SHAPE(2, cases[i][0], cases[i][1]));
      OK(sl_upsample2d(
          m, "up",
          &(struct sl_upsample2d_options){
              .scale_h = (int)cases[i][2], .scale_w = (int)cases[i][3], .bilinear = bilinear}));
      check_layer(m, 2, upsampled);
    }
}

/* A row by linear weights. */
static void upsampled_row(const struct sl__layer *layer, int64_t rows, const double *const *x,
                          const double *param, double *y) {
  (void)param;
  const struct sl_upsample1d_options *o = layer->options;
  int64_t length = layer->in[0].dim[1], out = layer->out.dim[1];
  for (int64_t i = 0; i < rows * sl_shape_count(&layer->out); i++) {
    int64_t at[2];
    double weight[2];
    neighbours(i % out, o->scale, length, o->linear, at, weight);
    for (int a = 0; a < 2; a++) y[i] += weight[a] * x[0][i / out * length + at[a]];
  }
}

static void rows_grow(void **state) {
  (void)state;
  static const int64_t cases[][2] = {{1, 2}, {4, 1}, {5, 2}, {7, 3}, {9, 4}}; /* length, scale */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int linear = 0; linear < 2; linear++) {
      struct sl_model *m = new_model(SL_SHAPE(2, cases[i][0]));
      OK(sl_upsample1d(
          m, "up", &(struct sl_upsample1d_options){.scale = (int)cases[i][1], .linear = linear}));
      assert_true(sl_shape_equal(sl_model_output(m), &SL_SHAPE(2, cases[i][0] * cases[i][1])));
      check_layer(m, 2, upsampled_row);
    }
}

static void strange_options_are_refused(void **state) {
  (void)state;
  struct sl_model *m = new_model(SL_SHAPE(2, 3, 4)), *flat = new_model(SL_SHAPE(4));
  struct sl_model *row = new_model(SL_SHAPE(4, 3));
#define REFUSED(model, status, words, ...)                                                         \
  FAILS(sl_upsample2d(model, "x", &(struct sl_upsample2d_options){__VA_ARGS__}), status, words)
  REFUSED(m, SL_BAD_ARGUMENT, "scale is 0x0", .bilinear = true);
  REFUSED(m, SL_BAD_ARGUMENT, "scale is -1x2", .scale_h = -1, .scale_w = 2);
  REFUSED(m, SL_BAD_ARGUMENT, "scale is 2x1025", .scale_h = 2, .scale_w = 1025);
  REFUSED(m, SL_BAD_ARGUMENT, "one input", .scale_h = 2, .layer.inputs = "input,input");
  REFUSED(flat, SL_BAD_SHAPE, "takes [C, H, W], not [4]", .scale_h = 2);
  FAILS(sl_upsample1d(m, "x", &(struct sl_upsample1d_options){.scale = 2}), SL_BAD_SHAPE,
        "takes [C, L], not [2, 3, 4]");
  FAILS(sl_upsample1d(row, "x", &(struct sl_upsample1d_options){0}), SL_BAD_ARGUMENT,
        "scale is 0; it must be from 1 to 1024");
#undef REFUSED
  sl_model_free(m), sl_model_free(flat), sl_model_free(row);
}

static void operations_check_shapes(void **state) {
  (void)state;
  const struct sl__upsample2d o = {.scale_h = 2, .scale_w = 2};
  struct sl__tensor *x = tensor(SL_SHAPE(1, 1, 2, 2), NULL),
                    *y = tensor(SL_SHAPE(1, 1, 4, 3), NULL);
  assert_int_equal(sl__upsample2d_forward(context, &plain, x, y, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__upsample2d_backward(context, &plain, y, x, &o), SL_BAD_SHAPE);
  sl__tensor_free(x), sl__tensor_free(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(planes_grow), cmocka_unit_test(rows_grow),
                                     cmocka_unit_test(strange_options_are_refused),
                                     cmocka_unit_test(operations_check_shapes)};
  return cmocka_run_group_tests_name("upsample2d", tests, open_operations, close_context);
}
