#include "core/assist.h"

#include <sched.h>

#include "core/clock.h"
#include "core/context.h"
#include "core/program_state.h"

/* What is in the post of a worker that stays, until there is an errand. */
static struct sl__errand nothing;

bool sl__errand_give(struct sl_context *context, int member, struct sl__errand *errand) {
  struct sl__errand *expected = &nothing;
  return __atomic_compare_exchange_n(&context->posts[member], &expected, errand, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool sl__errand_give_core(struct sl_context *context, int core, struct sl__errand *errand) {
  int count = (int)starpu_cpu_worker_get_count();
  for (int member = 0; member < count && member < SL_TEAM_MOST && core >= 0; member++)
    if (starpu_worker_get_bindid(starpu_worker_get_by_type(STARPU_CPU_WORKER, member)) == core)
      return sl__errand_give(context, member, errand);
  return false;
}

/* Has there been a batch for so long, and nobody asks? Then it is one of those that have a core
 * each, and this worker may be the one that it waits for. */
static bool is_in_the_way(const struct sl_context *context, double now, double *since) {
  const double most_us = 30;
  if (!__atomic_load_n(&context->batches, __ATOMIC_RELAXED))
    *since = 0;
  else if (!(*since > 0))
    *since = now;
  return *since > 0 && now > *since + most_us;
}

/* A worker that looks for tasks all the time keeps its core from others until the next tick, some
 * milliseconds: this one offers it all the time. */
static struct sl__errand *stay(struct sl_context *context, int member) {
  const double patience_us = 60;
  struct sl__errand **post = &context->posts[member];
  double now = sl__microseconds(), until = now + patience_us, since = 0;
  __atomic_store_n(post, &nothing, __ATOMIC_RELEASE);
  while (now < until && !is_in_the_way(context, now, &since)) {
    sched_yield();
    if (__atomic_load_n(post, __ATOMIC_RELAXED) != &nothing) break;
    now = sl__microseconds();
  }
  struct sl__errand *errand = __atomic_exchange_n(post, NULL, __ATOMIC_ACQ_REL);
  return errand == &nothing ? NULL : errand;
}

void sl__program_take_part(struct sl__errand *errand, int member) {
  const double patience_us = 200;
  struct sl__program *p =
      (struct sl__program *)((char *)errand - offsetof(struct sl__program, take_part));
  __atomic_fetch_and(&p->asked, ~(UINT32_C(1) << member), __ATOMIC_RELAXED);
  sl__team_join(p->segments[0].team, member, patience_us);
  __atomic_fetch_sub(&p->assistants, 1, __ATOMIC_RELEASE); /* it may be freed from here on */
}

void sl__program_assist(struct sl__program *p, int member) {
  struct sl_context *context = p->context;
  struct sl__errand *errand = &p->take_part;
  for (; errand; errand = stay(context, member)) errand->run(errand, member);
}

struct sl__place sl__member_place(int member) {
  int worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, member);
  return (struct sl__place){.where = STARPU_CPU, .worker = worker + 1};
}

void sl__program_ask(struct sl__program *p, int member, int priority) {
  const struct sl__launch launch = {.place = sl__member_place(member), .priority = priority};
  const struct sl__assist_args args = {p, member};
  uint32_t own = UINT32_C(1) << member;
  if (__atomic_fetch_or(&p->asked, own, __ATOMIC_RELAXED) & own) return;
  __atomic_fetch_add(&p->assistants, 1, __ATOMIC_RELAXED);
  if (sl__errand_give(p->context, member, &p->take_part) ||
      sl__submit(p->context, p->assist, &launch, 0, NULL, &args, sizeof args, 0, 0) == SL_OK)
    return;
  __atomic_fetch_and(&p->asked, ~own, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&p->assistants, 1, __ATOMIC_RELAXED);
}
