#include "core/net/starpu_mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <starpu_mpi.h>

#include "core/base/error.h"

/* More messages of one tag are never under way together; few enough numbers that StarPU-MPI, which
 * keeps a list for each tag it has met, stays small. */
enum { NUMBERS = 64 };

struct letter {
  struct sl__starpu_mpi *way;
  struct sl__under_way about;
  struct letter *previous, *next;
};

struct sl__starpu_mpi {
  void (*ended)(void *user);
  void *user;
  MPI_Comm comm;
  int size;
  pthread_mutex_t lock; /* of what follows */
  struct letter *first; /* under way */
  int count;
  int tags;         /* that there is room for */
  uint8_t *numbers; /* [tag][rank][is_send]: of the next message */
};

bool sl__starpu_mpi_is_there(void) { return true; }

enum sl_status sl__starpu_mpi_open(int size, void (*ended)(void *user), void *user,
                                   struct sl__starpu_mpi **out) {
  *out = NULL;
  struct sl__starpu_mpi *way = sl__alloc(1, sizeof *way, "StarPU-MPI");
  if (!way) return SL_NO_MEMORY;
  way->ended = ended;
  way->user = user;
  way->size = size;
  pthread_mutex_init(&way->lock, NULL);
  if (MPI_Comm_dup(MPI_COMM_WORLD, &way->comm) == MPI_SUCCESS &&
      starpu_mpi_init_comm(NULL, NULL, 0, way->comm) == 0) {
    *out = way;
    return SL_OK;
  }
  pthread_mutex_destroy(&way->lock);
  free(way);
  return sl__fail(SL_STARPU, "StarPU-MPI does not start; take --exchange lane");
}

void sl__starpu_mpi_close(struct sl__starpu_mpi *way) {
  if (!way) return;
  starpu_mpi_shutdown_comm(way->comm);
  MPI_Comm_free(&way->comm);
  pthread_mutex_destroy(&way->lock);
  free(way->numbers);
  free(way);
}

/* ---- what is under way ---- */

static void enter(struct letter *letter) {
  struct sl__starpu_mpi *way = letter->way;
  pthread_mutex_lock(&way->lock);
  letter->next = way->first;
  if (letter->next) letter->next->previous = letter;
  way->first = letter;
  way->count++;
  pthread_mutex_unlock(&way->lock);
}

/* By StarPU-MPI's thread. */
static void ended(void *argument) {
  struct letter *letter = argument;
  struct sl__starpu_mpi *way = letter->way;
  void (*tell)(void *user) = way->ended;
  void *user = way->user;
  tell(user); /* first: once the count is 0, nobody waits for us */
  pthread_mutex_lock(&way->lock);
  if (letter->previous)
    letter->previous->next = letter->next;
  else
    way->first = letter->next;
  if (letter->next) letter->next->previous = letter->previous;
  way->count--;
  pthread_mutex_unlock(&way->lock);
  free(letter);
}

int sl__starpu_mpi_count(struct sl__starpu_mpi *way) {
  pthread_mutex_lock(&way->lock);
  int count = way->count;
  pthread_mutex_unlock(&way->lock);
  return count;
}

bool sl__starpu_mpi_find(struct sl__starpu_mpi *way,
                         bool (*is_it)(void *user, const struct sl__under_way *tensor), void *user,
                         struct sl__under_way *tensor) {
  pthread_mutex_lock(&way->lock);
  const struct letter *letter = way->first;
  while (letter && !is_it(user, &letter->about)) letter = letter->next;
  if (letter) *tensor = letter->about;
  pthread_mutex_unlock(&way->lock);
  return letter != NULL;
}

/* ---- posting ---- */

static enum sl_status make_room(struct sl__starpu_mpi *way, int tag) {
  const size_t each = 2 * (size_t)way->size;
  if (tag < way->tags) return SL_OK;
  int tags = 2 * (tag + 1);
  uint8_t *numbers = sl__realloc(way->numbers, (size_t)tags * each, 1, "StarPU-MPI's tags");
  if (!numbers) return SL_NO_MEMORY;
  memset(numbers + (size_t)way->tags * each, 0, (size_t)(tags - way->tags) * each);
  way->numbers = numbers;
  way->tags = tags;
  return SL_OK;
}

/* Messages of one tag may be of different tensors, such as two steps' losses. So they are numbered,
 * or the one that happens to be ready first would be taken for the other. */
static enum sl_status next_number(struct sl__starpu_mpi *way, const struct sl__post *post,
                                  int *number) {
  pthread_mutex_lock(&way->lock);
  enum sl_status status = make_room(way, post->tag);
  if (status == SL_OK) {
    uint8_t *next = &way->numbers[2 * (post->tag * way->size + post->peer) + post->is_send];
    *number = *next;
    *next = (uint8_t)((*next + 1) % NUMBERS);
  }
  pthread_mutex_unlock(&way->lock);
  return status;
}

enum sl_status sl__starpu_mpi_post(struct sl__starpu_mpi *way, const struct sl__post *post,
                                   double since) {
  int number;
  enum sl_status status = next_number(way, post, &number);
  for (int i = 0; i < post->count && status == SL_OK; i++) {
    starpu_mpi_tag_t tag = (starpu_mpi_tag_t)number << 48 | (starpu_mpi_tag_t)post->tag << 24 | i;
    struct letter *letter = sl__alloc(1, sizeof *letter, "a message between ranks");
    if (!letter) return SL_NO_MEMORY;
    letter->way = way;
    letter->about = (struct sl__under_way){post->name, since, post->peer, post->is_send};
    enter(letter);
    /* with a callback StarPU-MPI does not merge sends of one tensor into a tree of its own, whose
     * order of tags the receivers do not know */
    int result = (post->is_send ? starpu_mpi_isend_detached_prio : starpu_mpi_irecv_detached_prio)(
        post->handles[i], post->peer, tag, post->priority, way->comm, ended, letter);
    if (result) status = sl__fail(SL_STARPU, "StarPU-MPI refuses %s: error %d", post->name, result);
  }
  return status;
}
