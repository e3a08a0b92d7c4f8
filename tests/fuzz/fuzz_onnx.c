/* An ONNX file's bytes: what is read as a model is one that a saved model's text can say. */
#include <stdlib.h>
#include <string.h>

#include "core/runtime/context.h"
#include "nn/formats/onnx.h"
#include "tests/fuzz/fuzz.h"

FUZZER(onnx)(const uint8_t *bytes, size_t size) {
  static struct sl_context context; /* nothing is built, so StarPU need not run */
  struct sl_model *first, *second;
  struct sl__copy copy = {0};
  char *text = NULL, *again = NULL;
  enum sl_status status = sl__onnx_parse(&context, "file", bytes, size, &first, &copy);
  sl__copy_free(&copy);
  if (status != SL_OK) return 0;
  if (sl_model_architecture(first, NULL, &text) != SL_OK) abort();
  if (sl_model_parse(&context, "file", text, strlen(text), &second) != SL_OK) abort();
  if (sl_model_architecture(second, NULL, &again) != SL_OK || strcmp(text, again)) abort();
  free(text);
  free(again);
  sl_model_free(first);
  sl_model_free(second);
  return 0;
}
