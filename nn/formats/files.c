/* Model files: the suffix of the path selects the format. */
#include <string.h>
#include <strings.h>

#include "nn/formats/model_json.h"
#include "nn/formats/onnx.h"

struct format {
  bool (*is_of)(const char *path); /* NULL: takes any path */
  enum sl_status (*save)(struct sl_model *model, const char *path);
  enum sl_status (*load)(struct sl_model *model, const char *path);
  /* NULL: the format has no tensors by the model's names */
  enum sl_status (*load_part)(struct sl_model *model, const char *path, const char *map,
                              char **report);
  enum sl_status (*open)(struct sl_context *context, const char *path, struct sl_model **model);
};

/* Any other suffix means a file of weights alone. It names no layers, so opening it as a model is
 * left to the JSON reader. */
static const struct format formats[] = {
    {sl__is_onnx, sl__onnx_save, sl__onnx_load, NULL, sl__onnx_open},
    {sl__is_model_json, sl__model_json_save, sl__model_json_load, sl__model_json_load_part,
     sl__model_json_open},
    {NULL, sl__weights_save, sl__weights_load, sl__weights_load_part, sl__model_json_open}};

static const struct format *format_of(const char *path) {
  const struct format *f = formats;
  while (f->is_of && !f->is_of(path)) f++;
  return f;
}

enum sl_status sl_model_check_path(const char *path) {
  SL__NEEDS(path);
  static const char *const foreign[] = {".pt", ".pth",   ".bin",    ".ckpt",   ".h5",
                                        ".pb", ".keras", ".tflite", ".pickle", ".npz"};
  static const char *const own[] = {".json", ".onnx", ".safetensors"};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    size_t end = strlen(own[i]);
    if (length > end && !strcasecmp(path + length - end, own[i]) &&
        strcmp(path + length - end, own[i]) != 0)
      return sl__fail(SL_BAD_ARGUMENT, "%s: write the ending in small letters, %s", path, own[i]);
  }
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    size_t end = strlen(foreign[i]);
    if (length > end && !strcasecmp(path + length - end, foreign[i]))
      return sl__fail(SL_BAD_ARGUMENT,
                      "%s: other programs take %s for a format that Starling does not write; name "
                      "it .safetensors (weights, which PyTorch reads), .json or .onnx (models)",
                      path, foreign[i]);
  }
  return SL_OK;
}

enum sl_status sl_model_save(struct sl_model *model, const char *path) {
  SL__NEEDS(model, path);
  enum sl_status status = sl_model_check_path(path);
  return status == SL_OK ? format_of(path)->save(model, path) : status;
}

enum sl_status sl_model_load(struct sl_model *model, const char *path) {
  SL__NEEDS(model, path);
  return format_of(path)->load(model, path);
}

enum sl_status sl_model_load_part(struct sl_model *model, const char *path,
                                  const struct sl_load_part_options *options, char **report) {
  SL__NEEDS(model, path);
  const struct format *format = format_of(path);
  if (report) *report = NULL;
  if (!format->load_part)
    return sl__fail(SL_UNSUPPORTED,
                    "%s: a part of a model loads from .safetensors files and .json models; open "
                    "the model (sl_model_open) and save it as one of them",
                    path);
  return format->load_part(model, path, options ? options->map : NULL, report);
}

enum sl_status sl_model_open(struct sl_context *context, const char *path,
                             struct sl_model **model) {
  SL__NEEDS(context, path, model);
  return format_of(path)->open(context, path, model);
}
