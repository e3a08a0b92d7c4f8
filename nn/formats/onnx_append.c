/* Layers for an ONNX graph: their names, and the values of their parameters. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "nn/formats/onnx_read.h"

bool sl__onnx_is_taken(const struct sl_model *model, const char *name) {
  for (int i = 0; i < model->count; i++)
    if (!strcmp(model->layers[i].name, name)) return true;
  return !strcmp(name, "input");
}

/* PyTorch's name of a module: "/layer1/layer1.0/conv1/Conv" is layer1.0.conv1. The last part is the
 * operator; a part that begins with the part before it replaces that part. */
static void module_path(const char *node, char *path, size_t size) {
  const char *last = strrchr(node, '/');
  size_t used = 0, part_at = 0;
  path[0] = 0;
  for (const char *part = node + 1; last && part < last + 1;) {
    size_t length = strcspn(part, "/");
    if (part - 1 == last) break;
    bool goes_on = used && length > used - part_at && part[used - part_at] == '.' &&
                   !strncmp(path + part_at, part, used - part_at);
    if (goes_on)
      used = part_at;
    else if (used)
      path[used++] = '.';
    if (used + length + 2 > size) break;
    part_at = used;
    memcpy(path + used, part, length);
    path[used += length] = 0;
    part += length + 1;
  }
}

/* "conv1" for "conv1.weight" and "conv1.bias". */
static void weight_layer(const char *weight, char *name, size_t size) {
  const char *dot = weight ? strrchr(weight, '.') : NULL;
  if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) return;
  size_t length = (size_t)(dot - weight);
  if (length < size) snprintf(name, size, "%.*s", (int)length, weight);
}

/* A layer's name in another program's file: from the weight's name, as in PyTorch's state dict,
 * else from the node's. end: what follows it. */
static void foreign_name(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                         const char *weight, const char *end, char name[64]) {
  static const char prefix[] = "node_"; /* prefix of PyTorch's newer exporter */
  char path[256] = "";
  size_t most = 48; /* leaves room for a number */
  weight_layer(weight, path, sizeof path);
  /* exporters write equal weights once: two layers can have a weight of the same name */
  if (*node->name == '/' && sl__onnx_is_taken(r->model, path)) *path = 0;
  if (!*path && *node->name == '/') module_path(node->name, path, sizeof path);
  if (!*path) snprintf(path, sizeof path, "%.200s", *node->name ? node->name : node->op);
  const char *from = *path == '/' ? path + 1 : path;
  if (!strncmp(from, prefix, strlen(prefix))) from += strlen(prefix);
  if (strlen(from) > most) from += strlen(from) - most;
  snprintf(name, 64, "%.50s%.13s", *from ? from : "layer", end);
  for (char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr("_.-", *c)) *c = '_';
  size_t length = strlen(name);
  if (r->number < r->model->count) r->number = r->model->count;
  while (sl__onnx_is_taken(r->model, name))
    snprintf(name + length, 64 - length, "_%d", r->number++);
}

static const char *name_of(const struct sl__onnx_reader *r, const struct sl__onnx_value *value) {
  return value->layer == SL__INPUT ? "input" : r->model->layers[value->layer].name;
}

/* Turns the library's last error into an error of the node, which a valid file may have, too. */
static enum sl_status of_node(const struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                              enum sl_status status) {
  char text[400];
  if (status == SL_OK || status == SL_NO_MEMORY) return status;
  snprintf(text, sizeof text, "%s", sl_error());
  return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "%s", text);
}

bool sl__onnx_is_tokens(const struct sl__onnx_reader *r, const struct sl__onnx_value *value) {
  return value->layer == SL__INPUT
             ? r->tokens[0]
             : value->layer < r->model->input_count && r->tokens[value->layer];
}

enum sl_status sl__onnx_append(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *weight, const struct sl__layer_kind *kind, void *options,
                               const struct sl__onnx_value *inputs, int count) {
  char name[64], names[64 * (size_t)count];
  size_t at = 0;
  for (int i = 0; i < count; i++) {
    if (sl__onnx_is_tokens(r, &inputs[i]) && kind != &sl__embedding_kind)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                             "takes the model's input, which are whole numbers; only an embedding "
                             "(Gather) can");
    at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? "," : "",
                           name_of(r, &inputs[i]));
  }
  /* a reshape before a layer leaves it the name that its weights have in the state dict */
  foreign_name(r, node, weight, kind == &sl__reshape_kind ? ".view" : "", name);
  ((struct sl_layer_options *)options)->inputs = names; /* first member of every options struct */
  return of_node(r, node, sl__layer_append(r->model, r->own ? node->name : name, kind, options));
}

static enum sl_status count_bytes(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  int64_t count) {
  r->parameter_bytes += (size_t)count * sizeof(float);
  if (r->parameter_bytes <= r->most_parameters) return SL_OK;
  return sl__onnx_refuse(
      r, node, SL_UNSUPPORTED,
      "the layers up to this one have more parameters than the file; only a dense "
      "layer and an embedding can share a weight");
}

enum sl_status sl__onnx_set(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                            const char *suffix, const float *values, int64_t count,
                            const struct sl__onnx_setting *how) {
  const struct sl__layer *layer = &r->model->layers[r->model->count - 1];
  struct sl__onnx_setting setting = how ? *how : (struct sl__onnx_setting){0};
  if (r->setting_count == r->setting_room) {
    int room = r->setting_room ? 2 * r->setting_room : 64;
    void *grown = sl__realloc(r->settings, (size_t)room, sizeof *r->settings, "a model's weights");
    if (!grown) return SL_NO_MEMORY;
    r->settings = grown;
    r->setting_room = room;
  }
  const struct sl__param *part = NULL;
  for (int b = 0; b < 2 && !part; b++) {
    const struct sl__block *block = b ? &layer->buffers : &layer->params;
    setting.is_buffer = b;
    for (setting.part = 0; setting.part < block->count; setting.part++)
      if (!strcmp(block->part[setting.part].suffix, suffix)) {
        part = &block->part[setting.part];
        break;
      }
  }
  if (!part || sl_shape_count(&part->shape) != count)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "its %s has %lld values, the layer needs %lld",
                           suffix, (long long)count,
                           part ? (long long)sl_shape_count(&part->shape) : 0);
  setting.layer = r->model->count - 1;
  setting.values = values;
  r->settings[r->setting_count++] = setting;
  return count_bytes(r, node, count);
}
