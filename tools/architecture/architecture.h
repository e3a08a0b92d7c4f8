/* The model of starling-train: an architecture file, with or without weights. */
#ifndef SL_TOOLS_ARCHITECTURE_ARCHITECTURE_H
#define SL_TOOLS_ARCHITECTURE_ARCHITECTURE_H

#include <starling.h>

/* Opens the model at path: with the weights that it names, or (JSON without "weights") with initial
 * ones; `init` is for the layers that name no init of their own. */
enum sl_status architecture_open(struct sl_context *context, const char *path, enum sl_init init,
                                 struct sl_model **model);

/* Of a file whose first layer is an embedding: a sample's tokens, the rows of the table, and
 * whether the file names weights. steps 0: of another file. */
struct architecture_tokens {
  int64_t steps, words;
  bool trained;
};
struct architecture_tokens architecture_read_tokens(const char *path);

/* Prints all kinds of layers with their options (tools/architecture/kind_list.c). */
void kind_list_print(void);

#endif
