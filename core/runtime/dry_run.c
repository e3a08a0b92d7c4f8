#include "core/runtime/dry_run.h"

#include "core/base/error.h"

static double bytes_of(const struct sl__call *call) {
  double bytes = 0;
  for (int i = 0; i < call->count; i++) bytes += (double)call->tensors[i]->bytes;
  return bytes;
}

static bool grow(struct sl__dry_run *r) {
  int capacity = r->capacity ? 2 * r->capacity : 256;
  struct sl__dry_run_task *tasks =
      sl__realloc(r->tasks, (size_t)capacity, sizeof *tasks, "a dry run");
  if (!tasks) return false;
  r->tasks = tasks;
  r->capacity = capacity;
  return true;
}

static bool record(void *data, const struct sl__call *call, enum sl_status *status) {
  struct sl__dry_run *r = data;
  *status = r->count < r->capacity || grow(r) ? SL_OK : SL_NO_MEMORY;
  if (*status == SL_OK)
    r->tasks[r->count++] = (struct sl__dry_run_task){.op = call->op,
                                                     .footprint = call->header->footprint,
                                                     .name = call->launch->name,
                                                     .priority = call->launch->priority,
                                                     .flops = call->flops,
                                                     .bytes = bytes_of(call)};
  return true;
}

enum sl_status sl__dry_run_begin(struct sl_context *context, struct sl__dry_run *run) {
  return sl__submit_hook_add(context, &(struct sl__submit_hook){.instead = record, .data = run});
}

void sl__dry_run_end(struct sl_context *context, struct sl__dry_run *run) {
  sl__submit_hook_remove(context, run);
}

bool sl__is_dry_run(const struct sl_context *context) {
  const struct sl__hooks *h = &context->hooks;
  for (int i = 0; i < h->submit_count; i++)
    if (h->submit[i].instead == record) return true;
  return false;
}
