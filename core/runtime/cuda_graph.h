/* CUDA graphs: work of a GPU's worker that is recorded once and launched as one from then on. */
#ifndef SL_CORE_RUNTIME_CUDA_GRAPH_H
#define SL_CORE_RUNTIME_CUDA_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of one GPU; it holds the addresses and the arguments of its kernels. */
struct sl__cuda_graph;

/* From here to sl__cuda_graph_end, kernels that the calling GPU worker starts are recorded instead
 * of run. They put all their work on the worker's stream, and neither wait nor allocate. A failure
 * that they report is no failure of the task: sl__cuda_graph_end returns it. \return false if no
 * kernel must be started, because CUDA refuses to record, or this build has no CUDA; why: as in
 * sl__cuda_graph_end. */
bool sl__cuda_graph_begin(char *why, size_t size);

/* \return NULL if the work cannot be a CUDA graph: nothing has run, and the GPU is as before. why
 * gets the reason, [size]; it is empty if the GPU reports that an earlier work has failed, which is
 * then the task's failure. */
struct sl__cuda_graph *sl__cuda_graph_end(char *why, size_t size);

/* Starts the work, on the stream of the calling worker, which must be the one that recorded it.
 * \return false if CUDA refuses, with the reason in why: then nothing has been started. */
bool sl__cuda_graph_launch(const struct sl__cuda_graph *graph, char *why, size_t size);

/* From any thread, when all its work has ended. NULL is legal. */
void sl__cuda_graph_free(struct sl__cuda_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
