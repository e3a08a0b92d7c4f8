/* Notices and reports the loss of a rank. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/net/heartbeat_state.h"

/* The time of day, such as "12:01:05", some seconds ago. */
static const char *clock_text(double ago, char text[16]) {
  time_t seconds = time(NULL) - (time_t)(ago + 0.5);
  struct tm parts;
  localtime_r(&seconds, &parts);
  strftime(text, 16, "%H:%M:%S", &parts);
  return text;
}

/* Sets the flag last: a thread that sees it may end the process, and by then the message to the
 * other ranks is on its way. */
void sl__heartbeat_record_loss(struct sl__heartbeat *h, int rank, const char *text) {
  if (h->lost_rank >= 0 || h->leaving) return;
  h->lost_rank = rank;
  sl__heartbeat_copy_text(h->text, TEXT, text, strlen(text));
  if (h->rank == 0) sl__heartbeat_post_lost(h, rank, h->text);
  atomic_store(&h->lost, true);
}

void sl__heartbeat_lose(struct sl__heartbeat *h, int rank, const char *format, ...) {
  char text[TEXT];
  const struct identity *identity = &h->peers[rank].identity;
  int length = snprintf(text, sizeof text, "rank %d (%s, process %" PRIu32 ") ", rank,
                        identity->host, identity->process);
  va_list list;
  va_start(list, format);
  vsnprintf(text + length, sizeof text - (size_t)length, format, list);
  va_end(list);
  sl__heartbeat_record_loss(h, rank, text);
}

void sl__heartbeat_lose_closed(struct sl__heartbeat *h, int rank, const char *why) {
  char clock[16];
  sl__heartbeat_lose(h, rank, "was lost at %s: %s", clock_text(0, clock), why);
}

static void lose_silent(struct sl__heartbeat *h, int rank) {
  char clock[16];
  double age = sl__seconds() - h->peers[rank].heard;
  sl__heartbeat_lose(h, rank, "has not been heard of since %s (%.*f s)", clock_text(age, clock),
                     age < 10, age);
  /* rank 0 may only be stopped: when it continues, it learns that the others took it for lost */
  if (h->rank != 0 && h->lost_rank == rank)
    sl__heartbeat_post_all(h, FAILED, h->text, strlen(h->text));
}

/* Silence ends at last_wake, when this process last read all messages: a rank is not lost because
 * this process is stopped between two lines here. */
void sl__heartbeat_check_silence(struct sl__heartbeat *h) {
  for (int i = 0; i < h->num_links && h->lost_rank < 0; i++) {
    const struct link *link = &h->links[i];
    if (!link->ready || h->peers[link->rank].left) continue;
    if (h->last_wake - fmax(h->peers[link->rank].heard, h->silence_counts_from) > h->timeout)
      lose_silent(h, link->rank);
  }
}

bool sl__heartbeat_lost(struct sl__heartbeat *h) { return atomic_load(&h->lost); }

bool sl__heartbeat_text(struct sl__heartbeat *h, int *rank, char *text, size_t size) {
  if (!sl__heartbeat_lost(h)) return false;
  pthread_mutex_lock(&h->lock);
  if (rank) *rank = h->lost_rank;
  snprintf(text, size, "%s", h->text);
  pthread_mutex_unlock(&h->lock);
  return true;
}
