#include "core/net/starpu_mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <starpu_mpi.h>

#include "core/base/error.h"

/* Messages are numbered modulo this: fewer of one tag are in flight together, and StarPU-MPI, which
 * keeps a list for each tag that it has met, stays small. */
enum { NUMBERS = 64 };

struct posted {
  struct sl__starpu_mpi *starpu;
  struct sl__in_flight tensor;
  struct posted *previous, *next;
};

struct sl__starpu_mpi {
  void (*ended)(void *user);
  void *user;
  MPI_Comm comm;
  int size;
  pthread_mutex_t lock; /* of all fields below */
  struct posted *first; /* tensors in flight */
  int count;
  int tags;         /* number of tags that `numbers` has room for */
  uint8_t *numbers; /* [tag][rank][is_send]: the next message's number */
};

bool sl__starpu_mpi_is_there(void) { return true; }

enum sl_status sl__starpu_mpi_open(int size, void (*ended)(void *user), void *user,
                                   struct sl__starpu_mpi **out) {
  *out = NULL;
  struct sl__starpu_mpi *s = sl__alloc(1, sizeof *s, "StarPU-MPI");
  if (!s) return SL_NO_MEMORY;
  s->ended = ended;
  s->user = user;
  s->size = size;
  pthread_mutex_init(&s->lock, NULL);
  if (MPI_Comm_dup(MPI_COMM_WORLD, &s->comm) == MPI_SUCCESS &&
      starpu_mpi_init_comm(NULL, NULL, 0, s->comm) == 0) {
    *out = s;
    return SL_OK;
  }
  pthread_mutex_destroy(&s->lock);
  free(s);
  return sl__fail(SL_STARPU, "StarPU-MPI does not start; use the exchange lane");
}

void sl__starpu_mpi_close(struct sl__starpu_mpi *s) {
  if (!s) return;
  starpu_mpi_shutdown_comm(s->comm);
  MPI_Comm_free(&s->comm);
  pthread_mutex_destroy(&s->lock);
  free(s->numbers);
  free(s);
}

/* ---- tensors in flight ---- */

static void add(struct posted *posted) {
  struct sl__starpu_mpi *s = posted->starpu;
  pthread_mutex_lock(&s->lock);
  posted->next = s->first;
  if (posted->next) posted->next->previous = posted;
  s->first = posted;
  s->count++;
  pthread_mutex_unlock(&s->lock);
}

/* StarPU-MPI's thread calls this. The callback comes first: when the count is 0, the main thread
 * may free the callback's data. */
static void ended(void *argument) {
  struct posted *posted = argument;
  struct sl__starpu_mpi *s = posted->starpu;
  s->ended(s->user);
  pthread_mutex_lock(&s->lock);
  if (posted->previous)
    posted->previous->next = posted->next;
  else
    s->first = posted->next;
  if (posted->next) posted->next->previous = posted->previous;
  s->count--;
  pthread_mutex_unlock(&s->lock);
  free(posted);
}

int sl__starpu_mpi_count(struct sl__starpu_mpi *s) {
  pthread_mutex_lock(&s->lock);
  int count = s->count;
  pthread_mutex_unlock(&s->lock);
  return count;
}

bool sl__starpu_mpi_find(struct sl__starpu_mpi *s,
                         bool (*matches)(void *user, const struct sl__in_flight *tensor),
                         void *user, struct sl__in_flight *tensor) {
  pthread_mutex_lock(&s->lock);
  const struct posted *posted = s->first;
  while (posted && !matches(user, &posted->tensor)) posted = posted->next;
  if (posted) *tensor = posted->tensor;
  pthread_mutex_unlock(&s->lock);
  return posted != NULL;
}

/* ---- posting ---- */

static enum sl_status make_room(struct sl__starpu_mpi *s, int tag) {
  const size_t each = 2 * (size_t)s->size;
  if (tag < s->tags) return SL_OK;
  int tags = 2 * (tag + 1);
  uint8_t *numbers = sl__realloc(s->numbers, (size_t)tags * each, 1, "StarPU-MPI's tags");
  if (!numbers) return SL_NO_MEMORY;
  memset(numbers + (size_t)s->tags * each, 0, (size_t)(tags - s->tags) * each);
  s->numbers = numbers;
  s->tags = tags;
  return SL_OK;
}

/* Two messages with one tag may carry different tensors, such as the losses of two steps. Without
 * numbers StarPU-MPI would match whichever is ready first. */
static enum sl_status next_number(struct sl__starpu_mpi *s, const struct sl__post *post,
                                  int *number) {
  pthread_mutex_lock(&s->lock);
  enum sl_status status = make_room(s, post->tag);
  if (status == SL_OK) {
    uint8_t *next = &s->numbers[2 * (post->tag * s->size + post->peer) + post->is_send];
    *number = *next;
    *next = (uint8_t)((*next + 1) % NUMBERS);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

enum sl_status sl__starpu_mpi_post(struct sl__starpu_mpi *s, const struct sl__post *post,
                                   double now) {
  int number;
  enum sl_status status = next_number(s, post, &number);
  for (int i = 0; i < post->count && status == SL_OK; i++) {
    starpu_mpi_tag_t tag = (starpu_mpi_tag_t)number << 48 | (starpu_mpi_tag_t)post->tag << 24 | i;
    struct posted *posted = sl__alloc(1, sizeof *posted, "a message between ranks");
    if (!posted) return SL_NO_MEMORY;
    posted->starpu = s;
    posted->tensor = (struct sl__in_flight){post->name, now, post->peer, post->is_send};
    add(posted);
    /* without a callback StarPU-MPI would merge sends of one tensor into a broadcast tree, whose
     * tags the receivers do not know */
    int result = (post->is_send ? starpu_mpi_isend_detached_prio : starpu_mpi_irecv_detached_prio)(
        post->handles[i], post->peer, tag, post->priority, s->comm, ended, posted);
    if (result) status = sl__fail(SL_STARPU, "StarPU-MPI refuses %s: error %d", post->name, result);
  }
  return status;
}
