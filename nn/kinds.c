/* All kinds of layers: the library's (kinds.def), and those that the program registered with the
 * context. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "nn/layer.h"

#define KIND_ADDRESS(name) &sl__##name##_kind,
#define SL__KIND KIND_ADDRESS
static const struct sl__layer_kind *const own[] = {
#include "nn/kinds.def"
};
#undef SL__KIND

enum { OWN = sizeof own / sizeof *own, MOST_FIELDS = 256 };

struct sl_kind sl_kind(int i) {
  if (i < 0 || i >= OWN) return (struct sl_kind){0};
  return (struct sl_kind){own[i]->name, own[i]->about, own[i]->keys};
}

/* A registered kind. Kinds are a list, not an array: layers hold their addresses. */
struct sl__kinds {
  struct sl__layer_kind kind;
  struct sl_layer_kind custom;
  char *name;
  struct sl_field *fields;
  struct sl__kinds *next;
};

const struct sl__layer_kind *sl__kind_find(const struct sl_context *context, const char *name) {
  for (int i = 0; i < OWN; i++)
    if (!strcmp(own[i]->name, name)) return own[i];
  for (const struct sl__kinds *k = context->kinds; k; k = k->next)
    if (!strcmp(k->name, name)) return &k->kind;
  return NULL;
}

/* The options that all kinds of layers share. */
static const char *const common_keys[] = {"name",      "kind",  "inputs", "init",
                                          "deviation", "group", "shares"};

bool sl__is_common_key(const char *key) {
  for (size_t i = 0; i < sizeof common_keys / sizeof *common_keys; i++)
    if (!strcmp(key, common_keys[i])) return true;
  return false;
}

/* ---- checks of a kind ---- */

static bool is_name(const char *name, const char *more) {
  if (!name || !*name || strlen(name) > 63) return false;
  for (const char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr(more, *c)) return false;
  return true;
}

/* Can a field of this type lie there? */
static bool is_place(const struct sl_layer_kind *kind, const struct sl_field *field) {
#define TYPE(t)                                                                                    \
  { sizeof(t), _Alignof(t) }
  static const struct {
    size_t size, alignment;
  } types[] = {[SL_FIELD_BOOL] = TYPE(bool),
               [SL_FIELD_INT] = TYPE(int),
               [SL_FIELD_INT64] = TYPE(int64_t),
               [SL_FIELD_FLOAT] = TYPE(float),
               [SL_FIELD_ACTIVATION] = TYPE(enum sl_activation),
               [SL_FIELD_SHAPE] = TYPE(struct sl_shape)};
#undef TYPE
  if ((size_t)field->type >= sizeof types / sizeof *types) return false;
  return field->offset >= sizeof(struct sl_layer_options) && field->offset <= kind->options_size &&
         types[field->type].size <= kind->options_size - field->offset &&
         field->offset % types[field->type].alignment == 0;
}

static enum sl_status check_field(const struct sl_layer_kind *kind, int i) {
  const struct sl_field *field = &kind->fields[i];
  if (!is_name(field->name, "_") || sl__is_common_key(field->name))
    return sl__fail(
        SL_BAD_ARGUMENT,
        "layer kind %s: '%s' cannot name an option: letters, digits and _, and not what "
        "every layer has (name, kind, inputs, init, deviation, group, shares)",
        kind->name, field->name);
  for (int k = 0; k < i; k++)
    if (!strcmp(field->name, kind->fields[k].name))
      return sl__fail(SL_BAD_ARGUMENT, "layer kind %s: option %s is there twice", kind->name,
                      field->name);
  if (is_place(kind, field)) return SL_OK;
  return sl__fail(
      SL_BAD_ARGUMENT,
      "layer kind %s: option %s (type %d, at byte %zu) cannot lie there in a struct of %zu "
      "bytes behind its struct sl_layer_options; is its row SL_FIELD(STRUCT, TYPE, %s)?",
      kind->name, field->name, (int)field->type, field->offset, kind->options_size, field->name);
}

static enum sl_status check_kind(const struct sl_context *context, const struct sl_layer_kind *kind,
                                 int *fields) {
  enum sl_status status = SL_OK;
  *fields = 0;
  if (kind->version != SL_LAYER_VERSION)
    return sl__fail(SL_UNSUPPORTED,
                    "a layer kind of version %d: this library takes %d; set version to "
                    "SL_LAYER_VERSION and build the program with this library's headers",
                    kind->version, SL_LAYER_VERSION);
  if (!is_name(kind->name, "_.-"))
    return sl__fail(SL_BAD_ARGUMENT,
                    "'%.70s' cannot name a kind of layer: 1 to 63 letters, digits, _ . -",
                    kind->name ? kind->name : "");
  if (sl__kind_find(context, kind->name))
    return sl__fail(SL_BAD_ARGUMENT, "there is a layer kind '%s' already; take another name",
                    kind->name);
  if (!kind->infer || !kind->forward)
    return sl__fail(SL_BAD_ARGUMENT, "layer kind %s: infer and forward must be there", kind->name);
  if (kind->options_size < sizeof(struct sl_layer_options))
    return sl__fail(SL_BAD_ARGUMENT,
                    "layer kind %s: its options are a struct that begins with struct "
                    "sl_layer_options, of at least %zu bytes, not %zu",
                    kind->name, sizeof(struct sl_layer_options), kind->options_size);
  for (int i = 0; kind->fields && kind->fields[i].name; i++) {
    if (i == MOST_FIELDS)
      return sl__fail(SL_BAD_ARGUMENT, "layer kind %s: more than %d options; do they end with {0}?",
                      kind->name, MOST_FIELDS);
    SL__TRY(check_field(kind, i));
    *fields = i + 1;
  }
out:
  return status;
}

/* ---- registration ---- */

static void free_kind(struct sl__kinds *k) {
  for (struct sl_field *field = k->fields; field && field->name; field++) free((char *)field->name);
  free(k->fields);
  free(k->name);
  free(k);
}

void sl__kinds_close(struct sl_context *context) {
  struct sl__kinds *k = context->kinds;
  while (k) {
    struct sl__kinds *next = k->next;
    free_kind(k);
    k = next;
  }
  context->kinds = NULL;
}

static bool copy_fields(struct sl__kinds *k, const struct sl_field *fields, int count) {
  k->fields = sl__alloc((size_t)count + 1, sizeof *k->fields, "a layer kind's options");
  if (!k->fields) return false;
  for (int i = 0; i < count; i++) {
    char *name = sl__strdup(fields[i].name);
    if (!name) return false;
    k->fields[i] = fields[i];
    k->fields[i].name = name;
  }
  return true;
}

enum sl_status sl_layer_register(struct sl_context *context, const struct sl_layer_kind *kind) {
  SL__NEEDS(context, kind);
  int fields;
  enum sl_status status = check_kind(context, kind, &fields);
  if (status != SL_OK) return status;
  struct sl__kinds *k = sl__alloc(1, sizeof *k, "a layer kind");
  if (!k) return SL_NO_MEMORY;
  k->name = sl__strdup(kind->name);
  if (!k->name || !copy_fields(k, kind->fields, fields)) {
    free_kind(k);
    return SL_NO_MEMORY;
  }
  k->custom = *kind;
  k->custom.name = k->name;
  k->custom.fields = k->fields;
  k->kind = sl__custom_kind(&k->custom);
  k->next = context->kinds;
  context->kinds = k;
  return SL_OK;
}

enum sl_status sl_layer(struct sl_model *model, const char *name, const char *kind,
                        const void *options) {
  SL__NEEDS(model, name, kind, options);
  const struct sl__layer_kind *found = sl__kind_find(model->context, kind);
  if (found) return sl__layer_append(model, name, found, options);
  return sl__fail(SL_UNSUPPORTED,
                  "layer %s: there is no kind of layer '%s'; register it first (sl_layer_register)",
                  name, kind);
}
