/* A worker's plans, kept between tasks: a small hash table from key to plan. Included by *_cuda.cu.
 * A Key is plain data whose padding its maker has zeroed; a Plan's destructor frees it. */
#ifndef SL_CODELETS_KERNELS_PLAN_CACHE_H
#define SL_CODELETS_KERNELS_PLAN_CACHE_H

#include <new>
#include <stdint.h>
#include <string.h>

#include "core/base/hash.h"
#include "codelets/kernels/cuda.h"

namespace sl {

template <class Key, class Plan>
class plan_cache {
  struct node {
    Key key;
    Plan plan;
    node *next;
  };
  static constexpr unsigned BUCKETS = 256;
  node *bucket[BUCKETS] = {};

  static unsigned hash(const Key &key) {
    uint64_t h = sl__fnv1a(&key, sizeof key);
    return (h ^ h >> 32) % BUCKETS;
  }
  static void release(void *plans) { delete static_cast<plan_cache *>(plans); }

 public:
  ~plan_cache() {
    for (node *first : bucket)
      for (node *n = first, *next; n; n = next) {
        next = n->next;
        delete n;
      }
  }

  /* Returns the worker's table, made at its first use; NULL if the task has failed. */
  static plan_cache *of(struct sl__cuda *cuda, enum sl__plan_cache_slot which) {
    if (!cuda->plan_caches[which].plans) {
      cuda->plan_caches[which].plans = new (std::nothrow) plan_cache;
      cuda->plan_caches[which].release = release;
    }
    if (!cuda->plan_caches[which].plans)
      sl__task_failed(SL_NO_MEMORY, "no memory for a GPU's plans");
    return static_cast<plan_cache *>(cuda->plan_caches[which].plans);
  }

  /* Returns the key's plan; make(plan) fills a new one. NULL: the task has failed, as make says by
   * returning false. Such a plan is not kept: the next task tries again. */
  template <class Make>
  Plan *find(const Key &key, Make make) {
    node **first = &bucket[hash(key)];
    for (node *n = *first; n; n = n->next)
      if (!memcmp(&n->key, &key, sizeof key)) return &n->plan;
    node *n = new (std::nothrow) node{key, {}, *first};
    if (!n) {
      sl__task_failed(SL_NO_MEMORY, "no memory for a GPU's plan");
      return nullptr;
    }
    if (!make(&n->plan)) {
      delete n;
      return nullptr;
    }
    *first = n;
    return &n->plan;
  }
};

}  // namespace sl

#endif
