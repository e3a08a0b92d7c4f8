/* The type of a format of samples: a row of formats.def, or the library's datasets. */
#ifndef SL_TOOLS_PREDICT_SAMPLE_FORMAT_H
#define SL_TOOLS_PREDICT_SAMPLE_FORMAT_H

#include "tools/predict/byte_stream.h"
#include "tools/predict/samples.h"

struct sample_format {
  bool is_values; /* samples are values of the model's input; else pictures, which are prepared */
  /* Do the first bytes show this format? NULL: only --format selects it. */
  bool (*is)(const struct samples *s, const uint8_t *head, size_t size);
  int (*open)(struct samples *s); /* NULL: nothing to do */
  /* Reads the next sample into s->picture, or into values. Sets *label if the sample has one, and
   * *none at the end. */
  int (*next)(struct samples *s, float *values, int64_t *label, bool *none);
};

struct samples {
  const struct image_options *options;
  const struct sample_format *format;
  const char *path;
  struct stream *stream, *labels; /* labels: beside an IDX file, or NULL */
  char *label_path;
  int64_t index, count; /* samples so far, and in all (formats that know it) */
  struct sl__picture picture;
  uint8_t *bytes; /* one sample, or a whole file of pictures */
  size_t size, at;
  const struct sl_dataset_format *kind; /* of a dataset that the library opens, or NULL */
  struct sl_dataset *set;               /* that dataset, when it is open */
  char fold[48];                        /* "fold:2/5" for its reader */
};

#define SAMPLE_FORMAT(upper, lower) extern const struct sample_format lower##_format;
#include "tools/predict/formats.def"
#undef SAMPLE_FORMAT
extern const struct sample_format dataset_format;

/* Fails with "PATH: why". */
int samples_bad(const struct samples *s, const char *why);

/* Of a picture that cannot be decoded: fails likewise, or says that the rest of the file is left
 * out. why NULL: it was decoded. */
int samples_undecoded(const struct samples *s, const char *why, bool *none);

/* Reads exactly `size` bytes. *none: the stream had ended. If none is NULL, that is a failure,
 * too. */
int samples_take(const struct samples *s, struct stream *stream, void *bytes, size_t size,
                 bool *none);

#endif
