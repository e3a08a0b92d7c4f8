#include "core/memory/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/admission.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/float_mode.h"
#include "core/runtime/log.h"
#include "core/runtime/wait.h"
#include "core/memory/swap.h"

enum { MOST_REPORTED = 8 }; /* tasks */

struct sl__watchdog {
  struct sl_context *context;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  double timeout, step; /* seconds; step: between two checks */
  bool closing, stalled;
  uint64_t ends;   /* number of ended tasks at the last check */
  double moved;    /* time of the last progress, seconds */
  double checked;  /* time of the last check */
  int64_t swapped; /* sl__swap_moved at the last check */
  char why[700];
};

static enum sl_status check(void *watchdog) {
  struct sl__watchdog *s = watchdog;
  pthread_mutex_lock(&s->mutex);
  enum sl_status status = s->stalled ? sl__fail(SL_STALLED, "%s", s->why) : SL_OK;
  pthread_mutex_unlock(&s->mutex);
  return status;
}

/* ---- the reason of a stall; the mutex of the admission is held ---- */

static bool writes(const struct starpu_task *task, starpu_data_handle_t handle) {
  for (unsigned i = 0; i < STARPU_TASK_GET_NBUFFERS(task); i++)
    if (STARPU_TASK_GET_HANDLE(task, i) == handle && STARPU_TASK_GET_MODE(task, i) & STARPU_W)
      return true;
  return false;
}

/* The last task before it that cannot run at the same time, since one of the two writes a tensor
 * of the other; NULL: none. */
static const struct sl__admitted_task *awaited(const struct sl__admitted_task *t) {
  for (const struct sl__admitted_task *p = t->previous; p; p = p->previous) {
    for (unsigned i = 0; i < STARPU_TASK_GET_NBUFFERS(t->task); i++)
      if (writes(p->task, STARPU_TASK_GET_HANDLE(t->task, i))) return p;
    for (unsigned i = 0; i < STARPU_TASK_GET_NBUFFERS(p->task); i++)
      if (writes(t->task, STARPU_TASK_GET_HANDLE(p->task, i))) return p;
  }
  return NULL;
}

/* "conv2d_forward (layer conv1) waits for ..." */
static const char *describe_task(const struct sl__admitted_task *t, char *text, size_t size) {
  const struct sl__admitted_task *before = awaited(t);
  int used = snprintf(text, size, "%s (layer %s) ", t->operation, t->layer);
  size_t at = used < 0 ? 0 : (size_t)used < size ? (size_t)used : size - 1;
  if (sl__admitted_task_is_running(t))
    snprintf(text + at, size - at, "runs");
  else if (before)
    snprintf(text + at, size - at, "waits for %s (layer %s)", before->operation, before->layer);
  else if (__atomic_load_n(&t->task->status, __ATOMIC_RELAXED) != STARPU_TASK_READY)
    snprintf(text + at, size - at, "waits for something that is no task of the library");
  else
    snprintf(text + at, size - at, "could run: its worker waits for memory, or executes nothing");
  return text;
}

static void log_memory(struct sl_context *c) {
  for (unsigned node = 0; node < starpu_memory_nodes_get_count(); node++) {
    char name[32];
    starpu_ssize_t total = starpu_memory_get_total(node);
    starpu_memory_node_get_name(node, name, sizeof name);
    if (total > 0)
      sl__log(c, SL_LOG_WARNING, "  memory of %s: %.1f of %.1f MB in use", name,
              (double)starpu_memory_get_used(node) / 1e6, (double)total / 1e6);
  }
}

static void log_stall(struct sl__watchdog *s, const struct sl__admission *a) {
  char text[300];
  int logged = 0;
  sl__log(s->context, SL_LOG_WARNING,
          "no task has ended for %.0f s, and none runs: %d tasks are submitted, %d of them ready; "
          "the oldest ones:",
          sl__seconds() - s->moved, a->count, starpu_task_nready());
  for (const struct sl__admitted_task *t = a->first; t && logged < MOST_REPORTED;
       t = t->next, logged++)
    sl__log(s->context, SL_LOG_WARNING, "  %s", describe_task(t, text, sizeof text));
  if (a->fetching_since > 0)
    sl__log(s->context, SL_LOG_WARNING, "  the main thread waits for a tensor for %.0f s",
            sl__seconds() - a->fetching_since);
  log_memory(s->context);
}

void sl__watchdog_report(struct sl_context *c, FILE *out) {
  struct sl__admission *a = c->admission;
  char text[300];
  int printed = 0;
  if (!a) return;
  pthread_mutex_lock(&a->mutex);
  fprintf(out, "tasks: %d submitted and not ended%s\n", a->count, a->count ? "; the oldest:" : "");
  for (const struct sl__admitted_task *t = a->first; t && printed < MOST_REPORTED;
       t = t->next, printed++)
    fprintf(out, "  %s\n", describe_task(t, text, sizeof text));
  pthread_mutex_unlock(&a->mutex);
}

/* ---- checking ---- */

static void warn_of_long_ones(struct sl__watchdog *s, struct sl__admission *a, double now) {
  for (struct sl__admitted_task *t = a->first; t; t = t->next) {
    if (t->is_reported || !sl__admitted_task_is_running(t)) continue;
    t->is_reported = true;
    sl__log(s->context, SL_LOG_WARNING,
            "%s (layer %s) runs, but no task has ended for %.0f s; waiting on", t->operation,
            t->layer, now - s->moved);
  }
}

static bool has_one(const struct sl__admission *a, bool (*is)(const struct sl__admitted_task *)) {
  for (const struct sl__admitted_task *t = a->first; t; t = t->next)
    if (is(t)) return true;
  return false;
}

static bool is_message(const struct sl__admitted_task *t) { return t->is_message; }

/* The list's mutex is held. */
static bool is_stalled(struct sl__watchdog *s, struct sl__admission *a, double now) {
  bool idle = !a->count && !(a->fetching_since > 0);
  /* this thread itself did not run: the process was stopped, or the machine paused */
  bool paused = now - s->checked > 3 * s->step + 1;
  int64_t swapped = sl__swap_moved();
  s->checked = now;
  if (a->ends != s->ends || idle || paused || swapped != s->swapped) {
    s->swapped = swapped;
    s->ends = a->ends;
    s->moved = now;
  }
  /* a wait has begun just now: the time before it is no stall */
  if (!a->count && a->fetching_since > s->moved) s->moved = a->fetching_since;
  if (now - s->moved < s->timeout || s->context->abandoned) return false;
  if (has_one(a, is_message) || sl__wait_messages(s->context) > 0) return false;
  if (!has_one(a, sl__admitted_task_is_running)) return true;
  warn_of_long_ones(s, a, now);
  return false;
}

static void check_progress(struct sl__watchdog *s) {
  struct sl__admission *a = s->context->admission;
  pthread_mutex_lock(&a->mutex);
  bool stalled = is_stalled(s, a, sl__seconds());
  if (stalled) log_stall(s, a);
  const char *limit = sl__admission_is_tight(a)
                          ? "raise the memory limit, or take a smaller batch or more "
                            "microbatches, or fewer workers (STARPU_NCPU)"
                          : "is a memory full? the log says more";
  pthread_mutex_lock(&s->mutex);
  if (stalled)
    snprintf(s->why, sizeof s->why,
             "stalled: no task has ended for %.0f s and none runs, %d are submitted; %s",
             sl__seconds() - s->moved, a->count, limit);
  s->stalled = stalled;
  pthread_mutex_unlock(&s->mutex);
  pthread_cond_broadcast(&a->ended);
  pthread_mutex_unlock(&a->mutex);
}

static void *watch(void *argument) {
  struct sl__watchdog *s = argument;
  sl__float_mode_begin();
  pthread_mutex_lock(&s->mutex);
  while (!s->closing && !s->stalled) {
    sl__condition_wait(&s->wake, &s->mutex, sl__seconds() + s->step);
    if (s->closing) break;
    pthread_mutex_unlock(&s->mutex);
    check_progress(s);
    pthread_mutex_lock(&s->mutex);
  }
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}

enum sl_status sl__watchdog_open(struct sl_context *context, double timeout) {
  struct sl__watchdog *s = sl__alloc(1, sizeof *s, "the watchdog");
  if (!s) return SL_NO_MEMORY;
  s->context = context;
  s->timeout = timeout;
  s->step = timeout / 8 < 1 ? timeout / 8 : 1;
  s->moved = s->checked = sl__seconds();
  pthread_mutex_init(&s->mutex, NULL);
  sl__condition_init(&s->wake);
  if (pthread_create(&s->thread, NULL, watch, s)) {
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    free(s);
    return sl__fail(SL_NO_MEMORY, "the watchdog: no thread can be started");
  }
  context->watchdog = s;
  return sl__health_check_add(context, &(struct sl__health_check){.check = check, .data = s});
}

void sl__watchdog_close(struct sl__watchdog *s) {
  if (!s) return;
  pthread_mutex_lock(&s->mutex);
  s->closing = true;
  pthread_cond_signal(&s->wake);
  pthread_mutex_unlock(&s->mutex);
  pthread_join(s->thread, NULL);
  pthread_cond_destroy(&s->wake);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}
