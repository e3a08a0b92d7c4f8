/* Libraries and instructions that decide the last bits of results. */
#ifndef SL_CODELETS_KERNELS_NUMERICS_H
#define SL_CODELETS_KERNELS_NUMERICS_H

#include "core/runtime/context.h"

enum { SL__NUMERICS_TEXT = 200 };

/* "x86-64-v4; StarPU 1.4.10; OpenBLAS 0.3.21 SkylakeX; oneDNN 2.6.0": the instruction set of
 * Starling's kernels, and the versions of the libraries. Runs with the same text, model and
 * settings have the same bits. */
void sl__numerics_text(const struct sl_context *context, char text[SL__NUMERICS_TEXT]);

/* Over ranks: each rank whose text differs from rank 0's logs a warning. Collective. \return
 * SL_LOST. */
enum sl_status sl__numerics_compare(struct sl_context *context);

#endif
