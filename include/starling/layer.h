/* Custom layers: a program that links with the library adds a kind of layer to it. */
#ifndef STARLING_LAYER_H
#define STARLING_LAYER_H

#include <starling/base.h>
#include <starling/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup custom Custom layers
 * A kind of layer is a struct of options, a function that declares the output's shape and the
 * parameters, and kernels: forward; backward if it is to be trained; for CPUs, and optionally for
 * CUDA GPUs. Once it is registered with a context it is a kind like all others: sl_layer appends
 * one, its kernels are StarPU tasks, it is trained, placed, cut into replicas and microbatches,
 * saved and opened (examples/custom_layer.c). Kinds live in the context: register a kind before
 * you open a model's file that names it, and before anything else uses the context, since there is
 * no lock. Every rank of a distributed run registers its kinds itself. */
enum { SL_LAYER_VERSION = 2, SL_LAYER_PARAMETERS = 4 };

/** One option, as a model's file has it: its name is the key. A value of 0, false or none is
 * left out. */
enum sl_field_type {
  SL_FIELD_BOOL,       /**< bool */
  SL_FIELD_INT,        /**< int, not negative */
  SL_FIELD_INT64,      /**< int64_t, from 0 to 2^40 */
  SL_FIELD_FLOAT,      /**< float, finite */
  SL_FIELD_ACTIVATION, /**< enum sl_activation */
  SL_FIELD_SHAPE /**< struct sl_shape: a list of up to SL_MAX_DIMS numbers from 0 to 2^40; ndim 0:
                    left out */
};
struct sl_field {
  const char *name; /**< NULL: the end */
  enum sl_field_type type;
  size_t offset;
};
/** {SL_FIELD(my_options, FLOAT, slope), {0}}: for `struct my_options { ...; float slope; }`. */
#define SL_FIELD(options, type, name)                                                              \
  { #name, SL_FIELD_##type, offsetof(struct options, name) }

/** What the library says of one of its kinds of layers, as `starling-train --list` prints it. */
struct sl_kind {
  const char *name;  /**< "conv2d": the "kind" of an architecture file; NULL behind the last */
  const char *about; /**< one line, with the shapes: "2-D convolution: [C, H, W] -> [K, H', W']" */
  const char *keys;  /**< its options, a line each, with the default behind the semicolon:
                        "kernel_h: height of the window; required"; "": it has none */
};

/** The library's kind i, from 0, in the order of their names. */
SL_API struct sl_kind sl_kind(int i);

/** A parameter that a layer has: in files LAYER.SUFFIX. */
struct sl_layer_parameter {
  const char *suffix; /**< "weight"; of letters, digits and _, at most 31; copied */
  struct sl_shape shape;
  int64_t fan_in, fan_out; /**< of its initial values (enum sl_init), unless filled */
  bool is_bias;            /**< begins at 0 if init is not the default */
  bool filled;             /**< begins as fill, unless init is SL_INIT_ZERO */
  float fill;              /**< finite */
};

/** Input and result of infer. Shapes are those of one sample. */
struct sl_layer_plan {
  const void *options;
  int input_count;           /**< 1 or more: a kind refuses a number that does not suit it */
  const struct sl_shape *in; /**< [input_count] */
  /* to be filled in; zero before */
  struct sl_shape out;
  struct sl_layer_parameter parameter[SL_LAYER_PARAMETERS];
  int parameter_count;
  struct sl_shape saved; /**< floats that forward leaves to backward; ndim 0: none */
  bool over_time;    /**< step i of the first axis of out and saved needs no more than step i of the
                        inputs: long sequences may be cut there */
  double flops;      /**< multiplications and additions of forward, for a sample; finite */
  char message[200]; /**< the fault and its remedy, if infer does not return SL_OK */
};

/** A kernel's argument: a slice of a batch. Arrays hold `rows` samples one after the other; shapes
 * are those of one sample, and smaller than infer's along time if a sequence is cut. */
struct sl_layer_task {
  const void *options;
  int64_t rows;
  int input_count;
  /** [input_count] each. The lists are in main memory and last as long as the call: a kernel on a
   * GPU cannot read them. */
  const struct sl_shape *in;
  const float *const *x;
  struct sl_shape out, saved_shape;
  const float *param[SL_LAYER_PARAMETERS];
  float *y;        /**< written by forward, read by the others */
  float *saved;    /**< the same; NULL if the layer saves nothing */
  const float *dy; /**< backward: the gradient of y */
  int input;       /**< backward_data: of which input (it is called once for each that needs it) */
  float *dx;       /**< backward_data ADDS the gradient of x[input] to it */
  float *grad[SL_LAYER_PARAMETERS]; /**< backward_weight ADDS the parameters' gradients to it */
  bool training;                    /**< forward: of a training step */
  char message[200];                /**< the fault, if the kernel does not return SL_OK */
};

/** A kernel runs on one of StarPU's workers, several at once: it writes only its results,
 * does not wait, and adds up in an order that does not depend on timing, if two runs of a training
 * are to give the same bits. If it returns an error, the call that waits for the results returns
 * that error. CUDA kernels put their work on the stream (a cudaStream_t) and return; memory is the
 * GPU's, aligned as floats are. They are called in every step: their work becomes no part of a CUDA
 * graph. */
typedef enum sl_status sl_layer_kernel(struct sl_layer_task *task);
typedef enum sl_status sl_layer_cuda_kernel(struct sl_layer_task *task, void *stream);

struct sl_layer_kind {
  int version;      /**< SL_LAYER_VERSION */
  const char *name; /**< "prelu": of letters, digits and _ . -, at most 63 */
  /** Bytes of its options, a struct that begins with struct sl_layer_options and has no pointers
   * of its own. */
  size_t options_size;
  const struct sl_field *fields; /**< all options of its own; NULL: none */
  enum sl_status (*infer)(struct sl_layer_plan *plan);
  sl_layer_kernel *forward;
  /** NULL: such layers are for inference only, and a trainer refuses them. backward_weight may also
   * be NULL if infer declares no parameters. */
  sl_layer_kernel *backward_data, *backward_weight;
  /** NULL: these tasks go to CPUs, wherever the layer is placed; so do all of them if
   * activations are bf16, which kernels get as floats. */
  sl_layer_cuda_kernel *forward_cuda, *backward_data_cuda, *backward_weight_cuda;
};

/** Add a kind to those of the context; all of it is copied, but the functions must stay.
 * \return SL_BAD_ARGUMENT for a name that is taken, empty or too long, for a kind without infer or
 * forward, and for fields that do not lie in the options; SL_UNSUPPORTED for another version. */
SL_API enum sl_status sl_layer_register(struct sl_context *context,
                                        const struct sl_layer_kind *kind);

/** Append a layer of a kind by its name: one that was registered, or one of the library's
 * ("dense", with struct sl_dense_options). options: the kind's own struct. \return SL_UNSUPPORTED
 * for a kind that is not there; SL_BAD_ARGUMENT for an option outside the range of its
 * enum sl_field_type; what infer returned, with its message. */
SL_API enum sl_status sl_layer(struct sl_model *model, const char *name, const char *kind,
                               const void *options);

#ifdef __cplusplus
}
#endif
#endif
