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
 * The KVStore assigns each parameter to an owner, which adds up the gradients of the replicas, in
 * their order, and runs the optimizer. A layer larger than a bound is cut into several shards, so
 * that several workers update it at once and a big embedding does not fill one device.
 *
 * AUTO: DEVICE in a context of GPUs alone, where each update would otherwise cross the bus twice,
 * and LOCAL in any other. LOCAL: the CPU owns every shard, and any of its workers may update one.
 * DEVICE: the devices of the list own the shards, balanced by bytes; a layer that only GPUs own is
 * not cut, since the shards of a cut layer stay in main memory. DIST_*: the ranks of a distributed
 * training own the shards; SYNC: all ranks make each step together, ASYNC: an owner applies each
 * worker's gradient when it comes.
 */
enum sl_kvstore_kind {
  SL_KVSTORE_AUTO,
  SL_KVSTORE_LOCAL,
  SL_KVSTORE_DEVICE,
  SL_KVSTORE_DIST_SYNC,
  SL_KVSTORE_DIST_ASYNC,
  SL_KVSTORE_DIST_SYNC_DEVICE,
  SL_KVSTORE_DIST_ASYNC_DEVICE
};

/** "auto", "local", "device", "dist_sync" and so on. \return SL_BAD_ARGUMENT for an unknown name.
 */
SL_API enum sl_status sl_kvstore_parse(const char *name, enum sl_kvstore_kind *kind);

SL_API const char *sl_kvstore_name(enum sl_kvstore_kind kind);

/** Returns the kind that a trainer or KVStore of this context takes: DEVICE or LOCAL for AUTO, and
 * every other kind itself. */
SL_API enum sl_kvstore_kind sl_kvstore_choose(const struct sl_context *context,
                                              enum sl_kvstore_kind kind);

/** \defgroup placement Placement
 * Model parallelism: the placement says which device computes which layer. It is a text of rules
 * LAYERS=DEVICES, separated by ; or line ends. LAYERS: names, ranges ("lstm0-3", of groups, too),
 * patterns ("lstm*") and groups (sl_layer_options.group), with commas; every layer must be in
 * exactly one rule; those of input fields and of sl_outputs may be left out, and run beside the
 * first layer that takes the input, or the last one that is an output. DEVICES: "cpu:0", "cuda:1",
 * "cpu", "any", separated by commas; replica r runs on the r-th, modulo their number. # begins a
 * comment.
 *
 *     sl_place(model, "embed,lstm0-3=cuda:0;lstm4-7,decoder=cuda:1");
 *
 * Over ranks (mpirun): "a=rank0/cpu:0;b=rank1/cpu:0" is for groups of two ranks. Each group has one
 * copy of the model; each of its ranks has the layers, activations, gradients and optimizer state
 * of its own rules. Several groups train data-parallel: group g is ranks 2 g and 2 g + 1. All ranks
 * of a group read the same part of the data, which has one part for each group. Results are those
 * of one process. The devices of a rule must be of one rank, and so must layers that share a
 * weight. The KVStore must be dist_sync or dist_sync_device, without servers. A rank checks only
 * its own devices.
 *
 * Each rule is a stage. A microbatch enters a stage as soon as its data are there. Results are
 * those of the unplaced model, to the bit for the same replicas and microbatches on the same kind
 * of device. Call this after the last layer and before sl_trainer_new. \return SL_BAD_ARGUMENT for
 * a layer that is unknown, placed twice or left out, text that is no rule, or while a trainer uses
 * the model; SL_NO_DEVICE for a device that does not exist. After a failure the earlier placement
 * stays.
 */
SL_API enum sl_status sl_place(struct sl_model *model, const char *text);

/** The same text from a file. \return SL_IO too. */
SL_API enum sl_status sl_place_file(struct sl_model *model, const char *path);

/** Number of ranks for one copy of the placed model: its highest rank + 1; 1 without ranks. */
SL_API int sl_placement_ranks(const struct sl_model *model);

/** \defgroup math Types
 * The number types of a training. Parameters, their gradients, all sums, the loss and the
 * optimizer's state are f32 in each.
 *
 * TF32: a GPU may round the factors of matrix products and convolutions to 10 bits of fraction
 * (NVIDIA A100 Tensor Core GPU Architecture, 2020); on a CPU it is f32.
 *
 * BF16: activations and their gradients are stored as bfloat16 (8 bits of fraction, f32's range: no
 * scaling of the loss; Kalamkar et al., arXiv 1905.12322), and the layers read a bf16 copy of the
 * parameters, which each update of the f32 ones renews (Micikevicius et al., Mixed Precision
 * Training, arXiv 1710.03740). Batch normalisation's parameters and statistics and the state that
 * recurrent layers carry stay f32. Activations take half the memory. A CPU that can (AVX512_BF16 or
 * AMX, with oneDNN) multiplies in bf16 in dense layers and in the head's loss; all else it computes
 * in f32 between these roundings, which saves no time. */
enum sl_math { SL_MATH_F32, SL_MATH_TF32, SL_MATH_BF16 };

/** "f32", "tf32", "bf16". \return SL_BAD_ARGUMENT for an unknown name. */
SL_API enum sl_status sl_math_parse(const char *name, enum sl_math *math);

SL_API const char *sl_math_name(enum sl_math math);

/** \defgroup trainer The trainer
 * A step cuts the batch into replicas x microbatches slices, by StarPU filters on the batch axis.
 * Replica r runs on device r modulo the number of devices. The trainer submits all tasks of a step
 * at once, and up to in_flight steps ahead; it waits only for the loss of the oldest step.
 *
 * With a given seed and number of replicas the trained weights are the same to the bit, whatever
 * the scheduler, the number of workers and the timing. */
struct sl_trainer;

struct sl_trainer_options {
  int replicas;     /**< 0: one for each StarPU worker, or for each listed device */
  int microbatches; /**< slices of a replica's part, one after the other; their gradients add up. 0:
                       1 */
  enum sl_kvstore_kind kvstore; /**< 0: SL_KVSTORE_AUTO */
  int64_t big_shard;            /**< elements above which a layer's block is cut; 0 means 250,000 */
  int stages; /**< number of stages, runs of layers of similar cost, one for each worker; with r
                 replicas, stages x r workers. sl_place gives a cut exactly. 0: not cut */
  /** Most time steps of a task, for models of tokens whose layers all work step by step (others are
   * refused): the next layer computes a chunk while this one computes the chunk after it. 0: the
   * whole sequence; in training half of it, where a model with a recurrent state has one copy on
   * CPUs, batches of one slice (a replica and a microbatch) and 16 steps or more. In models without
   * such a state the bits on CPUs are the same for all numbers from 1 on, and a sequence has at
   * most 4,096 chunks. */
  int64_t chunk;
  bool carry_state; /**< recurrent layers begin with the state that the batch before left, except
                       in an epoch's first batch (truncated back-propagation through time); refused
                       without such a layer, and where a layer needs whole samples */
  int in_flight;    /**< steps submitted ahead; 0 means 2, and on CPUs without ranks half of the
                       loader's slots, 8 at most */
  /** How the rows of a batch are split among replicas on devices of unequal speed: weights such as
   * "4,1", one for each replica, each above 0. Every replica gets its share within one row, but at
   * least one row for each microbatch. The loss curve is that of even slices within rounding; its
   * bits depend on the split. NULL or "even": equal parts. sl_split_auto finds weights. */
  const char *split;
  enum sl_math math; /**< types of activations and products */
  /** What is minimised. Cross-entropy (0) takes data with class labels, all others data with
   * targets of the output's shape. */
  struct sl_loss loss;
  /* for dist_*; the same on all ranks */
  int servers; /**< the number of ranks, the last ones, that only own shards; 0: every rank is a
                  worker and owns shards */
  int64_t bigarray_bound; /**< elements above which a block is spread over all owners; 0 means
                             1,000,000 */
  /** Compression of the gradients that are sent; NULL or "none": none. "2bit:0.5": each becomes
   * -0.5, 0 or 0.5, and the error is added to the next step's gradient (MXNet's gradient
   * compression); "1bit": signs, and the means of the positive and the negative ones (Seide et al.
   * 2014), with the same error feedback; "fp16", "bf16": half the bits. Weights are not
   * compressed. */
  const char *compress;
  int max_staleness; /**< dist_async: most steps that a worker may be ahead of the slowest; 0: any
                      */
  bool eager; /**< submit each call of a layer as a task in each step; false: capture a step once,
                 and submit it as few tasks from then on, where that is possible. The bits are the
                 same */
  bool log_gradients; /**< reports have the gradient's norm and noise; weights have the same bits.
                         Not for dist_async */
  /** Layers whose outputs are not kept for the backward pass, which computes them again from the
   * output before each run of them: less memory, the same bits (Chen et al., arXiv 1604.06174).
   * Names, ranges, patterns and groups, as sl_place has them: "h*". A run ends where a group
   * (sl_layer_options.group) or a stage does. Layers with running statistics, and recurrent ones,
   * cannot be among them. NULL: none. */
  const char *recompute;
};

/** The trainer borrows the model, and builds it if it is not built. schedule NULL: a constant rate;
 * options NULL: their zero value. Collective in dist_* kinds.
 * \return SL_BAD_ARGUMENT for options, or members of the optimizer or of the schedule, that are out
 * of range, and for a model, an optimizer, a schedule, a loss or options that must be alike on all
 * ranks and are not. */
SL_API enum sl_status sl_trainer_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                                     const struct sl_schedule *schedule,
                                     const struct sl_trainer_options *options,
                                     struct sl_trainer **trainer);

/** Parts that it cuts a batch into, one for each device: sl_trainer_options.replicas, 0 filled in.
 */
SL_API int sl_trainer_replicas(const struct sl_trainer *trainer);

/** The result of one step. */
struct sl_report {
  int64_t step;    /**< from 0 */
  int64_t epoch;   /**< the loader's, from 0 */
  bool last;       /**< last step of its epoch */
  double loss;     /**< mean over the batch's terms that count */
  double accuracy; /**< share of them whose largest logit was right; 0 if there are no labels */
  int64_t samples; /**< valid ones: labels, or samples with a target that counts */
  double lr;
  bool stop; /**< sl_trainer_stop was called, on any rank */
  bool save; /**< sl_trainer_ask_save was called, on any rank (dist_async: on this one) */
  /** dist_async: number of updates by other workers between a pull of parameters and the push of
   * the gradients computed with them; mean and maximum since the last report. Other kinds: -1. */
  double staleness;
  int64_t most_staleness;
  double terms; /**< of the loss's mean: labels (or their class weights), target values, rows; of a
                   loss of parts: samples */
  /** Of a loss of parts: each part's mean and its terms, as sl_trainer_part numbers them. */
  int part_count;
  double part_loss[SL_MAX_FIELDS], part_terms[SL_MAX_FIELDS];
  /** The gradient's global norm, before it is clipped; infinite above 1.8e19, where its square is
   * no float; -1 without log_gradients. */
  double grad_norm;
  /** With log_gradients and several replicas (of all workers together), of a batch whose samples
   * all count, and squares that are floats; else -1: how much the gradients g of single samples (of
   * a text: of tokens) differ from their mean G, by the norms of the replicas' gradients and of
   * their sum (McCandlish et al., arXiv 1812.06162, appendix A.1). grad_variance: an estimate
   * without bias of tr Cov(g). grad_noise: grad_variance / |G|^2, the "simple noise scale", near
   * the batch size above which more samples a step help little; -1 where the estimate of |G|^2,
   * grad_norm^2 - grad_variance / samples, is not above 0. One step says little: take means of the
   * variance and of |G|^2 over many. */
  double grad_variance, grad_noise;
};

/** Take the loader's next batch and submit its step. *reported says whether *report was filled with
 * an earlier step's result (the first in_flight calls have none yet). A loader's batch must have at
 * least replicas x microbatches samples. The trainer may have many loaders, one after the other or
 * in turn, and each may be freed after the steps that read it (sl_loader_free).
 * \return SL_NOT_FINITE if a loss is not finite: the weights are lost from that step on, saved ones
 * are not; SL_BAD_ARGUMENT for a label outside the logits; SL_NO_MEMORY if the placement needs more
 * than a device has. After a failure only sl_trainer_free is legal; without ranks no step is
 * pending then, so that the program may exit. A loader that does not suit (SL_BAD_SHAPE,
 * SL_BAD_ARGUMENT: its samples, its targets, a batch that cannot be cut) is refused before anything
 * is computed, over ranks on all of them, and the trainer is as it was; only in dist_async that is
 * a failure, too. Evaluations and searches refuse it alike. */
SL_API enum sl_status sl_trainer_step(struct sl_trainer *trainer, struct sl_loader *loader,
                                      struct sl_report *report, bool *reported);

/** The output of part i of the trainer's loss, from 0, in the model's order; NULL behind the last.
 */
SL_API const char *sl_trainer_part(const struct sl_trainer *trainer, int i);

/** Ask to stop: a later step's report has stop set. In dist_* kinds it is the same step on all
 * ranks, so that all can leave their loops together. */
SL_API void sl_trainer_stop(struct sl_trainer *trainer);

/** Ask for a checkpoint: as sl_trainer_stop, with the report's save, so that all ranks call
 * sl_trainer_save or sl_trainer_save_begin after the same step; either of them answers the request.
 * dist_async has no common step: there only this rank's own reports have it. */
SL_API void sl_trainer_ask_save(struct sl_trainer *trainer);

/** Collective. dist_async: wait until all ranks call this; then all workers have the owners'
 * parameters. If the model is placed over several ranks, rank 0 gets the parameters of the others'
 * layers: call this before sl_model_save. Otherwise it does nothing. Every step must have been
 * drained. *stop (or NULL): a rank has called sl_trainer_stop. sl_trainer_save includes this call.
 */
SL_API enum sl_status sl_trainer_settle(struct sl_trainer *trainer, bool *stop);

/** Wait for the oldest pending step and report it; *reported is false if there is none. */
SL_API enum sl_status sl_trainer_drain(struct sl_trainer *trainer, struct sl_report *report,
                                       bool *reported);

/** The parameters and their averages (struct sl_optimizer.average) change places: to save averages,
 * call this, sl_model_save, and this again; the training goes on with the same bits. Meanwhile
 * steps and checkpoints are refused, and evaluations take what the model has. Running statistics of
 * batch normalisation are no parameters and stay as they are. Collective, as sl_trainer_settle,
 * which a model over several ranks needs between this call and sl_model_save. Every step must have
 * been drained. \return SL_BAD_ARGUMENT where there are no averages: the optimizer keeps none, or
 * no step was made. */
SL_API enum sl_status sl_trainer_swap_average(struct sl_trainer *trainer);

/** Mean loss and accuracy over one epoch of the loader, from its present position, with running
 * statistics and without dropout; of the averages where the optimizer keeps some and a step was
 * made. Both are NaN where no label or target counts; a loss of parts is the sum of those for which
 * some do. Every step must have been drained. Collective: \return SL_BAD_ARGUMENT on all ranks if
 * their loaders have other numbers of batches, but for dist_async. */
SL_API enum sl_status sl_trainer_evaluate(struct sl_trainer *trainer, struct sl_loader *loader,
                                          double *loss, double *accuracy);

/** A search for a learning rate. Zero value: 100 steps from 1e-6 to 10, smoothing 0.9. */
struct sl_rate_search_options {
  double low, high; /**< the first step's rate and the last one's; each rises by the same factor */
  int64_t steps;    /**< at least 10 */
  double smoothing; /**< share that the mean of the losses keeps in a step, below 1 */
};

struct sl_rate_point {
  double lr, loss, smoothed; /**< smoothed: the mean of losses up to here, the last ones most */
};

struct sl_rate_search {
  int64_t count; /**< steps with a finite loss, up to the divergence; fewer than asked for without
                    one: it was stopped */
  struct sl_rate_point *points;
  double steepest;   /**< rate where the loss falls fastest over log(lr), a good one to begin with:
                        the middle of the fifth of the steps, 9 at least, whose line of least
                        squares falls most, not behind the fifth with the least mean; 0: no line
                        falls by more than 4 standard errors */
  double least;      /**< rate of the least smoothed loss from there on: too large for a training */
  double divergence; /**< first rate whose loss is not finite, or whose smoothed loss exceeds 4
                        times the least; 0: none up to the last */
};

/** Take training steps with an exponentially rising rate, and report losses (Smith, arXiv
 * 1506.01186); layers' factors count, the schedule does not. Then parameters, buffers, the
 * optimizer's state, averages, carried states, the step and the loader's position are, to the bit,
 * what they were before. A loss that diverges ends the steps and is no error; nor is
 * sl_trainer_stop, on any rank, or a signal that sl_signals_catch notes. Collective. Every step
 * must have been drained. Free the result by sl_rate_search_free. \return SL_BAD_ARGUMENT for
 * options out of range, or that are not alike on all ranks, and for dist_async; SL_NO_MEMORY: the
 * state is kept in main memory meanwhile. After other failures only sl_trainer_free is legal. */
SL_API enum sl_status sl_find_rate(struct sl_trainer *trainer, struct sl_loader *loader,
                                   const struct sl_rate_search_options *options,
                                   struct sl_rate_search **search);

/** NULL is legal. */
SL_API void sl_rate_search_free(struct sl_rate_search *search);

/** A measure of an evaluation. */
struct sl_metric {
  const char *name;
  double value;       /**< of all outputs; NaN: not defined for these data */
  int64_t count;      /**< entries of each; 0: none */
  const double *each; /**< [outputs]: of each output alone; "confusion": [label][answer] */
};

/** The result of sl_trainer_measure. */
struct sl_evaluation {
  double loss;
  int64_t samples; /**< with a label, or with a target that counts; of texts, tokens */
  int metric_count;
  const struct sl_metric *metrics;
};

/** As sl_trainer_evaluate, with all metrics that suit the loss, computed from the outputs of the
 * whole epoch in double precision, whatever the division of the work:
 *
 * - cross-entropy: "accuracy", "top2", "top3", "top5", "top10" (share of samples whose label is
 *   among the k largest outputs; with more classes than that), "auc" (area under the ROC curve; of
 *   2 classes), "confusion" (each: number of samples by label and answer; up to 1,024 classes); of
 *   texts each token is a sample, and there is "perplexity" (e to the loss);
 * - bce: "accuracy" (share of values on the right side), "auc" of each output, and their mean;
 * - other losses: "mae", "rmse" (in the targets' unit), "r2" (1 - squared errors / variance), of
 *   each output; "mae" and "rmse" also over all values, "r2" the mean.
 *
 * Of a loss of parts each output has those of its part, "mask.accuracy", "edge.rmse", and
 * "edge.loss", the part's mean.
 *
 * Steps are not captured, and all outputs for targets are held in memory (of labels, counts alone).
 * Collective for ranks in common steps: rank 0 gathers the other ranks' outputs, and all ranks get
 * the values of all data, as of one process within rounding. A worker of dist_async measures its
 * own part. Free the result by sl_evaluation_free. */
SL_API enum sl_status sl_trainer_measure(struct sl_trainer *trainer, struct sl_loader *loader,
                                         struct sl_evaluation **evaluation);

/** \return the metric of that name, or NULL. */
SL_API const struct sl_metric *sl_evaluation_metric(const struct sl_evaluation *evaluation,
                                                    const char *name);

/** NULL is legal. */
SL_API void sl_evaluation_free(struct sl_evaluation *evaluation);

/** The position of a training: steps submitted, and the next batch in the data. */
struct sl_position {
  int64_t step; /**< from 0; learning rate, dropout and Adam's bias correction depend on it */
  int64_t epoch, index; /**< the loader's, from 0 */
};
SL_API struct sl_position sl_trainer_position(const struct sl_trainer *trainer);

/** Write a checkpoint: the whole state of the training, which then goes on as if it had never
 * stopped, to the bit. It is one safetensors file, written under another name and renamed:
 * parameters and buffers by their names, the optimizer's state of layers that train as
 * optimizer.exp_avg.conv1.weight (names of states are PyTorch's; optimizer.average.* are the
 * averages), and the state that recurrent layers carry (carry_state, in the middle of an epoch) as
 * state.LAYER [batch, ...]. Its metadata have the step, the position in the data, the seeds, the
 * math (for information: a training may go on with another one, with a warning), the optimizer's
 * kind, the frozen layers and a CRC-32 (zlib's, of the metadata's values and the data). The
 * settings of the optimizer, its schedule and the trainer are not in it. Every step must have been
 * drained. \return SL_BAD_ARGUMENT before the first step, or if steps are pending; SL_NOT_FINITE if
 * a weight is not finite (nothing is written); SL_IO. */
SL_API enum sl_status sl_trainer_save(struct sl_trainer *trainer, const char *path);

/** The result of a checkpoint that was written while the training went on. */
struct sl_saved {
  enum sl_status status;
  char message[512];           /**< sl_error()'s; "" if status is SL_OK */
  struct sl_position position; /**< of the training when it was saved */
  uint64_t bytes, xxh64;       /**< the file's length and XXH64 (seed 0) */
  double write_s;              /**< seconds for writing, fsync included */
};

struct sl_save_options {
  /** Stored in the metadata as "options", for information; usually one JSON object. It is copied.
   * NULL: none. */
  const char *options;
  /** Called on rank 0 by the thread that writes, when the file is complete and has its name; *saved
   * has everything but a message. Its failure becomes the checkpoint's. NULL: none. */
  enum sl_status (*committed)(void *user, const struct sl_saved *saved);
  void *user;
};

/** As sl_trainer_save, but the training stops only while the state is copied to main memory (which
 * holds it twice until it is written); then a thread of rank 0 writes the copy. One checkpoint is
 * written at a time: this call waits for the one before. If that one has failed and its failure was
 * not reported, this call returns the failure on all ranks and begins nothing. Collective. options
 * may be NULL. */
SL_API enum sl_status sl_trainer_save_begin(struct sl_trainer *trainer, const char *path,
                                            const struct sl_save_options *options);

/** Has a write ended that was not reported yet? This call reports it: *saved (or NULL) is its
 * result. Does not wait. True only on rank 0. */
SL_API bool sl_trainer_save_ended(struct sl_trainer *trainer, struct sl_saved *saved);

/** Wait for the checkpoint that is being written. Collective. *saved (or NULL) is filled on rank 0;
 * its position has step 0 if there was nothing to report. \return its failure, on all ranks, unless
 * rank 0 had it reported before. */
SL_API enum sl_status sl_trainer_save_wait(struct sl_trainer *trainer, struct sl_saved *saved);

/** Read a checkpoint into a trainer of the same model, frozen layers, kind of optimizer and seed,
 * which keeps averages of the parameters if that one did.
 * The loader must be of the training set, give the same order and have no batch in use; it is moved
 * to the next batch. Replicas, microbatches, placement and shards may differ, and so may the
 * loader's batch and parts if their product is the same. If the product differs, an order of single
 * samples goes on at the last complete batch before the position; texts and buckets can do so only
 * at the start of an epoch. After a failure the trainer is unchanged. \return SL_BAD_FILE for a
 * damaged file, or one that is no checkpoint; SL_BAD_SHAPE (the message has the tensor and both
 * shapes) or SL_BAD_ARGUMENT for one of another model, optimizer, seed or order; SL_UNSUPPORTED for
 * one of a newer library; SL_IO. */
SL_API enum sl_status sl_trainer_load(struct sl_trainer *trainer, struct sl_loader *loader,
                                      const char *path);

/** The place of a layer: its stage (from 0), the devices of its replicas in their order
 * ("cpu:0,cpu:1"; over ranks "rank1/cpu:0") and the devices that own its parameters ("cpu";
 * "rank0/cpu,rank1", only the number of other ranks is known; "" if it has none). Free the texts
 * with free(). \return SL_BAD_ARGUMENT if there is no such layer; SL_NO_MEMORY. */
struct sl_layer_place {
  int stage;
  char *devices, *owners;
};
SL_API enum sl_status sl_trainer_place(const struct sl_trainer *trainer, int layer,
                                       struct sl_layer_place *place);

/** sl_save_options.options of the last loaded checkpoint; NULL: it had none. On rank 0. */
SL_API const char *sl_trainer_loaded_options(const struct sl_trainer *trainer);

/** Devices, replicas, shards and owners, memory per device, as text. Free it with free(). */
SL_API enum sl_status sl_trainer_summary(const struct sl_trainer *trainer, char **text);

/** Waits for all pending steps, and for a checkpoint that is being written. Loaders that were used
 * may be freed before or afterwards. NULL is legal. */
SL_API void sl_trainer_free(struct sl_trainer *trainer);

/** \defgroup automatic Automatic placement
 * Compares three kinds of placement and takes the one with the shortest training step: none
 * (what the trainer does with its options alone), replicas, each on a device, and stages with
 * replicas. Stages are runs of consecutive layers, each on one device of the context's list (with r
 * replicas on r devices), cut so that the slowest stage is as fast as possible, transfers included,
 * and each stage fits into the memory of its device (exact dynamic programming). The layers' times
 * are medians of some steps on each kind of device. Whole steps of the two best placements and of
 * none are then measured; none is taken unless another one is 3 % faster.
 *
 * options: those of the trainer to come (NULL: their zero value). replicas 0: any number is tried,
 * by halves, from as many as there are devices of one kind. stages: their largest number (0: the
 * number of devices). Parameters are cut by big_shard as the trainer will cut them, so no other
 * trainer may use the model. batch: rows of the trainer's batches; sequences are of the model's
 * full length. The model is placed as by sl_place, or has no placement afterwards. step_ms (or
 * NULL): measured time of a step in a sequence of steps; NaN if no placement could be measured, and
 * the devices' memories may be too small to measure training without one. table (or NULL): the
 * candidates, the one taken, and how to ask for it by hand, as text; free it with free(). The
 * choice is a measurement, so another run may choose otherwise, and another number of replicas
 * gives other bits. \return SL_BAD_ARGUMENT for options out of range; SL_NO_MEMORY if no placement
 * fits; SL_NO_DEVICE if no device has all operations. After an error the model is placed as before.
 */
SL_API enum sl_status sl_place_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    const struct sl_trainer_options *options, int64_t batch,
                                    double *step_ms, char **table);

/** Split a batch among devices of unequal speed ("cuda:0,cpu"). A few steps measure each kind of
 * device (StarPU's performance models keep their times for later runs), and the rows are split so
 * that all devices end together. Some whole steps then decide between that split, even slices, and
 * more slices than devices, which StarPU's scheduler distributes (only if the device list has all
 * workers of its kinds).
 *
 * options: those of the trainer to come; this call sets replicas (from 0: one for each device, or
 * as many as the batch can be cut into) and split. *split is the split's text (NULL: even): free it
 * with free() after the trainer was made. For more slices the model is placed (sl_place). batch:
 * rows of the trainer's batches. table (or NULL): measurements and choice, as text; free it with
 * free(). Times differ from run to run: to get the same bits again, give the options that the table
 * names. In a distributed run each rank calls this for itself.
 * \return SL_BAD_ARGUMENT if the model is placed, or a device has no speed of its own ("any");
 * SL_NO_DEVICE if a device lacks an operation. */
SL_API enum sl_status sl_split_auto(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    struct sl_trainer_options *options, int64_t batch, char **split,
                                    char **table);

/** The present placement, as text for sl_place or a file; NULL: none. Valid until the next one. */
SL_API const char *sl_placement(const struct sl_model *model);

/** \defgroup generate Text from a model */
struct sl_generate_options {
  uint64_t seed;         /**< of the draws */
  float temperature;     /**< logits are divided by it before the softmax; 0: the likeliest token */
  const int32_t *prompt; /**< tokens that the model reads first, [prompt_count], at least one */
  int64_t prompt_count;
  enum sl_math math; /**< usually that of the training */
  /** only tokens below it are drawn, as if the model had no others: for one with more outputs than
   * its vocabulary has words; 0: all */
  int64_t words;
};

/** Draw count tokens one by one; the model reads each before the next is drawn. Recurrent layers
 * begin at zero. Layers run on the devices of sl_place (replica 0), else on the context's first
 * one. \return SL_BAD_ARGUMENT for a model that does not work step by step on tokens, an empty
 * prompt, a token, a temperature or a number of words out of range; SL_NOT_FINITE if the model's
 * output is not finite.
 */
SL_API enum sl_status sl_generate(struct sl_model *model, const struct sl_generate_options *options,
                                  int64_t count, int32_t *tokens);

#ifdef __cplusplus
}
#endif
#endif
