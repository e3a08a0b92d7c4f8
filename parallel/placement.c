/* Placements as people write them: "embed,lstm0-3=cuda:0;lstm4-7,decoder=cuda:1". */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "parallel/grid.h"

static char *trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t length = strlen(text);
  while (length && isspace((unsigned char)text[length - 1])) text[--length] = 0;
  return text;
}

static enum sl_status claim(const struct sl_model *model, struct sl__placement *p, int layer,
                            int stage) {
  if (p->stage[layer] >= 0)
    return sl_fail(SL_BAD_ARGUMENT, "placement: layer %s is placed twice; name it in one rule only",
                   model->layers[layer].name);
  p->stage[layer] = stage;
  return SL_OK;
}

static int find_layer(const struct sl_model *model, const char *name) {
  for (int i = 0; i < model->count; i++)
    if (!strcmp(model->layers[i].name, name)) return i;
  return -1;
}

/* "lstm0-3": the prefix's length and both numbers. */
static bool is_range(const char *name, size_t *prefix, long *from, long *to) {
  const char *dash = strrchr(name, '-');
  if (!dash || dash == name || !isdigit((unsigned char)dash[-1])) return false;
  const char *digits = dash;
  while (digits > name && isdigit((unsigned char)digits[-1])) digits--;
  if (!dash[1] || strspn(dash + 1, "0123456789") != strlen(dash + 1) || strlen(dash + 1) > 6 ||
      dash - digits > 6)
    return false;
  *prefix = (size_t)(digits - name);
  *from = strtol(digits, NULL, 10);
  *to = strtol(dash + 1, NULL, 10);
  return true;
}

static enum sl_status unknown(const struct sl_model *model, const char *name) {
  char names[400] = "";
  size_t used = 0;
  for (int i = 0; i < model->count && used < sizeof names; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                             model->layers[i].name);
  return sl_fail(SL_BAD_ARGUMENT, "placement: there is no layer or group '%s'; there are %s", name,
                 names);
}

static enum sl_status claim_range(const struct sl_model *model, struct sl__placement *p,
                                  const char *text, int stage) {
  size_t prefix;
  long from, to;
  enum sl_status status = SL_OK;
  if (!is_range(text, &prefix, &from, &to)) return unknown(model, text);
  if (from > to)
    return sl_fail(SL_BAD_ARGUMENT, "placement: the range '%s' runs backwards; write %.*s%ld-%ld",
                   text, (int)prefix, text, to, from);
  for (long n = from; n <= to && status == SL_OK; n++) {
    char name[128];
    snprintf(name, sizeof name, "%.*s%ld", (int)(prefix < 96 ? prefix : 96), text, n);
    int layer = find_layer(model, name);
    status = layer < 0 ? unknown(model, name) : claim(model, p, layer, stage);
  }
  return status;
}

/* A layer's name, a group's, or a range of names. */
static enum sl_status claim_name(const struct sl_model *model, struct sl__placement *p,
                                 const char *name, int stage) {
  enum sl_status status = SL_OK;
  bool found = false;
  int layer = find_layer(model, name);
  if (layer >= 0) return claim(model, p, layer, stage);
  for (int i = 0; i < model->count && status == SL_OK; i++)
    if (model->layers[i].group && !strcmp(model->layers[i].group, name)) {
      status = claim(model, p, i, stage);
      found = true;
    }
  return found ? status : claim_range(model, p, name, stage);
}

static enum sl_status parse_rule(const struct sl_model *model, char *rule, int stage,
                                 struct sl__placement *p) {
  enum sl_status status = SL_OK;
  char *equals = strchr(rule, '='), *rest = rule;
  if (!equals || strchr(equals + 1, '='))
    return sl_fail(SL_BAD_ARGUMENT,
                   "placement: '%s' is no rule; write LAYERS=DEVICE, rules with ; between", rule);
  *equals = 0;
  for (char *name = strsep(&rest, ","); name && status == SL_OK; name = strsep(&rest, ",")) {
    name = trim(name);
    status = *name ? claim_name(model, p, name, stage)
                   : sl_fail(SL_BAD_ARGUMENT, "placement: a layer's name is empty before '=%s'",
                             equals + 1);
  }
  if (status != SL_OK) return status;
  return sl__devices_parse(trim(equals + 1), &p->devices[stage], &p->device_count[stage]);
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
  return sl_fail(SL_BAD_ARGUMENT, "placement: no rule places %s; name them too (any: anywhere)",
                 names);
}

enum sl_status sl__placement_parse(const struct sl_model *model, const char *text,
                                   struct sl__placement *p) {
  enum sl_status status = SL_NO_MEMORY;
  size_t rules = 1;
  for (const char *c = text; *c; c++) rules += *c == ';' || *c == '\n';
  char *copy = sl__strdup(text), *rest = copy;
  *p = (struct sl__placement){
      .stage = sl__alloc((size_t)model->count, sizeof *p->stage, "a placement"),
      .devices = sl__alloc(rules + 1, sizeof *p->devices, "a placement"),
      .device_count = sl__alloc(rules + 1, sizeof *p->device_count, "a placement")};
  if (!copy || !p->stage || !p->devices || !p->device_count) goto out;
  for (int i = 0; i < model->count; i++) p->stage[i] = -1;
  for (char *rule = strsep(&rest, ";\n"); rule; rule = strsep(&rest, ";\n")) {
    char *hash = strchr(rule, '#'); /* in a file: a comment */
    if (hash) *hash = 0;
    rule = trim(rule);
    if (!*rule) continue; /* a ; at the end, an empty line */
    SL_TRY(parse_rule(model, rule, p->stages, p));
    p->stages++;
  }
  SL_TRY(check_complete(model, p));
out:
  free(copy);
  if (status != SL_OK) sl__placement_clear(p);
  return status;
}

void sl__placement_clear(struct sl__placement *p) {
  for (int s = 0; p->devices && p->device_count && s <= p->stages; s++)
    if (p->device_count[s]) free(p->devices[s]);
  free(p->devices);
  free(p->device_count);
  free(p->stage);
  *p = (struct sl__placement){0};
}

enum sl_status sl_place(struct sl_model *model, const char *text) {
  struct sl__placement placement;
  enum sl_status status = sl__placement_parse(model, text, &placement);
  if (status != SL_OK) return status;
  sl__placement_clear(&placement);
  char *copy = sl__strdup(text);
  if (!copy) return SL_NO_MEMORY;
  free(model->placement);
  model->placement = copy;
  return SL_OK;
}

const char *sl_placement(const struct sl_model *model) { return model->placement; }

enum sl_status sl_place_file(struct sl_model *model, const char *path) {
  uint8_t *bytes = NULL;
  char *text = NULL;
  size_t size;
  enum sl_status status;
  SL_TRY(sl__file_read(path, 1 << 20, &bytes, &size));
  if (memchr(bytes, 0, size)) {
    status = sl_fail(SL_BAD_FILE, "%s: is no text; a placement has rules LAYERS=DEVICE", path);
    goto out;
  }
  text = sl__alloc(size + 1, 1, "a placement");
  if (!text) {
    status = SL_NO_MEMORY;
    goto out;
  }
  memcpy(text, bytes, size);
  SL_TRY(sl_place(model, text));
out:
  free(bytes);
  free(text);
  return status;
}
