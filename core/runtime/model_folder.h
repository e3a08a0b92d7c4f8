/* The folder in which StarPU keeps its performance models, and --tune its choices. StarPU aborts if
 * it cannot make the folder, so the folder is tried before StarPU starts. */
#ifndef SL_CORE_RUNTIME_MODEL_FOLDER_H
#define SL_CORE_RUNTIME_MODEL_FOLDER_H

#include "core/runtime/context.h"

/* Finds the folder as StarPU does: STARPU_PERF_MODEL_DIR, else .starpu/sampling in XDG_CACHE_HOME,
 * STARPU_HOME or HOME, and makes it. If it cannot be used or belongs to another user, a private
 * folder in TMPDIR serves, which sl__model_folder_close or the end of the program removes; those
 * that killed programs left are removed here. A folder that STARPU_PERF_MODEL_DIR or STARPU_HOME
 * names must do. \return SL_IO, SL_NO_MEMORY. */
enum sl_status sl__model_folder_open(struct sl_context *context);

/* Logs that a private folder serves. */
void sl__model_folder_describe(struct sl_context *context);

/* Before StarPU starts: sets damaged files of this machine's buses aside. \return SL_IO. */
enum sl_status sl__model_folder_check(struct sl_context *context);

const char *sl__model_folder(const struct sl_context *context);

/* After StarPU has ended. */
void sl__model_folder_close(struct sl_context *context);

#endif
