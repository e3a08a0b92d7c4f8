/* Tensors: a shape, a type and a StarPU handle. Row-major, batch first. The handle is a vector of
 * dim[0] rows, so that a slice of the batch is a StarPU filter and nothing is copied. */
#ifndef SL_CORE_RUNTIME_TENSOR_H
#define SL_CORE_RUNTIME_TENSOR_H

#include "core/runtime/context.h"

struct sl__tensor {
  struct sl_context *context;
  struct sl_shape shape;
  enum sl_type type;
  size_t bytes;
  size_t capacity; /* bytes of its block, `bytes` or more */
  starpu_data_handle_t handle;
  void *host; /* home memory; NULL for temporaries and views */
  bool owns_host;
  struct sl__tensor *views; /* a partition of the rows, planned once; see sl__tensor_split */
  int view_count;
  starpu_data_handle_t *view_handles; /* theirs, as StarPU's partition calls want them */
  bool is_view;
  struct sl__tensor *whole; /* of a view */
  size_t first;             /* of a piece: the whole's rows before it; see sl__tensor_pieces */
  bool is_piece;
  struct sl__hold *hold;   /* its use by submitted tasks (core/memory/admission.h); or NULL */
  uint64_t writes;         /* number of submitted writes to it or a part of it */
  struct sl__chain *chain; /* whose links have written it (core/runtime/chain.h); or NULL */
};

/* StarPU counts a vector's rows in 32 bits. */
#define SL__MOST_ROWS ((int64_t)UINT32_MAX)

size_t sl__type_size(enum sl_type type);

/* Temporary: memory comes with the first write and goes with sl__tensor_invalidate. */
enum sl_status sl__tensor_temporary(struct sl_context *context, const struct sl_shape *shape,
                                    enum sl_type type, struct sl__tensor **tensor);

/* The same in a block that could hold the shape `largest`: tensors of different shapes with the
 * same largest one take turns in the same memory, on every device. */
enum sl_status sl__tensor_temporary_in(struct sl_context *context, const struct sl_shape *shape,
                                       const struct sl_shape *largest, enum sl_type type,
                                       struct sl__tensor **tensor);

/* With a home in host memory: the caller's (which must outlive the tensor), or, if host is NULL,
 * zeroed memory of the tensor itself, pinned if there is a GPU. */
enum sl_status sl__tensor_host(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, void *host, struct sl__tensor **tensor);

/* Partition the rows into count views of rows[i] > 0 each (their sum is dim[0]) by a StarPU filter.
 * The views stay usable until the tensor is freed. For a tensor of which only the views are used
 * from now on, call sl__tensor_keep_split once: then StarPU need not switch back and forth. */
enum sl_status sl__tensor_split(struct sl__tensor *tensor, int count, const int64_t *rows);
enum sl_status sl__tensor_keep_split(struct sl__tensor *tensor);

/* For parameters and the like: as sl__tensor_host with host NULL, but not zeroed. With a swap
 * folder it has no home, so that StarPU can move it there. */
enum sl_status sl__tensor_kept(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, struct sl__tensor **tensor);

/* As sl__tensor_split, but unknown to StarPU: a task that gets such a piece gets the whole
 * tensor, and its kernel must begin at the piece's first row. For operations whose launch says
 * `pieces`. StarPU cannot partition a tensor that it may move to the swap folder. */
enum sl_status sl__tensor_pieces(struct sl__tensor *tensor, int count, const int64_t *rows);

/* Is it partitioned, so that StarPU has its parts instead? */
bool sl__tensor_is_cut(const struct sl__tensor *tensor);

/* Gives it a home in main memory, after the tasks that use it; nothing if it has one. */
enum sl_status sl__tensor_bring_home(struct sl__tensor *tensor);

/* The contents are not needed any more: its memory can serve the next tensor of that size.
 * Asynchronous. */
void sl__tensor_invalidate(struct sl__tensor *tensor);

/* A write to the tensor, or to a part of it, is submitted: called for tasks of sl__submit, for
 * messages and by sl__tensor_write. The owner of a copy sees by the number of writes that it is
 * out of date. */
void sl__tensor_written(struct sl__tensor *tensor);
uint64_t sl__tensor_writes(const struct sl__tensor *tensor);

/* Copy all values to or from host memory; waits for earlier tasks on the tensor. */
enum sl_status sl__tensor_read(struct sl__tensor *tensor, void *values);
enum sl_status sl__tensor_write(struct sl__tensor *tensor, const void *values);

/* Waits for the tasks that use it. NULL is legal. */
void sl__tensor_free(struct sl__tensor *tensor);

/* The same for a temporary without waiting: it goes when all tasks submitted so far have ended. */
void sl__tensor_free_later(struct sl__tensor *tensor);

/* Of a temporary that no task has used, and none will: gives back StarPU's handle, which takes some
 * 20 kB. Shape and type stay, until sl__tensor_free. */
void sl__tensor_drop_handle(struct sl__tensor *tensor);

/* Scratch memory of at least bytes, for mode 's'; each worker has its own copy, kept between tasks.
 */
enum sl_status sl__scratch(struct sl_context *context, size_t bytes, struct sl__tensor **scratch);

#endif
