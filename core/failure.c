#include "core/failure.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/context.h"
#include "core/error.h"

static struct {
  pthread_mutex_t mutex;
  enum sl_status status;
  char text[512];
} first = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* " [64 x 3136 bytes, ...]": rows and bytes of each row of a task's buffers, as far as they fit. */
static void describe_buffers(const struct starpu_task *task, char *text, size_t size) {
  size_t at = 0;
  int count = STARPU_TASK_GET_NBUFFERS(task);
  for (int i = 0; i < count && at + 48 < size; i++) {
    starpu_data_handle_t handle = STARPU_TASK_GET_HANDLE(task, i);
    at += (size_t)snprintf(text + at, size - at, "%s%u x %zu", i ? ", " : " [",
                           starpu_vector_get_nx(handle), starpu_vector_get_elemsize(handle));
  }
  if (at) snprintf(text + at, size - at, " bytes]");
}

void sl__task_failed(enum sl_status status, const char *format, ...) {
  char what[256], buffers[160] = "";
  struct sl__device device = {.name = "?"};
  const struct starpu_task *task = starpu_task_get_current();
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (task) describe_buffers(task, buffers, sizeof buffers);
  if (starpu_worker_get_id() >= 0) sl__device_of_worker(starpu_worker_get_id(), &device);
  pthread_mutex_lock(&first.mutex);
  if (first.status == SL_OK) {
    first.status = status;
    snprintf(first.text, sizeof first.text, "%s (layer %s) on %s: %s%s",
             task && task->cl ? task->cl->name : "a task", task && task->name ? task->name : "-",
             device.name, what, buffers);
  }
  pthread_mutex_unlock(&first.mutex);
}

enum sl_status sl__task_failure(void) {
  pthread_mutex_lock(&first.mutex);
  enum sl_status status = first.status;
  if (status != SL_OK) sl_fail(status, "%s", first.text);
  pthread_mutex_unlock(&first.mutex);
  return status;
}

void sl__task_failure_clear(void) {
  pthread_mutex_lock(&first.mutex);
  first.status = SL_OK;
  pthread_mutex_unlock(&first.mutex);
}
