/* The names of an ONNX graph and their values: a hash table, at most half full. */
#include <string.h>

#include "core/base/hash.h"
#include "nn/formats/onnx_read.h"

enum { MOST_PROBES = 512 };

/* The name's place, or a free one for it. NULL if there is neither within MOST_PROBES; among some
 * hundred thousand names that happens only if they are chosen to collide. */
static struct sl__onnx_value *place_of(const struct sl__onnx_reader *r, const char *name) {
  size_t place = (size_t)sl__hash_name(name);
  for (int i = 0; i < MOST_PROBES; i++, place++) {
    struct sl__onnx_value *value = &r->table[place & (r->places - 1)];
    if (!value->name || !strcmp(value->name, name)) return value;
  }
  return NULL;
}

struct sl__onnx_value *sl__onnx_find(const struct sl__onnx_reader *r, const char *name) {
  struct sl__onnx_value *value = place_of(r, name);
  return value && value->name ? value : NULL;
}

enum sl_status sl__onnx_find_or_add(struct sl__onnx_reader *r, const char *name,
                                    struct sl__onnx_value **value) {
  *value = place_of(r, name);
  if (!*value)
    return sl__fail(SL_BAD_FILE, "%s: its names are made to collide: no place is left near '%.64s'",
                    r->graph.path, name);
  (*value)->name = name;
  return SL_OK;
}

enum sl_status sl__onnx_make_table(struct sl__onnx_reader *r) {
  const struct sl__onnx_graph *g = &r->graph;
  size_t names = (size_t)g->tensors + (size_t)g->inputs + (size_t)g->outputs;
  for (int i = 0; i < g->nodes; i++)
    names += (size_t)g->node[i].inputs + (size_t)g->node[i].outputs;
  for (r->places = 64; r->places < 2 * names;) r->places *= 2;
  r->table = sl__onnx_alloc(&r->graph, r->places, sizeof *r->table);
  r->needed = sl__onnx_alloc(&r->graph, (size_t)g->nodes, sizeof *r->needed);
  r->done = sl__onnx_alloc(&r->graph, (size_t)g->nodes, sizeof *r->done);
  return r->table && r->needed && r->done ? SL_OK : sl__onnx_no_memory(&r->graph);
}

bool sl__onnx_has(const struct sl__onnx_node *node, int i) {
  return i < node->inputs && *node->input[i];
}

const struct sl__onnx_tensor *sl__onnx_constant(const struct sl__onnx_reader *r,
                                                const struct sl__onnx_node *node, int i) {
  const struct sl__onnx_value *value =
      sl__onnx_has(node, i) ? sl__onnx_find(r, node->input[i]) : NULL;
  return value && value->is == SL__ONNX_CONSTANT ? value->constant : NULL;
}

enum sl_status sl__onnx_define(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                               const char *name, const struct sl__onnx_value *value) {
  struct sl__onnx_value *place;
  enum sl_status status = sl__onnx_find_or_add(r, name, &place);
  if (status != SL_OK) return status;
  struct sl__onnx_value old = *place;
  if (old.is != SL__ONNX_NOTHING || !*name)
    return node ? sl__onnx_refuse(r, node, SL_BAD_FILE, "'%.64s' is made twice, or has no name",
                                  name)
                : sl__fail(SL_BAD_FILE, "%s: '%.64s' is there twice, or has no name", r->graph.path,
                           name);
  *place = *value;
  place->name = old.name;
  place->uses = old.uses;
  place->user = old.user;
  return SL_OK;
}
