/* A checkpoint's metadata, as a safetensors file has them: read, compared with a trainer and a
 * loader, and turned into a place in the data. A wrong checksum does not end it: chance would never
 * find the right one. */
#include "core/runtime/context.h"
#include "nn/layer.h"
#include "parallel/train/manifest.h"
#include "tests/fuzz/fuzz.h"

enum { SAMPLES = 24, BATCH = 4 };

static struct sl_loader *small_loader(void) {
  static struct sl_loader *loader; /* its thread lives as long as the program */
  static const uint8_t pixels[SAMPLES];
  static const int32_t labels[SAMPLES];
  static struct sl_dataset *set;
  const struct sl_loader_options options = {.batch = BATCH, .num_parts = 1};
  if (!loader && (sl_dataset_new("set", &SL_SHAPE(1, 1, 1), SAMPLES, 2, pixels, labels, &(float){0},
                                 &(float){1}, &set) != SL_OK ||
                  sl_loader_new(set, &options, &loader) != SL_OK))
    abort();
  return loader;
}

FUZZER(checkpoint)(const uint8_t *bytes, size_t size) {
  static struct sl_context context; /* nothing is computed, so StarPU need not run */
  static struct sl_model model = {.context = &context};
  static struct sl_trainer trainer = {.model = &model};
  struct sl_loader *loader = small_loader();
  struct sl__safetensors *file;
  struct sl__manifest manifest;
  struct sl__resume_point point;
  if (sl__safetensors_parse("file", bytes, size, &file) != SL_OK) return 0;
  bool read = sl__manifest_read(file, &manifest) == SL_OK || strstr(sl_error(), "CRC-32");
  if (read) sl__manifest_check(&manifest, &trainer, loader, "file");
  if (read && sl__manifest_resume_point(&manifest, loader, file, &point) == SL_OK) {
    if (point.position.index < 0 || point.position.step < 1 || point.workers < 1) abort();
    if (sl_loader_seek_batch(loader, point.position.epoch, point.position.index) == SL_OK)
      sl_loader_seek(loader, 0);
  }
  sl__safetensors_close(file);
  return 0;
}
