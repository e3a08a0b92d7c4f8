/* The heartbeat's thread and the functions that callers use (core/net/heartbeat.h). */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/float_mode.h"
#include "core/net/heartbeat_state.h"

/* ---- the thread ---- */

static void update_own_activity(struct sl__heartbeat *h) {
  struct peer *self = &h->peers[h->rank];
  uint64_t activity = atomic_load(&h->activity);
  if (activity != self->activity) self->active = sl__seconds();
  self->activity = activity;
}

static void *run(void *pointer) {
  struct sl__heartbeat *h = pointer;
  sl__float_mode_begin();
  pthread_mutex_lock(&h->lock);
  while (!h->stop) {
    if (sl__seconds() >= h->next_beat) {
      update_own_activity(h);
      sl__heartbeat_check_silence(h);
      sl__heartbeat_post_beat(h);
      h->next_beat = sl__seconds() + h->interval;
    }
    sl__heartbeat_serve(h, h->next_beat - sl__seconds());
  }
  pthread_mutex_unlock(&h->lock);
  return NULL;
}

/* The thread blocks all signals: the program handles them. */
static enum sl_status start_thread(struct sl__heartbeat *h) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&h->thread, NULL, run, h);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error)
    return sl__fail(SL_NO_MEMORY, "the heartbeat's thread cannot start: %s", strerror(error));
  h->thread_runs = true;
  return SL_OK;
}

/* ---- opening and closing ---- */

static void name_self(struct identity *self) {
  char name[256] = "";
  self->process = (uint32_t)getpid();
  gethostname(name, sizeof name - 1);
  sl__heartbeat_copy_text(self->host, HOST, *name ? name : "?", *name ? strlen(name) : 1);
  for (char *c = self->host; *c; c++)
    if (*c == ' ') *c = '?'; /* the address separates its parts by spaces */
}

/* Allocates all memory at once, so that the thread never runs out of it. */
static enum sl_status alloc_all(struct sl__heartbeat *h) {
  size_t size = (size_t)h->size;
  bool is_root = h->rank == 0;
  h->num_links = is_root ? h->size - 1 + MAX_UNIDENTIFIED : 1;
  h->in_size = HEADER + 4 + TEXT + (is_root ? 0 : 4 * size);
  h->out_size = HELLO_BYTES + WELCOME_BYTES + 2 * TEXT + 16 * HEADER + (is_root ? 4 * size : 8);
  size_t links = (size_t)h->num_links, each = h->in_size + h->out_size;
  h->peers = sl__alloc(size, sizeof *h->peers, "the heartbeat's ranks");
  if (!h->peers) return SL_NO_MEMORY;
  h->links = sl__alloc(links, sizeof *h->links, "the heartbeat's connections");
  if (!h->links) return SL_NO_MEMORY;
  for (int i = 0; i < h->num_links; i++) h->links[i].fd = h->links[i].rank = -1;
  h->polls = sl__alloc(links + 2, sizeof *h->polls, "the heartbeat's connections");
  if (!h->polls) return SL_NO_MEMORY;
  h->table = sl__alloc(size + 1, 4, "the heartbeat's table");
  if (!h->table) return SL_NO_MEMORY;
  h->memory = sl__alloc(links, each, "the heartbeat's messages");
  if (!h->memory) return SL_NO_MEMORY;
  for (size_t i = 0; i < links; i++) {
    h->links[i].in = h->memory + i * each;
    h->links[i].out = h->links[i].in + h->in_size;
  }
  return SL_OK;
}

/* The running kernel's own name for itself. */
static void read_boot_id(char boot_id[BOOT_ID]) {
  snprintf(boot_id, BOOT_ID, "-");
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  char text[BOOT_ID];
  if (file && fgets(text, sizeof text, file)) {
    text[strcspn(text, "\n")] = '\0';
    if (*text && !strchr(text, ' ')) snprintf(boot_id, BOOT_ID, "%s", text);
  }
  if (file) fclose(file);
}

static enum sl_status copy_options(struct sl__heartbeat *h,
                                   const struct sl__heartbeat_options *options) {
  const char **texts[] = {&h->options.interface, &h->options.ports};
  h->options = *options;
  for (int i = 0; i < 2; i++) {
    if (!*texts[i]) continue;
    if (strlen(*texts[i]) >= sizeof h->texts[i])
      return sl__fail(SL_BAD_ARGUMENT, "'%.80s...' is too long for an interface or ports",
                      *texts[i]);
    strcpy(h->texts[i], *texts[i]);
    *texts[i] = h->texts[i];
  }
  return SL_OK;
}

enum sl_status sl__heartbeat_new(int rank, int size, const struct sl__heartbeat_options *options,
                                 struct sl__heartbeat **result, char *address,
                                 size_t size_of_address) {
  enum sl_status status = SL_OK;
  double timeout = options->timeout;
  *result = NULL;
  if (size_of_address) address[0] = 0;
  if (size < 1 || rank < 0 || rank >= size)
    return sl__fail(SL_BAD_ARGUMENT, "a heartbeat for rank %d of %d", rank, size);
  if (!(timeout > 0 && timeout <= 1e6))
    return sl__fail(SL_BAD_ARGUMENT,
                    "a heartbeat with a timeout of %g s; it must be above 0 and at most 1e6",
                    timeout);
  struct sl__heartbeat *h = sl__alloc(1, sizeof *h, "the heartbeat");
  if (!h) return SL_NO_MEMORY;
  pthread_mutex_init(&h->lock, NULL);
  h->rank = rank;
  h->size = size;
  h->timeout = timeout;
  h->interval = fmin(1, timeout / 5);
  h->listener = h->wake[0] = h->wake[1] = h->lost_rank = -1;
  SL__TRY(copy_options(h, options));
  SL__TRY(alloc_all(h));
  read_boot_id(h->boot_id);
  name_self(&h->peers[rank].identity);
  if (pipe2(h->wake, O_CLOEXEC | O_NONBLOCK) != 0)
    SL__TRY(sl__fail(SL_IO, "the heartbeat cannot open a pipe: %s", strerror(errno)));
  if (rank == 0) SL__TRY(sl__heartbeat_listen(h, address, size_of_address));
  *result = h;
  return SL_OK;
out:
  sl__heartbeat_free(h);
  return status;
}

enum sl_status sl__heartbeat_start(struct sl__heartbeat *h, const char *address) {
  if (h->last_wake > 0) return sl__fail(SL_BAD_ARGUMENT, "the heartbeat has been started already");
  pthread_mutex_lock(&h->lock);
  h->last_wake = sl__seconds();
  enum sl_status status = h->rank == 0 ? sl__heartbeat_gather(h) : sl__heartbeat_join(h, address);
  pthread_mutex_unlock(&h->lock);
  return status == SL_OK ? start_thread(h) : status;
}

void sl__heartbeat_free(struct sl__heartbeat *h) {
  if (!h) return;
  if (h->thread_runs) {
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_mutex_unlock(&h->lock);
    while (write(h->wake[1], "", 1) < 0 && errno == EINTR) continue;
    pthread_join(h->thread, NULL);
  }
  for (int i = 0; h->memory && i < h->num_links; i++)
    if (h->links[i].fd >= 0) close(h->links[i].fd);
  if (h->listener >= 0) close(h->listener);
  if (h->wake[0] >= 0) close(h->wake[0]), close(h->wake[1]);
  pthread_mutex_destroy(&h->lock);
  free(h->memory);
  free(h->table);
  free(h->polls);
  free(h->links);
  free(h->peers);
  free(h);
}

/* ---- functions for other threads ---- */

void sl__heartbeat_activity(struct sl__heartbeat *h) {
  atomic_fetch_add_explicit(&h->activity, 1, memory_order_relaxed);
}

double sl__heartbeat_idle(struct sl__heartbeat *h, int rank) {
  double idle = 0;
  if (rank < 0 || rank >= h->size) return 0;
  pthread_mutex_lock(&h->lock);
  update_own_activity(h);
  if (h->started) idle = fmax(sl__seconds() - h->peers[rank].active, 0);
  pthread_mutex_unlock(&h->lock);
  return idle;
}

/* Not on rank 0. The text is then the one that rank 0 sends to all: this rank's, or that of another
 * rank that failed at the same time and was first. */
static void wait_for_answer(struct sl__heartbeat *h, double seconds) {
  bool connected = true;
  for (double end = sl__seconds() + seconds; connected && sl__seconds() < end;
       sl__heartbeat_sleep(0.002)) {
    if (sl__heartbeat_lost(h)) return;
    pthread_mutex_lock(&h->lock);
    connected = h->links[0].fd >= 0;
    pthread_mutex_unlock(&h->lock);
  }
}

void sl__heartbeat_announce(struct sl__heartbeat *h, const char *why) {
  char text[TEXT];
  sl__heartbeat_copy_text(text, TEXT, why, strlen(why));
  pthread_mutex_lock(&h->lock);
  bool must_tell = h->started && !h->leaving && h->lost_rank < 0;
  if (must_tell && h->rank == 0) sl__heartbeat_lose(h, 0, "failed: %s", text);
  if (must_tell && h->rank != 0) sl__heartbeat_post_all(h, FAILED, text, strlen(text));
  pthread_mutex_unlock(&h->lock);
  if (!must_tell) return;
  if (h->rank == 0) {
    sl__heartbeat_wait_for_arrival(h, 1);
    return;
  }
  wait_for_answer(h, 1);
  pthread_mutex_lock(&h->lock);
  sl__heartbeat_lose(h, h->rank, "failed: %s", text);
  pthread_mutex_unlock(&h->lock);
}

void sl__heartbeat_leave(struct sl__heartbeat *h) {
  pthread_mutex_lock(&h->lock);
  bool must_tell = h->started && !h->leaving;
  h->leaving = true;
  h->peers[h->rank].left = true;
  if (must_tell) sl__heartbeat_post_all(h, BYE, NULL, 0);
  pthread_mutex_unlock(&h->lock);
  if (must_tell) sl__heartbeat_wait_for_arrival(h, 1);
}
