/* ONNX files: a model with its weights, or the weights alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "nn/formats/onnx.h"

/* A graph that no model can be, as one with a layer whose output nodes take only the shape of, is
 * valid: the error is the file's. */
static enum sl_status build(struct sl_model *model, const char *path) {
  char text[400];
  enum sl_status status = sl_model_build(model);
  if (status != SL_BAD_ARGUMENT) return status;
  snprintf(text, sizeof text, "%s", sl_error());
  return sl__fail(SL_UNSUPPORTED, "%s: %s", path, text);
}

enum sl_status sl__onnx_open(struct sl_context *context, const char *path,
                             struct sl_model **model) {
  struct sl__copy copy = {0};
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size;
  *model = NULL;
  SL__TRY(sl__file_read_plain(path, SL__ONNX_MOST_BYTES, &bytes, &size));
  SL__TRY(sl__onnx_parse(context, path, bytes, size, model, &copy));
  SL__TRY(build(*model, path));
  status = sl__copy_write(*model, &copy);
out:
  sl__copy_free(&copy);
  free(bytes);
  if (status == SL_OK) return SL_OK;
  sl_model_free(*model);
  *model = NULL;
  return status;
}

/* Do both models have the same parameters in the same order? Layers without parameters may differ.
 */
static enum sl_status check_alike(const struct sl_model *model, const struct sl_model *other,
                                  const char *path) {
  int count = sl_model_parameter_count(model), others = sl_model_parameter_count(other);
  if (count != others)
    return sl__fail(SL_BAD_FILE, "%s: has %d parameters, the model %d", path, others, count);
  for (int i = 0; i < count; i++) {
    struct sl_shape a, b;
    char own[96], theirs[96];
    const char *name = sl_model_parameter(model, i, &a), *there = sl_model_parameter(other, i, &b);
    if (strcmp(name, there) != 0)
      return sl__fail(SL_BAD_FILE, "%s: has \"%.60s\" where the model has \"%.60s\"", path, there,
                      name);
    if (!sl_shape_equal(&a, &b))
      return sl__fail(SL_BAD_SHAPE, "%s: \"%.60s\" is %s, in the model %s", path, name,
                      sl_shape_text(&b, theirs, sizeof theirs), sl_shape_text(&a, own, sizeof own));
  }
  return SL_OK;
}

/* Copies the values of another model into a copy for this one: offsets in their blocks may differ.
 */
static enum sl_status copy_for(const struct sl_model *model, const struct sl_model *other,
                               const struct sl__copy *theirs, struct sl__copy *own) {
  struct sl_shape shape;
  enum sl_status status = sl__copy_new(model, own);
  for (int i = 0; status == SL_OK && i < sl_model_parameter_count(model); i++) {
    sl_model_parameter(model, i, &shape);
    memcpy(sl__copy_values(own, model, i), sl__copy_values(theirs, other, i),
           (size_t)sl_shape_count(&shape) * sizeof(float));
  }
  return status;
}

enum sl_status sl__onnx_load(struct sl_model *model, const char *path) {
  struct sl_model *other = NULL;
  struct sl__copy copy = {0}, own = {0};
  enum sl_status status;
  uint8_t *bytes = NULL;
  size_t size;
  SL__TRY(sl_model_build(model));
  SL__TRY(sl__file_read_plain(path, SL__ONNX_MOST_BYTES, &bytes, &size));
  SL__TRY(sl__onnx_parse(model->context, path, bytes, size, &other, &copy));
  SL__TRY(check_alike(model, other, path));
  SL__TRY(copy_for(model, other, &copy, &own));
  status = sl__copy_write(model, &own);
out:
  sl_model_free(other);
  sl__copy_free(&copy);
  sl__copy_free(&own);
  free(bytes);
  return status;
}
