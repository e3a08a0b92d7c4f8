/* Token files: the first byte is the type and the steps of a sample, the second and the third the
 * part, the fourth the vocabulary. A set that opens has all its samples, or says which token is
 * outside. */
#include <starling/data.h>

#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

/* The whole file: its tokens are no more than its bytes. */
static void read_all(const char *path, enum sl_token_type type, size_t size) {
  int32_t *tokens;
  int64_t count;
  if (sl_token_file_read(path, type, &tokens, &count) != SL_OK) return;
  if ((size_t)count > size / 2) abort();
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0) abort();
  free(tokens);
}

FUZZER(token_file)(const uint8_t *bytes, size_t size) {
  uint8_t head[4];
  struct sl_dataset *set;
  fuzz_take(&bytes, &size, head, sizeof head);
  int64_t steps = 1 + head[0] / 2;
  int32_t x[128], y[128];
  const struct sl_token_file_options options = {.type = head[0] & 1 ? SL_TOKENS_U32 : SL_TOKENS_U16,
                                                .from = head[1] / 128.0,
                                                .to = head[2] / 128.0,
                                                .steps = steps,
                                                .classes = 1 + 257 * head[3]};
  const char *path = fuzz_file(0, bytes, size);
  read_all(path, options.type, size);
  if (sl_token_file_open(path, &options, &set) != SL_OK) return 0;
  for (int64_t i = 0; i < sl_dataset_info(set)->count; i++) {
    const struct sl__rows rows = {.x = (float *)(void *)x, .labels = y};
    if (set->kind->fill(set, 1, &i, &rows) != SL_OK) continue;
    for (int64_t k = 0; k < steps; k++)
      if (x[k] < 0 || y[k] < 0 || x[k] >= options.classes || y[k] >= options.classes) abort();
  }
  sl_dataset_free(set);
  return 0;
}
