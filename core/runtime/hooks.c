#include "core/runtime/hooks.h"

#include "core/base/error.h"
#include "core/runtime/context.h"

static bool is_free(const struct sl__submit_hook *slot) {
  return !slot->instead && !slot->before && !slot->withdraw && !slot->after;
}

/* Readers look at a function first, then at the data. */
static void fill(struct sl__submit_hook *slot, const struct sl__submit_hook *hook) {
  __atomic_store_n(&slot->data, hook->data, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->instead, hook->instead, __ATOMIC_RELEASE);
  __atomic_store_n(&slot->before, hook->before, __ATOMIC_RELEASE);
  __atomic_store_n(&slot->withdraw, hook->withdraw, __ATOMIC_RELEASE);
  __atomic_store_n(&slot->after, hook->after, __ATOMIC_RELEASE);
}

enum sl_status sl__submit_hook_add(struct sl_context *context, const struct sl__submit_hook *hook) {
  struct sl__hooks *h = &context->hooks;
  int i = 0;
  while (i < h->submit_count && !is_free(&h->submit[i])) i++;
  if (i == SL__MOST_SUBMIT_HOOKS)
    return sl__fail(SL_UNSUPPORTED, "more than %d hooks of submissions at once",
                    SL__MOST_SUBMIT_HOOKS);
  fill(&h->submit[i], hook);
  if (i == h->submit_count) __atomic_store_n(&h->submit_count, i + 1, __ATOMIC_RELEASE);
  return SL_OK;
}

void sl__submit_hook_remove(struct sl_context *context, const void *data) {
  struct sl__hooks *h = &context->hooks;
  for (int i = 0; i < h->submit_count; i++)
    if (data && !is_free(&h->submit[i]) && h->submit[i].data == data)
      fill(&h->submit[i], &(struct sl__submit_hook){.data = h->submit[i].data});
}

enum sl_status sl__health_check_add(struct sl_context *context,
                                    const struct sl__health_check *check) {
  struct sl__hooks *h = &context->hooks;
  if (h->health_count == SL__MOST_HEALTH_CHECKS)
    return sl__fail(SL_UNSUPPORTED, "more than %d health checks", SL__MOST_HEALTH_CHECKS);
  h->health[h->health_count++] = *check;
  return SL_OK;
}
