/* The remembered choices: one JSON object, {"machine": ..., "choices": {key: implementation}}, in
 * StarPU's folder of performance models: like these, it is valid for one machine. */
#include "codelets/kernels/tuning.h"

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codelets/kernels/gemm.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/machine.h"

struct sl__tuning {
  char path[PATH_MAX];
  char machine[512];
  json_t *choices;
  bool changed;
  pthread_mutex_t mutex;
};

/* The processor's name, the libraries' versions and this library's build: choices made with others
 * are invalid. */
static void name_machine(char *machine, size_t size) {
  char processor[256], build[64];
  snprintf(machine, size, "%s; %s; %s; %s", sl__machine_processor(processor, sizeof processor),
           sl__gemm_text(SL__GEMM_OPENBLAS), sl__gemm_text(SL__GEMM_ONEDNN),
           sl__machine_build(build, sizeof build));
}

struct sl__tuning *sl__tuning_parse(const char *machine, const uint8_t *bytes, size_t size,
                                    bool *whole) {
  struct sl__tuning *t = sl__alloc(1, sizeof *t, "tuning");
  if (!t) return NULL;
  json_t *root = sl__json_load(bytes, size, 0, NULL);
  const char *theirs = json_string_value(json_object_get(root, "machine"));
  json_t *choices = json_object_get(root, "choices");
  snprintf(t->machine, sizeof t->machine, "%s", machine);
  pthread_mutex_init(&t->mutex, NULL);
  *whole = root != NULL;
  t->choices = theirs && !strcmp(theirs, t->machine) && json_is_object(choices)
                   ? json_incref(choices)
                   : json_object();
  json_decref(root);
  if (t->choices) return t;
  sl__fail(SL_NO_MEMORY, "no memory for the remembered implementations");
  sl__tuning_close(t);
  return NULL;
}

enum sl_status sl__tuning_open(bool tune, const char *folder, struct sl__tuning **tuning) {
  char host[64] = "", path[PATH_MAX], machine[sizeof(*tuning)->machine];
  uint8_t *bytes = NULL;
  size_t size = 0;
  bool whole;
  *tuning = NULL;
  if (!tune) return SL_OK;
  gethostname(host, sizeof host - 1);
  int length = snprintf(path, sizeof path, "%s/starling-tuning.%s.json", folder, host);
  if (length >= (int)sizeof path) path[0] = '\0'; /* neither read nor written */
  name_machine(machine, sizeof machine);
  bool there = sl__file_read_own(path, 16 << 20, &bytes, &size) == SL_OK;
  struct sl__tuning *t = sl__tuning_parse(machine, bytes, size, &whole);
  free(bytes);
  if (!t) return SL_NO_MEMORY;
  if (there && !whole)
    fprintf(stderr, "starling: warning: %s is damaged; it is measured and written anew\n", path);
  memcpy(t->path, path, sizeof path);
  *tuning = t;
  return SL_OK;
}

static enum sl_status write_choices(struct sl__tuning *t) {
  struct sl__file *file;
  json_t *root = json_pack("{s:s, s:O}", "machine", t->machine, "choices", t->choices);
  char *text = sl__json_text(root, JSON_INDENT(1) | JSON_SORT_KEYS);
  json_decref(root);
  if (!text) return sl__fail(SL_NO_MEMORY, "no memory to write %s", t->path);
  enum sl_status status = sl__file_create(t->path, &file);
  if (status == SL_OK) {
    sl__file_write(file, text, strlen(text));
    status = sl__file_commit(file, NULL);
  }
  free(text);
  return status;
}

void sl__tuning_close(struct sl__tuning *t) {
  if (!t) return;
  if (t->changed && write_choices(t) != SL_OK)
    fprintf(stderr, "starling: warning: the measured choices are not saved: %s\n", sl_error());
  json_decref(t->choices);
  pthread_mutex_destroy(&t->mutex);
  free(t);
}

int sl__tuning_find(struct sl__tuning *t, const char *key) {
  pthread_mutex_lock(&t->mutex);
  json_t *choice = json_object_get(t->choices, key);
  json_int_t value = json_is_integer(choice) ? json_integer_value(choice) : -1;
  int implementation = value >= 0 && value <= INT_MAX ? (int)value : -1;
  pthread_mutex_unlock(&t->mutex);
  return implementation;
}

void sl__tuning_set(struct sl__tuning *t, const char *key, int implementation) {
  pthread_mutex_lock(&t->mutex);
  json_object_set_new(t->choices, key, json_integer(implementation));
  t->changed = true;
  pthread_mutex_unlock(&t->mutex);
}
