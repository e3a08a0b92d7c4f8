/* Compressed gradients of another rank: any words unpack to as many values as were asked for, twice
 * the same; and the text of --compress. The first byte is the method, the second the number of
 * values; then the words, and what is behind them is the text. */
#include <starpu.h>

#include "codelets/codelets.h"
#include "codelets/compress.h"
#include "core/runtime/submit.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_VALUES = 255, MOST_WORDS = MOST_VALUES };

void sl__decompress_cpu(void *buffers[], void *cl_arg);

static const float guard = 12345;

static void unpack(const struct sl__compress *method, int64_t count, uint32_t *words, float *y) {
  struct {
    struct sl__args_header header;
    struct sl__compress_args args;
  } argument = {.args = {count, (int32_t)method->method, method->threshold}};
  struct starpu_vector_interface packed = {.id = STARPU_VECTOR_INTERFACE_ID,
                                           .ptr = (uintptr_t)words},
                                 values = {.id = STARPU_VECTOR_INTERFACE_ID, .ptr = (uintptr_t)y};
  y[count] = guard;
  sl__decompress_cpu((void *[]){&packed, &values}, &argument);
  if (y[count] != guard) abort();
}

FUZZER(compress)(const uint8_t *bytes, size_t size) {
  float first[MOST_VALUES + 1], second[MOST_VALUES + 1];
  struct sl__compress method = {.threshold = 0.5f};
  uint8_t head[2];
  fuzz_take(&bytes, &size, head, sizeof head);
  method.method = (enum sl__compression)(1 + head[0] % 4);
  int64_t count = head[1], number = sl__compress_words(&method, count);
  uint32_t *words = malloc((size_t)number * sizeof *words + 1); /* no word too many is read */
  if (number > MOST_WORDS || !words) abort();
  fuzz_take(&bytes, &size, words, (size_t)number * sizeof *words);
  unpack(&method, count, words, first);
  unpack(&method, count, words, second);
  if (memcmp(first, second, (size_t)count * sizeof *first) != 0) abort();
  free(words);
  char *text = fuzz_text(bytes, size);
  if (sl__compress_parse(text, &method) == SL_OK &&
      (method.method < SL__COMPRESS_NONE || method.method > SL__COMPRESS_BF16))
    abort();
  free(text);
  return 0;
}
