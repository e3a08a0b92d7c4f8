/* A model's architecture as a .json file, with its weights in a safetensors file beside it. */
#ifndef SL_NN_FORMATS_MODEL_JSON_H
#define SL_NN_FORMATS_MODEL_JSON_H

#include "nn/layer.h"

bool sl__is_model_json(const char *path);
/* "a/lenet.safetensors" for "a/lenet.json": the file of its weights, to be freed. NULL: no memory.
 */
char *sl__model_json_weights(const char *path);
enum sl_status sl__model_json_save(struct sl_model *model, const char *path);
enum sl_status sl__model_json_load(struct sl_model *model, const char *path);
enum sl_status sl__model_json_load_part(struct sl_model *model, const char *path, const char *map,
                                        char **report);
enum sl_status sl__model_json_open(struct sl_context *context, const char *path,
                                   struct sl_model **model);

#endif
