/* Texts for a model whose first layer is an embedding. */
#ifndef SL_TOOLS_ARCHITECTURE_TEXT_H
#define SL_TOOLS_ARCHITECTURE_TEXT_H

#include "tools/train/cli.h"

struct text_model {
  const char *model; /* the architecture file */
  enum sl_text_level level;
  struct sl_vocabulary *vocabulary; /* NULL: the model takes no text, or none was read yet */
};

/* Does it take tokens of a text? */
bool text_is_taken(const struct text_model *model);

/* Opens the sets of --data: of a model that takes tokens the text's, else program_read_data's. */
enum sl_status text_open_data(const struct cli *cli, struct text_model *model,
                              struct sl_dataset **train, struct sl_dataset **test);

/* Writes the vocabulary, if there is one, beside the weights. */
enum sl_status text_save(const struct text_model *model, const char *weights);
/* cli_program's beside. */
const char *text_beside(void *model, const char *weights, int index, char *path, size_t size);

#endif
