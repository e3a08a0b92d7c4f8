/* The text of --data, for language models: a file, or generated sentences ("grammar"). */
#ifndef SL_TOOLS_TRAIN_TEXT_PARTS_H
#define SL_TOOLS_TRAIN_TEXT_PARTS_H

#include "tools/train/cli.h"

struct text_part {
  const char *name, *text;
  size_t size;
};

struct text_parts {
  struct text_part train, valid;
  double entropy;  /* of generated sentences, nats a word; 0: the text is a file */
  char *memory[2]; /* of the texts */
};

/* To be closed in any case. */
enum sl_status text_parts_open(const struct cli *cli, struct text_parts *parts);
void text_parts_close(struct text_parts *parts);

/* Is it a folder, or would it be one: does it end in '/'? */
bool path_names_folder(const char *path);

/* The files of words, and of a tokenizer, beside a model's file or weights. Return path. */
const char *vocabulary_path(const char *weights, char *path, size_t size);
const char *tokenizer_path(const char *weights, char *path, size_t size);

#endif
