/* A saved model's text: whatever parses is written out, and reads back as the same. */
#include <stdlib.h>
#include <string.h>

#include "core/runtime/context.h"
#include "nn/layer.h"
#include "tests/fuzz/fuzz.h"

FUZZER(model)(const uint8_t *bytes, size_t size) {
  static struct sl_context context; /* nothing is built, so StarPU need not run */
  struct sl_model *first, *second;
  char *text = NULL, *again = NULL;
  if (sl_model_parse(&context, "file", (const char *)bytes, size, &first) != SL_OK) return 0;
  if (sl_model_architecture(first, NULL, &text) != SL_OK) abort();
  if (sl_model_parse(&context, "file", text, strlen(text), &second) != SL_OK) abort();
  if (sl_model_architecture(second, NULL, &again) != SL_OK || strcmp(text, again)) abort();
  free(text);
  free(again);
  sl_model_free(first);
  sl_model_free(second);
  return 0;
}
