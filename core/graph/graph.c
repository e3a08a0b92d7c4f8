#include "core/graph/graph_state.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/cuda.h"
#include "core/base/error.h"
#include "core/memory/limits.h"

enum sl_status sl__graph_new(struct sl_context *context, struct sl__op *op, struct sl__op *assist,
                             struct sl__graph **program) {
  *program = sl__alloc(1, sizeof **program, "a program");
  if (!*program) return SL_NO_MEMORY;
  (*program)->context = context;
  (*program)->op = op;
  (*program)->assist = assist;
  (*program)->take_part.run = sl__graph_take_part;
  return SL_OK;
}

static void segment_clear(struct sl__subgraph *s) {
  sl__team_free(s->team);
  free(s->steps);
  free(s->stretches);
  free(s->tensors);
  free(s->modes);
  free(s->buffer);
  free(s->name);
}

void sl__graph_free(struct sl__graph *p) {
  if (!p) return;
  while (__atomic_load_n(&p->assistants, __ATOMIC_ACQUIRE)) {
    if (__atomic_load_n(&p->context->abandoned, __ATOMIC_ACQUIRE)) return; /* they may come yet */
    sched_yield();
  }
  for (int i = 0; i < p->segment_count; i++) segment_clear(&p->segments[i]);
  for (int i = 0; i < p->call_count; i++) {
    free(p->calls[i].tensor);
    free(p->calls[i].args);
  }
  free(p->segments);
  free(p->calls);
  free(p->used);
  free(p);
}

/* Other threads may ask meanwhile whether it is theirs. */
void sl__graph_capture(struct sl__graph *program) {
  struct sl__graphs *graphs = program->context->graphs;
  __atomic_store_n(&graphs->capturer, pthread_self(), __ATOMIC_RELAXED);
  __atomic_store_n(&graphs->capturing, program, __ATOMIC_RELEASE);
}

struct sl__graph *sl__graph_capturing(const struct sl_context *context) {
  const struct sl__graphs *graphs = context->graphs;
  struct sl__graph *graph = __atomic_load_n(&graphs->capturing, __ATOMIC_ACQUIRE);
  pthread_t capturer = __atomic_load_n(&graphs->capturer, __ATOMIC_RELAXED);
  return graph && pthread_equal(capturer, pthread_self()) ? graph : NULL;
}

int sl__graph_tasks(const struct sl__graph *program) { return program->segment_count; }

/* ---- noting ---- */

static bool grow(void **list, int count, int *room, size_t size) {
  if (count < *room) return true;
  int more = *room ? 2 * *room : 32;
  void *longer = sl__realloc(*list, (size_t)more, size, "a program");
  if (!longer) return false;
  *list = longer;
  *room = more;
  return true;
}

/* Its number in the list; -1: no memory. */
static int number_of(struct sl__graph *p, struct sl__tensor *tensor, char access) {
  for (int i = 0; i < p->used_count; i++)
    if (p->used[i].tensor == tensor) return i;
  if (!grow((void **)&p->used, p->used_count, &p->used_room, sizeof *p->used)) return -1;
  p->used[p->used_count] = (struct used){
      .tensor = tensor, .is_written_first = access == 'w', .is_scratch = access == 's'};
  return p->used_count++;
}

void sl__graph_use_weight_cache(struct sl__graph *program, struct sl__weight_cache *pack,
                                const struct sl__tensor *input) {
  program->pack = pack;
  program->input = input;
}

void sl__graph_cores(struct sl__graph *program, int most) { program->cores = most; }

void sl__graph_cut(struct sl__graph *program, int parts) { program->forced_parts = parts; }

/* 'r', 'w', 'm' or 's': of a call's buffer. */
static char access_of(char letter, bool accumulate) {
  char access = sl__access(letter);
  return access == 'a' ? (accumulate ? 'm' : 'w') : access;
}

static enum sl_status append(struct sl__graph *p, const struct sl__call *from) {
  const char *modes = from->op->modes;
  int scratches = 0;
  if (!grow((void **)&p->calls, p->call_count, &p->call_room, sizeof *p->calls))
    return SL_NO_MEMORY;
  bool on_gpu = from->op->codelet.cuda_funcs[0] && starpu_cuda_worker_get_count();
  struct call *call = &p->calls[p->call_count];
  *call = (struct call){.op = from->op,
                        .name = from->launch->name ? from->launch->name : from->op->codelet.name,
                        .place = from->launch->place,
                        .flops = from->flops,
                        .count = from->count,
                        .args_size = sizeof *call->args + from->args_size};
  /* two calls that may run at the same places say so in the same words */
  if (call->place.where != STARPU_CUDA) sl__place_here(&call->place, on_gpu);
  call->tensor = sl__alloc((size_t)from->count, sizeof *call->tensor, "a program");
  call->args = sl__alloc(1, call->args_size, "a program");
  if (!from->header->halves) {
    call->cut = from->launch->cut;
    call->form = from->launch->form;
  }
  p->call_count++; /* freed with the program */
  if (!call->tensor || !call->args) return SL_NO_MEMORY;
  *call->args = *from->header;
  if (from->args_size) memcpy(call->args + 1, from->args, from->args_size);
  for (int i = 0; i < from->count; i++) {
    char access = access_of(*modes, from->header->accumulate);
    call->tensor[i] = number_of(p, from->tensors[i], access);
    if (call->tensor[i] < 0) return SL_NO_MEMORY;
    if (access != 'r') p->used[call->tensor[i]].is_written = true;
    scratches += access == 's'; /* all of a task's are one place */
    if (access == 'w' && !call->rows) {
      call->rows = from->tensors[i]->shape.dim[0];
      call->outputs = sl_shape_count(&from->tensors[i]->shape);
    }
    if (scratches > 1)
      return sl__fail(SL_UNSUPPORTED, "%s: two scratch tensors in a program's call",
                      from->op->codelet.name);
    modes = sl__next_mode(modes);
  }
  return SL_OK;
}

/* Its kernel runs on CPUs only, so it may be told what only that one knows of. */
static bool is_for_cpus(const struct call *call) {
  return !(call->place.where & STARPU_CUDA && starpu_cuda_worker_get_count());
}

static bool same_place(const struct sl__place *a, const struct sl__place *b) {
  return a->where == b->where && a->worker == b->worker;
}

/* ---- calls that do the next one, too ---- */

static int first_written(const struct call *call) {
  const char *modes = call->op->modes;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes))
    if (access_of(*modes, call->args->accumulate) == 'w') return k;
  return -1;
}

/* Which of call c + 1's buffers is what call c wrote, if nobody else knows of that; or -1. */
static int handed_on(const struct sl__graph *p, int c, const struct sl__tensor *result) {
  int written = first_written(&p->calls[c]), which = -1, uses = 0;
  if (written < 0) return -1;
  int number = p->calls[c].tensor[written];
  const struct used *u = &p->used[number];
  if (!u->is_written_first || u->tensor == result || u->tensor->host) return -1;
  for (int i = 0; i < p->call_count; i++) {
    const char *modes = p->calls[i].op->modes;
    for (int k = 0; k < p->calls[i].count; k++, modes = sl__next_mode(modes)) {
      if (p->calls[i].tensor[k] != number) continue;
      if (i == c + 1 && access_of(*modes, false) == 'r') which = k;
      uses++;
    }
  }
  return uses == 2 ? which : -1;
}

/* Call c becomes itself and c + 1. */
static enum sl_status join(struct sl__graph *p, int c, int which) {
  struct call *call = &p->calls[c], *next = &p->calls[c + 1];
  const char *modes = next->op->modes;
  int *tensor =
      sl__realloc(call->tensor, (size_t)(call->count + next->count), sizeof *tensor, "a program");
  if (!tensor) return SL_NO_MEMORY;
  call->tensor = tensor;
  tensor[first_written(call)] = next->tensor[first_written(next)];
  for (int k = 0; k < next->count; k++, modes = sl__next_mode(modes))
    if (k != which && access_of(*modes, false) == 'r') tensor[call->count++] = next->tensor[k];
  call->args->count = (uint32_t)call->count;
  call->args->footprint = starpu_hash_crc32c_be(next->args->footprint, call->args->footprint);
  call->flops += next->flops;
  free(next->tensor);
  free(next->args);
  p->call_count--;
  memmove(next, next + 1, (size_t)(p->call_count - c - 1) * sizeof *next);
  return SL_OK;
}

static enum sl_status absorb(struct sl__graph *p, const struct sl__tensor *result) {
  enum sl_status status = SL_OK;
  for (int c = 0; c + 1 < p->call_count && status == SL_OK;) {
    const struct call *call = &p->calls[c], *next = &p->calls[c + 1];
    bool may = call->cut.absorb && is_for_cpus(call) && same_place(&call->place, &next->place) &&
               !next->args->halves;
    int which = may ? handed_on(p, c, result) : -1;
    if (which >= 0 && call->cut.absorb(call->args + 1, next->op, next->args + 1, which))
      status = join(p, c, which);
    else
      c++;
  }
  return status;
}

/* Instead of a submission. */
static bool capture_call(void *context, const struct sl__call *call, enum sl_status *status) {
  struct sl__graph *graph = sl__graph_capturing(context);
  if (!graph) return false;
  bool has_no_kernel = call->launch->place.where == STARPU_CUDA && !call->op->codelet.cuda_funcs[0];
  *status = has_no_kernel ? sl__fail_no_kernel(call) : append(graph, call);
  return true;
}

enum sl_status sl__graphs_open(struct sl_context *context) {
  context->graphs = sl__alloc(1, sizeof *context->graphs, "the context");
  if (!context->graphs) return SL_NO_MEMORY;
  const struct sl__submit_hook hook = {.instead = capture_call, .data = context};
  return sl__submit_hook_add(context, &hook);
}

void sl__graphs_close(struct sl_context *context) {
  free(context->graphs);
  context->graphs = NULL;
}

/* ---- cutting ---- */

/* Of a task's tensors together, so that a model that is larger than a device's memory, or the limit
 * on it, can still go through it piece by piece. Each worker has scratch memory of its own, of up
 * to twice what is asked for. 0: as much as they like. */
static size_t most_bytes(const struct sl_context *context) {
  size_t workers = starpu_worker_get_count(), most = sl__memory_limit(context->memory);
  most /= 4 * (workers ? workers : 1);
  for (int w = 0; w < (int)workers; w++) {
    size_t room = sl__cuda_room(w) / 4;
    if (room && (!most || room < most)) most = room;
  }
  return most;
}

/* Bytes that a call adds to those of the segment that it would be in. */
static size_t added_bytes(const struct sl__graph *p, int first, int at) {
  const struct call *call = &p->calls[at];
  size_t bytes = 0;
  for (int i = 0; i < call->count; i++) {
    bool known = false;
    for (int c = first; c < at && !known; c++)
      for (int k = 0; k < p->calls[c].count && !known; k++)
        known = p->calls[c].tensor[k] == call->tensor[i];
    if (!known) bytes += p->used[call->tensor[i]].tensor->capacity;
  }
  return bytes;
}

static enum sl_status cut(struct sl__graph *p) {
  size_t most = most_bytes(p->context), bytes = 0;
  p->segments = sl__alloc((size_t)p->call_count, sizeof *p->segments, "a program");
  if (!p->segments) return SL_NO_MEMORY;
  for (int c = 0; c < p->call_count; c++) {
    struct sl__subgraph *s = &p->segments[p->segment_count - (p->segment_count > 0)];
    size_t more = most && p->segment_count ? added_bytes(p, s->first, c) : 0;
    if (!p->segment_count || !same_place(&s->place, &p->calls[c].place) ||
        (most && bytes + more > most)) {
      s = &p->segments[p->segment_count++];
      *s = (struct sl__subgraph){.program = p, .first = c, .place = p->calls[c].place};
      bytes = 0;
      if (most) more = added_bytes(p, c, c);
    }
    bytes += more;
    s->end = c + 1;
  }
  return SL_OK;
}

/* ---- a segment's task ---- */

/* How the segment's calls use it, as a letter of a task whose tensors are of any type. */
static char mode_in(const struct sl__graph *p, const struct sl__subgraph *s, int number) {
  char mode = 0;
  for (int c = s->first; c < s->end; c++) {
    const char *modes = p->calls[c].op->modes;
    for (int k = 0; k < p->calls[c].count; k++) {
      char access = access_of(*modes, p->calls[c].args->accumulate);
      modes = sl__next_mode(modes);
      if (p->calls[c].tensor[k] != number) continue;
      if (!mode) mode = access == 'w' ? 'z' : access == 'r' ? 'x' : 'm';
      if (access != 'r' && mode == 'x') mode = 'm';
    }
  }
  return mode;
}

static void add_buffer(struct sl__subgraph *s, struct sl__tensor *tensor, char mode, int number) {
  s->tensors[s->count] = tensor;
  s->modes[s->count] = mode;
  if (number >= 0) s->buffer[number] = s->count;
  s->count++;
}

static enum sl_status find_buffers(struct sl__graph *p, int segment) {
  struct sl__subgraph *s = &p->segments[segment];
  size_t most = (size_t)p->used_count + 1;
  struct sl__tensor *memory = NULL;
  enum sl_status status = SL_OK;
  s->tensors = sl__alloc(most, sizeof *s->tensors, "a program");
  s->modes = sl__alloc(most + 1, 1, "a program");
  s->buffer = sl__alloc(most, sizeof *s->buffer, "a program");
  if (!s->tensors || !s->modes || !s->buffer) return SL_NO_MEMORY;
  for (int i = 0; i < p->used_count; i++) s->buffer[i] = -1;
  SL__TRY(sl__scratch(p->context, s->inner ? s->inner : 1, &memory));
  add_buffer(s, memory, 's', -1);
  for (int i = 0; i < p->used_count; i++) {
    const struct used *u = &p->used[i];
    char mode = u->is_inner ? 0 : mode_in(p, s, i);
    if (!mode) continue;
    struct sl__tensor *tensor = u->pack ? sl__weight_cache_tensor(u->pack) : u->tensor;
    for (int b = 1; b < s->count && u->pack; b++)
      if (s->tensors[b] == tensor) s->buffer[i] = b;
    if (s->buffer[i] < 0) add_buffer(s, tensor, mode, i);
  }
out:
  return status;
}

/* "conv1..fc2", and what its calls have in common. */
static enum sl_status describe(struct sl__graph *p, struct sl__subgraph *s) {
  const char *first = p->calls[s->first].name, *last = p->calls[s->end - 1].name;
  size_t size = strlen(first) + strlen(last) + 3;
  s->name = sl__alloc(size, 1, "a program");
  if (!s->name) return SL_NO_MEMORY;
  snprintf(s->name, size, "%s%s%s", first, strcmp(first, last) ? ".." : "",
           strcmp(first, last) ? last : "");
  for (int c = s->first; c < s->end; c++) {
    const struct call *call = &p->calls[c];
    uint32_t part[] = {call->args->footprint, call->args->is_prepacked,
                       starpu_hash_crc32c_string(call->op->codelet.name, 0)};
    s->footprint = starpu_hash_crc32c_be_n(part, sizeof part, s->footprint);
    s->flops += call->flops;
  }
  return SL_OK;
}

static bool may_pack(const struct sl__graph *p, const struct used *u) {
  return !u->is_written && u->tensor != p->input;
}

/* Is it read as it is? */
static bool is_read_plain(const struct sl__graph *p, int number) {
  for (int c = 0; c < p->call_count; c++)
    for (int k = 0; k < p->calls[c].count; k++) {
      const struct call *call = &p->calls[c];
      bool formed = call->form.make && call->form.buffer == k;
      if (call->tensor[k] == number && !formed) return true;
    }
  return false;
}

static struct sl__weight_cache_item plain_item(const struct used *u) {
  return (struct sl__weight_cache_item){.tensor = u->tensor, .bytes = u->tensor->bytes};
}

static struct sl__weight_cache_item formed_item(const struct sl__graph *p,
                                                const struct call *call) {
  return (struct sl__weight_cache_item){.tensor = p->used[call->tensor[call->form.buffer]].tensor,
                                        .make = call->form.make,
                                        .bytes = call->form.bytes,
                                        .key = call->form.key,
                                        .args = call->args + 1,
                                        .args_size = call->args_size - sizeof *call->args};
}

/* Forms first: what they stand for is then not needed as it is. A GPU, which does not read forms,
 * gets a member without them. */
static enum sl_status fill_pack(struct sl__graph *p) {
  enum sl_status status = SL_OK;
  for (int c = 0; c < p->call_count; c++) {
    if (!p->calls[c].form.make) continue;
    const struct sl__weight_cache_item item = formed_item(p, &p->calls[c]);
    SL__TRY(sl__weight_cache_add(p->pack, &item));
    if (!sl__weight_cache_holds(p->pack, &item)) p->calls[c].form.make = NULL;
  }
  if (starpu_cuda_worker_get_count()) SL__TRY(sl__weight_cache_close(p->pack));
  for (int i = 0; i < p->used_count; i++) {
    const struct sl__weight_cache_item item = plain_item(&p->used[i]);
    if (may_pack(p, &p->used[i]) && is_read_plain(p, i))
      SL__TRY(sl__weight_cache_add(p->pack, &item));
  }
  SL__TRY(sl__weight_cache_close(p->pack));
out:
  return status;
}

/* The call reads that, which counts as a tensor of its own. */
static enum sl_status use_form(struct sl__graph *p, struct call *call) {
  const struct sl__weight_cache_item item = formed_item(p, call);
  const struct sl__weight_cache *member = sl__weight_cache_member(p->pack, &item);
  if (!member) return SL_OK;
  int *tensor = &call->tensor[call->form.buffer];
  if (!grow((void **)&p->used, p->used_count, &p->used_room, sizeof *p->used)) return SL_NO_MEMORY;
  p->used[p->used_count] = (struct used){.tensor = item.tensor,
                                         .pack = member,
                                         .offset = (size_t)sl__weight_cache_offset(member, &item)};
  *tensor = p->used_count++;
  call->args->is_prepacked = 1;
  return SL_OK;
}

/* Several tasks would each need the whole pack where they need a part of it; and CPUs make it. */
static enum sl_status find_packed(struct sl__graph *p) {
  enum sl_status status = SL_OK;
  if (!p->pack || p->segment_count > 1 || !starpu_cpu_worker_get_count()) return SL_OK;
  for (int c = 0; c < p->call_count; c++) {
    struct call *call = &p->calls[c];
    bool may = call->form.make && is_for_cpus(call);
    if (!may || !may_pack(p, &p->used[call->tensor[call->form.buffer]])) call->form.make = NULL;
  }
  SL__TRY(fill_pack(p));
  int count = p->used_count;
  for (int c = 0; c < p->call_count; c++)
    if (p->calls[c].form.make) SL__TRY(use_form(p, &p->calls[c]));
  for (int i = 0; i < count; i++) {
    struct used *u = &p->used[i];
    const struct sl__weight_cache_item item = plain_item(u);
    u->pack = may_pack(p, u) ? sl__weight_cache_member(p->pack, &item) : NULL;
    if (u->pack) u->offset = (size_t)sl__weight_cache_offset(u->pack, &item);
  }
out:
  return status;
}

enum sl_status sl__graph_compile(struct sl__graph *p, struct sl__tensor *result,
                                 enum sl_status status) {
  __atomic_store_n(&p->context->graphs->capturing, NULL, __ATOMIC_RELEASE);
  if (status != SL_OK) return status;
  if (!p->call_count) return sl__fail(SL_BAD_ARGUMENT, "a program without calls");
  p->result = result;
  SL__TRY(absorb(p, result));
  SL__TRY(cut(p));
  SL__TRY(find_packed(p));
  sl__graph_find_uses(p, result);
  for (int s = 0; s < p->segment_count; s++) {
    SL__TRY(sl__subgraph_place(p, s));
    SL__TRY(find_buffers(p, s));
    SL__TRY(describe(p, &p->segments[s]));
  }
out:
  return status;
}

/* ---- running ---- */

/* What goes from task to task is of no use after its last one. */
static void forget(struct sl__graph *p, int segment) {
  for (int i = 0; i < p->used_count; i++) {
    const struct used *u = &p->used[i];
    bool passes = u->is_written_first && !u->is_inner && u->first_segment >= 0 &&
                  u->tensor != p->result && u->first_segment != u->last_segment;
    if (passes && u->last_segment == segment) sl__tensor_invalidate(u->tensor);
  }
}

static enum sl_status submit(const struct sl__graph *p, const struct sl__subgraph *s,
                             const struct sl__place *place, int priority, struct sl__tensor *result,
                             uint32_t footprint) {
  const struct sl__launch launch = {
      .name = s->name, .place = *place, .priority = priority, .modes = s->modes};
  struct sl__tensor *tensors[s->count];
  for (int i = 0; i < s->count; i++)
    tensors[i] = result && s->tensors[i] == p->result ? result : s->tensors[i];
  /* the argument is an address: the task runs in this process */
  return sl__submit(p->context, p->op, &launch, s->count, tensors, &s, sizeof s, s->flops,
                    s->footprint ^ footprint);
}

enum sl_status sl__graph_submit(struct sl__graph *p, int priority, struct sl__tensor *result) {
  enum sl_status status = SL_OK;
  p->leader = 0;
  for (int i = 0; i < p->segment_count && status == SL_OK; i++) {
    const struct sl__subgraph *s = &p->segments[i];
    status = submit(p, s, &s->place, priority + i, result, 0);
    if (status == SL_OK) forget(p, i);
  }
  return status;
}

/* This thread still has its core for a moment: a worker that has another one begins at once. */
static int leader_of(const struct sl__subgraph *s) {
  int core = sched_getcpu();
  for (int member = 0; member < s->members && core >= 0; member++)
    if (sl__member_core(member) != core) return member;
  return 0;
}

enum sl_status sl__graph_submit_to_all(struct sl__graph *p, int priority,
                                       struct sl__tensor *result) {
  const struct sl__subgraph *s = &p->segments[0];
  if (p->segment_count > 1 || s->members < 2 || p->forced_parts)
    return sl__graph_submit(p, priority, result);
  p->leader = leader_of(s);
  const struct sl__place place = sl__member_place(p->leader);
  sl__team_expect(s->team);
  /* what it takes is another matter than alone: a footprint of its own */
  enum sl_status status = submit(p, s, &place, priority, result, (uint32_t)s->members);
  sl__inbox_put(p->context, p->leader, NULL); /* it has a task now */
  for (int member = 0; member < s->members && status == SL_OK; member++)
    if (member != p->leader) sl__graph_ask_helper(p, member, priority);
  return status;
}
