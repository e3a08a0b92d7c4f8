/* Layers as people name them: in placements, lists of frozen layers, factors by layer. */
#ifndef SL_NN_LAYER_NAMES_H
#define SL_NN_LAYER_NAMES_H

#include <stdio.h>

#include "nn/layer.h"

/* What is done with each layer of a list, in the list's order. */
struct sl__layer_list {
  const char *subject; /* begins the messages: "placement" */
  enum sl_status (*take)(void *user, int layer);
  void *user;
};

/* Calls take for the layers of a list with commas: names, groups, ranges ("lstm0-3") and patterns,
 * in which * stands for any characters ("bn*"). The text is changed. \return SL_BAD_ARGUMENT for a
 * name of no layer, or the first failure of take. */
enum sl_status sl__layer_list_walk(const struct sl__layer_list *list, const struct sl_model *model,
                                   char *names);

/* The layers [from, to) as a list names them: "embed,lstm0-3". */
void sl__print_layers(FILE *out, const struct sl_model *model, int from, int to);

#endif
