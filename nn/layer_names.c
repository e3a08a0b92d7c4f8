#include "nn/layer_names.h"

#include <ctype.h>
#include <string.h>

#include "core/base/numbers.h"
#include "core/base/text.h"

static int find_layer(const struct sl_model *model, const char *name) {
  for (int i = 0; i < model->count; i++)
    if (!strcmp(model->layers[i].name, name)) return i;
  return -1;
}

static enum sl_status unknown(const struct sl__layer_list *list, const struct sl_model *model,
                              const char *name) {
  char names[400] = "";
  size_t used = 0;
  for (int i = 0; i < model->count && used < sizeof names; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                             model->layers[i].name);
  return sl__fail(SL_BAD_ARGUMENT, "%s: there is no layer or group '%s'; the layers are %s",
                  list->subject, name, names);
}

/* "lstm0-3": the prefix's length and both numbers. */
static bool is_range(const char *name, size_t *prefix, int *from, int *to) {
  const int64_t most = 999999;
  const char *dash = strrchr(name, '-');
  if (!dash || dash == name || !isdigit((unsigned char)dash[-1])) return false;
  const char *digits = dash;
  while (digits > name && isdigit((unsigned char)digits[-1])) digits--;
  *prefix = (size_t)(digits - name);
  int64_t first, last;
  if (dash - digits > 6 || !sl__scan_whole(digits, &first) ||
      !sl__parse_whole(dash + 1, 0, most, &last))
    return false;
  *from = (int)first;
  *to = (int)last;
  return true;
}

/* Does * in the pattern stand for some characters of the name, or none, and all else for itself?
 * Only the last * met is tried again, so the time is at most the product of both lengths. */
static bool fits(const char *pattern, const char *name) {
  const char *star = NULL, *again = NULL;
  while (*name) {
    if (*pattern == '*') {
      star = ++pattern;
      again = name;
    } else if (*pattern == *name) {
      pattern++, name++;
    } else if (star) {
      pattern = star;
      name = ++again;
    } else {
      return false;
    }
  }
  while (*pattern == '*') pattern++;
  return !*pattern;
}

/* Layers' names have no *. */
static bool is_member(const struct sl__layer *layer, const char *name) {
  if (strchr(name, '*')) return fits(name, layer->name);
  return layer->group && !strcmp(layer->group, name);
}

/* A layer by its name, or all layers of a group or a pattern. */
static enum sl_status take_members(const struct sl__layer_list *list, const struct sl_model *model,
                                   const char *name, bool *found) {
  enum sl_status status = SL_OK;
  int layer = find_layer(model, name);
  *found = layer >= 0;
  if (*found) return list->take(list->user, layer);
  for (int i = 0; i < model->count && status == SL_OK; i++)
    if (is_member(&model->layers[i], name)) {
      status = list->take(list->user, i);
      *found = true;
    }
  return status;
}

static enum sl_status take_range(const struct sl__layer_list *list, const struct sl_model *model,
                                 const char *text) {
  size_t prefix;
  int from, to;
  enum sl_status status = SL_OK;
  if (!is_range(text, &prefix, &from, &to)) return unknown(list, model, text);
  if (from > to)
    return sl__fail(SL_BAD_ARGUMENT, "%s: the range '%s' runs backwards; write %.*s%d-%d",
                    list->subject, text, (int)prefix, text, to, from);
  for (int n = from; n <= to && status == SL_OK; n++) {
    char name[128];
    snprintf(name, sizeof name, "%.*s%d", (int)(prefix < 96 ? prefix : 96), text, n);
    bool found;
    status = take_members(list, model, name, &found);
    if (!found) status = unknown(list, model, name);
  }
  return status;
}

/* A layer's name, a group's, a pattern, or a range of names. */
static enum sl_status take_name(const struct sl__layer_list *list, const struct sl_model *model,
                                const char *name) {
  bool found;
  enum sl_status status = take_members(list, model, name, &found);
  return found ? status : take_range(list, model, name);
}

enum sl_status sl__layer_list_walk(const struct sl__layer_list *list, const struct sl_model *model,
                                   char *names) {
  enum sl_status status = SL_OK;
  char *rest = names;
  for (char *name = strsep(&rest, ","); name && status == SL_OK; name = strsep(&rest, ",")) {
    name = sl__trim(name);
    status = *name ? take_name(list, model, name)
                   : sl__fail(SL_BAD_ARGUMENT, "%s: a layer's name is empty", list->subject);
  }
  return status;
}

/* The digits at a name's end: where they begin; its length where there are none, or too many. */
static size_t digits_of(const char *name) {
  size_t at = strlen(name), end = at;
  while (at && isdigit((unsigned char)name[at - 1])) at--;
  bool plain = end - at < 7 && (end - at < 2 || name[at] != '0');
  return at && plain ? at : end;
}

/* Does b's name go on where a's ends: lstm3 after lstm2? */
static bool follows(const char *a, const char *b) {
  size_t at = digits_of(a);
  int64_t of_a, of_b;
  return a[at] && digits_of(b) == at && b[at] && !strncmp(a, b, at) &&
         sl__scan_whole(a + at, &of_a) && sl__scan_whole(b + at, &of_b) && of_b == of_a + 1;
}

void sl__print_layers(FILE *out, const struct sl_model *model, int from, int to) {
  for (int i = from; i < to;) {
    int last = i;
    while (last + 1 < to && follows(model->layers[last].name, model->layers[last + 1].name)) last++;
    fprintf(out, "%s%s", i > from ? "," : "", model->layers[i].name);
    if (last > i)
      fprintf(out, "-%s", model->layers[last].name + digits_of(model->layers[last].name));
    i = last + 1;
  }
}
