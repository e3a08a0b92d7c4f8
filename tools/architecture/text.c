#include "tools/architecture/text.h"

#include <stdlib.h>

#include "tools/architecture/architecture.h"
#include "tools/train/run.h"
#include "tools/train/text_parts.h"

static enum sl_status make_set(const struct text_model *model, const struct text_part *part,
                               int64_t steps, struct sl_dataset **set) {
  int32_t *tokens = NULL;
  int64_t count;
  enum sl_status status =
      sl_vocabulary_encode(model->vocabulary, part->text, part->size, &tokens, &count);
  if (status == SL_OK)
    status = sl_tokens_new(part->name, tokens, count, steps,
                           (int)sl_vocabulary_size(model->vocabulary), set);
  free(tokens);
  return status;
}

/* That of the weights that the file names; without weights, as many words as the model has. */
static enum sl_status open_vocabulary(struct text_model *model, const struct text_part *train,
                                      const struct architecture_tokens *tokens) {
  char path[4096];
  if (tokens->trained)
    return sl_vocabulary_load(vocabulary_path(model->model, path, sizeof path), &model->vocabulary);
  return sl_vocabulary_new(model->level, train->text, train->size, 0, tokens->words,
                           &model->vocabulary);
}

bool text_is_taken(const struct text_model *model) {
  return architecture_read_tokens(model->model).steps > 0;
}

enum sl_status text_open_data(const struct cli *cli, struct text_model *model,
                              struct sl_dataset **train, struct sl_dataset **test) {
  struct architecture_tokens tokens = architecture_read_tokens(model->model);
  struct text_parts parts;
  if (!tokens.steps) return program_read_data(cli, train, test);
  enum sl_status status = text_parts_open(cli, &parts);
  if (status == SL_OK) status = open_vocabulary(model, &parts.train, &tokens);
  if (status == SL_OK) status = make_set(model, &parts.train, tokens.steps, train);
  if (status == SL_OK) status = make_set(model, &parts.valid, tokens.steps, test);
  text_parts_close(&parts);
  return status;
}

enum sl_status text_save(const struct text_model *model, const char *weights) {
  char path[4096];
  if (!model->vocabulary) return SL_OK;
  return sl_vocabulary_save(model->vocabulary, vocabulary_path(weights, path, sizeof path));
}

const char *text_beside(void *model, const char *weights, int index, char *path, size_t size) {
  return !index && text_is_taken(model) ? vocabulary_path(weights, path, size) : NULL;
}
