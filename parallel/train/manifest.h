/* The metadata of a checkpoint: its training, and the point where the training goes on. */
#ifndef SL_PARALLEL_TRAIN_MANIFEST_H
#define SL_PARALLEL_TRAIN_MANIFEST_H

#include "codelets/kernels/numerics.h"
#include "core/base/safetensors.h"
#include "parallel/train/trainer.h"

enum { SL__MANIFEST_KEYS = 11 };

struct sl__manifest {
  char text[SL__MANIFEST_KEYS][160];
  char math[16];                    /* for information: a training goes on with any */
  char numerics[SL__NUMERICS_TEXT]; /* the same; "": of a file without */
  char tensors[16];                 /* CRC-32 of their names and shapes; "": of a file without */
  const char *frozen;               /* list of the frozen layers; NULL: none */
  const char *options;              /* the program's; NULL: none */
};

/* Samples of a step, of all parts of the data together. */
int64_t sl__whole_batch(const struct sl_loader *loader);

/* Of the trainer as it is; without options. */
void sl__manifest_fill(const struct sl_trainer *trainer, struct sl__manifest *manifest);

/* CRC-32 of the names, types and shapes so far and of the next tensor's, in the file's order; from
 * 0. The model would refuse another name, too, but as of another training, not as damaged. */
uint32_t sl__manifest_add_tensor(uint32_t crc, const struct sl__safetensors_entry *entry);

/* CRC-32 of the values, each with the 0 at its end; the data come after it. */
uint32_t sl__manifest_crc(const struct sl__manifest *manifest);

/* Keys and values for the file, with a NULL at the end. crc: of values and data, in hexadecimal. */
enum { SL__MANIFEST_METADATA = 2 * (SL__MANIFEST_KEYS + 6) + 1 };
void sl__manifest_metadata(const struct sl__manifest *manifest, const char *crc,
                           const char *metadata[SL__MANIFEST_METADATA]);

/* Fails if the file is no checkpoint, is damaged or of a newer version. */
enum sl_status sl__manifest_read(const struct sl__safetensors *file, struct sl__manifest *manifest);

/* Fails if trainer or loader differ from those that the checkpoint is of. */
enum sl_status sl__manifest_check(const struct sl__manifest *manifest,
                                  const struct sl_trainer *trainer, const struct sl_loader *loader,
                                  const char *path);

/* Where a training with this loader goes on, and the number of workers that the checkpoint is of.
 */
struct sl__resume_point {
  struct sl_position position;
  int64_t workers;
};
enum sl_status sl__manifest_resume_point(const struct sl__manifest *manifest,
                                         struct sl_loader *loader,
                                         const struct sl__safetensors *file,
                                         struct sl__resume_point *point);

#endif
