#include "core/runtime/failure.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/runtime/context.h"
#include "core/runtime/cuda.h"
#include "core/base/error.h"

static struct {
  pthread_mutex_t mutex;
  enum sl_status status;
  char text[900];
} first = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A task's description for a message, without pointers into the task. */
struct subject {
  const char *operation; /* a codelet's name is constant */
  char layer[48];
  int buffers;
  struct {
    uint32_t rows;
    size_t row_bytes;
  } buffer[8];
};

enum { MOST_BUFFERS = sizeof((struct subject *)0)->buffer / sizeof *((struct subject *)0)->buffer };

/* The call of a captured graph that this thread runs, or NULL. */
static __thread const struct sl__running_call *running;

void sl__call_runs(const struct sl__running_call *call) { running = call; }

static void describe_call(const struct sl__running_call *call, struct subject *s) {
  *s = (struct subject){.operation = call->operation, .buffers = call->count};
  snprintf(s->layer, sizeof s->layer, "%s", call->layer);
  for (int i = 0; i < call->count && i < MOST_BUFFERS; i++) {
    s->buffer[i].rows = STARPU_VECTOR_GET_NX(call->buffers[i]);
    s->buffer[i].row_bytes = STARPU_VECTOR_GET_ELEMSIZE(call->buffers[i]);
  }
}

static void describe_task(const struct starpu_task *task, struct subject *s) {
  *s = (struct subject){.operation = task->cl ? task->cl->name : "a task",
                        .buffers = STARPU_TASK_GET_NBUFFERS(task)};
  snprintf(s->layer, sizeof s->layer, "%s", task->name ? task->name : "-");
  for (int i = 0; i < s->buffers && i < MOST_BUFFERS; i++) {
    starpu_data_handle_t handle = STARPU_TASK_GET_HANDLE(task, i);
    s->buffer[i].rows = starpu_vector_get_nx(handle);
    s->buffer[i].row_bytes = starpu_vector_get_elemsize(handle);
  }
}

/* " [64 x 3136 bytes, ...]": rows and bytes of each row of a task's buffers, as far as they fit. */
static size_t describe_buffers(const struct subject *s, char *text, size_t size) {
  size_t at = 0;
  for (int i = 0; i < s->buffers && i < MOST_BUFFERS && at + 48 < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s%u x %zu", i ? ", " : " [", s->buffer[i].rows,
                           s->buffer[i].row_bytes);
  if (at) at += (size_t)snprintf(text + at, size - at, " bytes]");
  return at;
}

/* See sl__failures_divert. */
static __thread struct {
  bool on;
  char text[sizeof first.text];
} diverted;

const char *sl__failures_divert(bool on) {
  diverted.on = on;
  if (on) *diverted.text = '\0';
  return *diverted.text ? diverted.text : NULL;
}

static void keep(enum sl_status status, const char *text) {
  if (diverted.on) {
    if (!*diverted.text) snprintf(diverted.text, sizeof diverted.text, "%s", text);
    return;
  }
  pthread_mutex_lock(&first.mutex);
  if (first.status == SL_OK) {
    first.status = status;
    snprintf(first.text, sizeof first.text, "%s", text);
  }
  pthread_mutex_unlock(&first.mutex);
}

void sl__task_failed(enum sl_status status, const char *format, ...) {
  char what[320], buffers[200] = "", text[sizeof first.text];
  struct sl__device device = {.name = "?"};
  struct subject subject = {.operation = "a task", .layer = "-"};
  const struct starpu_task *task = starpu_task_get_current();
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (running)
    describe_call(running, &subject);
  else if (task)
    describe_task(task, &subject);
  describe_buffers(&subject, buffers, sizeof buffers);
  if (starpu_worker_get_id() >= 0) sl__device_of_worker(starpu_worker_get_id(), &device);
  snprintf(text, sizeof text, "%s (layer %s) on %s: %s%s", subject.operation, subject.layer,
           device.name, what, buffers);
  keep(status, text);
}

void sl__data_failed(enum sl_status status, const char *text) { keep(status, text); }

enum sl_status sl__task_failure(void) {
  pthread_mutex_lock(&first.mutex);
  enum sl_status status = first.status;
  if (status != SL_OK) sl__fail(status, "%s", first.text);
  pthread_mutex_unlock(&first.mutex);
  return status;
}

/* ---- devices that work asynchronously ---- */

enum { IN_PROGRESS = SL__CUDA_PIPELINE };

/* Only its worker writes an entry; others read it at the program's end. */
static struct {
  struct subject task[IN_PROGRESS];
  unsigned count;
  bool many; /* the running task launches more than once */
  char device[32];
} launched[STARPU_NMAXWORKERS];

void sl__task_launched(void) {
  int worker = starpu_worker_get_id();
  const struct starpu_task *task = starpu_task_get_current();
  if (worker < 0 || !task || launched[worker].many) return;
  if (!*launched[worker].device) {
    struct sl__device device;
    sl__device_of_worker(worker, &device);
    snprintf(launched[worker].device, sizeof launched[worker].device, "%s", device.name);
  }
  describe_task(task, &launched[worker].task[launched[worker].count++ % IN_PROGRESS]);
}

void sl__task_launches(bool many) {
  int worker = starpu_worker_get_id();
  if (many) sl__task_launched();
  if (worker >= 0) launched[worker].many = many;
}

static bool is_same(const struct subject *a, const struct subject *b) {
  return a->operation == b->operation && !strcmp(a->layer, b->layer);
}

/* "cuda:0: WHY, in dense_forward (layer fc1) [...] or ...". Nothing here allocates or locks: a
 * handler of SIGABRT calls it. */
static void describe_device(int worker, const char *why, char *text, size_t size) {
  unsigned count = launched[worker].count, tasks = count < IN_PROGRESS ? count : IN_PROGRESS;
  int written = snprintf(text, size, "%s: %s", launched[worker].device, why);
  size_t at = written < 0 ? 0 : (size_t)written;
  for (unsigned i = count - tasks; i < count && at + 120 < size; i++) {
    const struct subject *s = &launched[worker].task[i % IN_PROGRESS];
    bool is_first = i + tasks == count;
    if (!is_first && is_same(s, &launched[worker].task[(i - 1) % IN_PROGRESS])) continue;
    at += (size_t)snprintf(text + at, size - at, "%s%s (layer %s)", is_first ? ", in " : " or ",
                           s->operation, s->layer);
    at += describe_buffers(s, text + at, size - at);
  }
}

void sl__device_failed(enum sl_status status, const char *why) {
  char text[sizeof first.text];
  int worker = starpu_worker_get_id();
  if (worker < 0 || !launched[worker].count) {
    sl__task_failed(status, "%s", why);
    return;
  }
  describe_device(worker, why, text, sizeof text);
  keep(status, text);
}

bool sl_last_words(char *text, size_t size) {
  int worker;
  const char *why = sl__cuda_error(&worker);
  if (!text || !why || !launched[worker].count) return false;
  describe_device(worker, why, text, size);
  return true;
}

void sl__task_failure_clear(void) {
  pthread_mutex_lock(&first.mutex);
  first.status = SL_OK;
  memset(launched, 0, sizeof launched);
  pthread_mutex_unlock(&first.mutex);
}
