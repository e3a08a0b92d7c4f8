/* The type of a layer: a row of functions, its shapes and its parameters. Layers know nothing of
 * devices: the pass says where its tasks run. */
#ifndef SL_NN_LAYER_H
#define SL_NN_LAYER_H

#include <stdio.h>

#include "codelets/codelets.h"
#include "core/base/error.h"
#include "core/runtime/tensor.h"

enum { SL__MOST_INPUTS = 4096 };      /* lists of them on stacks take less than 1 MB */
#define SL__MAX_PARAMS SL__MOST_PARTS /* 8: an LSTM's in both directions */
#define SL__INPUT (-1)                /* number of the model's input among its layers */

/* One tensor of PyTorch's state dict; it lies at offset in the layer's flat block. */
struct sl__param {
  char suffix[32]; /* "weight", "running_mean" */
  char name[96];   /* "conv1.weight"; filled in when the layer is appended */
  struct sl_shape shape;
  int64_t offset;
  int64_t fan_in, fan_out; /* fans of the layer's weight, for initialisation */
  bool is_bias;
  float fill; /* initial value of a buffer, or of a parameter with is_filled */
  bool is_filled;
};

/* The parts of one flat tensor: a layer's parameters (learned) or buffers (running statistics). */
struct sl__block {
  struct sl__param part[SL__MAX_PARAMS];
  int count;
  int64_t total;
  struct sl__tensor *tensor; /* f32 [total], see sl__tensor_kept; NULL if total is 0 */
  struct sl__tensor *half;   /* copy as bf16 for passes (parallel/step/precision.h); NULL if no pass
                                computes in bf16 */
  uint64_t half_of;          /* sl__tensor_writes of `tensor` when `half` was made */
};

struct sl__layer;
struct sl__loss;
struct sl__onnx_writer;

/* Largest number of values of a sample or of a layer's output, so that their bytes fit a size_t. */
#define SL__MOST_VALUES (1ll << 40)

/* One layer on one slice (replica, microbatch) of a batch. */
struct sl__pass {
  struct sl_context *context;
  struct sl__launch launch;          /* name, place and priority; the layer sets `accumulate` */
  struct sl__tensor **x, *y, *saved; /* x[i]: of input i */
  struct sl__tensor *dy, **dx;       /* dx[i] NULL: this gradient is not needed */
  bool *add_dx;              /* dx[i] already has the part of another consumer of that input */
  struct sl__tensor *state;  /* recurrent layer: before this slice's steps, later after them.
                                NULL: see state_is_cache */
  struct sl__tensor *dstate; /* gradient of the state: after the steps, then before them */
  struct sl__tensor *param;  /* the layer's block, of its inputs' type unless wide_params */
  struct sl__tensor *grad;
  struct sl__tensor *grad_rows;            /* row numbers of a row-sparse gradient; else NULL */
  bool add_grad;                           /* grad already has the part of an earlier microbatch */
  struct sl__tensor *shared, *shared_grad; /* block of the layer whose weight this one shares */
  bool add_shared;
  bool has_relu; /* the layer applies the relu behind it, too: y and dy are that layer's */
  /* Backward: the activation of the layer before, whose gradient this layer applies, too. */
  enum sl_activation input_activation;
  bool defers_activation; /* backward: the layer behind applies the gradient of this one's */
  bool training;
  uint64_t step;      /* step of the training, for random numbers */
  int64_t first_row;  /* the slice's first row in the whole batch */
  int64_t first_step; /* the chunk's first step in the sequence; 0 if there is one chunk */
  int64_t position;   /* first_step, and the steps that earlier passes of the sequence had */
  int64_t steps;      /* steps of the chunk; 0: the whole sample */
  int slices;         /* number of slices of the whole batch */
};

struct sl__layer_kind {
  const char *name;         /* "conv2d" */
  const char *about, *keys; /* of the library's kinds: see struct sl_kind */
  size_t options_size;
  const struct sl_field *fields;      /* NULL: the kind has no options of its own */
  const struct sl_layer_kind *custom; /* the program's struct; NULL: a kind of the library */
  bool may_share;                     /* its layers may take another layer's weight */
  bool wide_params;         /* passes take parameters as f32 even if activations are bf16 */
  bool takes_relu;          /* passes obey has_relu: one pass over memory instead of two */
  bool weight_reads_output; /* backward_weight reads y */
  /* The activation that the layer applies to its output, whose gradient follows from the output
   * alone. Passes obey defers_activation. NULL: none. */
  enum sl_activation (*activation)(const struct sl__layer *layer);
  /* Is each output the value of one input, of another one each? Then passes obey input_activation.
   * NULL: no. */
  bool (*selects)(const struct sl__layer *layer);
  /* Called when the inputs' shapes are known. Checks the options and declares output, parameters,
   * saved tensor and flops. */
  enum sl_status (*infer)(struct sl__layer *layer);
  enum sl_status (*forward)(const struct sl__layer *layer, struct sl__pass *pass);
  /* Can the layer compute cross-entropy of its outputs, too, so that they never exist whole? Then
   * forward_loss does the forward pass, the loss and, in training, both backward halves: it writes
   * stats, dx[0], and grad or shared_grad (all with add_grad). The task has no logits and no
   * gradient of theirs. NULL: no. */
  bool (*takes_loss)(const struct sl__layer *layer);
  enum sl_status (*forward_loss)(const struct sl__layer *layer, struct sl__pass *pass,
                                 const struct sl__loss *loss, const struct sl__loss_task *task);
  /* Called before the two backward halves, for their common part: turns dy into the gradient before
   * a fused activation, or adds up a normalisation's sums. May be NULL. */
  enum sl_status (*backward_begin)(const struct sl__layer *layer, struct sl__pass *pass);
  enum sl_status (*backward_data)(const struct sl__layer *layer, struct sl__pass *pass);
  /* NULL if the kind has no parameters. */
  enum sl_status (*backward_weight)(const struct sl__layer *layer, struct sl__pass *pass);
  /* Writes the layer's nodes into an ONNX graph, for inference (nn/onnx_graph.h). Returns the name
   * of its output. */
  const char *(*onnx_write)(const struct sl__layer *layer, struct sl__onnx_writer *writer);
};

/* The library's kinds: nn/kinds.def. */
#define SL__KIND(name) extern const struct sl__layer_kind sl__##name##_kind;
#include "nn/kinds.def"
#undef SL__KIND

/* A kind of the library, or one that the program registered, by name; NULL if there is none
 * (kinds.c). */
const struct sl__layer_kind *sl__kind_find(const struct sl_context *context, const char *name);
/* Forgets the kinds that the program registered with the context. */
void sl__kinds_close(struct sl_context *context);

/* Is it an activation layer of this kind? (layers/activation.c) */
bool sl__is_relu(const struct sl__layer *layer);

/* The library's side of a registered kind: functions that call the program's (custom.c). */
struct sl__layer_kind sl__custom_kind(const struct sl_layer_kind *kind);

struct sl__layer {
  const struct sl__layer_kind *kind;
  char *name;
  void *options; /* copy of the public constructor's struct */
  enum sl_init init;
  float deviation; /* of SL_INIT_NORMAL */
  char *group;     /* name of its group for placement, or NULL */
  int input_count;
  int *input; /* [input_count] layer numbers, all smaller than this one's, or SL__INPUT */
  struct sl_shape *in, out;     /* of one sample; in: [input_count] */
  int consumers;                /* number of layers that take this one's output */
  int tied_to;                  /* number of the layer whose weight this one takes, or -1 */
  struct sl_shape shared_shape; /* shape of the shared weight */
  bool touches_rows;   /* the gradient is zero except in the weight's rows that the tokens name */
  bool is_tied;        /* another layer shares its weight */
  bool is_frozen;      /* see sl_freeze */
  bool broadcasts;     /* an input's values repeat, to the shape of the first input */
  bool gives_tokens;   /* a field of the input that an embedding takes: whole numbers, f32 */
  bool needs_gradient; /* of its output: it trains, or comes after a layer that does */
  float lr_factor, decay_factor; /* see sl_group_rate and sl_group_decay */
  struct sl__block params, buffers;
  struct sl_shape saved;   /* tensor that backward needs besides x and y; ndim 0: none */
  bool saved_per_row;      /* `saved` is per sample; else per slice */
  enum sl_type saved_type; /* type of a per-sample tensor: f32 means the activations' type, which
                              may be bf16 */
  bool wide_saved;         /* a per-sample `saved` is f32 even if activations are bf16 */
  bool over_time; /* works step by step on the first axis of a sample, which may be cut there */
  struct sl__custom *custom; /* registered kind: the argument of its tasks */
  struct sl_shape state;     /* state of one row, carried over time; ndim 0: none */
  bool state_is_cache; /* the state holds the sequence so far, backward reads it, and a pass of a
                          whole sequence has none */
  int64_t context;     /* steps of the longest sequence; 0: any */
  double flops;        /* multiplications and additions of a forward pass of one sample */
};

struct sl_model {
  struct sl_context *context;
  struct sl_shape sample;
  struct sl__layer *layers;
  int count, capacity;
  int input_count, output_count; /* fields, if they have names (nn/fields.c); else 0 */
  bool takes_tokens;             /* the input is i32 (an embedding comes first) */
  bool built;
  int users; /* number of KVStores with shards of its blocks, which must not be cut in another way
                meanwhile */
  char *placement;                /* device of each layer (parallel/step/placement.c); NULL: any */
  int ranks;                      /* number of ranks of the placement; 0: no placement */
  char *frozen;                   /* the frozen layers as a list; NULL: all layers train */
  bool decays_weights_only;       /* see sl_decay_weights_only */
  struct sl_model_notes metadata; /* the model's copy */
  enum sl_task output_task[SL_MAX_FIELDS]; /* of each output that has a name */
};

/* Is it a field of the model's input? These are the first layers. */
bool sl__is_input_field(const struct sl_model *model, const struct sl__layer *layer);

/* Appends a layer: copies the options, resolves the inputs' names, infers the shapes. */
enum sl_status sl__layer_append(struct sl_model *model, const char *name,
                                const struct sl__layer_kind *kind, const void *options);

/* A kind and its constructor, for files that have several kinds: their options, the table and the
 * texts of its keys; then more members. */
#define SL__KIND_OF(kind_name, type, table, table_keys, ...)                                       \
  const struct sl__layer_kind sl__##kind_name##_kind = {.name = #kind_name,                        \
                                                        .keys = table_keys,                        \
                                                        .options_size = sizeof(struct type),       \
                                                        .fields = table,                           \
                                                        __VA_ARGS__};                              \
  enum sl_status sl_##kind_name(struct sl_model *model, const char *name,                          \
                                const struct type *options) {                                      \
    return sl__layer_append(model, name, &sl__##kind_name##_kind, options);                        \
  }

/* SL_BAD_ARGUMENT unless a model's file can hold the layer's options, so that a model which trains
 * can be saved and opened (layer_options.c). */
enum sl_status sl__layer_check_options(const struct sl__layer *layer);
/* SL_BAD_ARGUMENT for a list of too many numbers, which nothing may read. */
enum sl_status sl__layer_check_lists(const struct sl__layer *layer);
/* The largest value of a field that is a whole number, or a list of these. */
int64_t sl__field_most(const struct sl_field *field);

/* Takes the last layer away, which nothing may have used. */
void sl__layer_drop(struct sl_model *model);

/* The first layer that needs a whole sample at once: it keeps samples from being cut in time, or
 * from having different lengths; any layer of a model that does not take tokens. NULL: all layers
 * work step by step on tokens. */
const struct sl__layer *sl__model_whole_layer(const struct sl_model *model);
/* Fails with the status where there is such a layer; what: it wants to cut samples in time. */
enum sl_status sl__model_check_steps(const struct sl_model *model, enum sl_status status,
                                     const char *what);

/* SL_UNSUPPORTED names the first layer that is for inference only, though a gradient passes it;
 * SL_BAD_ARGUMENT if all parameters are frozen. */
enum sl_status sl__model_check_trains(const struct sl_model *model);

/* Does the layer have parameters that an optimizer updates? */
static inline bool sl__layer_trains(const struct sl__layer *layer) {
  return layer->params.total > 0 && !layer->is_frozen;
}

/* SL_BAD_ARGUMENT while a trainer uses the model; subject: what is to be changed, for the message
 * (layer_settings.c). */
enum sl_status sl__model_check_unused(const struct sl_model *model, const char *subject);

/* Sets each layer's needs_gradient (layer_settings.c). */
void sl__model_find_gradients(struct sl_model *model);

/* Number of tokens that the model can read, from 0 on: the smallest vocabulary of its embeddings.
 */
int64_t sl__model_words(const struct sl_model *model);
/* The same of one field, layer number `field`; 0 if it gives numbers. */
int64_t sl__field_words(const struct sl_model *model, int field);

/* A copy of a model's parameters and buffers. */
struct sl__copy {
  float **blocks; /* parameters and buffers of layer l at 2 l and 2 l + 1; NULL if it has none */
  int count;
};
enum sl_status sl__copy_new(const struct sl_model *model, struct sl__copy *copy);
enum sl_status sl__copy_read(const struct sl_model *model, struct sl__copy *copy);
enum sl_status sl__copy_write(const struct sl_model *model, const struct sl__copy *copy);
/* The values of the state dict's entry i in a copy; i counts as in sl_model_parameter. */
float *sl__copy_values(const struct sl__copy *copy, const struct sl_model *model, int i);
/* SL_NOT_FINITE names the first value that is infinite or no number; path is for the message. */
enum sl_status sl__copy_check(const struct sl__copy *copy, const struct sl_model *model,
                              const char *path);
/* Frees a copy; a zeroed or incomplete one is legal. */
void sl__copy_free(struct sl__copy *copy);

/* For infer(): declares the next part of a block. */
struct sl__param *sl__block_add(struct sl__block *block, const char *suffix,
                                const struct sl_shape *shape);

/* Parameters and buffers as a safetensors file (weights.c). Saving builds the model first. */
enum sl_status sl__weights_save(struct sl_model *model, const char *path);
enum sl_status sl__weights_load(struct sl_model *model, const char *path);
/* The tensors of the file that fit (weights_part.c); arguments as sl_model_load_part's. */
enum sl_status sl__weights_load_part(struct sl_model *model, const char *path, const char *map,
                                     char **report);
/* A row of a report on weights (weights_part.c). */
void sl__report_row(FILE *out, const char *name, const struct sl_shape *shape, const char *what,
                    const char *more);
/* The number of the state dict's entry of that name, as sl_model_parameter counts; -1: none. */
int sl__find_parameter(const struct sl_model *model, const char *name);
/* The number of the weight that a layer shares under this name of its own, "LAYER.weight"; -1:
 * there is no such layer. */
int sl__find_shared(const struct sl_model *model, const char *name);
/* Is it PyTorch's count of batches, which Starling does not need? */
bool sl__is_batch_count(const char *name);
/* PyTorch writes a shared weight under both layers' names. *found: `name` is such a second name in
 * the model, and the file has it as `entry`. SL_BAD_FILE if its values are not the weight's in the
 * copy. */
struct sl__safetensors;
enum sl_status sl__check_shared(struct sl_model *model, const struct sl__safetensors *file,
                                const struct sl__copy *copy, const char *entry, const char *name,
                                bool *found);

/* Is `key` an option that all kinds share? A registered kind must not have it. */
bool sl__is_common_key(const char *key);

/* A model's metadata in its JSON text (metadata.c). Writing adds to *object as sl__json_set does;
 * the object that is read is a json_t. */
struct json_t;
void sl__metadata_write(const struct sl_model *model, struct json_t **object);
enum sl_status sl__metadata_read(struct sl_model *model, const char *path, const void *object);
void sl__metadata_free(struct sl_model *model);

/* 0.1f as 0.1: the shortest number that reads back as the same float. */
double sl__short_real(float value);

/* Initial values of a block (init.c), and the state dict's entries (weights.c). */
enum sl_status sl__layer_check_init(const struct sl__layer *layer);
enum sl_status sl__layer_initialise(const struct sl__layer *layer, uint64_t seed);

/* Is input k the same layer's output as an earlier one? Its gradient is then added to that one's.
 */
static inline bool sl__is_repeated(const struct sl__layer *layer, int k) {
  for (int i = 0; i < k; i++)
    if (layer->input[i] == layer->input[k]) return true;
  return false;
}

/* For infer(): SL_BAD_ARGUMENT unless there are two inputs or more, SL_BAD_SHAPE unless they
 * broadcast to the shape of the first. layer->broadcasts says whether one has another shape. */
enum sl_status sl__inputs_broadcast(struct sl__layer *layer);
/* Does input k's shape differ from the first one's? */
static inline bool sl__is_broadcast(const struct sl__layer *layer, int k) {
  return !sl_shape_equal(&layer->in[0], &layer->in[k]);
}
/* For infer(): SL_BAD_ARGUMENT unless there is one input. */
enum sl_status sl__input_alone(const struct sl__layer *layer);

/* sl__fail(SL_BAD_SHAPE, "layer NAME (kind): ...") */
enum sl_status sl__layer_fail(const struct sl__layer *layer, enum sl_status status,
                              const char *format, ...) SL_PRINTF(3, 4);

#endif
