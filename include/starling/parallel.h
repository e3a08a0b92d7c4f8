/* Training on several devices: placement, replicas, microbatches, the KVStore, the trainer. */
#ifndef STARLING_PARALLEL_H
#define STARLING_PARALLEL_H

#include <starling/base.h>
#include <starling/data.h>
#include <starling/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup kvstore The KVStore
 * Who owns the parameters: an owner adds the replicas' gradients up, in their order, and runs the
 * optimizer. A layer larger than a bound is cut into several shards, so that several workers update
 * it at once and one big embedding does not fill one device. LOCAL: the CPU owns every shard, and
 * any of its workers may update one. DEVICE: the shards go round the devices of the list, balanced
 * by bytes; a layer that GPUs alone own is not cut, since what is cut has its home in main memory.
 */
enum sl_kvstore_kind {
  SL_KVSTORE_LOCAL,
  SL_KVSTORE_DEVICE,
  SL_KVSTORE_DIST_SYNC,
  SL_KVSTORE_DIST_ASYNC,
  SL_KVSTORE_DIST_SYNC_DEVICE,
  SL_KVSTORE_DIST_ASYNC_DEVICE
};

/** "local", "device", "dist_sync" and so on. \return SL_BAD_ARGUMENT for an unknown name. */
SL_API enum sl_status sl_kvstore_parse(const char *name, enum sl_kvstore_kind *kind);

SL_API const char *sl_kvstore_name(enum sl_kvstore_kind kind);

/** \defgroup placement Placement
 * Model parallelism: which device computes which layer. Text: rules with ; (or line ends) between,
 * each LAYERS=DEVICES. LAYERS: names, ranges ("lstm0-3") and groups (sl_layer_options.group) with
 * commas between; every layer must be in exactly one rule. DEVICES: "cpu:0", "cuda:1", "cpu",
 * "any"; several with commas between: replica r runs on the r-th, round and round. # begins a
 * comment.
 *
 *     sl_place(model, "embed,lstm0-3=cuda:0;lstm4-7,decoder=cuda:1");
 *
 * Over ranks (mpirun): "a=rank0/cpu:0;b=rank1/cpu:0" is for groups of two ranks. Each group has one
 * copy of the model, a rank the layers, activations, gradients and optimizer's state of its rules;
 * several groups train it data-parallel, group g ranks 2 g and 2 g + 1. All ranks of a group read
 * the same part of the data (of as many as there are groups). Results are those of one process. A
 * rule's devices are of one rank, as are layers that share a weight; KVStore dist_sync or
 * dist_sync_device, no servers. Only a rank's own devices are checked by it.
 *
 * A rule is a stage. Microbatches flow through the stages as their data allow; results are those of
 * the unplaced model, to the bit for the same replicas and microbatches on the same kind of device.
 * Call it after the last layer, before sl_trainer_new.
 * \return SL_BAD_ARGUMENT for a layer that is unknown, placed twice or left out, or text that is no
 * rule; SL_NO_DEVICE for a device that is not there. The placement before stays then. */
SL_API enum sl_status sl_place(struct sl_model *model, const char *text);

/** The same text from a file. \return SL_IO too. */
SL_API enum sl_status sl_place_file(struct sl_model *model, const char *path);

/** How many ranks one copy of the placed model takes: its highest rank + 1, else 1. */
SL_API int sl_placement_ranks(const struct sl_model *model);

/** \defgroup math Types
 * What a training computes with. Parameters, their gradients, all sums, the loss and the
 * optimizer's state are f32 in each.
 *
 * TF32: a GPU may round the factors of matrix products and convolutions to 10 bits of fraction
 * (NVIDIA A100 Tensor Core GPU Architecture, 2020); on a CPU it is f32.
 *
 * BF16: activations and their gradients are stored as bfloat16 (8 bits of fraction, f32's range: no
 * scaling of the loss; Kalamkar et al., arXiv 1905.12322), and the layers read a bf16 copy of the
 * parameters, made anew after each update of the f32 ones (Micikevicius et al., Mixed Precision
 * Training, arXiv 1710.03740). Batch normalisation's parameters and statistics and the state that
 * recurrent layers carry on stay f32. Half the memory for activations. A CPU computes in f32
 * between these roundings, which saves it no time. */
enum sl_math { SL_MATH_F32, SL_MATH_TF32, SL_MATH_BF16 };

/** "f32", "tf32", "bf16". \return SL_BAD_ARGUMENT for an unknown name. */
SL_API enum sl_status sl_math_parse(const char *name, enum sl_math *math);

SL_API const char *sl_math_name(enum sl_math math);

/** \defgroup trainer The trainer
 * A step cuts the batch into replicas x microbatches slices, by StarPU filters on the batch axis.
 * Replica r runs on device r modulo the number of devices. All tasks of a step are submitted at
 * once; up to in_flight steps are under way together, and nothing waits but for a finished step's
 * loss.
 *
 * With a given seed and number of replicas the trained weights are the same to the bit, whatever
 * the scheduler, the number of workers and the timing. */
struct sl_trainer;

struct sl_trainer_options {
  int replicas;     /**< 0: one a StarPU worker, or one a device where devices are listed */
  int microbatches; /**< slices of a replica's part in time; their gradients add up. 0 means 1 */
  enum sl_kvstore_kind kvstore;
  int64_t big_shard; /**< elements above which a layer's block is cut; 0 means 250,000 */
  int stages;    /**< cut the model into so many runs of layers of like cost, one a worker (sl_place
                    says it exactly); with r replicas, stages x r cells. 0: not cut */
  int64_t chunk; /**< time steps a task computes at most, for models of sequences: the chunks of one
                    layer flow on while it computes the next ones. 0: the whole sequence */
  bool carry_state; /**< recurrent layers go on from the state that the batch before left, except
                       at an epoch's first (truncated back-propagation through time) */
  int in_flight;    /**< steps submitted ahead; 0 means 2 */
  /** Rows of a batch by replica, for devices of unequal speed: weights such as "4,1", one a
   * replica, each above 0. Every replica gets its share within one row, but at least one row a
   * microbatch. The loss curve is that of even slices, within rounding; to the bit it depends on
   * the split. NULL or "even": all alike. sl_split_auto finds weights. */
  const char *split;
  enum sl_math math; /**< types of activations and products */
  /* of dist_*; the same on all ranks */
  int servers; /**< so many ranks, the last ones, only own shards; 0: every rank is a worker and
                  owns shards */
  int64_t bigarray_bound; /**< elements above which a block is spread over all owners; 0 means
                             1,000,000 */
  /** What is sent of gradients; NULL or "none": all. "2bit:0.5": -0.5, 0 or 0.5 of each, and what
   * is left over is added to the next step's (MXNet's gradient compression); "1bit": signs, and the
   * means of the positive and the negative ones (Seide et al. 2014), with the same error feedback;
   * "fp16", "bf16": halves. Weights come back whole. */
  const char *compress;
  int max_staleness; /**< dist_async: steps that a worker may be ahead of the slowest; 0: any */
};

/** The trainer borrows the model (and builds it where needed); schedule NULL is constant.
 * \return SL_BAD_ARGUMENT for options out of range. */
SL_API enum sl_status sl_trainer_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                                     const struct sl_schedule *schedule,
                                     const struct sl_trainer_options *options,
                                     struct sl_trainer **trainer);

SL_API int sl_trainer_replicas(const struct sl_trainer *trainer);

/** What one finished step tells. */
struct sl_report {
  int64_t step;    /**< from 0 */
  int64_t epoch;   /**< the loader's, from 0 */
  bool last;       /**< last step of its epoch */
  double loss;     /**< mean over the batch's valid samples */
  double accuracy; /**< share of them whose largest logit was right */
  int64_t samples; /**< valid ones */
  double lr;
  bool stop; /**< sl_trainer_stop was called, on any rank */
  bool save; /**< sl_trainer_ask_save was called, on any rank (dist_async: on this one) */
  /** dist_async: updates by others between a pull of parameters and the push of what was learned
   * with them; mean and most over the messages since the last report. -1 in other kinds. */
  double staleness;
  int64_t most_staleness;
};

/** Take the loader's next batch and submit its step. *reported says whether *report was filled with
 * an earlier step's result (the first in_flight calls have none yet). A loader's batch must be at
 * least replicas x microbatches. \return SL_NOT_FINITE where a loss is: the weights are lost from
 * that step on, saved ones are not; SL_BAD_ARGUMENT for a label outside the logits; SL_NO_MEMORY
 * where the placement needs more than a device has. After a failure only sl_trainer_free is legal.
 */
SL_API enum sl_status sl_trainer_step(struct sl_trainer *trainer, struct sl_loader *loader,
                                      struct sl_report *report, bool *reported);

/** Ask for an end: a later step's report has stop set, in dist_* kinds that of the same step on all
 * ranks, so that all can leave their loops together. */
SL_API void sl_trainer_stop(struct sl_trainer *trainer);

/** Ask for a checkpoint: as sl_trainer_stop, with the report's save, so that all ranks call
 * sl_trainer_save or sl_trainer_save_begin after the same step; each ends the wish. dist_async has
 * no common step: there only this rank's own reports tell it. */
SL_API void sl_trainer_ask_save(struct sl_trainer *trainer);

/** Collective. dist_async: wait until all ranks are here; then all have the same parameters, those
 * of the owners. Every step must have been drained. *stop (or NULL): some rank has called
 * sl_trainer_stop. Where the model is over several ranks, rank 0 gets the parameters of the others'
 * layers, to be called before sl_model_save. Else nothing. sl_trainer_save does it, too. */
SL_API enum sl_status sl_trainer_settle(struct sl_trainer *trainer, bool *stop);

/** Wait for the oldest step under way and report it; *reported false when there is none. */
SL_API enum sl_status sl_trainer_drain(struct sl_trainer *trainer, struct sl_report *report,
                                       bool *reported);

/** Mean loss and accuracy over one epoch of the loader, from where it stands, with running
 * statistics and without dropout. Every step must have been drained. */
SL_API enum sl_status sl_trainer_evaluate(struct sl_trainer *trainer, struct sl_loader *loader,
                                          double *loss, double *accuracy);

/** How far the training is: steps submitted, and the place of the batch to come in the data. */
struct sl_position {
  int64_t step; /**< from 0; the learning rate, dropout and Adam's bias correction go by it */
  int64_t epoch, index; /**< the loader's, from 0 */
};
SL_API struct sl_position sl_trainer_position(const struct sl_trainer *trainer);

/** A checkpoint: all that the training needs to go on as if it had never stopped, to the bit. One
 * safetensors file, written aside and renamed: parameters and buffers by their names, the
 * optimizer's state as optimizer.exp_avg.conv1.weight (and exp_avg_sq; momentum_buffer of SGD with
 * momentum), the state that recurrent layers carry on (carry_state, in the midst of an epoch) as
 * state.LAYER [batch, ...], and as metadata the step, the place in the data, the seeds, the
 * math (for information: any goes on from any, and says so), the optimizer's kind and a CRC-32
 * (zlib's, of the metadata's values and the data). The settings of the optimizer, its schedule and
 * the trainer are not in it. Every step must have been drained.
 * \return SL_BAD_ARGUMENT before the first step, or where steps are under way; SL_NOT_FINITE where
 * a weight is not finite (nothing is written); SL_IO. */
SL_API enum sl_status sl_trainer_save(struct sl_trainer *trainer, const char *path);

/** What has become of a checkpoint that was written while the training went on. */
struct sl_saved {
  enum sl_status status;
  char message[512];           /**< sl_error()'s; "" where status is SL_OK */
  struct sl_position position; /**< that it is of */
  uint64_t bytes, xxh64;       /**< the file's length and XXH64 (seed 0) */
  double write_s;              /**< how long writing took, fsync included */
};

struct sl_save_options {
  /** Kept in the metadata as "options", for information: one JSON object, by custom; a copy is
   * made. NULL: none. */
  const char *options;
  /** Called by the thread that writes, on rank 0, once the file is whole and in its place; *saved
   * has all but a message. Its failure becomes the checkpoint's. NULL: none. */
  enum sl_status (*committed)(void *user, const struct sl_saved *saved);
  void *user;
};

/** The same as sl_trainer_save, but for the writing: training stands still only while the state is
 * copied to main memory (which holds it twice until it is written); then a thread, of rank 0 alone,
 * writes the copy. One is written at a time: this call waits for the one before, and where that has
 * failed and nobody was told, returns its failure on all ranks and begins nothing. Collective.
 * options may be NULL. */
SL_API enum sl_status sl_trainer_save_begin(struct sl_trainer *trainer, const char *path,
                                            const struct sl_save_options *options);

/** Has a write ended, of which nobody was told yet? Then *saved (or NULL) says how: this rank is
 * told by it. Does not wait; of several ranks, only rank 0's may be true. */
SL_API bool sl_trainer_save_ended(struct sl_trainer *trainer, struct sl_saved *saved);

/** Wait for the checkpoint being written. \return its failure, on all ranks, unless rank 0 was told
 * before. *saved (or NULL) is filled on rank 0; of position step 0: nothing was there to be told.
 * Collective. */
SL_API enum sl_status sl_trainer_save_wait(struct sl_trainer *trainer, struct sl_saved *saved);

/** The way back, into a trainer of the same model, kind of optimizer and seed, and with a loader
 * (the training set's, of which no batch is out) that gives the same order: it is moved to the
 * batch that comes next. Replicas, microbatches, placement and shards may differ, and so may the
 * loader's batch and parts, as long as their product is the same. Where that differs, an order of
 * single samples goes on at the last whole batch before the place; texts and buckets only at an
 * epoch's begin. Nothing changes unless all fits.
 * \return SL_BAD_FILE for a damaged file, or one that is no checkpoint; SL_BAD_SHAPE (naming the
 * tensor and both shapes) or SL_BAD_ARGUMENT for one of another model, optimizer, seed or order;
 * SL_UNSUPPORTED for one of a newer library; SL_IO. */
SL_API enum sl_status sl_trainer_load(struct sl_trainer *trainer, struct sl_loader *loader,
                                      const char *path);

/** Where a layer is: its stage (from 0), the devices of its replicas in their order ("cpu:0,cpu:1";
 * over ranks "rank1/cpu:0") and those that own its parameters ("cpu"; "rank0/cpu,rank1", of other
 * ranks only the number is known; "" where it has none). The texts are to be freed by free().
 * \return SL_BAD_ARGUMENT where there is no such layer; SL_NO_MEMORY. */
struct sl_layer_place {
  int stage;
  char *devices, *owners;
};
SL_API enum sl_status sl_trainer_place(const struct sl_trainer *trainer, int layer,
                                       struct sl_layer_place *place);

/** sl_save_options.options of the checkpoint that was loaded last; NULL: it had none. On rank 0. */
SL_API const char *sl_trainer_loaded_options(const struct sl_trainer *trainer);

/** Devices, replicas, shards and owners, memory per device; to be freed by free(). */
SL_API enum sl_status sl_trainer_summary(const struct sl_trainer *trainer, char **text);

/** Waits for what is under way, a checkpoint being written included. The loaders used must still
 * exist. NULL is legal. */
SL_API void sl_trainer_free(struct sl_trainer *trainer);

/** \defgroup automatic Automatic placement
 * Cut the model into stages, runs of consecutive layers on a device each (of the context's list),
 * such that the slowest stage is as fast as can be, transfers included, and each fits its device's
 * memory: exact dynamic programming. Layers' times come from StarPU's performance models; what
 * these do not know is measured by a few steps on every kind of device, which then know it for
 * good. The result is a placement's text as if by sl_place. options: what the trainer will get;
 * stages is the most to make (0: as many as there are devices), with r replicas each stage takes r
 * devices; blocks are cut by big_shard as the trainer will cut them, so no other trainer on the
 * model may be at work. batch: rows of the trainer's batches, of the model's whole length. step_ms
 * (or NULL): predicted time of a step, the steps following each other. table (or NULL): the plan as
 * text, to be freed by free(). \return SL_BAD_ARGUMENT for options out of range; SL_NO_MEMORY where
 * no placement fits; SL_NO_DEVICE where no device has all operations. */
SL_API enum sl_status sl_place_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    const struct sl_trainer_options *options, int64_t batch,
                                    double *step_ms, char **table);

/** Shares of a batch for devices of unequal speed ("cuda:0,cpu"). Each kind of device is measured
 * by a few steps (whose times StarPU's performance models keep for later runs), rows are shared out
 * so that all devices end together, and some whole steps tell which way is quicker: that split,
 * even slices, or more slices than devices, which StarPU's scheduler hands out (only where the
 * device list has all workers of its kinds). options: what the trainer will get; replicas and split
 * are filled in, the split as a text to be freed by free() after the trainer was made (*split;
 * NULL: even); for more slices the model is placed (sl_place). batch: rows of the trainer's
 * batches. Times differ from run to run: to have the same bits again, give what table says by hand.
 * table (or NULL): what was measured and taken, as text, to be freed by free(). Each rank of a
 * distributed run asks for itself. \return SL_BAD_ARGUMENT where the model is placed, or a device
 * is none with a speed of its own ("any"); SL_NO_DEVICE where one lacks an operation. */
SL_API enum sl_status sl_split_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    struct sl_trainer_options *options, int64_t batch, char **split,
                                    char **table);

/** The placement in force, as text for sl_place or a file; NULL: none. Lives until the next one. */
SL_API const char *sl_placement(const struct sl_model *model);

/** \defgroup generate Text from a model */
struct sl_generate_options {
  uint64_t seed;         /**< of the draws */
  float temperature;     /**< logits are divided by it before the softmax; 0: the likeliest token */
  const int32_t *prompt; /**< tokens that the model reads first, [prompt_count], at least one */
  int64_t prompt_count;
  enum sl_math math; /**< that of the training, say */
};

/** Draw count tokens, one by one, each read by the model before the next is drawn; recurrent layers
 * begin at zero. Layers run where sl_place says (replica 0), else on the context's first device.
 * \return SL_BAD_ARGUMENT for a model that does not work step by step on tokens, an empty prompt, a
 * token or a temperature out of range; SL_NOT_FINITE where the weights are broken. */
SL_API enum sl_status sl_generate(struct sl_model *model, const struct sl_generate_options *options,
                                  int64_t count, int32_t *tokens);

#ifdef __cplusplus
}
#endif
#endif
