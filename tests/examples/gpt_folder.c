/* For test_hugging_face.sh: the logits of a model in a folder of Hugging Face's transformers.
 *     gpt_folder FOLDER TOKENS LOGITS [SAVED/]
 * TOKENS: i32, one sample; LOGITS: f32 [T, vocabulary]. SAVED: the model is written there. */
#include <stdio.h>
#include <stdlib.h>

#include "examples/gpt_hugging_face.h"

#define TRY(call)                                                                                  \
  if ((call) != SL_OK) return fprintf(stderr, "gpt_folder: %s\n", sl_error()), 1

enum { MOST_TOKENS = 4096 };

static size_t read_tokens(const char *path, int32_t *tokens) {
  FILE *file = fopen(path, "rb");
  size_t count = file ? fread(tokens, sizeof *tokens, MOST_TOKENS, file) : 0;
  if (file) fclose(file);
  return count;
}

int main(int argc, char **argv) {
  static int32_t tokens[MOST_TOKENS];
  struct gpt_options options;
  struct sl_context *context;
  struct sl_model *model;
  struct sl_predictor *predictor;
  if (argc < 4) return fprintf(stderr, "Usage: gpt_folder FOLDER TOKENS LOGITS [SAVED/]\n"), 2;
  const char *problem = gpt_read_config(argv[1], &options);
  size_t count = read_tokens(argv[2], tokens);
  if (problem) return fprintf(stderr, "gpt_folder: %s\n", problem), 2;
  if (!count) return fprintf(stderr, "gpt_folder: %s: no tokens\n", argv[2]), 2;

  TRY(sl_open(NULL, &context));
  TRY(sl_model_new(context, &SL_SHAPE((int64_t)count), &model));
  TRY(gpt_build(model, &options, SL_INIT_DEFAULT));
  TRY(gpt_load_folder(model, argv[1], &options));
  TRY(sl_predictor_open(model, &(struct sl_predictor_options){.max_batch = 1}, &predictor));
  size_t size = count * (size_t)options.vocabulary * sizeof(float);
  float *logits = malloc(size);
  if (!logits) return fprintf(stderr, "gpt_folder: no memory\n"), 1;
  TRY(sl_predict(predictor, tokens, 1, logits));
  TRY(sl_file_write(argv[3], logits, size));
  sl_predictor_free(predictor);
  if (argc > 4) TRY(gpt_save_folder(model, argv[4], NULL, &options));
  free(logits);
  sl_model_free(model);
  sl_close(context);
  return 0;
}
