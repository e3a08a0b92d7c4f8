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
  size_t capacity; /* of its block: bytes or more */
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
  struct sl__hold *hold; /* what tasks under way have of it (core/memory/admission.h); or NULL */
  uint64_t writes;       /* how often it, or a part of it, was to be written so far */
};

size_t sl__type_size(enum sl_type type);

/* Temporary: memory comes with the first write and goes with sl__tensor_invalidate. */
enum sl_status sl__tensor_temporary(struct sl_context *context, const struct sl_shape *shape,
                                    enum sl_type type, struct sl__tensor **tensor);

/* The same in a block that could hold the shape `largest`: tensors of different shapes with the
 * same largest one take turns in the same memory, on every device. */
enum sl_status sl__tensor_temporary_in(struct sl_context *context, const struct sl_shape *shape,
                                       const struct sl_shape *largest, enum sl_type type,
                                       struct sl__tensor **tensor);

/* At home in host memory: the caller's (which must outlive the tensor), or, with host NULL, zeroed
 * memory of the tensor's own, pinned where there is a GPU. */
enum sl_status sl__tensor_host(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, void *host, struct sl__tensor **tensor);

/* Partition the rows into count views of rows[i] > 0 each (their sum is dim[0]) by a StarPU filter.
 * The views stay usable until the tensor is freed. For a tensor of which only the views are used
 * from now on, call sl__tensor_keep_split once: then StarPU need not switch back and forth. */
enum sl_status sl__tensor_split(struct sl__tensor *tensor, int count, const int64_t *rows);
enum sl_status sl__tensor_keep_split(struct sl__tensor *tensor);

/* Parameters and the like: as sl__tensor_host with host NULL; but not zeroed, and without a home
 * where there is a swap folder, so that StarPU can move them there. */
enum sl_status sl__tensor_kept(struct sl_context *context, const struct sl_shape *shape,
                               enum sl_type type, struct sl__tensor **tensor);

/* As sl__tensor_split, but nothing StarPU knows of: a task that gets such a piece gets the whole,
 * and its kernel must begin at the piece's first row. For operations whose launch says `pieces`.
 * StarPU cannot cut what it may move to the swap folder. */
enum sl_status sl__tensor_pieces(struct sl__tensor *tensor, int count, const int64_t *rows);

/* Is it cut for good, so that StarPU has its parts instead? */
bool sl__tensor_is_cut(const struct sl__tensor *tensor);

/* Give it a home in main memory; waits for the tasks on it. Nothing where it has one. */
enum sl_status sl__tensor_bring_home(struct sl__tensor *tensor);

/* Contents are of no further use: its memory can serve the next tensor of that size. Asynchronous.
 */
void sl__tensor_invalidate(struct sl__tensor *tensor);

/* Somebody writes it, or a part of it: said for all that goes by sl__submit, messages and
 * sl__tensor_write, so that who keeps a copy can see that it is out of date. */
void sl__tensor_written(struct sl__tensor *tensor);
uint64_t sl__tensor_writes(const struct sl__tensor *tensor);

/* Copy all values to or from host memory; waits for earlier tasks on the tensor. */
enum sl_status sl__tensor_read(struct sl__tensor *tensor, void *values);
enum sl_status sl__tensor_write(struct sl__tensor *tensor, const void *values);

/* Waits for the tasks that use it. NULL is legal. */
void sl__tensor_free(struct sl__tensor *tensor);

/* The same for a temporary, without waiting: it goes when the tasks submitted so far are done. */
void sl__tensor_free_later(struct sl__tensor *tensor);

/* Scratch memory of at least bytes, for mode 's'; each worker has its own copy, kept between tasks.
 */
enum sl_status sl__scratch(struct sl_context *context, size_t bytes, struct sl__tensor **scratch);

#endif
