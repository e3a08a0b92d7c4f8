/* Starling: neural networks trained by StarPU tasks, on CPU cores, GPUs and clusters.
 *
 * Read the chapters in this order:
 *   starling/base.h      status codes, shapes, the context (devices, seed)
 *   starling/data.h      datasets, batches, shuffling, prefetch
 *   starling/text.h      texts, vocabularies, generated sentences
 *   starling/nn.h        layers, models, losses, optimizers, schedules, weights
 *   starling/layer.h     kinds of layers that a program adds
 *   starling/parallel.h  placement, replicas, the KVStore, the trainer
 *   starling/fit.h       a whole run: log, evaluations, checkpoints, signals
 *   starling/kvstore.h   the KVStore alone, for a program's own training loop
 *   starling/predict.h   inference: requests from any thread, batched
 *
 * Conventions.  A function that can fail returns enum sl_status; sl_error() then gives the calling
 * thread's message: what went wrong, where, and what to do.  Objects are opaque; sl_X_new or
 * sl_X_open makes them, sl_X_free or sl_X_close ends them (NULL is legal there).  Options are
 * structs whose zero value is the default.  No function calls exit or abort.
 */
#ifndef STARLING_H
#define STARLING_H

#include <starling/base.h>
#include <starling/data.h>
#include <starling/fit.h>
#include <starling/kvstore.h>
#include <starling/layer.h>
#include <starling/nn.h>
#include <starling/parallel.h>
#include <starling/predict.h>
#include <starling/text.h>

#endif
