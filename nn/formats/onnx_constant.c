/* Folds nodes that have only constants as inputs into constants. Exporters leave such nodes:
 * transposed and sliced weights, shapes computed from the batch's size. Memory is counted
 * (sl__onnx_alloc). */
#include <string.h>

#include "nn/formats/onnx_read.h"

typedef enum sl_status fold(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                            const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y);

static bool has_values(const struct sl__onnx_tensor *t) { return t->reals || t->wholes; }

static size_t width(const struct sl__onnx_tensor *t) {
  return t->reals ? sizeof *t->reals : sizeof *t->wholes;
}

static const char *bytes_of(const struct sl__onnx_tensor *t) {
  return t->reals ? (const char *)t->reals : (const char *)t->wholes;
}

/* Allocates y's values, with x's type. */
static char *values_for(struct sl__onnx_reader *r, const struct sl__onnx_tensor *x,
                        struct sl__onnx_tensor *y) {
  void *values = sl__onnx_alloc(&r->graph, (size_t)(y->count ? y->count : 1), width(x));
  if (x->reals)
    y->reals = values;
  else
    y->wholes = values;
  return values;
}

static void count_values(struct sl__onnx_tensor *y) {
  y->count = 1;
  for (int i = 0; i < y->ndim; i++)
    y->count *= y->dim[i]; /* cannot overflow: y has no more values than x */
}

/* y[i, j, ...] = x[offset + i stride[0] + j stride[1] ...] */
static enum sl_status copy_strided(struct sl__onnx_reader *r, const struct sl__onnx_tensor *x,
                                   int64_t offset, const int64_t *stride,
                                   struct sl__onnx_tensor *y) {
  int64_t at[SL__ONNX_DIMS] = {0};
  char *to = values_for(r, x, y);
  if (!to) return sl__onnx_no_memory(&r->graph);
  for (int64_t n = 0; n < y->count; n++, to += width(x)) {
    memcpy(to, bytes_of(x) + (size_t)offset * width(x), width(x));
    for (int d = y->ndim - 1; d >= 0; d--) {
      offset += stride[d];
      if (++at[d] < y->dim[d]) break;
      offset -= stride[d] * y->dim[d];
      at[d] = 0;
    }
  }
  return SL_OK;
}

static void strides_of(const struct sl__onnx_tensor *x, int64_t *stride) {
  int64_t step = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    stride[d] = step;
    step *= x->dim[d];
  }
}

/* ---- one function for each operator ---- */

static enum sl_status fold_constant(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                    const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  (void)x;
  if (node->attributes != 1)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "has %d attributes, not one", node->attributes);
  const struct sl__onnx_attribute *a = node->attribute;
  if (a->type == SL__ONNX_T && a->t) {
    *y = *a->t;
    return SL_OK;
  }
  *y = (struct sl__onnx_tensor){.count = 1};
  switch (a->type) {
    case SL__ONNX_F: y->reals = &a->f; break;
    case SL__ONNX_I: y->wholes = &a->i; break;
    case SL__ONNX_FLOATS: y->reals = a->floats; break;
    case SL__ONNX_INTS: y->wholes = a->ints; break;
    default:
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "attribute %.32s is of type %d", a->name,
                             a->type);
  }
  if (a->type == SL__ONNX_FLOATS || a->type == SL__ONNX_INTS) {
    y->ndim = 1;
    y->count = y->dim[0] = a->count;
  }
  return SL_OK;
}

static enum sl_status fold_identity(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                    const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  (void)r, (void)node;
  *y = *x;
  return SL_OK;
}

static enum sl_status fold_cast(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  int64_t to;
  enum sl_status status = sl__onnx_get_whole(r, node, "to", 0, &to);
  bool whole = to == SL__ONNX_INT64 || to == SL__ONNX_INT32;
  if (status != SL_OK) return status;
  if ((whole && !x->wholes) || (!whole && (to != SL__ONNX_FLOAT || !x->reals)))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "attribute to is %lld; constants stay whole "
                           "or real",
                           (long long)to);
  return fold_identity(r, node, x, y);
}

static enum sl_status fold_cast_like(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                     const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *like = sl__onnx_constant(r, node, 1);
  bool real = !like || like->reals; /* an output, of which only the type matters, is real */
  if (real != (x->reals != NULL))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "constants stay whole or real");
  return fold_identity(r, node, x, y);
}

static enum sl_status fold_transpose(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                     const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  int64_t stride[SL__ONNX_DIMS], transposed[SL__ONNX_DIMS];
  const int64_t *perm;
  int count, axis, seen = 0;
  enum sl_status status = sl__onnx_get_list(r, node, "perm", &perm, &count);
  if (status != SL_OK) return status;
  if (perm && count != x->ndim)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "perm has %d axes of %d", count, x->ndim);
  strides_of(x, stride);
  *y = (struct sl__onnx_tensor){.ndim = x->ndim, .count = x->count};
  for (int d = 0; d < x->ndim; d++) {
    SL__TRY(sl__onnx_axis(r, node, perm ? perm[d] : x->ndim - 1 - d, x->ndim, &axis));
    y->dim[d] = x->dim[axis];
    transposed[d] = stride[axis];
    seen |= 1 << axis;
  }
  if (seen != (1 << x->ndim) - 1)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "perm names an axis twice");
  if (x->ndim == 2 && transposed[0] == stride[1]) y->transposed = x;
  status = copy_strided(r, x, 0, transposed, y);
out:
  return status;
}

static enum sl_status fold_reshape(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                   const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *shape = sl__onnx_constant(r, node, 1);
  int64_t known = 1;
  int free_axis = -1;
  if (!shape || !shape->wholes || shape->ndim != 1 || shape->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "its shape is no short list");
  *y = *x;
  y->transposed = NULL;
  y->ndim = (int)shape->count;
  for (int d = 0; d < y->ndim; d++) {
    int64_t n = shape->wholes[d];
    if (n == 0 && d < x->ndim) n = x->dim[d];
    y->dim[d] = n;
    if (n == -1 && free_axis < 0)
      free_axis = d;
    else if (n < 1 || __builtin_mul_overflow(known, n, &known))
      return sl__onnx_refuse(r, node, SL_BAD_FILE, "dimension %d of its shape is %lld", d,
                             (long long)n);
  }
  if (free_axis >= 0) y->dim[free_axis] = x->count / known;
  if (free_axis >= 0 ? x->count % known : known != x->count)
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "%lld values do not fit its shape",
                           (long long)x->count);
  return SL_OK;
}

/* Squeeze and Unsqueeze: marks the axes in the longer of the two shapes. */
static enum sl_status mark_axes(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                bool longer, int ndim, bool *marked, int *count) {
  const int64_t *axes;
  enum sl_status status;
  int axis;
  SL__TRY(sl__onnx_get_either(r, node, "axes", 1, &axes, count));
  if ((longer && !axes) || ndim + (longer ? *count : 0) > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "needs axes, and at most %d dimensions",
                           SL__ONNX_DIMS);
  for (int i = 0; i < *count; i++) {
    SL__TRY(sl__onnx_axis(r, node, axes[i], ndim + (longer ? *count : 0), &axis));
    if (marked[axis]) return sl__onnx_refuse(r, node, SL_BAD_FILE, "names axis %d twice", axis);
    marked[axis] = true;
  }
out:
  return status;
}

static enum sl_status fold_squeeze(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                   const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  bool marked[SL__ONNX_DIMS] = {false};
  int count;
  enum sl_status status = mark_axes(r, node, false, x->ndim, marked, &count);
  if (status != SL_OK) return status;
  *y = *x;
  y->transposed = NULL;
  y->ndim = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (!count) marked[d] = x->dim[d] == 1; /* without axes: all that can go */
    if (!marked[d])
      y->dim[y->ndim++] = x->dim[d];
    else if (x->dim[d] != 1)
      return sl__onnx_refuse(r, node, SL_BAD_FILE, "axis %d is %lld, not 1", d,
                             (long long)x->dim[d]);
  }
  return SL_OK;
}

static enum sl_status fold_unsqueeze(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                     const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  bool marked[SL__ONNX_DIMS] = {false};
  int count, from = 0;
  enum sl_status status = mark_axes(r, node, true, x->ndim, marked, &count);
  if (status != SL_OK) return status;
  *y = *x;
  y->transposed = NULL;
  y->ndim = x->ndim + count;
  for (int d = 0; d < y->ndim; d++) y->dim[d] = marked[d] ? 1 : x->dim[from++];
  return SL_OK;
}

static enum sl_status check_parts(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  int axis, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *x = sl__onnx_constant(r, node, 0);
  y->ndim = x->ndim;
  memcpy(y->dim, x->dim, sizeof y->dim);
  y->dim[axis] = 0;
  for (int i = 0; i < node->inputs; i++) {
    const struct sl__onnx_tensor *part = sl__onnx_constant(r, node, i);
    bool fits = part && has_values(part) && part->ndim == x->ndim && !part->reals == !x->reals;
    for (int d = 0; fits && d < x->ndim; d++) fits = d == axis || part->dim[d] == x->dim[d];
    if (!fits) return sl__onnx_refuse(r, node, SL_BAD_FILE, "its inputs do not fit together");
    y->dim[axis] += part->dim[axis];
    y->count += part->count;
  }
  return SL_OK;
}

static enum sl_status fold_concat(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  int64_t number, outer = 1;
  size_t row = width(x);
  enum sl_status status;
  int axis;
  *y = (struct sl__onnx_tensor){0};
  SL__TRY(sl__onnx_get_whole(r, node, "axis", 0, &number));
  SL__TRY(sl__onnx_axis(r, node, number, x->ndim, &axis));
  SL__TRY(check_parts(r, node, axis, y));
  char *to = values_for(r, x, y);
  if (!to) return sl__onnx_no_memory(&r->graph);
  for (int d = 0; d < axis; d++) outer *= x->dim[d];
  for (int d = axis + 1; d < x->ndim; d++) row *= (size_t)x->dim[d];
  for (int64_t o = 0; y->count && o < outer; o++)
    for (int i = 0; i < node->inputs; i++) {
      const struct sl__onnx_tensor *part = sl__onnx_constant(r, node, i);
      size_t size = (size_t)part->dim[axis] * row;
      memcpy(to, bytes_of(part) + (size_t)o * size, size);
      to += size;
    }
out:
  return status;
}

/* A start or end on an axis, clamped as in numpy. */
static int64_t clamp(int64_t at, int64_t size) {
  if (at < 0) at = at < -size ? 0 : at + size;
  return at > size ? size : at;
}

static enum sl_status fold_slice(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const int64_t *starts, *ends, *axes, *steps;
  int count, same, axis, axes_count, step_count;
  int64_t stride[SL__ONNX_DIMS], offset = 0;
  enum sl_status status;
  *y = *x;
  if (x->zeros) y->ndim = 0; /* its shape is not known */
  if (x->zeros) return SL_OK;
  if (!has_values(x))
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "its input 0 has no values of a type that is read (here %d)", x->type);
  SL__TRY(sl__onnx_get_either(r, node, "starts", 1, &starts, &count));
  SL__TRY(sl__onnx_get_either(r, node, "ends", 2, &ends, &same));
  SL__TRY(sl__onnx_get_either(r, node, "axes", 3, &axes, &axes_count));
  SL__TRY(sl__onnx_get_either(r, node, "steps", 4, &steps, &step_count));
  if (!starts || same != count || (axes && axes_count != count) || (steps && step_count != count))
    return sl__onnx_refuse(r, node, SL_BAD_FILE, "starts, ends and axes differ in length");
  strides_of(x, stride);
  *y = (struct sl__onnx_tensor){.ndim = x->ndim};
  memcpy(y->dim, x->dim, sizeof y->dim);
  for (int i = 0; i < count; i++) {
    SL__TRY(sl__onnx_axis(r, node, axes ? axes[i] : i, x->ndim, &axis));
    SL__TRY(sl__onnx_check_range(r, node, starts[i], ends[i]));
    int64_t from = clamp(starts[i], x->dim[axis]), to = clamp(ends[i], x->dim[axis]);
    if ((steps && steps[i] != 1) || (from >= to && x->ndim > 1))
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "has steps other than 1, or an empty result");
    offset += from * stride[axis];
    y->dim[axis] = to > from ? to - from : 0; /* of a shape, none of its dimensions can be left */
  }
  count_values(y);
  /* the same axis twice: the second would begin inside the first */
  for (int i = 0; axes && i < count; i++)
    for (int k = 0; k < i; k++)
      if (axes[i] == axes[k] || axes[i] == axes[k] + x->ndim || axes[k] == axes[i] + x->ndim)
        return sl__onnx_refuse(r, node, SL_BAD_FILE, "names an axis twice");
  status = copy_strided(r, x, offset, stride, y);
out:
  return status;
}

/* Gather from a list, as in computations of shapes. */
static enum sl_status fold_gather(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *which = sl__onnx_constant(r, node, 1);
  if (x->ndim != 1 || !which || !which->wholes || which->ndim > 1 || which->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "gathers from a constant that is no list");
  *y = (struct sl__onnx_tensor){.ndim = which->ndim, .dim = {which->count}, .count = which->count};
  char *to = values_for(r, x, y);
  if (!to) return sl__onnx_no_memory(&r->graph);
  for (int64_t i = 0; i < y->count; i++, to += width(x)) {
    int at;
    enum sl_status status = x->count > INT32_MAX
                                ? SL_UNSUPPORTED
                                : sl__onnx_axis(r, node, which->wholes[i], (int)x->count, &at);
    if (status != SL_OK) return status;
    memcpy(to, bytes_of(x) + (size_t)at * width(x), width(x));
  }
  return SL_OK;
}

/* a op b, as in computations of shapes; false if no whole number is the result. */
static bool calculate(const char *op, bool as_in_c, int64_t a, int64_t b, int64_t *y) {
  if (!strcmp(op, "Add")) return !__builtin_add_overflow(a, b, y);
  if (!strcmp(op, "Sub")) return !__builtin_sub_overflow(a, b, y);
  if (!strcmp(op, "Mul")) return !__builtin_mul_overflow(a, b, y);
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  if (!strcmp(op, "Div")) {
    *y = a / b;
    return true;
  }
  *y = a % b; /* Mod: the sign is the divisor's, unless the node asks for C's */
  if (!as_in_c && *y && (*y < 0) != (b < 0)) *y += b;
  return true;
}

/* Does the operation leave the batch's size, its first number, as it is? */
static bool keeps_batch(const char *op, int64_t b) {
  return !strcmp(op, "Mul") || !strcmp(op, "Div")   ? b == 1
         : !strcmp(op, "Add") || !strcmp(op, "Sub") ? b == 0
                                                    : false;
}

/* Add, Sub, Mul, Div and Mod of two short lists of dimensions, of which one may be one number. */
static enum sl_status fold_arithmetic(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                      const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *other = sl__onnx_constant(r, node, 1);
  bool turns = !strcmp(node->op, "Add") || !strcmp(node->op, "Mul");
  int64_t as_in_c;
  enum sl_status status = sl__onnx_get_whole(r, node, "fmod", 0, &as_in_c);
  if (status != SL_OK) return status;
  bool fits = x->wholes && other && other->wholes && x->ndim <= 1 && other->ndim <= 1 &&
              (x->count == other->count || x->count == 1 || other->count == 1);
  const struct sl__onnx_tensor *longer =
      fits && x->count == 1 && other->ndim >= x->ndim ? other : x;
  if (!fits || longer->count > SL__ONNX_DIMS)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED,
                           "computes with constants other than dimensions");
  int64_t *result = sl__onnx_alloc(&r->graph, (size_t)longer->count, sizeof *result);
  if (!result) return sl__onnx_no_memory(&r->graph);
  *y = *longer;
  y->wholes = result;
  for (int64_t i = 0; i < y->count; i++) {
    int64_t a = x->wholes[x->count == 1 ? 0 : i], b = other->wholes[other->count == 1 ? 0 : i];
    bool is_batch = a == SL__ONNX_BATCH || b == SL__ONNX_BATCH;
    if (a == SL__ONNX_BATCH && keeps_batch(node->op, b))
      result[i] = a;
    else if (b == SL__ONNX_BATCH && turns && keeps_batch(node->op, a))
      result[i] = b;
    else if (is_batch)
      return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "computes with the batch's size");
    else if (!calculate(node->op, as_in_c, a, b, &result[i]) || result[i] == SL__ONNX_BATCH)
      return sl__onnx_refuse(r, node, SL_BAD_FILE, "%lld and %lld give no whole number",
                             (long long)a, (long long)b);
  }
  return SL_OK;
}

/* Is it the shape of a list, whose length is known? */
static bool is_length(const struct sl__onnx_tensor *shape) {
  return shape && shape->wholes && shape->count == 1 && shape->wholes[0] != SL__ONNX_BATCH;
}

/* One number as a list, as the scale of a norm's groups. */
static enum sl_status repeat(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             const struct sl__onnx_tensor *x, int64_t count,
                             struct sl__onnx_tensor *y) {
  if (count < 1 || count > INT32_MAX)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "makes a list of %lld values",
                           (long long)count);
  *y = (struct sl__onnx_tensor){.ndim = 1, .dim = {count}, .count = count};
  char *to = values_for(r, x, y);
  if (!to) return sl__onnx_no_memory(&r->graph);
  for (int64_t i = 0; i < count; i++) memcpy(to + (size_t)i * width(x), bytes_of(x), width(x));
  return SL_OK;
}

/* A list of one number, or zeros for the first state of a recurrent layer. */
static enum sl_status fold_zeros(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *value = NULL;
  for (int i = 0; i < node->attributes; i++) value = node->attribute[i].t;
  if (value && value->count == 1 && has_values(value) && is_length(x))
    return repeat(r, node, value, x->wholes[0], y);
  bool zero = !value || (value->count == 1 && ((value->reals && value->reals[0] == 0) ||
                                               (value->wholes && value->wholes[0] == 0)));
  if (!zero) return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "has a value other than zero");
  *y = (struct sl__onnx_tensor){.zeros = true};
  return SL_OK;
}

/* Also zeros for the first state of a recurrent layer. */
static enum sl_status fold_expand(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                  const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *shape = sl__onnx_constant(r, node, 1);
  if (x->count == 1 && x->ndim <= 1 && has_values(x) && is_length(shape))
    return repeat(r, node, x, shape->wholes[0], y);
  bool zero = x->zeros || x->reals;
  for (int64_t i = 0; x->reals && zero && i < x->count; i++) zero = x->reals[i] == 0;
  if (!zero) return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "has a value other than zero");
  *y = (struct sl__onnx_tensor){.zeros = true};
  if (shape && shape->wholes && shape->ndim == 1 && shape->count <= SL__ONNX_DIMS) {
    y->ndim = (int)shape->count;
    memcpy(y->dim, shape->wholes, (size_t)y->ndim * sizeof *y->dim);
  }
  return SL_OK;
}

enum sl_status sl__onnx_list_shape(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                   const int64_t *dim, int ndim, struct sl__onnx_tensor *y) {
  int64_t start, end;
  enum sl_status status;
  SL__TRY(sl__onnx_get_whole(r, node, "start", 0, &start));
  SL__TRY(sl__onnx_get_whole(r, node, "end", ndim, &end));
  start = clamp(start, ndim);
  end = clamp(end, ndim);
  if (end < start) end = start;
  int64_t *wholes = sl__onnx_alloc(&r->graph, SL__ONNX_DIMS, sizeof *wholes);
  if (!wholes) return sl__onnx_no_memory(&r->graph);
  memcpy(wholes, dim + start, (size_t)(end - start) * sizeof *wholes);
  *y = (struct sl__onnx_tensor){.name = "", .type = SL__ONNX_INT64, .ndim = 1, .wholes = wholes};
  y->count = y->dim[0] = end - start;
out:
  return status;
}

static enum sl_status fold_shape(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  if (x->zeros && !x->ndim)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "takes the shape of a part of zeros");
  return sl__onnx_list_shape(r, node, x->dim, x->ndim, y);
}

/* A short list of axes. */
static enum sl_status fold_range(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                                 const struct sl__onnx_tensor *x, struct sl__onnx_tensor *y) {
  const struct sl__onnx_tensor *end = sl__onnx_constant(r, node, 1),
                               *step = sl__onnx_constant(r, node, 2);
  bool fits = x->wholes && x->count == 1 && end && end->wholes && end->count == 1 && step &&
              step->wholes && step->count == 1 && step->wholes[0] == 1;
  int64_t count = 0;
  if (!fits || __builtin_sub_overflow(end->wholes[0], x->wholes[0], &count) ||
      count > SL__ONNX_DIMS || x->wholes[0] == SL__ONNX_BATCH || end->wholes[0] == SL__ONNX_BATCH)
    return sl__onnx_refuse(r, node, SL_UNSUPPORTED, "is no short list of axes");
  *y = (struct sl__onnx_tensor){.ndim = 1, .dim = {count < 0 ? 0 : count}};
  count_values(y);
  int64_t *to = sl__onnx_alloc(&r->graph, SL__ONNX_DIMS, sizeof *to);
  if (!to) return sl__onnx_no_memory(&r->graph);
  for (int64_t i = 0; i < y->count; i++) to[i] = x->wholes[0] + i;
  y->wholes = to;
  return SL_OK;
}

/* takes_any: x may be missing, or have no values (zeros of an unknown shape). */
static const struct {
  const char *op;
  fold *fold;
  bool takes_any;
} folds[] = {{"Add", fold_arithmetic, false},      {"Cast", fold_cast, false},
             {"CastLike", fold_cast_like, false},  {"Concat", fold_concat, false},
             {"Constant", fold_constant, true},    {"ConstantOfShape", fold_zeros, true},
             {"Div", fold_arithmetic, false},      {"Expand", fold_expand, true},
             {"Gather", fold_gather, false},       {"Identity", fold_identity, true},
             {"Mod", fold_arithmetic, false},      {"Mul", fold_arithmetic, false},
             {"Range", fold_range, false},         {"Reshape", fold_reshape, false},
             {"Shape", fold_shape, true},          {"Slice", fold_slice, true},
             {"Squeeze", fold_squeeze, false},     {"Sub", fold_arithmetic, false},
             {"Transpose", fold_transpose, false}, {"Unsqueeze", fold_unsqueeze, false}};

static enum sl_status define(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             struct sl__onnx_tensor *y) {
  if (node->outputs < 1) return sl__onnx_refuse(r, node, SL_BAD_FILE, "has no output");
  return sl__onnx_define(r, node, node->output[0],
                         &(struct sl__onnx_value){.is = SL__ONNX_CONSTANT, .constant = y});
}

enum sl_status sl__onnx_fold(struct sl__onnx_reader *r, const struct sl__onnx_node *node,
                             bool *folded) {
  const struct sl__onnx_tensor *x = sl__onnx_constant(r, node, 0);
  *folded = false;
  for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) {
    if (strcmp(folds[i].op, node->op) != 0) continue;
    if (!x && folds[i].fold != fold_constant) return SL_OK;
    if (x && !folds[i].takes_any && !has_values(x)) return SL_OK;
    if (!strcmp(node->op, "Identity")) { /* defines the same tensor, so that layers can share it */
      *folded = true;
      return define(r, node, (struct sl__onnx_tensor *)x);
    }
    struct sl__onnx_tensor *y = sl__onnx_alloc(&r->graph, 1, sizeof *y);
    if (!y) return sl__onnx_no_memory(&r->graph);
    enum sl_status status = folds[i].fold(r, node, x, y);
    if (status != SL_OK) return status;
    y->name = node->output && node->outputs ? node->output[0] : "";
    *folded = true;
    return define(r, node, y);
  }
  return SL_OK;
}
