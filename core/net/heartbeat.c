/* Keeps the watch of a distributed run; core/net/heartbeat.h says what that is. */
#include "core/net/heartbeat_state.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"

/* ---- the thread ---- */

static void note_own_activity(struct sl__heartbeat *watch) {
  struct sl__peer *self = &watch->peers[watch->rank];
  uint64_t activity = atomic_load(&watch->activity);
  if (activity != self->activity) self->active = sl__heartbeat_now();
  self->activity = activity;
}

/* As of the last time that we read all there was: what came since must not be held against
 * anyone, should we be stopped just here. */
static void check_silence(struct sl__heartbeat *watch) {
  for (int i = 0; i < watch->num_links && watch->lost_rank < 0; i++) {
    const struct sl__link *link = &watch->links[i];
    if (!link->ready || watch->peers[link->rank].left) continue;
    if (watch->woken - fmax(watch->peers[link->rank].heard, watch->fresh) > watch->timeout)
      sl__heartbeat_lose_silent(watch, link->rank);
  }
}

static void *run(void *pointer) {
  struct sl__heartbeat *watch = pointer;
  pthread_mutex_lock(&watch->lock);
  while (!watch->stop) {
    if (sl__heartbeat_now() >= watch->next_beat) {
      note_own_activity(watch);
      check_silence(watch);
      sl__heartbeat_post_beat(watch);
      watch->next_beat = sl__heartbeat_now() + watch->interval;
    }
    sl__heartbeat_serve(watch, watch->next_beat - sl__heartbeat_now());
  }
  pthread_mutex_unlock(&watch->lock);
  return NULL;
}

/* Signals are the program's: the thread takes none. */
static enum sl_status start_thread(struct sl__heartbeat *watch) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&watch->thread, NULL, run, watch);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error) return sl__fail(SL_NO_MEMORY, "the watch's thread cannot start: %s", strerror(error));
  watch->thread_runs = true;
  return SL_OK;
}

/* ---- making ---- */

static void name_self(struct sl__identity *self) {
  char name[256] = "";
  self->process = (uint32_t)getpid();
  gethostname(name, sizeof name - 1);
  sl__heartbeat_copy_text(self->host, HOST, *name ? name : "?", *name ? strlen(name) : 1);
  for (char *c = self->host; *c; c++)
    if (*c == ' ') *c = '?'; /* it is one word of the address */
}

/* Everything that is ever needed: the thread asks for no memory. */
static enum sl_status alloc_all(struct sl__heartbeat *watch) {
  size_t size = (size_t)watch->size;
  bool centre = watch->rank == 0;
  watch->num_links = centre ? watch->size - 1 + STRANGERS : 1;
  watch->in_size = HEADER + 4 + TEXT + (centre ? 0 : 4 * size);
  watch->out_size = HELLO_BYTES + WELCOME_BYTES + 2 * TEXT + 16 * HEADER + (centre ? 4 * size : 8);
  size_t links = (size_t)watch->num_links, each = watch->in_size + watch->out_size;
  watch->peers = sl__alloc(size, sizeof *watch->peers, "the watch's ranks");
  if (!watch->peers) return SL_NO_MEMORY;
  watch->links = sl__alloc(links, sizeof *watch->links, "the watch's connections");
  if (!watch->links) return SL_NO_MEMORY;
  for (int i = 0; i < watch->num_links; i++) watch->links[i].fd = watch->links[i].rank = -1;
  watch->polls = sl__alloc(links + 2, sizeof *watch->polls, "the watch's connections");
  if (!watch->polls) return SL_NO_MEMORY;
  watch->table = sl__alloc(size + 1, 4, "the watch's table");
  if (!watch->table) return SL_NO_MEMORY;
  watch->memory = sl__alloc(links, each, "the watch's messages");
  if (!watch->memory) return SL_NO_MEMORY;
  for (size_t i = 0; i < links; i++) {
    watch->links[i].in = watch->memory + i * each;
    watch->links[i].out = watch->links[i].in + watch->in_size;
  }
  return SL_OK;
}

enum sl_status sl__heartbeat_new(int rank, int size, double timeout, struct sl__heartbeat **result,
                                 char *address, size_t size_of_address) {
  enum sl_status status = SL_OK;
  *result = NULL;
  if (size_of_address) address[0] = 0;
  if (size < 1 || rank < 0 || rank >= size)
    return sl__fail(SL_BAD_ARGUMENT, "a watch for rank %d of %d", rank, size);
  if (!(timeout > 0 && timeout <= 1e6))
    return sl__fail(SL_BAD_ARGUMENT,
                    "a watch with a timeout of %g s; give more than 0, at most 1e6", timeout);
  struct sl__heartbeat *watch = sl__alloc(1, sizeof *watch, "the watch");
  if (!watch) return SL_NO_MEMORY;
  pthread_mutex_init(&watch->lock, NULL);
  watch->rank = rank;
  watch->size = size;
  watch->timeout = timeout;
  watch->interval = fmin(1, timeout / 5);
  watch->listener = watch->wake[0] = watch->wake[1] = watch->lost_rank = -1;
  SL__TRY(alloc_all(watch));
  name_self(&watch->peers[rank].identity);
  if (pipe2(watch->wake, O_CLOEXEC | O_NONBLOCK) != 0)
    SL__TRY(sl__fail(SL_IO, "the watch gets no pipe: %s", strerror(errno)));
  if (rank == 0) SL__TRY(sl__heartbeat_listen(watch, address, size_of_address));
  *result = watch;
  return SL_OK;
out:
  sl__heartbeat_free(watch);
  return status;
}

enum sl_status sl__heartbeat_start(struct sl__heartbeat *watch, const char *address) {
  if (watch->woken > 0) return sl__fail(SL_BAD_ARGUMENT, "a watch is started only once");
  pthread_mutex_lock(&watch->lock);
  watch->woken = sl__heartbeat_now();
  enum sl_status status =
      watch->rank == 0 ? sl__heartbeat_gather(watch) : sl__heartbeat_join(watch, address);
  pthread_mutex_unlock(&watch->lock);
  return status == SL_OK ? start_thread(watch) : status;
}

void sl__heartbeat_free(struct sl__heartbeat *watch) {
  if (!watch) return;
  if (watch->thread_runs) {
    pthread_mutex_lock(&watch->lock);
    watch->stop = true;
    pthread_mutex_unlock(&watch->lock);
    while (write(watch->wake[1], "", 1) < 0 && errno == EINTR) continue;
    pthread_join(watch->thread, NULL);
  }
  for (int i = 0; watch->memory && i < watch->num_links; i++)
    if (watch->links[i].fd >= 0) close(watch->links[i].fd);
  if (watch->listener >= 0) close(watch->listener);
  if (watch->wake[0] >= 0) close(watch->wake[0]), close(watch->wake[1]);
  pthread_mutex_destroy(&watch->lock);
  free(watch->memory);
  free(watch->table);
  free(watch->polls);
  free(watch->links);
  free(watch->peers);
  free(watch);
}

/* ---- the callers' side ---- */

void sl__heartbeat_activity(struct sl__heartbeat *watch) {
  atomic_fetch_add_explicit(&watch->activity, 1, memory_order_relaxed);
}

double sl__heartbeat_idle(struct sl__heartbeat *watch, int rank) {
  double idle = 0;
  if (rank < 0 || rank >= watch->size) return 0;
  pthread_mutex_lock(&watch->lock);
  note_own_activity(watch);
  /* one that has left does nothing, too */
  if (watch->started) idle = fmax(sl__heartbeat_now() - watch->peers[rank].active, 0);
  pthread_mutex_unlock(&watch->lock);
  return idle;
}

bool sl__heartbeat_lost(struct sl__heartbeat *watch) { return atomic_load(&watch->lost); }

bool sl__heartbeat_text(struct sl__heartbeat *watch, int *rank, char *text, size_t size) {
  if (!sl__heartbeat_lost(watch)) return false;
  pthread_mutex_lock(&watch->lock);
  if (rank) *rank = watch->lost_rank;
  snprintf(text, size, "%s", watch->text);
  pthread_mutex_unlock(&watch->lock);
  return true;
}

/* Not on rank 0: the text is what it makes of ours; or of another rank's, which failed at the same
 * time and was first. */
static void wait_for_echo(struct sl__heartbeat *watch, double seconds) {
  bool connected = true;
  for (double end = sl__heartbeat_now() + seconds; connected && sl__heartbeat_now() < end;
       sl__heartbeat_nap(0.002)) {
    if (sl__heartbeat_lost(watch)) return;
    pthread_mutex_lock(&watch->lock);
    connected = watch->links[0].fd >= 0;
    pthread_mutex_unlock(&watch->lock);
  }
}

void sl__heartbeat_announce(struct sl__heartbeat *watch, const char *why) {
  char text[TEXT];
  sl__heartbeat_copy_text(text, TEXT, why, strlen(why));
  pthread_mutex_lock(&watch->lock);
  bool tell = watch->started && !watch->leaving && watch->lost_rank < 0;
  if (tell && watch->rank == 0) sl__heartbeat_lose(watch, 0, "failed: %s", text);
  if (tell && watch->rank != 0) sl__heartbeat_post_all(watch, FAILED, text, strlen(text));
  pthread_mutex_unlock(&watch->lock);
  if (!tell) return;
  if (watch->rank == 0) {
    sl__heartbeat_wait_for_arrival(watch, 1);
    return;
  }
  wait_for_echo(watch, 1);
  pthread_mutex_lock(&watch->lock);
  sl__heartbeat_lose(watch, watch->rank, "failed: %s", text);
  pthread_mutex_unlock(&watch->lock);
}

void sl__heartbeat_leave(struct sl__heartbeat *watch) {
  pthread_mutex_lock(&watch->lock);
  bool tell = watch->started && !watch->leaving;
  watch->leaving = true;
  watch->peers[watch->rank].left = true;
  if (tell) sl__heartbeat_post_all(watch, BYE, NULL, 0);
  pthread_mutex_unlock(&watch->lock);
  if (tell) sl__heartbeat_wait_for_arrival(watch, 1);
}
