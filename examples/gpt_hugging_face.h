/* Models of the kinds GPT-2 and Llama as folders of Hugging Face's transformers: config.json, and
 * model.safetensors or the files that model.safetensors.index.json lists. */
#ifndef SL_EXAMPLES_GPT_HUGGING_FACE_H
#define SL_EXAMPLES_GPT_HUGGING_FACE_H

#include "examples/gpt_model.h"

/* What FOLDER/config.json says; options->context is the most positions of the model. Returns NULL,
 * or in one line why there is no such model here (valid until the next call). */
const char *gpt_read_config(const char *folder, struct gpt_options *options);

/* The weights of a model that gpt_build made of these options. */
enum sl_status gpt_load_folder(struct sl_model *model, const char *folder,
                               const struct gpt_options *options);

/* Those that gpt_save_folder writes, by index. Returns path. */
enum { GPT_FOLDER_FILES = 2 };
const char *gpt_folder_file(const char *folder, int index, char *path, size_t size);

/* Writes config.json and model.safetensors; the folder is made if it is missing. like: NULL, or a
 * folder whose config.json has more to say, such as the numbers of special tokens. */
enum sl_status gpt_save_folder(struct sl_model *model, const char *folder, const char *like,
                               const struct gpt_options *options);

#endif
