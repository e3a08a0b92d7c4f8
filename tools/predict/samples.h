/* The samples of an input, one after the other. */
#ifndef SL_TOOLS_PREDICT_SAMPLES_H
#define SL_TOOLS_PREDICT_SAMPLES_H

#include "tools/predict/preparation.h"

/* The formats of --format: those of samples, and two of text for language models. */
enum format {
  FORMAT_AUTO,
#define SAMPLE_FORMAT(upper, lower) FORMAT_##upper,
#include "tools/predict/formats.def"
#undef SAMPLE_FORMAT
  FORMAT_TEXT,
  FORMAT_TOKENS
};

struct image_options {
  struct preparation preparation;
  enum format format;
  const char *labels;              /* an IDX file; NULL: beside the images */
  const char *arrays;              /* instead of the model's names, with slices; NULL: none */
  char tokens[64 * SL_MAX_FIELDS]; /* those of them that are tokens */
  char inputs[64 * SL_MAX_FIELDS]; /* names of the model's inputs, "" if it has none */
  uint64_t seed;                   /* of generated digits, and of what is held back */
  bool train;                      /* training sets of folders and digits */
  bool skip_bad;                   /* leaves out pictures that cannot be decoded */
  const char *validation, *fold;   /* what is held back, as the training was told; NULL: not */
};

/* The origin of a sample. */
struct origin {
  const char *input;    /* as on the command line */
  int64_t index, label; /* label -1: none */
};

/* The format, if the library opens it as a dataset; else NULL. A file with the name of a generated
 * set goes first. */
const struct sl_dataset_format *dataset_kind(const char *name);

/* Returns NULL after a failure. */
struct samples;
struct samples *samples_open(const struct image_options *options, const char *path);
/* Returns false after the last sample, and after a failure (then *code is not EXIT_DONE). */
bool samples_next(struct samples *images, float *values, struct origin *origin, int *code);
void samples_close(struct samples *images);

#endif
