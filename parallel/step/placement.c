/* Placements as people write them: "embed,lstm0-3=cuda:0;lstm4-7,decoder=cuda:1", or over the ranks
 * of a group: "embed=rank0/cpu:0;decoder=rank1/cpu:0". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/net/net.h"
#include "nn/layer_names.h"
#include "parallel/step/grid.h"

/* A rule while its layers are read. */
struct rule {
  const struct sl_model *model;
  struct sl__placement *placement;
  int stage;
};

static enum sl_status claim(void *user, int layer) {
  const struct rule *rule = user;
  if (rule->placement->stage[layer] >= 0)
    return sl__fail(SL_BAD_ARGUMENT,
                    "placement: layer %s is placed twice; name it in one rule only",
                    rule->model->layers[layer].name);
  rule->placement->stage[layer] = rule->stage;
  return SL_OK;
}

static enum sl_status parse_rule(const struct sl_model *model, char *text, int stage,
                                 struct sl__placement *p, char **devices) {
  struct rule rule = {model, p, stage};
  const struct sl__layer_list list = {"placement", claim, &rule};
  char *equals = strchr(text, '=');
  if (!equals || strchr(equals + 1, '='))
    return sl__fail(SL_BAD_ARGUMENT,
                    "placement: '%s' is no rule; write LAYERS=DEVICE, rules with ; between", text);
  *equals = 0;
  *devices = sl__trim(equals + 1);
  return sl__layer_list_walk(&list, model, text);
}

/* ---- over several ranks ---- */

#define RANK_PREFIX "rank"

/* "rank1/cpu:0": 1, and the device behind it. -1: there is no such prefix. */
static int split_rank(char *name, char **device) {
  char *digits = name + strlen(RANK_PREFIX);
  *device = name;
  if (strncmp(name, RANK_PREFIX, strlen(RANK_PREFIX)) != 0) return -1;
  int64_t rank;
  const char *end = sl__scan_whole(digits, &rank);
  if (!end || end - digits > 5 || *end != '/') return -1;
  *device = digits + (end - digits) + 1;
  return (int)rank;
}

/* A rule's devices are one rank's. Takes the prefixes out of the text. */
static enum sl_status find_rank(char *devices, int *rank) {
  char *rest = devices, *to = devices, *device;
  bool first = true;
  for (char *name = strsep(&rest, ","); name; name = strsep(&rest, ","), first = false) {
    int its = split_rank(sl__trim(name), &device);
    if (first) *rank = its;
    if (its < 0 && *rank >= 0)
      return sl__fail(SL_BAD_ARGUMENT, "placement: device '%s' names no rank; write rank%d/%s",
                      device, *rank, device);
    if (its != *rank)
      return sl__fail(
          SL_BAD_ARGUMENT,
          "placement: device '%s' is of rank %d, others of its rule of another; a rule's "
          "devices must be of one rank (for several copies start more ranks)",
          device, its);
    if (!first) *to++ = ',';
    size_t length = strlen(device);
    memmove(to, device, length);
    to += length;
  }
  *to = 0;
  return SL_OK;
}

/* Every rank from 0 on has a rule, or none is named at all. */
static enum sl_status count_ranks(struct sl__placement *p) {
  bool some = false;
  for (int s = 0; s < p->stages; s++) {
    some |= p->rank[s] >= 0;
    if (p->rank[s] >= p->ranks) p->ranks = p->rank[s] + 1;
  }
  for (int s = 0; s < p->stages && some; s++)
    if (p->rank[s] < 0)
      return sl__fail(SL_BAD_ARGUMENT,
                      "placement: rule %d names no rank, others do; write rank0/ before its device",
                      s + 1);
  for (int rank = 0; rank < p->ranks && some; rank++) {
    bool has = false;
    for (int s = 0; s < p->stages; s++) has |= p->rank[s] == rank;
    if (!has)
      return sl__fail(SL_BAD_ARGUMENT,
                      "placement: rank %d has no layer, though rank %d has; leave no rank out",
                      rank, p->ranks - 1);
  }
  for (int s = 0; s < p->stages && !some; s++) p->rank[s] = 0;
  return SL_OK;
}

/* Of another rank's devices only their number and names are known here. */
static enum sl_status note_devices(char *devices, int stage, struct sl__placement *p) {
  size_t most = 1;
  for (const char *c = devices; *c; c++) most += *c == ',';
  struct sl__device *list = sl__alloc(most, sizeof *list, "a placement");
  if (!list) return SL_NO_MEMORY;
  p->devices[stage] = list;
  for (char *name = strsep(&devices, ","); name; name = strsep(&devices, ","))
    snprintf(list[p->device_count[stage]++].name, sizeof list->name, "%s", name);
  return SL_OK;
}

static enum sl_status find_devices(const struct sl_context *context, char **texts,
                                   struct sl__placement *p) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < p->stages; s++) SL__TRY(find_rank(texts[s], &p->rank[s]));
  p->ranks = 1;
  SL__TRY(count_ranks(p));
  int own = context->net ? sl__net_rank(context->net) % p->ranks : 0;
  for (int s = 0; s < p->stages; s++)
    if (p->rank[s] == own)
      SL__TRY(sl__devices_parse(texts[s], &p->devices[s], &p->device_count[s]));
    else
      SL__TRY(note_devices(texts[s], s, p));
out:
  return status;
}

/* One block, one gradient, one owner's rank. */
static enum sl_status check_shared(const struct sl_model *model, const struct sl__placement *p) {
  for (int i = 0; i < model->count; i++) {
    const struct sl__layer *layer = &model->layers[i];
    if (layer->tied_to < 0) continue;
    int mine = p->rank[p->stage[i]], theirs = p->rank[p->stage[layer->tied_to]];
    if (mine != theirs)
      return sl__fail(
          SL_BAD_ARGUMENT,
          "placement: layer %s (rank %d) shares the weight of %s (rank %d); layers that "
          "share a weight must be on one rank",
          layer->name, mine, model->layers[layer->tied_to].name, theirs);
  }
  return SL_OK;
}

/* The stage of the first layer that takes an input field; -1: no rule places one. */
static int stage_of_taker(const struct sl_model *model, const struct sl__placement *p, int field) {
  for (int i = model->input_count; i < model->count; i++)
    for (int k = 0; k < model->layers[i].input_count; k++)
      if (model->layers[i].input[k] == field && p->stage[i] >= 0) return p->stage[i];
  return -1;
}

/* Input fields and the layer that joins several outputs are the library's own: without a rule they
 * run beside the first layer that takes the input, or the last one that is an output. */
static void place_fields(const struct sl_model *model, struct sl__placement *p) {
  for (int i = 0; i < model->input_count; i++)
    if (p->stage[i] < 0) p->stage[i] = stage_of_taker(model, p, i);
  if (!model->output_count || p->stage[model->count - 1] >= 0) return;
  const struct sl__layer *outputs = &model->layers[model->count - 1];
  int last = outputs->input[0];
  for (int k = 1; k < outputs->input_count; k++)
    if (outputs->input[k] > last) last = outputs->input[k];
  if (last >= 0) p->stage[model->count - 1] = p->stage[last];
}

/* Names the layers that no rule has named. */
static enum sl_status check_complete(const struct sl_model *model, const struct sl__placement *p) {
  char names[300] = "";
  size_t used = 0;
  for (int i = 0; i < model->count && used < sizeof names; i++)
    if (p->stage[i] < 0)
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                               model->layers[i].name);
  if (!used) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "placement: no rule places %s; name them too (any: anywhere)",
                  names);
}

enum sl_status sl__placement_parse(const struct sl_model *model, const char *text,
                                   struct sl__placement *p) {
  enum sl_status status = SL_NO_MEMORY;
  size_t rules = 1;
  for (const char *c = text; *c; c++) rules += *c == ';' || *c == '\n';
  char *copy = sl__strdup(text), *rest = copy;
  char **devices = sl__alloc(rules + 1, sizeof *devices, "a placement");
  *p = (struct sl__placement){
      .stage = sl__alloc((size_t)model->count, sizeof *p->stage, "a placement"),
      .devices = sl__alloc(rules + 1, sizeof *p->devices, "a placement"),
      .device_count = sl__alloc(rules + 1, sizeof *p->device_count, "a placement"),
      .rank = sl__alloc(rules + 1, sizeof *p->rank, "a placement")};
  if (!copy || !devices || !p->stage || !p->devices || !p->device_count || !p->rank) goto out;
  for (int i = 0; i < model->count; i++) p->stage[i] = -1;
  for (char *rule = strsep(&rest, ";\n"); rule; rule = strsep(&rest, ";\n")) {
    char *hash = strchr(rule, '#'); /* in a file: a comment */
    if (hash) *hash = 0;
    rule = sl__trim(rule);
    if (!*rule) continue; /* a ; at the end, an empty line */
    SL__TRY(parse_rule(model, rule, p->stages, p, &devices[p->stages]));
    p->stages++;
  }
  place_fields(model, p);
  SL__TRY(check_complete(model, p));
  SL__TRY(find_devices(model->context, devices, p));
  SL__TRY(check_shared(model, p));
out:
  free(devices);
  free(copy);
  if (status != SL_OK) sl__placement_clear(p);
  return status;
}

void sl__placement_clear(struct sl__placement *p) {
  for (int s = 0; p->devices && p->device_count && s <= p->stages; s++)
    if (p->device_count[s]) free(p->devices[s]);
  free(p->devices);
  free(p->device_count);
  free(p->rank);
  free(p->stage);
  *p = (struct sl__placement){0};
}

enum sl_status sl_place(struct sl_model *model, const char *text) {
  SL__NEEDS(model, text);
  struct sl__placement placement;
  enum sl_status status = sl__model_check_unused(model, "placement");
  if (status == SL_OK) status = sl__placement_parse(model, text, &placement);
  if (status != SL_OK) return status;
  int ranks = placement.ranks;
  sl__placement_clear(&placement);
  char *copy = sl__strdup(text);
  if (!copy) return SL_NO_MEMORY;
  free(model->placement);
  model->placement = copy;
  model->ranks = ranks;
  return SL_OK;
}

int sl_placement_ranks(const struct sl_model *model) {
  SL__NEEDS_OR(0, model);
  return model->ranks > 1 ? model->ranks : 1;
}

const char *sl_placement(const struct sl_model *model) {
  SL__NEEDS_OR(NULL, model);
  return model->placement;
}

enum sl_status sl_place_file(struct sl_model *model, const char *path) {
  SL__NEEDS(model, path);
  uint8_t *bytes = NULL;
  char *text = NULL;
  size_t size;
  enum sl_status status;
  SL__TRY(sl__file_read_plain(path, 1 << 20, &bytes, &size));
  if (memchr(bytes, 0, size)) {
    status = sl__fail(SL_BAD_FILE, "%s: is no text; a placement has rules LAYERS=DEVICE", path);
    goto out;
  }
  text = sl__alloc(size + 1, 1, "a placement");
  if (!text) {
    status = SL_NO_MEMORY;
    goto out;
  }
  memcpy(text, bytes, size);
  SL__TRY(sl_place(model, text));
out:
  free(bytes);
  free(text);
  return status;
}
