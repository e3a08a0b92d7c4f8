/* Inference: a trained model answers requests, from any number of threads, several at a time. */
#ifndef STARLING_PREDICT_H
#define STARLING_PREDICT_H

#include <starling/base.h>
#include <starling/nn.h>
#include <starling/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup predictor Predictors
 * A predictor runs a model forwards: dropout does nothing, batch normalisation takes its running
 * statistics, recurrent layers begin at zero. Requests wait in one queue; what waits there together
 * is run together, as one batch of up to max_batch samples (dynamic batching), and several batches
 * are under way at once, on the devices of the context or where sl_place says (batch b as replica b
 * of its rules, round and round). Activations' memory is that of a worker's largest pass, kept
 * until sl_close: each lies where one that is no longer needed was. Parameters are there more than
 * once: as the model has them, and, up to 64 MB a predictor (and an eighth of a limit on main
 * memory), packed or in the forms that the CPU's kernels take. Several predictors, of the same
 * model or of different ones, may share a context; while one is open, nothing is trained, placed
 * automatically or measured in it.
 *
 * A sample's answer depends on its values, the weights and the kind of device; to the last bit also
 * on how many samples were run together (matrix products add up in another order). With
 * max_delay_us 0 a request that comes alone, of up to max_batch samples, is one batch: the same
 * call gives the same bits, those of a trainer's evaluation with such a batch. */
struct sl_predictor;

/** Zero value: the values in the comments. */
struct sl_predictor_options {
  int64_t max_batch;    /**< samples run together at the most; 0: 64. A larger request is cut */
  int64_t max_delay_us; /**< a batch that is not full waits so long for more requests; 0: not */
  int batches;          /**< under way at once; 0: two a worker */
  enum sl_math math;    /**< that of the training, say */
  int cores; /**< CPU workers that compute a batch together while no other one is under way in the
                  context, where the model may be on any of them; 0: 16, which are the most */
};

/** Needs the model until sl_predictor_free; builds it where it is not built.
 * \return SL_BAD_ARGUMENT for options out of range, or a model placed over ranks. */
SL_API enum sl_status sl_predictor_open(struct sl_model *model,
                                        const struct sl_predictor_options *options,
                                        struct sl_predictor **predictor);

/** Answer n samples; waits for it. inputs: n samples of the model's input shape, one after the
 * other, float, or int32_t tokens where its first layer is an embedding. outputs: n times
 * sl_model_output, float: the last layer's output, logits. From any thread.
 * \return SL_BAD_ARGUMENT for n < 1, or a token that the embedding does not have, saying which;
 * SL_CLOSED after sl_predictor_close; what a kernel failed with; SL_STALLED
 * where the context watches for it. */
SL_API enum sl_status sl_predict(struct sl_predictor *predictor, const void *inputs, int64_t n,
                                 float *outputs);

/** The same without waiting for the answer (the first batch of a size is prepared here, and a
 * memory limit may be waited for): inputs and outputs are the predictor's until sl_predict_wait,
 * which must be called once for each, waits, tells how it went, and ends the request. NULL is legal
 * there. */
struct sl_prediction;
SL_API enum sl_status sl_predict_submit(struct sl_predictor *predictor, const void *inputs,
                                        int64_t n, float *outputs, struct sl_prediction **request);
SL_API enum sl_status sl_predict_wait(struct sl_prediction *request);

/** No more requests: batches under way are ended; requests of which a part has not begun, and all
 * that come later, get SL_CLOSED. From any thread, more than once. */
SL_API void sl_predictor_close(struct sl_predictor *predictor);

/** Close, and free what no thread uses any more: every sl_predict has returned, every request was
 * waited for. NULL is legal. */
SL_API void sl_predictor_free(struct sl_predictor *predictor);

/** What a predictor has done so far. */
struct sl_predictor_counts {
  int64_t requests, samples, batches; /**< ended */
  double computing_us; /**< from a batch's first kernel to its last one, summed over batches (and
                            stages); of GPUs, the time to launch them */
};
SL_API struct sl_predictor_counts sl_predictor_count(struct sl_predictor *predictor);

#ifdef __cplusplus
}
#endif
#endif
