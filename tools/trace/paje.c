/* Reads the parts of StarPU's paje.trace that starling-trace needs: containers (memory nodes,
 * workers), workers' states, transfers between memory nodes, begin and end of recording. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace.h"

/* Paje's events, by their numbers in StarPU's header. */
enum { CREATE = 7, EVENT = 9, STATE = 10, LINK_BEGIN = 18, LINK_END = 19, LINK_HANDLE = 24 };
enum { MOST_FIELDS = 8 };

struct container {
  char alias[40], parent[40];
  int worker; /* index; -1: a memory node or a thread */
};

struct reader {
  const char *path;
  struct trace *trace;
  struct container *containers;
  size_t container_count, container_room;
  struct trace_transfer *open; /* begun but not ended; from: the link's number */
  long *open_key;
  size_t open_count, open_room, key_room;
  double last; /* the latest time in the file up to here */
  bool recording;
};

/* ---- lines ---- */

/* Splits a line, in place, into fields. Blanks separate fields; a quoted field may contain blanks.
 */
static int split(char *line, char **field) {
  int count = 0;
  while (count < MOST_FIELDS) {
    line += strspn(line, " \t\r\n");
    if (!*line) break;
    bool quoted = *line == '"';
    field[count++] = line += quoted;
    line += strcspn(line, quoted ? "\"\n" : " \t\n");
    if (!*line) break;
    *line++ = '\0';
  }
  return count;
}

static bool number(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && !*end && isfinite(*value);
}

/* Reads "3_w1" as number 1 of rank 3. `letters` names the kind of container, here "w". */
static bool parse_alias(const char *alias, const char *letters, int *rank, int *own) {
  char *end;
  *rank = -1;
  if (isdigit((unsigned char)*alias)) {
    *rank = trace_number(alias, &end);
    if (*rank < 0 || *end != '_') return false;
    alias = end + 1;
  }
  size_t length = strlen(letters);
  if (strncmp(alias, letters, length) != 0 || !isdigit((unsigned char)alias[length])) return false;
  *own = trace_number(alias + length, &end);
  return !*end && *own >= 0 && *own < 4096;
}

/* ---- containers ---- */

static struct container *find(struct reader *r, const char *alias) {
  for (size_t i = 0; i < r->container_count; i++)
    if (!strcmp(r->containers[i].alias, alias)) return &r->containers[i];
  return NULL;
}

/* The memory node of a worker: the parent of the thread on which it runs. */
static int node_of(struct reader *r, const char *thread) {
  int rank, node;
  const struct container *c = find(r, thread);
  return c && parse_alias(c->parent, "mn", &rank, &node) ? node : 0;
}

/* "CPU 0" for "CPU0" and "CUDA 1" for "CUDA1_0", a device's stream. */
static void name_worker(struct trace_worker *w, const char *text) {
  if (w->rank >= 0 && isdigit((unsigned char)*text) && strchr(text, '_'))
    text = strchr(text, '_') + 1;
  size_t letters = strcspn(text, "0123456789");
  int device = trace_number(text + letters, NULL);
  const char *stream = strchr(text + letters, '_');
  w->is_cpu = !strncmp(text, "CPU", 3);
  snprintf(w->name, sizeof w->name, "%.*s %d", (int)(letters > 16 ? 16 : letters), text,
           device < 0 ? 0 : device);
  if (stream && trace_number(stream + 1, NULL) > 0) {
    size_t used = strlen(w->name);
    snprintf(w->name + used, sizeof w->name - used, " stream %d", trace_number(stream + 1, NULL));
  }
}

/* Fields: TIME ALIAS TYPE PARENT NAME */
static bool create(struct reader *r, char **field, int count) {
  int rank, own;
  if (count < 6) return true;
  struct container *c =
      trace_grow(r->containers, r->container_count, &r->container_room, sizeof *c);
  if (!c) return false;
  r->containers = c;
  c += r->container_count++;
  snprintf(c->alias, sizeof c->alias, "%s", field[2]);
  snprintf(c->parent, sizeof c->parent, "%s", field[4]);
  c->worker = -1;
  if (strcmp(field[3], "W") != 0 || !parse_alias(field[2], "w", &rank, &own)) return true;
  c->worker = trace_worker(r->trace, rank, own);
  if (c->worker < 0) return false;
  struct trace_worker *w = &r->trace->workers[c->worker];
  w->node = node_of(r, c->parent);
  name_worker(w, field[5]);
  return true;
}

/* ---- states ---- */

/* The state for a name: StarPU's states have short names, any other name is a task's. Asleep, or
 * looking for work in vain, is idle. Fetching or releasing a task's data is transfer; so is
 * Starling's task in which a worker without work waits for other ranks. */
static enum trace_state state_of(const char *name) {
  static const char *const overheads[] = {"In", "D", "C",  "B",  "Ps", "Sc", "P",
                                          "U",  "H", "Bu", "Su", "Th", "MD", NULL};
  if (!strcmp(name, "I") || !strcmp(name, "Sl")) return STATE_IDLE;
  if (!strcmp(name, "Fi") || !strcmp(name, "Po") || !strcmp(name, "wait for messages"))
    return STATE_TRANSFER;
  for (int i = 0; overheads[i]; i++)
    if (!strcmp(name, overheads[i])) return STATE_OVERHEAD;
  return STATE_BUSY;
}

/* Fields: TIME CONTAINER TYPE VALUE. The state lasts until the worker's next one. */
static bool set_state(struct reader *r, double time, char **field, int count) {
  if (count < 5 || strcmp(field[3], "WS") != 0) return true;
  const struct container *c = find(r, field[2]);
  if (!c || c->worker < 0) return true;
  struct trace_worker *w = &r->trace->workers[c->worker];
  struct trace_interval *states =
      trace_grow(w->states, w->state_count, &w->state_room, sizeof *states);
  if (!states) return false;
  w->states = states;
  if (w->state_count) states[w->state_count - 1].end = time;
  states[w->state_count++] = (struct trace_interval){time, time, state_of(field[4])};
  r->trace->has_states = true;
  return true;
}

/* ---- transfers ---- */

static long link_number(const char *key) {
  const char *digits = strstr(key, "com_");
  return digits ? strtol(digits + 4, NULL, 10) : -1;
}

/* Fields: TIME TYPE CONTAINER SIZE SOURCE com_NUMBER */
static bool begin_link(struct reader *r, double time, char **field, int count) {
  int rank, node;
  double bytes;
  long key = count >= 7 ? link_number(field[6]) : -1;
  if (key < 0 || !number(field[4], &bytes) || !parse_alias(field[5], "mm", &rank, &node))
    return true;
  struct trace_transfer *open = trace_grow(r->open, r->open_count, &r->open_room, sizeof *open);
  if (!open) return false;
  r->open = open;
  long *keys = trace_grow(r->open_key, r->open_count, &r->key_room, sizeof *keys);
  if (!keys) return false;
  r->open_key = keys;
  keys[r->open_count] = key;
  open[r->open_count++] = (struct trace_transfer){
      .rank = rank, .from = node, .peer = -1, .start = time, .bytes = bytes};
  return true;
}

static bool end_link(struct reader *r, double time, char **field, int count) {
  int rank, node;
  long key = count >= 7 ? link_number(field[6]) : -1;
  if (key < 0 || !parse_alias(field[5], "mm", &rank, &node)) return true;
  for (size_t i = 0; i < r->open_count; i++) {
    if (r->open_key[i] != key || r->open[i].rank != rank) continue;
    struct trace *t = r->trace;
    struct trace_transfer *transfers =
        trace_grow(t->transfers, t->transfer_count, &t->transfer_room, sizeof *transfers);
    if (!transfers) return false;
    t->transfers = transfers;
    transfers[t->transfer_count] = r->open[i];
    transfers[t->transfer_count].to = node;
    transfers[t->transfer_count++].end = time;
    r->open[i] = r->open[--r->open_count];
    r->open_key[i] = r->open_key[r->open_count];
    return true;
  }
  return true;
}

/* Starling's own event at a message's end: "message to 2 1234 us conv1". */
static bool note_message(struct reader *r, double time, const char *container, const char *text) {
  struct trace *t = r->trace;
  int rank = isdigit((unsigned char)*container) ? trace_number(container, NULL) : -1;
  double microseconds;
  char *end;
  text += strlen("message ");
  text += strcspn(text, " "); /* "to" or "from" */
  int peer = trace_number(text, &end);
  if (peer < 0 || sscanf(end, "%lf us", &microseconds) != 1 || !isfinite(microseconds)) return true;
  struct trace_transfer *transfers =
      trace_grow(t->transfers, t->transfer_count, &t->transfer_room, sizeof *transfers);
  if (!transfers) return false;
  t->transfers = transfers;
  transfers[t->transfer_count++] = (struct trace_transfer){
      .rank = rank, .peer = peer, .start = time - microseconds / 1e3, .end = time};
  return true;
}

/* ---- recording ---- */

/* Fields: TIME prog_event CONTAINER TEXT */
static bool note_event(struct reader *r, double time, char **field, int count) {
  struct trace *t = r->trace;
  if (count < 5) return true;
  if (!strncmp(field[4], "message ", 8)) return note_message(r, time, field[2], field[4]);
  t->flushed |= !strcmp(field[4], "fxt flush");
  if (!strcmp(field[4], "stop_profiling") && r->recording) {
    t->spans[t->span_count - 1].end = time;
    r->recording = false;
  }
  if (strcmp(field[4], "start_profiling") != 0 || r->recording) return true;
  struct trace_span *spans = trace_grow(t->spans, t->span_count, &t->span_room, sizeof *spans);
  if (!spans) return false;
  t->spans = spans;
  spans[t->span_count++] = (struct trace_span){time, time};
  r->recording = true;
  return true;
}

/* Returns false without memory. Skips lines that hold no event of interest. */
static bool take(struct reader *r, char *line) {
  char *field[MOST_FIELDS];
  double time;
  if (!isdigit((unsigned char)*line)) return true;
  int count = split(line, field), event = count ? trace_number(field[0], NULL) : 0;
  if (event < CREATE || count < 2 || !number(field[1], &time)) return true;
  if (time > r->last) r->last = time;
  switch (event) {
    case CREATE: return create(r, field, count);
    case EVENT: return note_event(r, time, field, count);
    case STATE:
    case 20: /* 20, 21, 26: a state with further fields about the task */
    case 21:
    case 26: return set_state(r, time, field, count);
    case LINK_BEGIN:
    case LINK_HANDLE: return begin_link(r, time, field, count);
    case LINK_END: return end_link(r, time, field, count);
    default: return true;
  }
}

static bool read_lines(FILE *f, struct reader *r, char *message, size_t size) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  bool fine = true, whole = true, paje = false;
  while (fine && (length = getline(&line, &capacity, f)) > 0) {
    paje |= strstr(line, "%EventDef") != NULL;
    whole = line[length - 1] == '\n';
    fine = take(r, line);
  }
  int error = fine && !feof(f) ? errno : 0; /* getline without memory leaves no ferror */
  free(line);
  if (error) {
    snprintf(message, size, "%s: cannot be read: %s", r->path, strerror(error));
    return false;
  }
  if (!fine) snprintf(message, size, "%s: no memory", r->path);
  if (fine && !paje) snprintf(message, size, "%s: is no trace in Paje's format", r->path);
  if (fine && paje && (!whole || r->recording))
    snprintf(message, size,
             "%s: cut short: recording begins but does not end there; did the program crash, or is "
             "the disk full? Record it again",
             r->path);
  return fine && paje && whole && !r->recording;
}

bool trace_read_paje(const char *path, struct trace *trace, char *message, size_t size) {
  struct reader r = {.path = path, .trace = trace};
  FILE *f = fopen(path, "r");
  if (!f) {
    snprintf(message, size, "%s: cannot be opened: %s", path, strerror(errno));
    return false;
  }
  bool fine = read_lines(f, &r, message, size);
  fclose(f);
  for (int i = 0; i < trace->worker_count; i++) {
    struct trace_worker *w = &trace->workers[i];
    if (w->state_count) w->states[w->state_count - 1].end = r.last;
  }
  free(r.containers);
  free(r.open);
  free(r.open_key);
  return fine;
}
