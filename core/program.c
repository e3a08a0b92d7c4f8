#include "core/program.h"

#include <stdlib.h>
#include <string.h>

#include "core/cuda.h"
#include "core/error.h"
#include "core/failure.h"
#include "core/memory.h"

/* A call, copied. */
struct call {
  struct sl__op *op;
  const char *name;
  struct sl__place place;
  double flops;
  int count;
  int *tensor; /* [count], numbers in the program's list */
  struct sl__args_header *args;
};

/* A tensor that calls use. */
struct used {
  struct sl_tensor *tensor;
  int first_segment, last_segment;
  int first_call, last_call; /* within its only segment, where it is inner */
  bool is_written_first, is_scratch;
  bool is_inner; /* only one segment knows it: it lies in the worker's memory */
  size_t offset; /* there */
};

struct sl__segment {
  const struct sl__program *program;
  int first, end; /* calls */
  size_t inner;   /* bytes of the worker's memory */
  int count;      /* buffers: that memory, then tensors */
  struct sl_tensor **tensors;
  char *modes;
  int *buffer; /* [used], of each in the program's list; -1: none, it is inner or not its */
  char *name;
  struct sl__place place;
  double flops;
  uint32_t footprint;
};

struct sl__program {
  struct sl_context *context;
  struct sl__op *op;
  struct call *calls;
  int call_count, call_room;
  struct used *used;
  int used_count, used_room;
  struct sl__segment *segments;
  int segment_count;
  const struct sl_tensor *result;
};

enum { ALIGNMENT = 256 }; /* what CUDA's own allocations have */

enum sl_status sl__program_new(struct sl_context *context, struct sl__op *op,
                               struct sl__program **program) {
  *program = sl__alloc(1, sizeof **program, "a program");
  if (!*program) return SL_NO_MEMORY;
  (*program)->context = context;
  (*program)->op = op;
  return SL_OK;
}

static void segment_clear(struct sl__segment *s) {
  free(s->tensors);
  free(s->modes);
  free(s->buffer);
  free(s->name);
}

void sl__program_free(struct sl__program *p) {
  if (!p) return;
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
void sl__program_record(struct sl__program *program) {
  __atomic_store_n(&program->context->recorder, pthread_self(), __ATOMIC_RELAXED);
  __atomic_store_n(&program->context->program, program, __ATOMIC_RELEASE);
}

bool sl__program_records(const struct sl_context *context) {
  return __atomic_load_n(&context->program, __ATOMIC_ACQUIRE) &&
         pthread_equal(__atomic_load_n(&context->recorder, __ATOMIC_RELAXED), pthread_self());
}

int sl__program_tasks(const struct sl__program *program) { return program->segment_count; }

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
static int number_of(struct sl__program *p, struct sl_tensor *tensor, char access) {
  for (int i = 0; i < p->used_count; i++)
    if (p->used[i].tensor == tensor) return i;
  if (!grow((void **)&p->used, p->used_count, &p->used_room, sizeof *p->used)) return -1;
  p->used[p->used_count] = (struct used){
      .tensor = tensor, .is_written_first = access == 'w', .is_scratch = access == 's'};
  return p->used_count++;
}

/* 'r', 'w', 'm' or 's': of a call's buffer. */
static char access_of(char letter, bool accumulate) {
  char access = sl__access(letter);
  return access == 'a' ? (accumulate ? 'm' : 'w') : access;
}

enum sl_status sl__program_note(struct sl__program *p, const struct sl__call *from) {
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
                        .count = from->count};
  /* two calls that may run at the same places say so in the same words */
  if (call->place.where != STARPU_CUDA) sl__place_here(&call->place, on_gpu);
  call->tensor = sl__alloc((size_t)from->count, sizeof *call->tensor, "a program");
  call->args = sl__alloc(1, sizeof *call->args + from->args_size, "a program");
  p->call_count++; /* freed with the program */
  if (!call->tensor || !call->args) return SL_NO_MEMORY;
  *call->args = *from->header;
  if (from->args_size) memcpy(call->args + 1, from->args, from->args_size);
  for (int i = 0; i < from->count; i++) {
    char access = access_of(*modes, from->header->accumulate);
    call->tensor[i] = number_of(p, from->tensors[i], access);
    if (call->tensor[i] < 0) return SL_NO_MEMORY;
    scratches += access == 's'; /* all of a task's are one place */
    if (scratches > 1)
      return sl_fail(SL_UNSUPPORTED, "%s: two scratch tensors in a program's call",
                     from->op->codelet.name);
    modes = sl__next_mode(modes);
  }
  return SL_OK;
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
static size_t added_bytes(const struct sl__program *p, int first, int at) {
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

static bool same_place(const struct sl__place *a, const struct sl__place *b) {
  return a->where == b->where && a->worker == b->worker;
}

static enum sl_status cut(struct sl__program *p) {
  size_t most = most_bytes(p->context), bytes = 0;
  p->segments = sl__alloc((size_t)p->call_count, sizeof *p->segments, "a program");
  if (!p->segments) return SL_NO_MEMORY;
  for (int c = 0; c < p->call_count; c++) {
    struct sl__segment *s = &p->segments[p->segment_count - (p->segment_count > 0)];
    size_t more = most && p->segment_count ? added_bytes(p, s->first, c) : 0;
    if (!p->segment_count || !same_place(&s->place, &p->calls[c].place) ||
        (most && bytes + more > most)) {
      s = &p->segments[p->segment_count++];
      *s = (struct sl__segment){.program = p, .first = c, .place = p->calls[c].place};
      bytes = 0;
      if (most) more = added_bytes(p, c, c);
    }
    bytes += more;
    s->end = c + 1;
  }
  return SL_OK;
}

/* ---- who uses what ---- */

static void note_use(struct used *u, int segment, int call, bool is_first) {
  if (is_first) {
    u->first_segment = segment;
    u->first_call = call;
  }
  u->last_segment = segment;
  u->last_call = call;
}

static void find_uses(struct sl__program *p, const struct sl_tensor *result) {
  for (int i = 0; i < p->used_count; i++) p->used[i].first_segment = -1;
  for (int s = 0; s < p->segment_count; s++)
    for (int c = p->segments[s].first; c < p->segments[s].end; c++)
      for (int k = 0; k < p->calls[c].count; k++) {
        struct used *u = &p->used[p->calls[c].tensor[k]];
        note_use(u, s, c, u->first_segment < 0);
      }
  for (int i = 0; i < p->used_count; i++) {
    struct used *u = &p->used[i];
    bool passes = u->first_segment != u->last_segment;
    u->is_inner = u->is_scratch ||
                  (u->is_written_first && u->tensor != result && !u->tensor->host && !passes);
  }
}

/* The lowest place for `bytes` beside what lies in [0, count) of `others` while it is needed. */
static size_t lowest_place(struct used *const *others, int count, const struct used *u,
                           size_t bytes) {
  size_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < count; i++) {
      const struct used *o = others[i];
      bool together = o->first_call <= u->last_call && u->first_call <= o->last_call;
      if (!together || o->offset >= at + bytes || at >= o->offset + o->tensor->bytes) continue;
      at = (o->offset + o->tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
      moved = true;
    }
  }
  return at;
}

/* Scratch memory is a call's own; so all that of a segment is one place, behind the rest. */
static enum sl_status place_inner(struct sl__program *p, int segment) {
  struct used **placed = sl__alloc((size_t)p->used_count + 1, sizeof *placed, "a program");
  size_t end = 0, scratch = 0;
  int count = 0;
  if (!placed) return SL_NO_MEMORY;
  for (int i = 0; i < p->used_count; i++) {
    struct used *u = &p->used[i];
    if (u->is_scratch || !u->is_inner || u->first_segment != segment) continue;
    u->offset = lowest_place(placed, count, u, u->tensor->bytes);
    if (u->offset + u->tensor->bytes > end) end = u->offset + u->tensor->bytes;
    placed[count++] = u;
  }
  free(placed);
  end = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  for (int c = p->segments[segment].first; c < p->segments[segment].end; c++)
    for (int k = 0; k < p->calls[c].count; k++) {
      struct used *u = &p->used[p->calls[c].tensor[k]];
      if (!u->is_scratch) continue;
      if (u->tensor->bytes > scratch) scratch = u->tensor->bytes;
    }
  p->segments[segment].inner = end + scratch;
  return SL_OK;
}

/* ---- a segment's task ---- */

/* How the segment's calls use it, as a letter of a task whose tensors are of any type. */
static char mode_in(const struct sl__program *p, const struct sl__segment *s, int number) {
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

static void add_buffer(struct sl__segment *s, struct sl_tensor *tensor, char mode, int number) {
  s->tensors[s->count] = tensor;
  s->modes[s->count] = mode;
  if (number >= 0) s->buffer[number] = s->count;
  s->count++;
}

static enum sl_status find_buffers(struct sl__program *p, int segment) {
  struct sl__segment *s = &p->segments[segment];
  size_t most = (size_t)p->used_count + 1;
  struct sl_tensor *memory = NULL;
  enum sl_status status = SL_OK;
  s->tensors = sl__alloc(most, sizeof *s->tensors, "a program");
  s->modes = sl__alloc(most + 1, 1, "a program");
  s->buffer = sl__alloc(most, sizeof *s->buffer, "a program");
  if (!s->tensors || !s->modes || !s->buffer) return SL_NO_MEMORY;
  for (int i = 0; i < p->used_count; i++) s->buffer[i] = -1;
  SL_TRY(sl__scratch(p->context, s->inner ? s->inner : 1, &memory));
  add_buffer(s, memory, 's', -1);
  for (int i = 0; i < p->used_count; i++) {
    const struct used *u = &p->used[i];
    char mode = u->is_inner ? 0 : mode_in(p, s, i);
    if (mode) add_buffer(s, u->tensor, mode, i);
  }
out:
  return status;
}

/* "conv1..fc2", and what its calls have in common. */
static enum sl_status describe(struct sl__program *p, struct sl__segment *s) {
  const char *first = p->calls[s->first].name, *last = p->calls[s->end - 1].name;
  size_t size = strlen(first) + strlen(last) + 3;
  s->name = sl__alloc(size, 1, "a program");
  if (!s->name) return SL_NO_MEMORY;
  snprintf(s->name, size, "%s%s%s", first, strcmp(first, last) ? ".." : "",
           strcmp(first, last) ? last : "");
  for (int c = s->first; c < s->end; c++) {
    const struct call *call = &p->calls[c];
    uint32_t part[] = {call->args->footprint, starpu_hash_crc32c_string(call->op->codelet.name, 0)};
    s->footprint = starpu_hash_crc32c_be_n(part, sizeof part, s->footprint);
    s->flops += call->flops;
  }
  return SL_OK;
}

enum sl_status sl__program_compile(struct sl__program *p, struct sl_tensor *result,
                                   enum sl_status status) {
  __atomic_store_n(&p->context->program, NULL, __ATOMIC_RELEASE);
  if (status != SL_OK) return status;
  if (!p->call_count) return sl_fail(SL_BAD_ARGUMENT, "a program without calls");
  p->result = result;
  SL_TRY(cut(p));
  find_uses(p, result);
  for (int s = 0; s < p->segment_count; s++) {
    SL_TRY(place_inner(p, s));
    SL_TRY(find_buffers(p, s));
    SL_TRY(describe(p, &p->segments[s]));
  }
out:
  return status;
}

/* ---- running ---- */

/* What goes from task to task is of no use after its last one. */
static void forget(struct sl__program *p, int segment) {
  for (int i = 0; i < p->used_count; i++) {
    const struct used *u = &p->used[i];
    bool passes = u->is_written_first && !u->is_inner && u->tensor != p->result &&
                  u->first_segment != u->last_segment;
    if (passes && u->last_segment == segment) sl__tensor_invalidate(u->tensor);
  }
}

static enum sl_status submit(const struct sl__program *p, const struct sl__segment *s, int priority,
                             struct sl_tensor *result) {
  const struct sl__launch launch = {
      .name = s->name, .place = s->place, .priority = priority, .modes = s->modes};
  struct sl_tensor *tensors[s->count];
  for (int i = 0; i < s->count; i++)
    tensors[i] = result && s->tensors[i] == p->result ? result : s->tensors[i];
  /* the argument is an address: the task runs in this process */
  return sl__submit(p->context, p->op, &launch, s->count, tensors, &s, sizeof s, s->flops,
                    s->footprint);
}

enum sl_status sl__program_submit(struct sl__program *p, int priority, struct sl_tensor *result) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < p->segment_count && status == SL_OK; i++) {
    status = submit(p, &p->segments[i], priority + i, result);
    if (status == SL_OK) forget(p, i);
  }
  return status;
}

/* A buffer as StarPU would hand it to the call's kernel. */
static struct starpu_vector_interface view_of(const struct sl_tensor *tensor, void *memory) {
  size_t rows = (size_t)tensor->shape.dim[0];
  return (struct starpu_vector_interface){.id = STARPU_VECTOR_INTERFACE_ID,
                                          .ptr = (uintptr_t)memory,
                                          .dev_handle = (uintptr_t)memory,
                                          .nx = (uint32_t)rows,
                                          .elemsize = tensor->bytes / rows,
                                          .allocsize = tensor->bytes};
}

static size_t scratch_offset(const struct sl__segment *s, const struct sl_tensor *tensor) {
  return s->inner - tensor->bytes; /* the largest one begins where the rest ends */
}

void sl__segment_run(const struct sl__segment *s, void *buffers[], bool on_gpu) {
  const struct sl__program *p = s->program;
  struct starpu_task *task = starpu_task_get_current();
  const char *name = task ? task->name : NULL;
  struct starpu_codelet *codelet = task ? task->cl : NULL;
  char *inner = (char *)STARPU_VECTOR_GET_PTR(buffers[0]);
  if (on_gpu) sl__task_launches(true); /* of what fails later nobody knows which call it was */
  for (int c = s->first; c < s->end; c++) {
    const struct call *call = &p->calls[c];
    struct starpu_vector_interface view[call->count];
    void *given[call->count];
    for (int k = 0; k < call->count; k++) {
      const struct used *u = &p->used[call->tensor[k]];
      int buffer = s->buffer[call->tensor[k]];
      size_t offset = u->is_scratch ? scratch_offset(s, u->tensor) : u->offset;
      if (buffer < 0) view[k] = view_of(u->tensor, inner + offset);
      given[k] = buffer < 0 ? (void *)&view[k] : buffers[buffer];
    }
    if (task) { /* for what a kernel says that fails at once */
      task->name = call->name;
      task->cl = &call->op->codelet;
    }
    (on_gpu ? call->op->codelet.cuda_funcs[0] : call->op->codelet.cpu_funcs[0])(given, call->args);
  }
  if (on_gpu) sl__task_launches(false);
  if (!task) return;
  task->name = name;
  task->cl = codelet;
}
