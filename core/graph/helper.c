#include "core/graph/helper.h"

#include <sched.h>

#include "core/base/clock.h"
#include "core/runtime/context.h"
#include "core/graph/graph_state.h"

/* What is in the mailbox of a worker that stays, until there is an errand. */
static struct sl__inbox_message nothing;

bool sl__inbox_put(struct sl_context *context, int member, struct sl__inbox_message *errand) {
  struct sl__inbox_message *expected = &nothing;
  return __atomic_compare_exchange_n(&context->graphs->inboxes[member].message, &expected, errand,
                                     false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void sl__batch_begins(struct sl_context *context) {
  __atomic_fetch_add(&context->graphs->batches, 1, __ATOMIC_RELAXED);
}

void sl__batch_ends(struct sl_context *context) {
  __atomic_fetch_sub(&context->graphs->batches, 1, __ATOMIC_RELAXED);
}

int sl__batches(const struct sl_context *context) {
  return __atomic_load_n(&context->graphs->batches, __ATOMIC_RELAXED);
}

int sl__member_core(int member) {
  int worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, member);
  int unit = worker < 0 ? -1 : starpu_worker_get_bindid(worker);
  return unit < 0 ? -1 : (int)starpu_get_pu_os_index((unsigned)unit);
}

bool sl__inbox_put_on_core(struct sl_context *context, int core, struct sl__inbox_message *errand) {
  const int64_t most_us = 10;
  int count = (int)starpu_cpu_worker_get_count();
  for (int member = 0; member < count && member < SL__TEAM_MOST && core >= 0; member++) {
    if (sl__member_core(member) != core) continue;
    int64_t seen = __atomic_load_n(&context->graphs->inboxes[member].seen_us, __ATOMIC_RELAXED);
    return (int64_t)sl__microseconds() - seen <= most_us && sl__inbox_put(context, member, errand);
  }
  return false;
}

/* Until when a worker stays; since when there has been a batch for which nobody asks it: one of
 * those that have a core each, and this worker may be the one that it waits for. */
struct patience {
  double until, since; /* 0: there is none */
};

static bool is_over(const struct sl_context *context, double now, struct patience *p) {
  const double most_us = 30;
  if (!sl__batches(context))
    p->since = 0;
  else if (!(p->since > 0))
    p->since = now;
  return now > p->until || (p->since > 0 && now > p->since + most_us);
}

static bool is_long(const struct sl__inbox_message *errand) {
  return errand->run == sl__graph_take_part;
}

/* A worker that looks for tasks all the time keeps its core from others until the next tick, some
 * milliseconds: this one offers it all the time. Meanwhile its mailbox is open, during a short
 * errand, too: whom that wakes up may ask again before it has ended. */
static struct sl__inbox_message *stay(struct sl_context *context, int member,
                                      struct patience *patience) {
  struct worker_inbox *box = &context->graphs->inboxes[member];
  double now = sl__microseconds();
  if (!__atomic_load_n(&box->message, __ATOMIC_RELAXED))
    __atomic_store_n(&box->message, &nothing, __ATOMIC_RELEASE);
  for (; !is_over(context, now, patience); now = sl__microseconds()) {
    __atomic_store_n(&box->seen_us, (int64_t)now, __ATOMIC_RELAXED);
    struct sl__inbox_message *errand = __atomic_load_n(&box->message, __ATOMIC_ACQUIRE);
    if (errand && errand != &nothing && !is_long(errand)) {
      __atomic_store_n(&box->message, &nothing, __ATOMIC_RELEASE);
      return errand;
    }
    if (errand != &nothing) break;
    sched_yield();
  }
  struct sl__inbox_message *errand = __atomic_exchange_n(&box->message, NULL, __ATOMIC_ACQ_REL);
  return errand == &nothing ? NULL : errand;
}

void sl__graph_take_part(struct sl__inbox_message *errand, int member) {
  const double patience_us = 200;
  struct sl__graph *p =
      (struct sl__graph *)((char *)errand - offsetof(struct sl__graph, take_part));
  __atomic_fetch_and(&p->asked, ~(UINT32_C(1) << member), __ATOMIC_RELAXED);
  sl__team_join(p->segments[0].team, member, patience_us);
  __atomic_fetch_sub(&p->assistants, 1, __ATOMIC_RELEASE); /* it may be freed from here on */
}

/* Short errands make nobody stay longer: tasks may be waiting for this worker. */
void sl__graph_help(struct sl__graph *p, int member) {
  const double patience_us = 60;
  struct sl_context *context = p->context;
  struct sl__inbox_message *errand = &p->take_part;
  for (struct patience patience = {0}; errand; errand = stay(context, member, &patience)) {
    bool renews = is_long(errand);
    errand->run(errand, member);
    if (renews) patience = (struct patience){sl__microseconds() + patience_us, 0};
  }
}

struct sl__place sl__member_place(int member) {
  int worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, member);
  return (struct sl__place){.where = STARPU_CPU, .worker = worker + 1};
}

void sl__graph_ask_helper(struct sl__graph *p, int member, int priority) {
  const struct sl__launch launch = {.place = sl__member_place(member), .priority = priority};
  const struct sl__helper_args args = {p, member};
  uint32_t own = UINT32_C(1) << member;
  if (__atomic_fetch_or(&p->asked, own, __ATOMIC_RELAXED) & own) return;
  __atomic_fetch_add(&p->assistants, 1, __ATOMIC_RELAXED);
  if (sl__inbox_put(p->context, member, &p->take_part) ||
      sl__submit(p->context, p->assist, &launch, 0, NULL, &args, sizeof args, 0, 0) == SL_OK)
    return;
  __atomic_fetch_and(&p->asked, ~own, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&p->assistants, 1, __ATOMIC_RELAXED);
}
