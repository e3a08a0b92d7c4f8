#include "codelets/kernels/bf16_adapter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/failure.h"
#include "core/base/half.h"
#include "core/runtime/submit.h"

/* ---- conversions --------------------------------------------------------------------------- */

SL__SIMD void sl__bf16_widen(const uint16_t *codes, float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++) values[i] = sl__bf16_value(codes[i]);
}

SL__SIMD void sl__bf16_narrow(const float *values, uint16_t *codes, int64_t n) {
  for (int64_t i = 0; i < n; i++) codes[i] = sl__bf16_code(values[i]);
}

/* ---- a thread's memory --------------------------------------------------------------------- */

/* Kept between tasks: new pages from the system cost as much as the conversion. */
struct memory {
  float *values;
  int64_t count;
};

static int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

static pthread_key_t memory_key;

static void memory_free(void *memory) {
  free(((struct memory *)memory)->values);
  free(memory);
}

static void make_memory_key(void) { pthread_key_create(&memory_key, memory_free); }

static float *room_for(int64_t count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_memory_key);
  struct memory *m = pthread_getspecific(memory_key);
  if (!m) {
    m = calloc(1, sizeof *m);
    if (!m) return NULL;
    if (pthread_setspecific(memory_key, m)) {
      free(m);
      return NULL;
    }
  }
  if (m->count >= count) return m->values;
  free(m->values);
  m->values = aligned_alloc(64, (size_t)count * sizeof *m->values);
  m->count = m->values ? count : 0;
  return m->values;
}

float *sl__bf16_room(int64_t floats) {
  float *room = room_for(whole_lines(floats));
  if (!room)
    sl__task_failed(SL_NO_MEMORY, "no memory for %lld bf16 values as floats", (long long)floats);
  return room;
}

/* ---- the adapter --------------------------------------------------------------------------- */

static int64_t forced_floats;

int64_t sl__bf16_strip(void) {
  int64_t forced = __atomic_load_n(&forced_floats, __ATOMIC_RELAXED);
  return forced ? forced : 1 << 16;
}

void sl__bf16_strip_force(int64_t floats) {
  __atomic_store_n(&forced_floats, floats, __ATOMIC_RELAXED);
}

/* A task's buffer in the form that the kernel gets: that of a strip of rows. */
struct view {
  struct starpu_vector_interface as_seen;
  float *values; /* of a bf16 buffer; else NULL */
  int64_t count; /* values of a group of rows, or of the whole buffer */
  char mode;
  bool by_rows;
};

static bool is_in(uint32_t mask, int buffer) { return mask >> sl__mask_bit(buffer) & 1; }

static bool is_read(const struct view *v, const void *cl_arg) {
  return v->mode == 'r' || v->mode == 'm' || (v->mode == 'a' && sl__accumulate(cl_arg));
}

static uint16_t *codes_of(void *buffer) { return (uint16_t *)STARPU_VECTOR_GET_PTR(buffer); }

static int64_t bytes_of(void *buffer) {
  return (int64_t)(STARPU_VECTOR_GET_NX(buffer) * STARPU_VECTOR_GET_ELEMSIZE(buffer));
}

/* A call's rows, in groups: all of them, and those of a strip. */
struct strips {
  struct sl__rowwise of;
  int64_t all, each;
};

static int64_t strip_of(void *buffers[], int count, uint32_t bf16_mask, const struct strips *s) {
  int64_t floats = 0;
  for (int i = 0; i < count; i++)
    if (is_in(bf16_mask, i) && is_in(s->of.buffers, i)) floats += bytes_of(buffers[i]) / 2 / s->all;
  int64_t groups = floats ? sl__bf16_strip() / floats : s->all;
  return groups < 1 ? 1 : groups < s->all ? groups : s->all;
}

/* Returns the floats of all views. */
static int64_t lay_out(struct view *views, void *buffers[], int count, const char *modes,
                       const struct strips *s, uint32_t bf16_mask) {
  int64_t all = 0;
  for (int i = 0; i < count; i++) {
    struct view *v = &views[i];
    *v = (struct view){.as_seen = *(struct starpu_vector_interface *)buffers[i],
                       .mode = sl__access(*modes),
                       .by_rows = is_in(s->of.buffers, i)};
    modes = sl__next_mode(modes);
    if (!is_in(bf16_mask, i)) continue;
    v->count = bytes_of(buffers[i]) / 2 / (v->by_rows ? s->all : 1);
    v->as_seen.elemsize *= 2;
    all += whole_lines(v->by_rows ? s->each * v->count : v->count);
  }
  return all;
}

static void give_room(struct view *views, void *buffers[], int count, const struct strips *s,
                      float *room, const void *cl_arg) {
  for (int i = 0; i < count; i++) {
    struct view *v = &views[i];
    if (!v->count) continue;
    v->values = room;
    v->as_seen.ptr = (uintptr_t)room;
    room += whole_lines(v->by_rows ? s->each * v->count : v->count);
    if (!v->by_rows && is_read(v, cl_arg))
      sl__bf16_widen(codes_of(buffers[i]), v->values, v->count);
  }
}

/* Before the kernel (after: false) and behind it. */
static void convert(struct view *views, void *buffers[], int n, int64_t all, int64_t first,
                    int64_t count, const void *cl_arg, bool after) {
  for (int i = 0; i < n; i++) {
    struct view *v = &views[i];
    int64_t at = first * v->count, values = count * v->count;
    if (!v->by_rows) continue;
    if (!v->values)
      v->as_seen.ptr =
          STARPU_VECTOR_GET_PTR(buffers[i]) + (uintptr_t)(bytes_of(buffers[i]) / all * first);
    else if (after && v->mode != 'r')
      sl__bf16_narrow(v->values, codes_of(buffers[i]) + at, values);
    else if (!after && is_read(v, cl_arg))
      sl__bf16_widen(codes_of(buffers[i]) + at, v->values, values);
  }
}

/* The strips in their order; s->of points into args, which become those of each. */
static void run_strips(sl__kernel *kernel, const struct strips *s, struct view *views,
                       void *buffers[], struct sl__args_header *args, const void *cl_arg) {
  int n = sl__buffer_count(cl_arg);
  void *seen[n];
  for (int i = 0; i < n; i++) seen[i] = &views[i].as_seen;
  for (int64_t first = 0, count; first < s->all; first += count) {
    count = s->all - first < s->each ? s->all - first : s->each;
    *s->of.rows = count * s->of.group;
    if (s->of.sums && first) args->accumulate = 1;
    convert(views, buffers, n, s->all, first, count, cl_arg, false);
    kernel(seen, args);
    convert(views, buffers, n, s->all, first, count, cl_arg, true);
    if (s->of.first) *s->of.first += (uint64_t)count * s->of.step;
  }
}

void sl__run_with_bf16_adapter(sl__kernel *kernel, const char *modes, sl__rows_of *rows_of,
                               void *buffers[], void *cl_arg) {
  const struct sl__args_header *header = cl_arg;
  int count = sl__buffer_count(cl_arg);
  if (!header->bf16_mask) {
    kernel(buffers, cl_arg);
    return;
  }
  struct view views[count];
  int64_t once = 1;
  _Alignas(8) char copy[sizeof *header + header->args_size];
  memcpy(copy, cl_arg, sizeof copy);
  struct sl__args_header *args = (struct sl__args_header *)copy;
  struct strips s = {rows_of ? rows_of(args + 1) : sl__all_by_rows(&once)};
  if (!s.of.group) s.of.group = 1;
  s.all = *s.of.rows / s.of.group;
  s.each = strip_of(buffers, count, header->bf16_mask, &s);
  float *room = sl__bf16_room(lay_out(views, buffers, count, modes, &s, header->bf16_mask));
  if (!room) return;
  give_room(views, buffers, count, &s, room, cl_arg);
  run_strips(kernel, &s, views, buffers, args, cl_arg);
}
