/* The files of StarPU's performance models. StarPU aborts the process at one that it cannot read:
 * one that was cut, or that a program wrote with decimal commas. */
#ifndef SL_CORE_RUNTIME_MODEL_FILE_H
#define SL_CORE_RUNTIME_MODEL_FILE_H

#include "core/runtime/context.h"

/* Renames the file that StarPU would load for this model to NAME.damaged, if StarPU cannot read it,
 * and logs a warning: the model is then measured anew. \return SL_IO if that cannot be done. */
enum sl_status sl__model_file_check(struct sl_context *context, const char *symbol);

/* The same for the measurements of this machine's buses in a folder of models. StarPU reads them
 * when it starts. */
enum sl_status sl__model_file_check_buses(struct sl_context *context, const char *folder);

#endif
