/* Submission of a task: the only function that calls StarPU's. It sets model, footprint, flops,
 * name, priority and place. */
#ifndef SL_CORE_RUNTIME_SUBMIT_H
#define SL_CORE_RUNTIME_SUBMIT_H

#include "core/runtime/tensor.h"

#define SL__KERNEL                                                                                 \
  __attribute__((visibility("default"))) /* slaves of a master-slave run find it by name */

struct sl__call;

/* May do a message's call without a task: true if it did; *status is then what sl__submit returns.
 */
typedef bool sl__post_message(struct sl_context *context, const struct sl__call *call,
                              enum sl_status *status);

/* An operation: its codelet, performance model and access modes, expanded from codelets/ops.def.
 * modes has one letter a buffer: r read, w write, m read and write, s scratch,
 * a write, or read and write where the launch accumulates; '*' repeats the letter before it. Small
 * letters are of tensors that are never bf16; capitals of those that may be, all of a task alike;
 * x, y and z are r, a and w of any type. */
struct sl__op {
  struct starpu_codelet codelet;
  struct starpu_perfmodel model;
  const char *modes;
  bool updates; /* it is an optimizer's step (traces show it as one) */
  /* The CUDA half for several calls at once, of which none depends on another: buffers[i] and
   * cl_args[i] are what the CUDA half gets for call i. The bits are those of one call after the
   * other. NULL: there is none. */
  void (*cuda_many)(int count, void **const buffers[], void *const cl_args[]);
  /* Of a message, whose task ends later than its function: a captured graph submits it anew in each
   * run. NULL: it is none. */
  sl__post_message *post;
};

/* The letter's access as a small letter, without the type. */
static inline char sl__access(char letter) {
  switch (letter) {
    case 'x': return 'r';
    case 'y': return 'a';
    case 'z': return 'w';
    default: return (char)(letter | 0x20);
  }
}

/* Place of a task's part of the work, for traces; each 1 + its number, or 0 if the task has
 * none. */
struct sl__slice_mark {
  int stage, replica, microbatch, chunk;
  bool aside; /* no later call of this part waits for it: the gradient of a layer's parameters */
};

/* The mode of the buffer after the one that `modes` begins with. */
static inline const char *sl__next_mode(const char *modes) {
  return modes[1] != '*' && modes[1] ? modes + 1 : modes;
}

/* How a captured graph (core/graph/graph.h) may divide a call's work, among several cores or to
 * fit a cache; zero value: not at all. The bits are the same for every division. No part writes
 * memory that another part of the same phase reads or writes. With phases all parts share the
 * scratch memory. */
struct sl__cut {
  int64_t units;  /* equal amounts of work; a part is a run of them */
  size_t scratch; /* bytes that the call uses of its scratch memory; 0: all */
  bool flat; /* unit i is the i-th of equal runs of every output, and a row of the outputs needs
                only the same row of each tensor that has rows */
  bool
      pointwise; /* flat, and a value needs only its own place in tensors as large as the outputs */
  bool by_channels;  /* not flat: unit i is channel i of every tensor: of [rows, channels, ...] all
                        rows of it, of [k channels] its k values; the first tensor is of either
                        kind */
  uint32_t in_place; /* bit k: input k may lie in the memory of the output that is as large */
  int phases;        /* each begins when all parts of the previous one have ended; 0: none */

  /* Can the kernel do the next call as well, the only reader of this call's output, as its
   * buffer `which`? If so, the arguments say it from then on, and the next call's other inputs
   * follow the own buffers. Or NULL. */
  bool (*absorb)(void *args, const struct sl__op *next, const void *next_args, int which);
};

/* A prepacked weight: the layout of a parameter that the kernel would otherwise make at each call.
 * The weight cache keeps it for repeated calls (core/graph/weight_cache.h). */
struct sl__prepack {
  void (*make)(const void *args, const void *from, void *to); /* NULL: there is none */
  int buffer;                                                 /* the parameter's */
  size_t bytes;
  uint64_t key;   /* a hash of the arguments that it depends on */
  size_t scratch; /* as in struct sl__cut, with the prepacked weight; 0: the same */
};

/* Things that a rank asks all ranks to do after the same step: 1 where it does. */
enum { SL__ASK_STOP, SL__ASK_SAVE, SL__ASKS = 4 };

/* The step record: the values of a training's step that its tasks read, besides the batch. */
struct sl__step_record {
  int64_t number; /* from 0 */
  float lr;
  float scale[SL_MAX_FIELDS]; /* of the gradient of each part of the loss */
  float asks[SL__ASKS];
};

enum { SL__MOST_BUFFERS = 1 << 16 }; /* of a task */

struct sl__chain;

/* The caller's description of one task; zero value: anywhere, priority 0. */
struct sl__launch {
  const char *name; /* of the layer, for traces; must outlive the task */
  struct sl__place place;
  int priority;            /* larger is sooner; clamped to the scheduler's range */
  bool accumulate;         /* add to the 'a' buffer instead of overwriting it */
  bool pieces;             /* the kernel can work on a piece of a tensor */
  bool tf32;               /* a GPU may round the factors of products to 10 bits (TensorFloat-32) */
  bool batch_invariant;    /* on a CPU a row's bits must not depend on the number of rows */
  const char *modes;       /* instead of the operation's; or NULL */
  struct sl__chain *chain; /* of which the task is a link (core/runtime/chain.h); or NULL */
  bool endless;            /* it may never end: sl__wait_for_all leaves it out */
  bool varies;             /* the CUDA kernel's function may start other work in each call */
  struct sl__slice_mark mark;
  const struct sl__op *traced_as; /* traces name this operation; NULL: the task's own */
  struct sl__cut cut;             /* from here on the operation fills in, not the layer */
  struct sl__prepack prepack;
  /* Writes what the record has of a step into the arguments, for a captured graph that runs in many
   * steps. NULL: the arguments are the same in all of them. */
  void (*renew)(void *args, const struct sl__step_record *step);
  /* Can the kernel compute its next input, of which nothing else is needed, from the inputs of the
   * call that would write it? If so, the arguments say it from then on, and those inputs take the
   * input's place. Asked for each input, in their order; if one answer is no, none is taken. first:
   * the element of that call's output at which the input begins. NULL: the answer is no. */
  bool (*absorb_input)(void *args, const struct sl__op *writer, const void *writer_args,
                       int64_t first);
};

static inline const char *sl__modes(const struct sl__op *op, const struct sl__launch *launch) {
  return launch->modes ? launch->modes : op->modes;
}

/* args (plain data without pointers: they may travel to another process) are copied; kernels find
 * them by sl__args(cl_arg), and the accumulate flag by sl__accumulate(cl_arg). flops of this task.
 * footprint: a hash of what in args changes the cost (sizes are hashed already); 0 if nothing does.
 */
enum sl_status sl__submit(struct sl_context *context, struct sl__op *op,
                          const struct sl__launch *launch, int count,
                          struct sl__tensor *const *tensors, const void *args, size_t args_size,
                          double flops, uint32_t footprint);

/* The same without hooks that might take the call, and for a caller that sees to the chains of its
 * tensors (core/runtime/chain.h). */
enum sl_status sl__submit_as_it_is(struct sl_context *context, struct sl__op *op,
                                   const struct sl__launch *launch, int count,
                                   struct sl__tensor *const *tensors, const void *args,
                                   size_t args_size);

/* The bit of a buffer in a task's masks of buffers. The last bit is that of all buffers from there
 * on, which one letter of the modes describes: they are alike. */
enum { SL__LAST_MASK_BIT = 30 };
static inline int sl__mask_bit(int buffer) {
  return buffer < SL__LAST_MASK_BIT ? buffer : SL__LAST_MASK_BIT;
}

struct sl__args_header {
  uint32_t footprint;
  uint32_t accumulate;
  uint32_t count;     /* buffers of this task */
  uint32_t bf16_mask; /* which buffers are bf16: sl__mask_bit */
  uint32_t tf32;
  uint32_t part, parts;  /* of a call that is divided; 0 parts: it is not */
  uint32_t phase;        /* 1 + its number; 0: all phases, one after the other */
  uint32_t is_prepacked; /* the buffer has the prepacked weight instead of the parameter */
  uint32_t args_size;    /* bytes behind this header */
  int64_t units;         /* that parts consist of; 0: those that the kernel names */
};

/* A call of sl__submit, as hooks see it (core/runtime/hooks.h); it lasts as long as the call. */
struct sl__call {
  struct sl__op *op;
  const struct sl__launch *launch;
  int count;
  struct sl__tensor *const *tensors;
  const struct sl__args_header *header;
  const void *args;
  size_t args_size;
  double flops;
};

/* The failure of a call whose operation has no kernel for the device where it is placed. */
enum sl_status sl__fail_no_kernel(const struct sl__call *call);

static inline const void *sl__args(const void *cl_arg) {
  return (const struct sl__args_header *)cl_arg + 1;
}
static inline bool sl__accumulate(const void *cl_arg) {
  return ((const struct sl__args_header *)cl_arg)->accumulate;
}
static inline uint32_t sl__bf16_mask(const void *cl_arg) {
  return ((const struct sl__args_header *)cl_arg)->bf16_mask;
}
static inline bool sl__is_bf16(const void *cl_arg, int i) {
  return sl__bf16_mask(cl_arg) >> sl__mask_bit(i) & 1;
}
static inline bool sl__tf32(const void *cl_arg) {
  return ((const struct sl__args_header *)cl_arg)->tf32;
}

/* The units that a kernel has to do. units: those of the cut, or a multiple of them if it is
 * flat, or those of this phase. */
struct sl__work_range {
  int64_t first, end;
};
static inline struct sl__work_range sl__work_range(const void *cl_arg, int64_t units) {
  const struct sl__args_header *h = (const struct sl__args_header *)cl_arg;
  int64_t parts = h->parts ? h->parts : 1, part = h->part;
  int64_t cuts = h->units ? h->units : units, each = units / cuts;
  struct sl__work_range range = {cuts * part / parts * each, cuts * (part + 1) / parts * each};
  return range;
}
/* The phase, from 0 on, that this call does; -1: all. */
static inline int sl__phase(const void *cl_arg) {
  return (int)((const struct sl__args_header *)cl_arg)->phase - 1;
}
static inline bool sl__is_prepacked(const void *cl_arg) {
  return ((const struct sl__args_header *)cl_arg)->is_prepacked;
}
static inline int sl__buffer_count(const void *cl_arg) {
  return (int)((const struct sl__args_header *)cl_arg)->count;
}

/* The memory of a kernel's i-th buffer. */
static inline void *sl__buffer(void *buffers[], int i) {
  return (void *)STARPU_VECTOR_GET_PTR(buffers[i]);
}

#endif
