#include "core/runtime/pool.h"

#include <pthread.h>
#include <starpu.h>
#include <stdlib.h>

/* StarPU's hooks take no argument of ours, so this state cannot live in the context. */
#define POOL_CLASSES 128
#define POOL_LEAST ((size_t)1 << 14) /* malloc serves smaller blocks well */

struct block {
  struct block *next;
};

static struct {
  pthread_mutex_t mutex;
  int users;
  size_t size[POOL_CLASSES];
  struct block *free[POOL_CLASSES];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The list of a size, made if there is a class free, or NULL. There are few sizes: one for each
 * shape of tensors. */
static struct block **find_list(size_t size) {
  for (int i = 0; i < POOL_CLASSES; i++) {
    if (!pool.size[i]) pool.size[i] = size;
    if (pool.size[i] == size) return &pool.free[i];
  }
  return NULL;
}

static int pool_malloc(unsigned node, void **memory, size_t size, int flags) {
  (void)node;
  (void)flags;
  *memory = NULL;
  if (size >= POOL_LEAST) {
    pthread_mutex_lock(&pool.mutex);
    struct block **list = find_list(size);
    if (list && *list) {
      *memory = *list;
      *list = (*list)->next;
    }
    pthread_mutex_unlock(&pool.mutex);
  }
  return *memory ? 0 : posix_memalign(memory, 64, size);
}

static int pool_free(unsigned node, void *memory, size_t size, int flags) {
  (void)node;
  (void)flags;
  struct block **list = NULL;
  if (size >= POOL_LEAST) {
    pthread_mutex_lock(&pool.mutex);
    list = pool.users ? find_list(size) : NULL;
    if (list) {
      ((struct block *)memory)->next = *list;
      *list = memory;
    }
    pthread_mutex_unlock(&pool.mutex);
  }
  if (!list) free(memory); /* also for StarPU's own blocks */
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
      while (pool.free[i]) {
        struct block *block = pool.free[i];
        pool.free[i] = block->next;
        free(block);
      }
      pool.size[i] = 0;
    }
  pthread_mutex_unlock(&pool.mutex);
}
