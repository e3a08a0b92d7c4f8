/* oneDNN's C API, versions 2 and 3. A plan is a primitive with the reorders around it. A thread
 * makes a plan once a shape and keeps it: oneDNN's memory objects must not be shared between
 * threads, and a worker meets the same few shapes again and again. */
#include "codelets/kernels/onednn.h"

#ifdef SL_HAVE_ONEDNN

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/simd.h"
#include "core/runtime/failure.h"
#include "codelets/kernels/gemm.h"

#define DIMS 12 /* as in oneDNN's own arrays */
#define SLOTS 4
#define PLANS 64 /* plans of a thread; a new one replaces the oldest */

/* ---- what differs between version 2 and 3 ------------------------------------------------ */

typedef dnnl_memory_desc_t description;

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t description_ref;
#define REF(d) (d)
#define DESCRIBE_AS(d, n, dims, type, tag)                                                         \
  dnnl_memory_desc_create_with_tag(&(d), n, dims, type, tag)
#define FORGET(d) dnnl_memory_desc_destroy(d)
#else
typedef const dnnl_memory_desc_t *description_ref;
#define REF(d) (&(d))
#define DESCRIBE_AS(d, n, dims, type, tag) dnnl_memory_desc_init_by_tag(&(d), n, dims, type, tag)
#define FORGET(d) ((void)(d))
#endif

#define DESCRIBE(d, n, dims, tag) DESCRIBE_AS(d, n, dims, dnnl_f32, tag)

enum operation { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT, PRODUCT };

/* Description of a primitive. Unused fields are zero; compared as bytes. */
struct key {
  int64_t operation;
  int64_t x[DIMS], weight[DIMS], y[DIMS], stride[DIMS], pad[DIMS];
  int64_t has_bias;
  int64_t transpose_a, transpose_b, wide, add; /* of products, which have x = a and weight = b */
};

/* The layouts of x, weight, bias and y: free for oneDNN to choose, or plain. */
struct layouts {
  description x, weight, bias, y;
};

typedef dnnl_primitive_desc_t primitive_desc;

static dnnl_status_t create(primitive_desc *pd, dnnl_engine_t engine, const struct key *k,
                            struct layouts *l, primitive_desc hint) {
  const dnnl_alg_kind_t how = dnnl_convolution_auto;
  description_ref bias = k->has_bias ? REF(l->bias) : NULL;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl_dims_t none = {0};
  switch (k->operation) {
    case FORWARD:
      return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, how,
                                                            l->x, l->weight, bias, l->y, k->stride,
                                                            none, k->pad, k->pad, NULL);
    case BACKWARD_DATA:
      return dnnl_convolution_backward_data_primitive_desc_create(
          pd, engine, how, l->x, l->weight, l->y, k->stride, none, k->pad, k->pad, hint, NULL);
    default:
      return dnnl_convolution_backward_weights_primitive_desc_create(
          pd, engine, how, l->x, l->weight, bias, l->y, k->stride, none, k->pad, k->pad, hint,
          NULL);
  }
#else
  dnnl_convolution_desc_t d;
  dnnl_status_t status =
      k->operation == FORWARD
          ? dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, how, &l->x, &l->weight,
                                               bias, &l->y, k->stride, k->pad, k->pad)
      : k->operation == BACKWARD_DATA
          ? dnnl_convolution_backward_data_desc_init(&d, how, &l->x, &l->weight, &l->y, k->stride,
                                                     k->pad, k->pad)
          : dnnl_convolution_backward_weights_desc_init(&d, how, &l->x, &l->weight, bias, &l->y,
                                                        k->stride, k->pad, k->pad);
  return status == dnnl_success ? dnnl_primitive_desc_create(pd, &d, NULL, engine, hint) : status;
#endif
}

/* ---- plans ------------------------------------------------------------------------------- */

/* One argument of a primitive: the caller's plain array, and oneDNN's own memory where its layout
 * differs. */
struct slot {
  int argument;
  bool is_output;
  dnnl_memory_t plain, inner;
  dnnl_primitive_t reorder;
};

struct plan {
  struct key key;
  dnnl_primitive_t primitive; /* NULL: oneDNN refuses this shape */
  struct slot slot[SLOTS];
  int slots;
};

struct thread_state {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  struct plan plan[PLANS];
  int plans;
  unsigned next; /* the plan that is replaced when all are taken */
};

static void plan_clear(struct plan *plan) {
  for (int i = 0; i < plan->slots; i++) {
    struct slot *s = &plan->slot[i];
    dnnl_memory_destroy(s->plain);
    if (s->inner) dnnl_memory_destroy(s->inner);
    if (s->reorder) dnnl_primitive_destroy(s->reorder);
  }
  if (plan->primitive) dnnl_primitive_destroy(plan->primitive);
  memset(plan, 0, sizeof *plan);
}

static void thread_end(void *memory) {
  struct thread_state *t = memory;
  for (int i = 0; i < t->plans; i++) plan_clear(&t->plan[i]);
  if (t->stream) dnnl_stream_destroy(t->stream);
  if (t->engine) dnnl_engine_destroy(t->engine);
  free(t);
}

static pthread_key_t thread_key;
static void make_thread_key(void) { pthread_key_create(&thread_key, thread_end); }

static struct thread_state *this_thread(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_thread_key);
  struct thread_state *t = pthread_getspecific(thread_key);
  if (t) return t;
  sl__one_thread();
  t = calloc(1, sizeof *t);
  if (!t) return NULL;
  if (dnnl_engine_create(&t->engine, dnnl_cpu, 0) != dnnl_success ||
      dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags) != dnnl_success) {
    thread_end(t);
    return NULL;
  }
  pthread_setspecific(thread_key, t);
  return t;
}

/* The caller's array is [dims] in plain order. */
static bool add_slot(struct thread_state *t, struct plan *plan, primitive_desc pd, int argument,
                     bool is_output, int ndims, const int64_t dims[DIMS]) {
  static const dnnl_format_tag_t plain_tag[] = {0, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
  struct slot *s = &plan->slot[plan->slots];
  *s = (struct slot){.argument = argument, .is_output = is_output};
  description plain;
  primitive_desc reorder = NULL;
  if (DESCRIBE(plain, ndims, dims, plain_tag[ndims]) != dnnl_success) return false;
  /* vectors have one layout only */
  description_ref inner =
      ndims == 1 ? REF(plain) : dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, argument);
  bool fine = inner && dnnl_memory_create(&s->plain, REF(plain), t->engine, NULL) == dnnl_success;
  if (fine) plan->slots++;
  if (fine && !dnnl_memory_desc_equal(REF(plain), inner)) {
    description_ref from = is_output ? inner : REF(plain), to = is_output ? REF(plain) : inner;
    fine = dnnl_memory_create(&s->inner, inner, t->engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
           dnnl_reorder_primitive_desc_create(&reorder, from, t->engine, to, t->engine, NULL) ==
               dnnl_success &&
           dnnl_primitive_create(&s->reorder, reorder) == dnnl_success;
    if (reorder) dnnl_primitive_desc_destroy(reorder);
  }
  FORGET(plain);
  return fine;
}

static bool add_slots(struct thread_state *t, struct plan *plan, primitive_desc pd) {
  const struct key *k = &plan->key;
  const int64_t filters[DIMS] = {k->weight[0]};
  bool add_bias = k->has_bias;
  switch (k->operation) {
    case FORWARD:
      return add_slot(t, plan, pd, DNNL_ARG_SRC, false, 4, k->x) &&
             add_slot(t, plan, pd, DNNL_ARG_WEIGHTS, false, 4, k->weight) &&
             add_slot(t, plan, pd, DNNL_ARG_DST, true, 4, k->y) &&
             (!add_bias || add_slot(t, plan, pd, DNNL_ARG_BIAS, false, 1, filters));
    case BACKWARD_DATA:
      return add_slot(t, plan, pd, DNNL_ARG_DIFF_DST, false, 4, k->y) &&
             add_slot(t, plan, pd, DNNL_ARG_WEIGHTS, false, 4, k->weight) &&
             add_slot(t, plan, pd, DNNL_ARG_DIFF_SRC, true, 4, k->x);
    default:
      return add_slot(t, plan, pd, DNNL_ARG_SRC, false, 4, k->x) &&
             add_slot(t, plan, pd, DNNL_ARG_DIFF_DST, false, 4, k->y) &&
             add_slot(t, plan, pd, DNNL_ARG_DIFF_WEIGHTS, true, 4, k->weight) &&
             (!add_bias || add_slot(t, plan, pd, DNNL_ARG_DIFF_BIAS, true, 1, filters));
  }
}

static bool describe_all(const struct key *k, struct layouts *l) {
  memset(l, 0, sizeof *l);
  return DESCRIBE(l->x, 4, k->x, dnnl_format_tag_any) == dnnl_success &&
         DESCRIBE(l->y, 4, k->y, dnnl_format_tag_any) == dnnl_success &&
         DESCRIBE(l->weight, 4, k->weight, dnnl_format_tag_any) == dnnl_success &&
         DESCRIBE(l->bias, 1, k->weight, dnnl_a) == dnnl_success;
}

static void forget_all(struct layouts *l) {
  FORGET(l->x);
  FORGET(l->y);
  FORGET(l->weight);
  FORGET(l->bias);
}

static bool plan_make(struct thread_state *t, struct plan *plan) {
  struct layouts l;
  struct key forward = plan->key;
  primitive_desc hint = NULL, pd = NULL;
  bool fine = describe_all(&plan->key, &l);
  forward.operation = FORWARD; /* a backward one needs it as a hint */
  if (fine && plan->key.operation != FORWARD)
    fine = create(&hint, t->engine, &forward, &l, NULL) == dnnl_success;
  fine = fine && create(&pd, t->engine, &plan->key, &l, hint) == dnnl_success &&
         dnnl_primitive_create(&plan->primitive, pd) == dnnl_success && add_slots(t, plan, pd);
  forget_all(&l);
  if (hint) dnnl_primitive_desc_destroy(hint);
  if (pd) dnnl_primitive_desc_destroy(pd);
  return fine;
}

/* ---- products ---------------------------------------------------------------------------- */

static dnnl_status_t create_product(primitive_desc *pd, dnnl_engine_t engine, const struct key *k,
                                    struct layouts *l) {
  description_ref bias = k->has_bias ? REF(l->bias) : NULL;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_post_ops_t then = NULL;
  dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
  if (status == dnnl_success) status = dnnl_post_ops_create(&then);
#if DNNL_VERSION_MAJOR >= 3
  if (status == dnnl_success && k->add)
    status = dnnl_post_ops_append_sum(then, 1, 0, dnnl_data_type_undef);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attributes, then);
  if (status == dnnl_success)
    status = dnnl_matmul_primitive_desc_create(pd, engine, l->x, l->weight, bias, l->y, attributes);
#else
  dnnl_matmul_desc_t d;
  if (status == dnnl_success && k->add) status = dnnl_post_ops_append_sum(then, 1);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attributes, then);
  if (status == dnnl_success) status = dnnl_matmul_desc_init(&d, &l->x, &l->weight, bias, &l->y);
  if (status == dnnl_success) status = dnnl_primitive_desc_create(pd, &d, attributes, engine, NULL);
#endif
  if (then) dnnl_post_ops_destroy(then);
  if (attributes) dnnl_primitive_attr_destroy(attributes);
  return status;
}

/* The caller's matrix as it lies. */
static bool add_matrix(struct thread_state *t, struct plan *plan, int argument,
                       description_ref matrix) {
  struct slot *s = &plan->slot[plan->slots];
  *s = (struct slot){.argument = argument, .is_output = argument == DNNL_ARG_DST};
  if (dnnl_memory_create(&s->plain, matrix, t->engine, NULL) != dnnl_success) return false;
  plan->slots++;
  return true;
}

static bool describe_matrices(const struct key *k, struct layouts *l) {
  const dnnl_dims_t bias = {1, k->y[1]};
  const dnnl_data_type_t type = dnnl_bf16, of_y = k->wide ? dnnl_f32 : dnnl_bf16;
  const dnnl_format_tag_t a = k->transpose_a ? dnnl_ba : dnnl_ab,
                          b = k->transpose_b ? dnnl_ba : dnnl_ab;
  memset(l, 0, sizeof *l);
  return DESCRIBE_AS(l->x, 2, k->x, type, a) == dnnl_success &&
         DESCRIBE_AS(l->weight, 2, k->weight, type, b) == dnnl_success &&
         DESCRIBE_AS(l->y, 2, k->y, of_y, dnnl_ab) == dnnl_success &&
         DESCRIBE_AS(l->bias, 2, bias, type, dnnl_ab) == dnnl_success;
}

static bool product_make(struct thread_state *t, struct plan *plan) {
  struct layouts l;
  const struct key key = plan->key;
  primitive_desc pd = NULL;
  bool fine = describe_matrices(&key, &l) &&
              create_product(&pd, t->engine, &key, &l) == dnnl_success &&
              dnnl_primitive_create(&plan->primitive, pd) == dnnl_success &&
              add_matrix(t, plan, DNNL_ARG_SRC, REF(l.x)) &&
              add_matrix(t, plan, DNNL_ARG_WEIGHTS, REF(l.weight)) &&
              add_matrix(t, plan, DNNL_ARG_DST, REF(l.y)) &&
              (!key.has_bias || add_matrix(t, plan, DNNL_ARG_BIAS, REF(l.bias)));
  forget_all(&l);
  if (pd) dnnl_primitive_desc_destroy(pd);
  return fine;
}

/* ---- running ----------------------------------------------------------------------------- */

static struct plan *find_plan(struct thread_state *t, const struct key *key) {
  for (int i = 0; i < t->plans; i++)
    if (!memcmp(&t->plan[i].key, key, sizeof *key)) return &t->plan[i];
  struct plan *plan = &t->plan[t->plans < PLANS ? t->plans++ : (int)(t->next++ % PLANS)];
  plan_clear(plan);
  plan->key = *key;
  if (key->operation == PRODUCT ? product_make(t, plan) : plan_make(t, plan)) return plan;
  plan_clear(plan);
  plan->key = *key; /* remembered as refused */
  return plan;
}

static bool reorder(struct thread_state *t, struct slot *s) {
  dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, s->is_output ? s->inner : s->plain},
                            {DNNL_ARG_TO, s->is_output ? s->plain : s->inner}};
  return dnnl_primitive_execute(s->reorder, t->stream, 2, args) == dnnl_success;
}

/* arrays: the callers' data, in the order of the plan's slots. */
static bool execute(struct thread_state *t, struct plan *plan, const void *const *arrays) {
  dnnl_exec_arg_t args[SLOTS];
  bool fine = true;
  for (int i = 0; i < plan->slots; i++) {
    struct slot *s = &plan->slot[i];
    fine = fine && dnnl_memory_set_data_handle(s->plain, (void *)arrays[i]) == dnnl_success;
    if (fine && s->inner && !s->is_output) fine = reorder(t, s);
    args[i] = (dnnl_exec_arg_t){s->argument, s->inner ? s->inner : s->plain};
  }
  fine =
      fine && dnnl_primitive_execute(plan->primitive, t->stream, plan->slots, args) == dnnl_success;
  for (int i = 0; i < plan->slots; i++)
    if (fine && plan->slot[i].inner && plan->slot[i].is_output) fine = reorder(t, &plan->slot[i]);
  return dnnl_stream_wait(t->stream) == dnnl_success && fine;
}

static bool run(const struct key *key, const void *const *arrays) {
  struct thread_state *t = this_thread();
  struct plan *plan = t ? find_plan(t, key) : NULL;
  return plan && plan->primitive && execute(t, plan, arrays);
}

/* ---- operations -------------------------------------------------------------------------- */

bool sl__onednn_available(void) { return true; }

static struct key window_key(enum operation operation, const struct sl__onednn_window *w,
                             bool bias) {
  struct key k;
  memset(&k, 0, sizeof k); /* padding too: keys are compared as bytes */
  k.operation = operation;
  k.has_bias = bias;
  k.x[0] = k.y[0] = w->images;
  k.x[1] = k.weight[1] = w->channels;
  k.x[2] = w->height;
  k.x[3] = w->width;
  k.y[1] = k.weight[0] = w->out_channels;
  k.y[2] = w->out_height;
  k.y[3] = w->out_width;
  k.weight[2] = w->kernel_h;
  k.weight[3] = w->kernel_w;
  k.stride[0] = w->stride_h;
  k.stride[1] = w->stride_w;
  k.pad[0] = w->pad_h;
  k.pad[1] = w->pad_w;
  return k;
}

bool sl__onednn_conv2d_forward(const struct sl__onednn_window *w, const float *x,
                               const float *weight, const float *bias, float *y) {
  struct key k = window_key(FORWARD, w, bias != NULL);
  return run(&k, (const void *[]){x, weight, y, bias});
}

bool sl__onednn_conv2d_backward_data(const struct sl__onednn_window *w, const float *dy,
                                     const float *weight, float *dx) {
  struct key k = window_key(BACKWARD_DATA, w, false);
  return run(&k, (const void *[]){dy, weight, dx});
}

bool sl__onednn_conv2d_backward_weight(const struct sl__onednn_window *w, const float *x,
                                       const float *dy, float *grad, float *bias_grad) {
  struct key k = window_key(BACKWARD_WEIGHT, w, bias_grad != NULL);
  return run(&k, (const void *[]){x, dy, grad, bias_grad});
}

bool sl__onednn_product(const struct sl__onednn_product *p, const uint16_t *a, const uint16_t *b,
                        const uint16_t *bias, void *y) {
  struct key k;
  memset(&k, 0, sizeof k);
  k.operation = PRODUCT;
  k.has_bias = bias != NULL;
  k.transpose_a = p->transpose_a;
  k.transpose_b = p->transpose_b;
  k.wide = p->wide;
  k.add = p->add;
  k.x[0] = k.y[0] = p->m;
  k.x[1] = k.weight[0] = p->k;
  k.weight[1] = k.y[1] = p->n;
  struct thread_state *t = this_thread();
  struct plan *plan = t ? find_plan(t, &k) : NULL;
  if (!plan || !plan->primitive) return false;
  /* not false: y may have been added to already */
  if (!execute(t, plan, (const void *[]){a, b, y, bias}))
    sl__task_failed(SL_NO_MEMORY, "oneDNN failed in a product of bf16 matrices");
  return true;
}

/* oneDNN emulates bf16 on other processors of AVX-512, which is slower than our own f32. An
 * instruction set's number has the bits of those that it contains; ONEDNN_MAX_CPU_ISA counts. */
bool sl__onednn_has_bf16(void) {
  const int needed = dnnl_cpu_isa_avx512_core_bf16;
  return SL__MOST_LANES >= 16 && ((int)dnnl_get_effective_cpu_isa() & needed) == needed;
}

#else

bool sl__onednn_available(void) { return false; }
bool sl__onednn_has_bf16(void) { return false; }

#define REFUSE(...)                                                                                \
  _Pragma("GCC diagnostic push")                                                                   \
      _Pragma("GCC diagnostic ignored \"-Wunused-parameter\"") bool __VA_ARGS__ {                  \
    return false;                                                                                  \
  }                                                                                                \
  _Pragma("GCC diagnostic pop")

REFUSE(sl__onednn_conv2d_forward(const struct sl__onednn_window *w, const float *x,
                                 const float *weight, const float *bias, float *y))
REFUSE(sl__onednn_conv2d_backward_data(const struct sl__onednn_window *w, const float *dy,
                                       const float *weight, float *dx))
REFUSE(sl__onednn_conv2d_backward_weight(const struct sl__onednn_window *w, const float *x,
                                         const float *dy, float *grad, float *bias_grad))
REFUSE(sl__onednn_product(const struct sl__onednn_product *p, const uint16_t *a, const uint16_t *b,
                          const uint16_t *bias, void *y))

#endif
