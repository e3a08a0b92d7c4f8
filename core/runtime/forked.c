#include "core/runtime/forked.h"

#include "core/base/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_context *watched; /* a list */

/* No other thread changes the list while the process is copied. */
static void before_fork(void) { pthread_mutex_lock(&lock); }

static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
  for (struct sl_context *c = watched; c; c = c->next_watched) c->forked = c->abandoned = true;
  pthread_mutex_unlock(&lock);
}

static void register_handlers(void) { pthread_atfork(before_fork, in_parent, in_child); }

void sl__fork_watch(struct sl_context *context) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_handlers);
  pthread_mutex_lock(&lock);
  context->next_watched = watched;
  watched = context;
  pthread_mutex_unlock(&lock);
}

void sl__fork_unwatch(struct sl_context *context) {
  pthread_mutex_lock(&lock);
  struct sl_context **at = &watched;
  while (*at && *at != context) at = &(*at)->next_watched;
  if (*at) *at = context->next_watched;
  pthread_mutex_unlock(&lock);
}

static bool any_is_forked(void) {
  pthread_mutex_lock(&lock);
  bool any = watched && watched->forked;
  pthread_mutex_unlock(&lock);
  return any;
}

enum sl_status sl__fork_check(const struct sl_context *context) {
  if (!(context ? context->forked : any_is_forked())) return SL_OK;
  return sl__fail(SL_UNSUPPORTED,
                  "this process was forked after sl_open; fork before it, or call exec");
}
