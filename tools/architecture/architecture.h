/* The model of starling-train: an architecture file, with or without weights. */
#ifndef SL_TOOLS_ARCHITECTURE_ARCHITECTURE_H
#define SL_TOOLS_ARCHITECTURE_ARCHITECTURE_H

#include <starling.h>

/* Opens the model at path: with the weights that it names, or (JSON without "weights") with initial
 * ones; `init` is for the layers that name no init of their own. */
enum sl_status architecture_open(struct sl_context *context, const char *path, enum sl_init init,
                                 struct sl_model **model);

/* Prints all kinds of layers with their options (tools/architecture/kind_list.c). */
void kind_list_print(void);

#endif
