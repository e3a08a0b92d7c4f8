/* Inference: a trained model answers requests from any number of threads, several at a time. */
#ifndef STARLING_PREDICT_H
#define STARLING_PREDICT_H

#include <starling/base.h>
#include <starling/nn.h>
#include <starling/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup predictor Predictors
 * A predictor runs a model forwards: dropout does nothing, batch normalisation uses its running
 * statistics, recurrent layers begin at zero. Requests wait in one queue. Those that wait at the
 * same time run together, as one batch of up to max_batch samples (dynamic batching). Several
 * batches run at once, on the devices of the context or those that sl_place names (batch b as
 * replica b of its rules, in turn).
 *
 * Memory: the activations of a worker's largest pass, where each reuses the place of one that is
 * no longer needed; sl_close frees it. And each of the batches that run at once has prepared the
 * sizes that it met last, at most 64: for each of them some 70 kB and 1 kB a layer and, unless main
 * memory is limited, the output where that is below 256 kB. To prepare a size takes as long as some
 * batches of a small model, so a server's batches should not have many more sizes. Parameters are
 * in memory more than once: as the model has them, and packed or in other forms for the CPU's
 * kernels, up to 64 MB a predictor (and an eighth of a limit on main memory). Several predictors,
 * of one model or of several, may share a context; while one is open, do not train, place
 * automatically or measure in that context: requests and steps wait for each other, requests
 * without a pause may hold a training up for ever, and what is measured is wrong.
 *
 * A sample's answer depends on its values, the weights and the kind of device. Its last bits also
 * depend on the number of samples that ran together (matrix products add up in another order).
 * With max_delay_us 0 a request of up to max_batch samples that comes alone is one batch: the same
 * call gives the same bits, those of a trainer's evaluation with such a batch. */
struct sl_predictor;

/** Zero selects the default of each option. */
struct sl_predictor_options {
  int64_t max_batch;    /**< most samples that run together; 0: 64. A larger request is cut */
  int64_t max_delay_us; /**< longest wait of an incomplete batch for more requests; 0: none */
  int batches;          /**< batches that run at once; 0: two a worker */
  enum sl_math math;    /**< usually that of the training */
  int cores; /**< most CPU workers that compute one batch together, while no other batch runs in the
                  context and the model may be on any CPU; 0: 16, the largest number */
};

/** Builds the model if it is not built, and needs it until sl_predictor_free. options NULL: their
 * zero value.
 * \return SL_BAD_ARGUMENT for options out of range, or a model placed over ranks. */
SL_API enum sl_status sl_predictor_open(struct sl_model *model,
                                        const struct sl_predictor_options *options,
                                        struct sl_predictor **predictor);

/** Answer n samples, and wait for the answer. From any thread. inputs: n samples of the model's
 * input shape, one after the other, float, or int32_t tokens if its first layer is an embedding; of
 * a model with several inputs a sample is a row of them, one behind the other
 * (sl_model_input_field tells where). Inputs are what the layers take, normalised as in the
 * training: (value - mean) / deviation of sl_model_notes, where pictures' values are from 0 to 1.
 * outputs: n times sl_model_output, float: the last layer's output, logits; of several outputs rows
 * of them (sl_model_output_field). A regression's answer in the targets' unit is output *
 * target_deviation + target_mean of sl_model_notes. (doc/surrogate.md has a program.)
 * \return SL_BAD_ARGUMENT for n < 1, or for a token that the embedding does not have (the message
 * names it); SL_CLOSED after sl_predictor_close; the failure of a kernel, of this or
 * another object (see sl_wait); SL_STALLED if the context watches for stalls and finds one. */
SL_API enum sl_status sl_predict(struct sl_predictor *predictor, const void *inputs, int64_t n,
                                 float *outputs);

/** The same without waiting for the answer. (The call itself may take long: it prepares a size
 * that it has not met lately, and may wait for memory if it is limited.) inputs and outputs belong
 * to the predictor until sl_predict_wait, which must be called once for each request: it waits,
 * returns the request's status and frees the request. NULL is legal there. */
struct sl_prediction;
SL_API enum sl_status sl_predict_submit(struct sl_predictor *predictor, const void *inputs,
                                        int64_t n, float *outputs, struct sl_prediction **request);
SL_API enum sl_status sl_predict_wait(struct sl_prediction *request);

/** Accept no more requests. Batches that run come to their end; requests of which a part has not
 * begun, and all later ones, get SL_CLOSED. From any thread, more than once. */
SL_API void sl_predictor_close(struct sl_predictor *predictor);

/** Close and free. No thread may be in sl_predict, and every request must have been waited for.
 * NULL is legal. */
SL_API void sl_predictor_free(struct sl_predictor *predictor);

/** Counts since the predictor was opened. */
struct sl_predictor_counts {
  int64_t requests, samples, batches; /**< that have ended */
  double computing_us; /**< from a batch's first kernel to its last one, summed over batches (and
                            stages); on GPUs, the time to launch the kernels */
};
SL_API struct sl_predictor_counts sl_predictor_count(struct sl_predictor *predictor);

#ifdef __cplusplus
}
#endif
#endif
