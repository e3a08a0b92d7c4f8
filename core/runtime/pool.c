#include "core/runtime/pool.h"

#include <pthread.h>
#include <starpu.h>
#include <stdlib.h>

/* StarPU's hooks take no argument of ours, so this state cannot live in the context. */
#define POOL_CLASSES 128
#define POOL_LEAST ((size_t)1 << 14) /* malloc serves smaller blocks well */
#define POOL_LISTS 32

struct block {
  struct block *next;
};

static struct {
  pthread_mutex_t mutex;
  int users;
  size_t size[POOL_CLASSES];
  /* By the thread that freed them, whose core still has parts of them in its caches. It takes them
   * first: another core would have to fetch each line that it writes from there. */
  struct block *free[POOL_CLASSES][POOL_LISTS];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The lists of a size, made if there is a class free, or NULL. There are few sizes: one for each
 * shape of tensors. */
static struct block **find_lists(size_t size) {
  for (int i = 0; i < POOL_CLASSES; i++) {
    if (!pool.size[i]) pool.size[i] = size;
    if (pool.size[i] == size) return pool.free[i];
  }
  return NULL;
}

/* A worker's list; all other threads have one. */
static int own_list(void) {
  int worker = starpu_worker_get_id();
  return worker < 0 ? 0 : 1 + worker % (POOL_LISTS - 1);
}

static void *take(struct block **lists) {
  int own = own_list();
  for (int i = 0; i < POOL_LISTS; i++) {
    struct block **list = &lists[(own + i) % POOL_LISTS], *block = *list;
    if (!block) continue;
    *list = block->next;
    return block;
  }
  return NULL;
}

static int pool_malloc(unsigned node, void **memory, size_t size, int flags) {
  (void)node;
  (void)flags;
  *memory = NULL;
  if (size >= POOL_LEAST) {
    pthread_mutex_lock(&pool.mutex);
    struct block **lists = find_lists(size);
    if (lists) *memory = take(lists);
    pthread_mutex_unlock(&pool.mutex);
  }
  return *memory ? 0 : posix_memalign(memory, 64, size);
}

static int pool_free(unsigned node, void *memory, size_t size, int flags) {
  (void)node;
  (void)flags;
  struct block **lists = NULL;
  if (size >= POOL_LEAST) {
    pthread_mutex_lock(&pool.mutex);
    lists = pool.users ? find_lists(size) : NULL;
    if (lists) {
      struct block *block = memory, **list = &lists[own_list()];
      block->next = *list;
      *list = block;
    }
    pthread_mutex_unlock(&pool.mutex);
  }
  if (!lists) free(memory); /* also for StarPU's own blocks */
  return 0;
}

void sl__pool_open(void) {
#ifndef SL_SANITIZE /* reuse would hide a use after free */
  if (starpu_cuda_worker_get_count())
    return; /* there memory is pinned, and StarPU keeps it itself */
  pthread_mutex_lock(&pool.mutex);
  if (!pool.users++) starpu_malloc_set_hooks(pool_malloc, pool_free);
  pthread_mutex_unlock(&pool.mutex);
#endif
}

/* The hooks stay: StarPU may still free blocks of this allocator. Without users they are freed
 * at once. */
void sl__pool_close(void) {
  pthread_mutex_lock(&pool.mutex);
  if (pool.users && !--pool.users)
    for (int i = 0; i < POOL_CLASSES; i++) {
      for (void *block = take(pool.free[i]); block; block = take(pool.free[i])) free(block);
      pool.size[i] = 0;
    }
  pthread_mutex_unlock(&pool.mutex);
}
