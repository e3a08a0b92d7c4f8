/* Datasets of tokens: samples of equal length, one after another in a text. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "data/dataset.h"

struct token_set {
  struct sl_dataset set;
  int32_t *tokens;
};

static enum sl_status fill(const struct sl_dataset *set, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const int32_t *tokens = ((const struct token_set *)set)->tokens;
  size_t steps = set->sample_size;
  for (int64_t row = 0; row < count; row++) {
    const int32_t *from = tokens + (size_t)samples[row] * steps;
    memcpy(rows->x + (size_t)row * steps, from, steps * sizeof *from);
    memcpy(rows->labels + (size_t)row * steps, from + 1, steps * sizeof *from);
  }
  return SL_OK;
}

static void free_tokens(struct sl_dataset *set) { free(((struct token_set *)set)->tokens); }

static const struct sl__dataset_kind token_kind = {.fill = fill, .free = free_tokens};

enum sl_status sl__dataset_check_tokens(const char *name, const int32_t *tokens, int64_t count,
                                        int classes) {
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= classes)
      return sl__fail(SL_BAD_ARGUMENT, "%s: token %lld is %d, but the vocabulary has 0 to %d", name,
                      (long long)i, tokens[i], classes - 1);
  return SL_OK;
}

static enum sl_status check_tokens(const char *name, const int32_t *tokens, int64_t count,
                                   int64_t steps, int classes) {
  if (steps < 1 || steps > INT32_MAX || count <= steps)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: %lld tokens are too few for a sample of %lld and the one after it; take "
                    "fewer steps or more text",
                    name, (long long)count, (long long)steps);
  return sl__dataset_check_tokens(name, tokens, count, classes);
}

enum sl_status sl_tokens_new(const char *name, const int32_t *tokens, int64_t count, int64_t steps,
                             int classes, struct sl_dataset **dataset) {
  SL__NEEDS(name, tokens, dataset);
  struct sl_dataset *set = NULL;
  enum sl_status status;
  SL__TRY(check_tokens(name, tokens, count, steps, classes));
  SL__TRY(sl__dataset_begin(&token_kind, sizeof(struct token_set),
                            &(struct sl_dataset_info){.name = name,
                                                      .sample = SL_SHAPE(steps),
                                                      .count = (count - 1) / steps,
                                                      .classes = classes,
                                                      .tokens = true},
                            &set));
  struct token_set *text = (struct token_set *)set;
  text->tokens = sl__alloc((size_t)count, sizeof *tokens, name);
  if (!text->tokens) SL__TRY(SL_NO_MEMORY);
  memcpy(text->tokens, tokens, (size_t)count * sizeof *tokens);
  *dataset = set;
  return SL_OK;
out:
  sl_dataset_free(set);
  return status;
}
