#include "core/runtime/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/runtime/chain.h"
#include "core/runtime/cuda.h"
#include "core/runtime/wait.h"

size_t sl__type_size(enum sl_type type) { return type == SL_BF16 ? 2 : 4; }

static enum sl_status check_shape(const struct sl_shape *shape, enum sl_type type, size_t *bytes) {
  char text[96];
  int64_t count = 1;
  bool fits = shape->ndim >= 1 && shape->ndim <= SL_MAX_DIMS;
  for (int i = 0; fits && i < shape->ndim; i++)
    fits = shape->dim[i] >= 1 && !__builtin_mul_overflow(count, shape->dim[i], &count);
  fits = fits && shape->dim[0] <= SL__MOST_ROWS && count <= (INT64_MAX >> 4);
  if (!fits)
    return sl__fail(SL_BAD_SHAPE,
                    "a tensor cannot have shape %s: 1 to %d dimensions, each at least 1, the first "
                    "below 2^32, and fewer than 2^59 values",
                    sl_shape_text(shape, text, sizeof text), SL_MAX_DIMS);
  *bytes = (size_t)count * sl__type_size(type);
  return SL_OK;
}

static enum sl_status tensor_new(struct sl_context *context, const struct sl_shape *shape,
                                 enum sl_type type, struct sl__tensor **tensor) {
  size_t bytes = 0;
  enum sl_status status = check_shape(shape, type, &bytes);
  *tensor = NULL;
  if (status != SL_OK) return status;
  struct sl__tensor *t = sl__alloc(1, sizeof *t, "a tensor");
  if (!t) return SL_NO_MEMORY;
  t->context = context;
  t->shape = *shape;
  t->type = type;
  t->bytes = bytes;
  *tensor = t;
  return SL_OK;
}

static void register_rows(struct sl__tensor *t, int home, size_t capacity) {
  size_t row = t->bytes / (size_t)t->shape.dim[0];
  t->capacity = capacity;
  starpu_vector_data_register_allocsize(&t->handle, home, (uintptr_t)t->host,
                                        (uint32_t)t->shape.dim[0], row, capacity);
}

enum sl_status sl__tensor_temporary(struct sl_context *context, const struct sl_shape *shape,
                                    enum sl_type type, struct sl__tensor **tensor) {
  return sl__tensor_temporary_in(context, shape, shape, type, tensor);
}

enum sl_status sl__tensor_temporary_in(struct sl_context *context, const struct sl_shape *shape,
                                       const struct sl_shape *largest, enum sl_type type,
                                       struct sl__tensor **tensor) {
  size_t capacity;
  enum sl_status status = check_shape(largest, type, &capacity);
  *tensor = NULL;
  if (status == SL_OK) status = tensor_new(context, shape, type, tensor);
  if (status != SL_OK) return status;
  register_rows(*tensor, -1, capacity > (*tensor)->bytes ? capacity : (*tensor)->bytes);
  return SL_OK;
}

/* bytes: of main memory that cannot move; below 0 they go. */
static void tell_pinned(const struct sl_context *c, int64_t bytes) {
  if (c->hooks.tensor.pinned) c->hooks.tensor.pinned(c->hooks.tensor.data, bytes);
}

static void tell_freed(struct sl__tensor *t) {
  const struct sl__tensor_hook *hook = &t->context->hooks.tensor;
  if (hook->freed) hook->freed(hook->data, t);
}

static enum sl_status own_host(struct sl__tensor *t) {
  sl__cuda_settle(-1);
  if (starpu_malloc(&t->host, t->bytes) || !t->host) {
    t->host = NULL;
    return sl__fail(SL_NO_MEMORY, "no memory for a tensor of %zu bytes", t->bytes);
  }
  t->owns_host = true;
  tell_pinned(t->context, (int64_t)t->bytes);
  return SL_OK;
}

enum sl_status sl__tensor_host(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, void *host, struct sl__tensor **tensor) {
  enum sl_status status = tensor_new(context, shape, type, tensor);
  if (status != SL_OK) return status;
  struct sl__tensor *t = *tensor;
  t->host = host;
  if (!host) {
    status = own_host(t);
    if (status != SL_OK) {
      free(t);
      *tensor = NULL;
      return status;
    }
    memset(t->host, 0, t->bytes);
  }
  register_rows(t, STARPU_MAIN_RAM, t->bytes);
  return SL_OK;
}

enum sl_status sl__tensor_kept(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, struct sl__tensor **tensor) {
  if (!context->swaps) return sl__tensor_host(context, shape, type, NULL, tensor);
  return sl__tensor_temporary(context, shape, type, tensor);
}

enum sl_status sl__tensor_bring_home(struct sl__tensor *t) {
  if (t->host) return SL_OK;
  enum sl_status status = own_host(t);
  void *host = t->host;
  t->host = NULL; /* the handle does not have it yet */
  if (status == SL_OK) status = sl__tensor_read(t, host);
  if (status != SL_OK) {
    if (host) starpu_free_noflag(host, t->bytes);
    if (host) tell_pinned(t->context, -(int64_t)t->bytes);
    t->owns_host = false;
    return status;
  }
  starpu_data_unregister_no_coherency(t->handle);
  tell_freed(t);
  t->host = host;
  register_rows(t, STARPU_MAIN_RAM, t->bytes);
  return SL_OK;
}

static void set_part(struct sl__tensor *t, struct sl__tensor *part, int64_t rows) {
  size_t row = t->bytes / (size_t)t->shape.dim[0];
  *part = *t;
  part->shape.dim[0] = rows;
  part->bytes = part->capacity = row * (size_t)rows;
  part->host = NULL;
  part->hold = NULL;
  part->chain = NULL;
  part->owns_host = false;
  part->is_view = true;
  part->whole = t;
}

enum sl_status sl__tensor_pieces(struct sl__tensor *t, int count, const int64_t *rows) {
  struct sl__tensor *views = sl__alloc((size_t)count, sizeof *views, "a split");
  size_t first = 0;
  if (!views) return SL_NO_MEMORY;
  for (int i = 0; i < count; i++) {
    set_part(t, &views[i], rows[i]);
    views[i].is_piece = true;
    views[i].first = first;
    first += (size_t)rows[i];
  }
  t->views = views;
  t->view_count = count;
  return SL_OK;
}

bool sl__tensor_is_cut(const struct sl__tensor *t) { return t->view_handles; }

enum sl_status sl__tensor_split(struct sl__tensor *t, int count, const int64_t *rows) {
  uint32_t *lengths = sl__alloc((size_t)count, sizeof *lengths, "a split");
  starpu_data_handle_t *handles = sl__alloc((size_t)count, sizeof *handles, "a split");
  struct sl__tensor *views = sl__alloc((size_t)count, sizeof *views, "a split");
  if (!lengths || !handles || !views) {
    free(lengths);
    free(handles);
    free(views);
    return SL_NO_MEMORY;
  }
  for (int i = 0; i < count; i++) lengths[i] = (uint32_t)rows[i];
  struct starpu_data_filter filter = {.filter_func = starpu_vector_filter_list,
                                      .nchildren = (unsigned)count,
                                      .filter_arg_ptr = lengths};
  starpu_data_partition_plan(t->handle, &filter, handles);
  for (int i = 0; i < count; i++) {
    set_part(t, &views[i], rows[i]);
    views[i].handle = handles[i];
    /* A chain's link that runs holds the whole tensor so (core/runtime/chain.c). The views would
     * keep it for good, and StarPU would still copy one to the GPU when the memory behind it is
     * freed. */
    starpu_data_set_wt_mask(handles[i], 0);
  }
  t->views = views;
  t->view_count = count;
  t->view_handles = handles;
  free(lengths);
  return SL_OK;
}

enum sl_status sl__tensor_keep_split(struct sl__tensor *t) {
  enum sl_status status = sl__chain_settle(t);
  if (status != SL_OK) return status;
  starpu_data_partition_submit(t->handle, (unsigned)t->view_count, t->view_handles);
  return SL_OK;
}

/* If settling fails, the tensor stays in its chain, and its next use settles that. */
void sl__tensor_invalidate(struct sl__tensor *t) {
  (void)sl__chain_settle(t);
  starpu_data_invalidate_submit(t->handle);
}

/* Any thread may submit, such as one of an asynchronous exchange. */
void sl__tensor_written(struct sl__tensor *t) {
  for (; t; t = t->whole) __atomic_fetch_add(&t->writes, 1, __ATOMIC_RELAXED);
}

uint64_t sl__tensor_writes(const struct sl__tensor *t) {
  return __atomic_load_n(&t->writes, __ATOMIC_RELAXED);
}

static char *local(struct sl__tensor *t) {
  size_t row = t->bytes / (size_t)t->shape.dim[0];
  return (char *)starpu_data_handle_to_pointer(t->handle, STARPU_MAIN_RAM) + t->first * row;
}

enum sl_status sl__tensor_read(struct sl__tensor *t, void *values) {
  enum sl_status status = sl__acquire(t, STARPU_R);
  if (status != SL_OK) return status;
  memcpy(values, local(t), t->bytes);
  starpu_data_release(t->handle);
  return SL_OK;
}

enum sl_status sl__tensor_write(struct sl__tensor *t, const void *values) {
  enum starpu_data_access_mode mode = t->is_piece ? STARPU_RW : STARPU_W;
  enum sl_status status = sl__acquire(t, mode);
  if (status != SL_OK) return status;
  memcpy(local(t), values, t->bytes);
  sl__tensor_written(t);
  starpu_data_release(t->handle);
  return SL_OK;
}

void sl__tensor_free(struct sl__tensor *t) {
  if (!t || t->context->abandoned) return;
  sl__cuda_settle(-1);
  sl__chain_leave(t);
  if (t->view_handles)
    starpu_data_partition_clean(t->handle, (unsigned)t->view_count, t->view_handles);
  free(t->view_handles);
  free(t->views);
  if (t->host)
    starpu_data_unregister(t->handle);
  else if (t->handle)
    starpu_data_unregister_no_coherency(t->handle);
  if (t->owns_host) starpu_free_noflag(t->host, t->bytes);
  if (t->owns_host) tell_pinned(t->context, -(int64_t)t->bytes);
  tell_freed(t);
  free(t);
}

void sl__tensor_drop_handle(struct sl__tensor *t) {
  starpu_data_unregister_no_coherency(t->handle);
  t->handle = NULL;
}

void sl__tensor_free_later(struct sl__tensor *t) {
  if (!t) return;
  sl__chain_leave(t);
  starpu_data_unregister_submit(t->handle);
  tell_freed(t);
  free(t);
}

enum sl_status sl__scratch(struct sl_context *context, size_t bytes, struct sl__tensor **scratch) {
  int power = 12;
  while (power < 47 && ((size_t)1 << power) < bytes) power++;
  struct sl__tensor **slot = &context->scratch[power];
  enum sl_status status = SL_OK;
  if (!*slot) {
    struct sl_shape shape = SL_SHAPE((int64_t)1 << (power - 12), 1024); /* rows have 32 bits */
    status = sl__tensor_temporary(context, &shape, SL_F32, slot);
  }
  *scratch = *slot;
  return status;
}
